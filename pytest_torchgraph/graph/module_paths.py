"""Module paths: the one in a node's name, and the one that several have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_GRAPH = re.compile(r"(?:forward|backward|inference|joint|eager)(?:_[0-9]+)?:")
"""The name of a graph before that of a node: of a value that another graph made."""


class OwnModule(NamedTuple):
    """A module of a class that is not torch's own.

    Attributes:
        name: the qualified name of its class.
        has_forward: whether its `forward` is not torch's either; that of a subclass of
            `Sequential` is.
    """

    name: str
    has_forward: bool


def module_of(name: str) -> str:
    """The module path that a node's name begins with: what stands before its last slash.

    In the name of a value that another graph made, `forward_0:fc/addmm`, that is `fc`.
    """
    graph = _GRAPH.match(name) if ":" in name else None
    return name[graph.end() if graph else 0 :].rpartition("/")[0]


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
