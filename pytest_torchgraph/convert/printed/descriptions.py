"""What AOTAutograd prints behind inputs and outputs: `# PlainAOTInput(idx=0)`.

The live objects are dataclasses of torch. Here they are classes of the same names with the same
attributes, made as they are met, so that what reads the live ones reads these too.
"""

from __future__ import annotations

import ast
import functools
from typing import Any


class Description:
    """What an input or output of a graph is for; the name of the class says it."""

    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        inner = ", ".join(f"{key}={value!r}" for key, value in self.__dict__.items())
        return f"{type(self).__name__}({inner})"


@functools.lru_cache(maxsize=256)
def _kind(name: str) -> type[Description]:
    return type(name, (Description,), {})


def read_description(comment: str) -> Description | None:
    """The description in a comment, None where it holds none."""
    try:
        tree = ast.parse(comment, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = _value(tree)
    return found if isinstance(found, Description) else None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        attributes = {key.arg: _value(key.value) for key in node.keywords if key.arg}
        return _kind(node.func.id)(**attributes)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return [_value(item) for item in node.elts]
    return None
