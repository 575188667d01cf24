"""Pictures of graphs and of differences: DOT, and from it SVG, PNG or PDF.

`to_dot` and `diff_to_dot` decide what is drawn; `render` draws and raises where it cannot; `draw`
does the same for a test that has failed already, and so neither raises nor hangs. Nothing is
imported before it is used: most test runs draw nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .difference import diff_to_dot
    from .drawing import Drawing, draw, render
    from .whole import to_dot

__all__ = ["Drawing", "diff_to_dot", "draw", "render", "to_dot"]

_HOMES = {
    "Drawing": "drawing",
    "diff_to_dot": "difference",
    "draw": "drawing",
    "render": "drawing",
    "to_dot": "whole",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
