"""The mechanisms that obtain graphs, one for each `via`."""
