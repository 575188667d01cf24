"""From the text of a printed graph to a `Graph`, by way of a torch.fx graph."""

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
    """The `Graph` of a text that torch's structured trace printed.

    It equals the one that the live fx graph is converted to. Only names differ, since no module
    path is printed: a node's name is made of its op and the function that its line is in.

    Args:
        text: the payload of `dynamo_output_graph`, `aot_joint_graph`, `aot_forward_graph`,
            `aot_backward_graph`, `aot_inference_graph`, `compiled_autograd_graph` or of a
            post-grad artifact.
        level: see `ops.levels.Level`.
        kind: see `Graph`.
        name: name of the graph in its capture.
        canon: shared by the graphs of one capture, so that a symbol has one name in all of them.
        inputs: (role, name) of each input by its name in the text (see `aot_names`).

    Raises:
        PrintedGraphError: with the line and the reason, if the text cannot be read. Nothing in it
            is ever evaluated.
    """
    printed = read_printed(text)
    naming = Naming(dict(inputs or {}))
    return convert_printed(
        printed, level=level, kind=kind, name=name, canon=canon, naming=naming
    ).graph


def convert_printed(
    printed: Printed,
    *,
    level: Level,
    kind: GraphKind,
    name: str = "main",
    canon: CanonicalNames | None = None,
    naming: Naming | None = None,
) -> Converted:
    """Convert a printed graph that was read.

    The result's `names`, by the names in the text, are those that `aot_names` takes for the
    backward of this graph.

    Args:
        printed: the module that `read_printed` returned.
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
