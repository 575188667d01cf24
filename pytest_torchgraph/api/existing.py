"""Graphs that already exist: the project's torch.fx objects, or stored files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import torch
import torch.export
import torch.fx

from ..convert.from_fx import Naming, convert
from ..convert.from_graph import ModuleBuilder
from ..convert.normalize import value_of_constant
from ..convert.to_fx import convert_again, origin_of
from ..errors import GraphFormatError, only_counts_error
from ..graph.model import Graph, GraphKind
from ..graph.program import Program
from ..graph.text import Header, parse_document
from ..mechanisms.protocol import COMPILING
from ..mechanisms.tracers import signature_names, with_outputs_of_program
from ..ops.matching import Level
from ..torch_release import need_torch
from .contents import Contents
from .result import Capture


def from_fx(obj: Any, *, name: str = "main", kind: GraphKind = "forward") -> Graph:
    """Return the `Graph` of a GraphModule, fx.Graph or ExportedProgram.

    `from_fx(torch.fx.symbolic_trace(model)).assert_no_ops("torch.nn.Dropout")` checks a graph that
    the project made itself.

    The graph is converted unchanged: a `detach` is an ordinary op, and a constant has the dtype and
    shape of its attribute. The dtypes and shapes of other values are those in the nodes' `meta`, if
    a pass has written them. The result of `capture.fx(graph)` converts back to the same graph.

    Args:
        obj: the torch.fx object.
        name: name of the graph.
        kind: "forward", "backward", "inference" or "joint".

    Raises:
        TypeError: for other objects.
        UnsupportedTorchError: if torch is older than 2.9.
    """
    need_torch()
    if isinstance(obj, torch.export.ExportedProgram):
        converted = convert(
            obj.graph_module, name=name, kind=kind, level="export", naming=_naming_of_program(obj)
        )
        return with_outputs_of_program(converted, obj)
    if isinstance(obj, torch.fx.GraphModule | torch.fx.Graph):
        # A graph of `capture.fx` or `to_fx` knows what it was made of.
        origin = origin_of(obj.graph if isinstance(obj, torch.fx.GraphModule) else obj)
        if origin is None:
            naming = Naming(given=True)
            return convert(obj, name=name, kind=kind, level=_level(obj), naming=naming).graph
        return convert_again(obj, origin, name=name, kind=kind)
    raise TypeError(
        "from_fx takes a torch.fx.GraphModule, a torch.fx.Graph or an ExportedProgram, not "
        f"{type(obj).__name__}: for a model, use capture(model, ...)"
    )


def to_fx(
    graph_or_text: Graph | str,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> torch.fx.GraphModule:
    """Return a module that runs a `Graph`, or the graph in a `.tgraph` text.

    The counterpart of `from_fx`, which converts the module back to an equal graph. Write the input
    of a pass as text::

        module = to_fx('''torchgraph 1

        inference @ aot {
          %x = input : f32[4, 16]
          %relu = aten.relu.default(%x) : f32[4, 16]
          return %relu
        }
        ''')

    The module takes the inputs of the graph in their order, and returns its outputs, then the
    values that it saves for its backward: as a tuple, or at level "fx" as the graph has them.
    Nodes keep their names, with `_` for characters that an identifier cannot have. `meta["val"]` of
    each node is a fake tensor with the dtype and shape in the graph.

    Nothing in the text is evaluated or imported. Running the module calls the ops and functions
    that the text names, in torch and in loaded modules outside Python's standard library: run only
    texts that you trust.

    For a graph of a capture, `capture.fx(graph)` also has the values of large constants.

    Args:
        graph_or_text: the graph, or the text of one or several graphs, which may be indented.
        name: name of the graph, if the text has several.
        sizes: values of symbols, such as `{"s0": 4}`. The other symbols stay symbolic.
        constants: tensors by name of the constant in the text, for values that the text lacks.

    Raises:
        TypeError: for other objects.
        GraphFormatError: with line and column, for a malformed text.
        ValueError: for an unknown name, size or constant, and for several graphs without `name`.
        CaptureError: if the graph cannot run. The message names the node.
    """
    need_torch()
    if isinstance(graph_or_text, str):
        graphs = parse_document(f"{dedent(graph_or_text).strip()}\n").graphs
        if not graphs:
            raise GraphFormatError("expected a graph, found only op counts")
    elif isinstance(graph_or_text, Graph):
        graphs = (graph_or_text,)
    else:
        raise TypeError(
            f"to_fx takes a Graph or the text of one, not {type(graph_or_text).__name__}: for a "
            "capture, use capture.fx(capture.forward)"
        )
    names = [graph.name for graph in graphs]
    known = f"graphs: {', '.join(map(repr, names))}"
    if name is None and len(graphs) > 1:
        raise ValueError(f"the text has {len(graphs)} graphs, so pass name=...; {known}")
    if name is not None and name not in names:
        raise ValueError(f"no graph is named {name!r}; {known}")
    graph = graphs[0 if name is None else names.index(name)]
    if sizes:
        graph = graph.with_sizes(**sizes)
    given = dict(constants or {})
    nodes = [node.name for part in graph.walk() for node in part.nodes if node.kind == "get_attr"]
    for constant in given:
        if constant not in nodes:
            raise ValueError(
                f"{constant!r} is no constant of graph {graph.name!r}; constants: "
                f"{', '.join(map(repr, nodes)) or 'none'}"
            )
    return ModuleBuilder(graph, given).build()


def lifted_tensors(obj: Any) -> Mapping[str, torch.Tensor]:
    """Return the tensors that are inputs of a program's graph, by node name; {} for a module."""
    if not isinstance(obj, torch.export.ExportedProgram):
        return {}
    return _naming_of_program(obj).tensors


