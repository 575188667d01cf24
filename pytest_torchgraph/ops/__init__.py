"""Ops by name: what an op is called, which names exist, and what a pattern for names means.

- `levels`: the stages of the compiler that a graph is taken at.
- `qualified`: from an op object to its qualified name, as `aten.mm.default`.
- `names`: matching names with a pattern, and counting them.
- `registry`: the names that exist, as registered ops or Python functions.
- `patterns`: an error for a pattern that can match nothing at a level.
"""
