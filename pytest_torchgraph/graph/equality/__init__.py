"""Equality of graphs: whether two of them have the same dataflow.

- `canonical`: `Graph` -> `Graph`, ops that compute the same being written the same.
- `numbered_graph`: `Graph` -> `NumberedGraph`, nodes being numbers and all order being operands.
- `equal`: two `NumberedGraph`s -> which node is which, or None where they differ.
"""
