"""Graphs by a TorchDispatchMode: what ran, recorded and then replayed as nodes."""
