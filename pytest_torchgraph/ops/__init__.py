"""Ops by name: what an op is called, which names exist, and what a pattern for names means.

- `names`: matching qualified names with a pattern, counting them, and the levels of the compiler.
- `qualified`: from an op object to its qualified name, as `aten.mm.default`.
- `registry`: the ops that exist. `views`: ops that give views, or launch nothing.
- `patterns`: an error for a pattern that can match nothing at a level.
"""
