"""Side effects of nodes, and the order that they impose.

- `schema`: the effects of an op, from its schema.
- `by_name`: those of functions and methods without a schema, by their names.
- `aliasing`: the last write to each storage.
- `tracker`: fx nodes -> `Node.effects` and `Node.after`, by these three.
"""
