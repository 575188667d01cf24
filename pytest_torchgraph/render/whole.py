"""Drawing of a whole graph, and of anything into a file.

A graph of more than a few hundred nodes is drawn with modules closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TorchGraphError
from ..graph.model import Graph
from ..graph.text import ops_in_words
from .colours import Heat, HeatFigure
from .dot import Drawing, draw
from .labels import eager_label
from .scene import Scene

if TYPE_CHECKING:
    import graphviz

    from ..graph.diff import GraphDiff

MAX_BOXES = 240
"""Maximum number of boxes in the drawing of a graph, excluding the legend."""


def to_dot(
    graph: Graph, *, limit: int | None = MAX_BOXES, heat: HeatFigure | None = None
) -> graphviz.Digraph:
    """Draw a whole graph, including its subgraphs.

    Modules are nested clusters. Parameters, buffers and constants are lines in their users' boxes.
    Colours show op categories; edges are labelled with dtype and shape; the tooltip has the full
    node and the user's source line. A value saved for backward has a double border.

    Args:
        graph: graph to draw.
        limit: maximum number of boxes; `None` for no limit. In a larger graph, modules are folded
            into one box each, the innermost first, and runs of ops without a module into blocks.
        heat: figure to show as colours in place of op categories; see `Graph.to_dot`.

    Raises:
        CaptureError, ValueError: see `heat` in `Graph.to_dot`.
    """
    return drawing(graph, limit=limit, heat=heat).digraph


def drawing(
    graph: Graph, *, limit: int | None = MAX_BOXES, heat: HeatFigure | None = None
) -> Drawing:
    """Like `to_dot`, but also return the meaning of each element of the SVG."""
    heading = f"{graph.name}: {graph.kind} graph at level {graph.level}"
    title = [f"{eager_label(graph) if graph.eager else heading}, {ops_in_words(graph)}"]
    # The cost of one run, as `Graph.flops`.
    heat_values = None if heat is None else Heat.of([graph], heat, times_run=False)
    scene = Scene(graph.name, title, heat_values)
    scene.add_graph(graph)
    return draw(scene, limit)


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
    from .output import INSTALL, PATIENCE, SUFFIXES, format_of, write

    path = Path(path)
    kind = format_of(path)
    if kind is None:
        raise ValueError(f"cannot draw {path.name!r}: the suffix must be one of {SUFFIXES}")
    source = _digraph(subject, heat).source
    renderer, problems = write(source, path, kind, PATIENCE)
    if kind != "dot" and renderer is None:  # DOT needs no renderer
        raise TorchGraphError(
            f"cannot draw {path}: {'; '.join(problems)}. To draw pictures, {INSTALL}. "
            "A path that ends in .dot needs neither of these."
        )
    return path


def _digraph(
    subject: Graph | Sequence[Graph] | GraphDiff | graphviz.Digraph, heat: HeatFigure | None
) -> graphviz.Digraph:
    """Return the DOT of what `render` accepts; see `render` for the arguments and errors."""
    from ..graph.diff import GraphDiff
    from . import program
    from .difference import diff_to_dot

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
