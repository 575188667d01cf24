"""Nodes become boxes, clusters and edges, as few as can be read, in the order of ranks."""
