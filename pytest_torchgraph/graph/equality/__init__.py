"""Equality of graphs: two graphs are equal if they have the same dataflow.

- `canonical`: `Graph` -> `Graph`; ops that compute the same are written the same.
- `numbered_graph`: `Graph` -> `NumberedGraph`; nodes are numbers, and all order is operands.
- `equal`: two `NumberedGraph`s -> the pairing of their nodes, or `None` if they differ.
"""