def _naming_of_program(program: torch.export.ExportedProgram) -> Naming:
    """Return roles, names and tensors of a program's inputs, without reading the nodes' meta."""
    signature = program.graph_signature
    constants = signature.inputs_to_lifted_tensor_constants
    tensors_by_name: dict[str, Any] = {**program.constants, **program.state_dict}
    targets = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **constants}
    return Naming(
        signature_names(program),
        given=True,
        tensors={
            node: tensors_by_name[name] for node, name in targets.items() if name in tensors_by_name
        },
        values={
            node: value_of_constant(program.constants.get(name)) for node, name in constants.items()
        },
    )


def _level(obj: torch.fx.GraphModule | torch.fx.Graph) -> Level:
    """Return "aot" for a graph that calls ops of torch's dispatcher and no modules, else "fx"."""
    if isinstance(obj, torch.fx.Graph):
        graphs = [obj]
    else:
        graphs = [m.graph for m in obj.modules() if isinstance(m, torch.fx.GraphModule)]
    calls = [node for graph in graphs for node in graph.nodes if node.op.startswith("call_")]
    dispatched = [
        isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)
        for node in calls
    ]
    return "aot" if any(dispatched) and not any(map(_calls_module, calls)) else "fx"


def _calls_module(node: torch.fx.Node) -> bool:
    """Return True if a node calls a module that is not a GraphModule."""
    owner = node.graph.owning_module
    if node.op != "call_module":
        return False
    return owner is None or not isinstance(
        owner.get_submodule(str(node.target)), torch.fx.GraphModule
    )


def capture_of(program: Program, path: Path) -> Capture:
    """Return the program of a file as a Capture.

    Raises:
        GraphFormatError: if the file holds only op counts.
    """
    if not program.graphs:
        raise only_counts_error(path)
    header = program.header
    contents = Contents.of_program(program.graphs, sees_eager=header.via in COMPILING)
    return Capture(contents, Header(header.via, header.torch))


def graphs_of(obj: Any) -> tuple[Graph, ...]:
    """Return the graphs of a Capture's program, a Graph, or any argument of `from_fx`."""
    if isinstance(obj, Capture):
        return obj.program
    if isinstance(obj, Graph):
        return (obj,)
    if isinstance(obj, torch.fx.GraphModule | torch.fx.Graph | torch.export.ExportedProgram):
        return (from_fx(obj),)
    raise TypeError(
        "expected a Capture, a Graph, a torch.fx graph or an ExportedProgram, not "
        f"{type(obj).__name__}: for a model, use capture(model, ...)"
    )
