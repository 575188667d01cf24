"""The observers in torch: trace events, calls of compiled callables, runs of compiled graphs."""
