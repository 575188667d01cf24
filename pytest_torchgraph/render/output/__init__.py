"""Output of DOT to a file, as SVG, PNG, PDF or DOT, rendered in a separate process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .rendering import INSTALL as INSTALL
    from .rendering import PATIENCE as PATIENCE
    from .rendering import SUFFIXES as SUFFIXES
    from .rendering import RenderResult as RenderResult
    from .rendering import draw as draw
    from .rendering import format_of as format_of
    from .rendering import write as write
    from .style import dark as dark
else:
    __getattr__ = front_door(
        __name__,
        {
            "rendering": "INSTALL PATIENCE RenderResult SUFFIXES draw format_of write",
            "style": "dark",
        },
    )
