"""Op names: qualified names, registered ops, and patterns.

- `names`: match qualified names with patterns, count ops, and the levels of the compiler.
- `qualified`: op object -> qualified name, e.g. `aten.mm.default`.
- `registry`: registered ops. `views`: ops that return views or launch nothing.
- `patterns`: raise an error for a pattern that cannot match at a level.
"""
