"""The function that a printed node's line is in, which is its scope: a part of its name.

The text has no module paths. The function is printed alike with cold and warm caches; nodes are
numbered by op within it, so that an edit in one function renames nothing in another.
"""

from __future__ import annotations

import re
from pathlib import PurePath

PrintedSource = tuple[str, int, str, str]
"""File, line, function and code."""

_USUAL = re.compile(r"[^A-Za-z0-9_.]+")


def scope_of(source: PrintedSource) -> str:
    """The scope of a source: `modeling_bert.forward`, its file and function; "" without a file."""
    file, _, function, _ = source
    if file.startswith("<"):
        return ""
    return f"{_usual(PurePath(file).stem)}.{_usual(function)}"


def stack_of(source: PrintedSource) -> str:
    """A stack trace with the source as its only frame."""
    file, line, function, code = source
    return f'  File "{file}", line {line}, in {function}\n    {code}\n'


def _usual(name: str) -> str:
    """The name with `_` for characters that would have to be quoted in a text."""
    return _USUAL.sub("_", name).strip("_") or "_"
