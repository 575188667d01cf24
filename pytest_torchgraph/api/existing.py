"""Graphs that exist already: of the project's own, or in a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.export
import torch.fx

from ..checks.compilation import need_graphs
from ..convert.constants import value_of_constant
from ..convert.from_fx import Naming, convert
from ..convert.to_fx import convert_again, origin_of
from ..errors import GraphFormatError
from ..graph.diff.findings import GraphDiff
from ..graph.diff.ranks import diff_of_ranks, refuse_other_ranks
from ..graph.diff.report import diff_graphs
from ..graph.equality.common import as_captured
from ..graph.model import Graph, GraphKind, Result
from ..graph.text.files import parse_file, read_text
from ..graph.text.format import Header
from ..graph.text.parse import Document
from ..mechanisms.export import signature_names, with_outputs_of_program
from ..mechanisms.protocol import COMPILING
from ..ops.levels import Level
from ..torch_release import need_torch
from .contents import Contents
from .many_ranks import are_ranks
from .result import Capture


def from_fx(obj: Any, *, name: str = "main", kind: GraphKind = "forward") -> Graph:
    """The `Graph` of a GraphModule, fx.Graph or ExportedProgram that you already have.

    The graph is taken as it is: a `detach` is an op like any other, and dtype and shape of a
    constant are those of the attribute. Those of other values are taken from the nodes' `meta`, if
    some pass has put them there. What `capture.fx(graph)` gave is that graph again.

    Raises:
        TypeError: for anything else.
        UnsupportedTorchError: if torch is older than 2.9.
    """
    need_torch()
    if isinstance(obj, torch.export.ExportedProgram):
        found = convert(
            obj.graph_module, name=name, kind=kind, level="export", naming=_naming_of_program(obj)
        )
        return with_outputs_of_program(found, obj)
    if isinstance(obj, torch.fx.GraphModule | torch.fx.Graph):
        origin = origin_of(obj.graph if isinstance(obj, torch.fx.GraphModule) else obj)
        if origin is None:
            naming = Naming(given=True)
            return convert(obj, name=name, kind=kind, level=_level(obj), naming=naming).graph
        return convert_again(obj, origin, name=name, kind=kind)
    raise TypeError(
        f"from_fx takes a torch.fx.GraphModule, a torch.fx.Graph or an ExportedProgram, not "
        f"{type(obj).__name__}"
    )


def _naming_of_program(program: torch.export.ExportedProgram) -> Naming:
    """Roles, names and tensors of the inputs of a program, whatever their meta says."""
    signature = program.graph_signature
    constants = signature.inputs_to_lifted_tensor_constants
    known: dict[str, Any] = {**program.constants, **program.state_dict}
    names = signature_names(program)
    return Naming(
        names,
        given=True,
        tensors={node: known[name] for node, (_, name) in names.items() if name in known},
        values={
            node: value_of_constant(program.constants.get(name)) for node, name in constants.items()
        },
    )


def _level(obj: torch.fx.GraphModule | torch.fx.Graph) -> Level:
    modules = obj.modules() if isinstance(obj, torch.fx.GraphModule) else ()
    graphs = [each.graph for each in modules if isinstance(each, torch.fx.GraphModule)]
    graphs = graphs or [obj.graph if isinstance(obj, torch.fx.GraphModule) else obj]
    calls = [node for graph in graphs for node in graph.nodes if node.op.startswith("call_")]
    dispatched = [
        isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)
        for node in calls
    ]
    return "aot" if any(dispatched) and not any(map(_calls_module, calls)) else "fx"


def _calls_module(node: torch.fx.Node) -> bool:
    """Whether a node calls a module that is no graph itself."""
    owner = node.graph.owning_module
    if node.op != "call_module":
        return False
    return owner is None or not isinstance(
        owner.get_submodule(str(node.target)), torch.fx.GraphModule
    )


def load(path: str | Path) -> Capture:
    """The graphs that a `.tgraph` file holds, as a Capture.

    Raises:
        GraphFormatError: if the file is malformed, with line and column; and if it holds the graphs
            of several ranks, which `Ranks.load` reads.
        OSError: if it cannot be read.
    """
    file = Path(path)
    return loaded(parse_file(read_text(file), file), file)


def loaded(document: Document, path: Path) -> Capture:
    """The graphs of a document as a Capture.

    Raises:
        GraphFormatError: if it holds op counts only.
    """
    if not document.graphs:
        raise GraphFormatError("the file holds op counts only (detail ops)", path=str(path))
    header = document.header
    contents = Contents(document.graphs, sees_eager=header.via in COMPILING)
    return Capture(contents, Header(header.via, header.torch))


def diff(a: Any, b: Any) -> GraphDiff:
    """The structural difference from `a` to `b`; false where they have the same dataflow.

    Of two captures it covers the `program`: what ran eagerly is compared with what ran eagerly, and
    how often it ran.

    Where one of two graphs knows no shape at all, as the result of a `torch.fx.Transformer` does
    not, their shapes and dtypes are not compared.

    Of `Ranks` each edit is one finding, however many ranks have it, and the text says which do.

    Args:
        a, b: each a Capture, a Graph, or what `from_fx` takes; or both `Ranks`.

    Raises:
        TypeError: for anything else, and for ranks beside something that is none.
        TorchGraphError: for ranks of another mesh, for other ranks, and for none.
        AssertionError: for two watches of which neither saw a graph, with the cause.
    """
    if are_ranks(a) or are_ranks(b):
        return _diff_of_ranks(a, b)
    before, after = graphs_of(a), graphs_of(b)
    if not (before or after):
        need_graphs(a)
    if len(before) == len(after) == 1:
        old, new = _comparable(before[0], after[0])
        return diff_graphs((old,), (new,))
    return diff_graphs(before, after)


def _diff_of_ranks(a: Any, b: Any) -> GraphDiff:
    """See `diff`: equal ranks are compared once."""
    if not are_ranks(a) or not are_ranks(b):
        other = type(b if are_ranks(a) else a).__name__
        raise TypeError(
            f"ranks are compared with ranks, not with a {other}: for one of them, ranks[0] is the "
            "capture of the first"
        )
    refuse_other_ranks(a, b)
    now = dict(zip(b.ranks, b, strict=True))
    pairs: dict[tuple[Capture, Capture], list[int]] = {}
    for rank, before in sorted(zip(a.ranks, a, strict=True), key=lambda item: item[0]):
        pairs.setdefault((before, now[rank]), []).append(rank)
    return diff_of_ranks((ranks, diff(*pair)) for pair, ranks in pairs.items())


def _comparable(a: Graph, b: Graph) -> tuple[Graph, Graph]:
    """Two graphs, without any result if only one of them has some; their bodies likewise."""
    if _has_results(a) != _has_results(b):
        if not (a.given and b.given):
            a, b = as_captured(a), as_captured(b)
        a, b = _without_results(a), _without_results(b)
    if not a.subgraphs or not b.subgraphs:
        return a, b
    of_a = {body.name: body for body in a.subgraphs}
    of_b = {body.name: body for body in b.subgraphs}
    for name in of_a.keys() & of_b.keys():
        of_a[name], of_b[name] = _comparable(of_a[name], of_b[name])
    return (
        replace(a, subgraphs=tuple(of_a.values())),
        replace(b, subgraphs=tuple(of_b.values())),
    )


def _has_results(graph: Graph) -> bool:
    """Return True if a result is known beside those of attributes, which need no pass."""
    return any(_is_known(node.result) for node in graph.nodes if node.kind != "get_attr")


def _is_known(result: Result) -> bool:
    return any(map(_is_known, result)) if isinstance(result, tuple) else result is not None


def _without_results(graph: Graph) -> Graph:
    nodes = [
        node
        if graph.given and node.kind == "get_attr"
        else replace(node, result=() if isinstance(node.result, tuple) else None)
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


def graphs_of(obj: Any) -> tuple[Graph, ...]:
    """The graphs of a Capture's program, a Graph, or anything that `from_fx` takes."""
    if isinstance(obj, Capture):
        return obj.program
    if isinstance(obj, Graph):
        return (obj,)
    if isinstance(obj, torch.fx.GraphModule | torch.fx.Graph | torch.export.ExportedProgram):
        return (from_fx(obj),)
    raise TypeError(
        f"expected a Capture, a Graph, a torch.fx graph or an ExportedProgram, not "
        f"{type(obj).__name__}"
    )
