"""`render`: draw a graph or a difference into a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TorchGraphError
from ..graph.diff import GraphDiff
from ..graph.model import Graph
from . import program
from .difference import diff_to_dot
from .output import INSTALL, PATIENCE, SUFFIXES, format_of, write
from .whole import to_dot

if TYPE_CHECKING:
    import graphviz

    from .colours import HeatFigure


def render(
    subject: Graph | Sequence[Graph] | GraphDiff | graphviz.Digraph,
    path: str | Path,
    *,
    heat: HeatFigure | None = None,
) -> Path:
    """Draw a graph, the graphs of a step, a difference or finished DOT into a file.

    Args:
        subject: graph, graphs, difference or DOT to draw.
        path: output file. The suffix selects the format: `.svg`, `.png`, `.pdf` or `.dot`. Missing
            folders are created, an existing file is replaced.
        heat: figure to show as colours, only for graphs; see `Graph.to_dot`.

    Returns:
        The path of the file.

    Raises:
        ValueError: if the suffix is unknown, or `heat` is given for anything but graphs.
        CaptureError: if the figure of `heat` is unknown; see `Graph.to_dot`.
        TorchGraphError: if `subject` is a difference of directories, or if `dot` and pygraphviz are
            both missing or failed.
    """
    path = Path(path)
    kind = format_of(path)
    if kind is None:
        raise ValueError(f"cannot draw {path.name!r}: the suffix must be one of {SUFFIXES}")
    source = _digraph(subject, heat).source
    renderer, problems = write(source, path, kind, PATIENCE)
    if kind != "dot" and renderer is None:
        raise TorchGraphError(
            f"cannot draw {path}: {'; '.join(problems)}. To draw pictures, {INSTALL}. "
            "A path that ends in .dot needs neither of these."
        )
    return path


def _digraph(
    subject: Graph | Sequence[Graph] | GraphDiff | graphviz.Digraph, heat: HeatFigure | None
) -> graphviz.Digraph:
    if isinstance(subject, Graph):
        return to_dot(subject, heat=heat)
    if isinstance(subject, Sequence):
        return program.drawing(subject, heat=heat).digraph
    if heat is not None:
        raise ValueError(f"heat={heat!r} applies to graphs, not to a diff: leave out heat")
    if not isinstance(subject, GraphDiff):
        return subject
    if subject.files is not None and subject.files.of_directories:
        raise TorchGraphError(
            "cannot draw the difference of directories: draw the difference of two files"
        )
    return diff_to_dot(subject)
