"""Output of DOT to a file, as SVG, PNG, PDF or DOT, rendered in a separate process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .rendering import INSTALL, PATIENCE, SUFFIXES, RenderResult, draw, format_of, write
    from .style import dark
else:
    __getattr__ = front_door(
        __name__,
        {
            "rendering": "INSTALL PATIENCE RenderResult SUFFIXES draw format_of write",
            "style": "dark",
        },
    )
