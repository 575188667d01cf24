"""Ops by name: what an op is called, which names exist, and what a pattern for names means.

- `names`: from an op object to its qualified name, as `aten.mm.default`, at each level of the
  compiler; matching names with a pattern, and counting them.
- `registry`: the ops that exist, which of them are views, and which launch nothing.
- `patterns`: an error for a pattern that can match nothing at a level.
"""
