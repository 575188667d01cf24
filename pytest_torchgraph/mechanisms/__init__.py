"""The ways to obtain graphs, one for each `via`."""
