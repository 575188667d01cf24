"""Reading the files that a command is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TorchGraphError

if TYPE_CHECKING:
    from ..graph.model import Graph
    from ..graph.text.parse import Document


def read_document(file: Path, *, may_be_missing: bool = False) -> Document:
    """The document that a `.tgraph` file holds.

    Args:
        file: its path.
        may_be_missing: whether an empty file or the null device, by which git means a file that is
            not there, counts as a document without graphs.

    Raises:
        GraphFormatError: for a malformed text, with the path and the position.
        OSError: if the file cannot be read.
    """
    from ..graph.text.files import parse_file, read_text
    from ..graph.text.format import Header
    from ..graph.text.parse import Document

    text = read_text(file)
    if may_be_missing and not text:
        return Document(Header(), ())
    return parse_file(text, file)


def select_graphs(graphs: Sequence[Graph], name: str | None, file: Path) -> tuple[Graph, ...]:
    """The graphs of a file that have this name; all of them for None.

    Raises:
        TorchGraphError: if the file has graphs, and none of this name.
    """
    selected = tuple(graph for graph in graphs if name in (None, graph.name))
    if not selected and graphs:
        names = ", ".join(graph.name for graph in graphs)
        raise TorchGraphError(f"{file} has no graph {name!r}: it has {names}")
    return selected
