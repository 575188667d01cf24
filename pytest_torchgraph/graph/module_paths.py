"""Module paths: the one in a node's name, and the one that several have in common."""

from __future__ import annotations

from collections.abc import Iterable


def module_of(name: str) -> str:
    """The module path that a node's name begins with: what stands before its last slash.

    A name that has the name of another graph before it, `forward_0:fc/addmm`, is that of a value
    from there.
    """
    return name.rpartition(":")[2].rpartition("/")[0]


def common_path(paths: Iterable[str]) -> str:
    """The innermost module that contains all of these; a sum of their gradients belongs to it."""
    common: list[str] | None = None
    for path in paths:
        parts = path.split(".") if path else []
        if common is None:
            common = parts
        else:
            same = [x == y for x, y in zip(common, parts, strict=False)]
            common = common[: same.index(False) if False in same else len(same)]
    return ".".join(common or [])
