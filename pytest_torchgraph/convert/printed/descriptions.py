"""AOTAutograd's descriptions of inputs and outputs, in comments: `# PlainAOTInput(idx=0)`.

The live objects are dataclasses of torch. Here each name gets a class of that name with the same
attributes, so that `aot_descriptors` reads both.
"""

from __future__ import annotations

import ast
import functools
from typing import Any


class Description:
    """The description of an input or output; a subclass for each printed class name."""

    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        inner = ", ".join(f"{key}={value!r}" for key, value in self.__dict__.items())
        return f"{type(self).__name__}({inner})"


@functools.lru_cache(maxsize=256)
def _class_named(name: str) -> type[Description]:
    """The subclass of that name."""
    return type(name, (Description,), {})


def read_description(comment: str) -> Description | None:
    """The description in a comment, None where it has none."""
    try:
        tree = ast.parse(comment, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    value = _value(tree)
    return value if isinstance(value, Description) else None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        attributes = {key.arg: _value(key.value) for key in node.keywords if key.arg}
        return _class_named(node.func.id)(**attributes)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return [_value(item) for item in node.elts]
    return None
