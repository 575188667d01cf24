"""A picture of one difference, drawn from the texts that were read.

A picture in a directory of artifacts may come from anybody, and a browser runs the scripts in it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ...errors import TorchGraphError
from .waiting import Update


def draw_difference(update: Update) -> Path:
    """Draw the difference of an update into a new directory, and return the SVG file.

    Raises:
        TorchGraphError: if the update has no difference of graphs, or nothing can draw it.
    """
    from ...render.difference import drawing
    from ...render.output.rendering import draw

    comparison = update.difference.comparison
    parts = () if comparison is None else comparison.parts or (comparison,)
    diffs = [part.diff for part in parts]
    diff = next(filter(None, diffs), None)
    if diff is None:
        raise TorchGraphError("no two graphs differ")
    path = Path(tempfile.mkdtemp(prefix="torchgraph-")) / "difference.svg"
    rendered = draw(drawing(diff).digraph, path)
    if rendered.renderer is None:
        raise TorchGraphError(rendered.note)
    return rendered.path
