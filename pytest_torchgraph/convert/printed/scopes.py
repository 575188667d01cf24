"""Where a printed node comes from, and the part of its name that is made of that.

The text does not say which module a node belongs to. What it says the same way with cold and warm
caches is the function that the node's line is in: nodes are counted by op in each function, so that
an edit in one function renames nothing in another.
"""

from __future__ import annotations

import re
from pathlib import PurePath

PrintedSource = tuple[str, int, str, str]
"""File, line, function and code."""

_USUAL = re.compile(r"[^A-Za-z0-9_.]+")


def scope_of(source: PrintedSource) -> str:
    """`modeling_bert.forward`: the file's name and the function."""
    file, _, function, _ = source
    if file.startswith("<"):
        return ""
    return f"{_usual(PurePath(file).stem)}.{_usual(function)}"


def stack_of(source: PrintedSource) -> str:
    """The source as the one frame of a stack trace."""
    file, line, function, code = source
    return f'  File "{file}", line {line}, in {function}\n    {code}\n'


def _usual(name: str) -> str:
    return _USUAL.sub("_", name).strip("_") or "_"
