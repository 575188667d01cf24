"""From the text of a printed graph to the `Graph` that the live one is converted to."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph.model import Graph, GraphKind
from ...ops.levels import Level
from ..canonical_names import CanonicalNames
from ..from_fx import Converted, Naming, convert
from .reading import Printed, read_printed
from .results import PrintedNames


def parse_printed(
    text: str,
    *,
    level: Level,
    kind: GraphKind,
    name: str = "main",
    canon: CanonicalNames | None = None,
    inputs: Mapping[str, tuple[str, str]] | None = None,
) -> Graph:
    """The `Graph` that a text printed by torch's structured trace shows.

    It equals the graph that the live conversion gives. Names differ, since no module path is
    printed: a node is called after its op and the function that its line is in.

    Args:
        text: the payload of `dynamo_output_graph`, `aot_joint_graph`, `aot_forward_graph`,
            `aot_backward_graph`, `aot_inference_graph`, `compiled_autograd_graph` or of a
            post-grad artifact.
        level: the stage of the compiler that the text shows.
        kind: what the graph is.
        name: name of the graph in its capture.
        canon: shared by the graphs of one capture, so that a symbol has one name in all of them.
        inputs: (role, name) of each input by its name in the text (see `aot_names`).

    Raises:
        PrintedGraphError: with the line and the reason, if the text cannot be read. Nothing in it
            is evaluated.
    """
    printed = read_printed(text)
    naming = Naming(dict(inputs or {}))
    found = convert_printed(printed, level=level, kind=kind, name=name, canon=canon, naming=naming)
    return found.graph


def convert_printed(
    printed: Printed,
    *,
    level: Level,
    kind: GraphKind,
    name: str = "main",
    canon: CanonicalNames | None = None,
    naming: Naming | None = None,
) -> Converted:
    """The graph of a text that is read already, and what its nodes are called there.

    The names, by those in the text, are what `aot_names` needs for the backward of this graph.

    Args:
        printed: what `read_printed` gave.
        level, kind, name, canon: see `parse_printed`.
        naming: as for a live graph; its `inputs` are by the names in the text.
    """
    return convert(
        printed,
        name=name,
        kind=kind,
        level=level,
        canon=PrintedNames(canon or CanonicalNames()),
        naming=naming,
    )
