"""Graphs that already exist: the project's torch.fx objects, or stored files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.export
import torch.fx

from ..convert.from_fx import Naming, convert
from ..convert.normalize import value_of_constant
from ..convert.to_fx import convert_again, origin_of
from ..errors import only_counts_error
from ..graph.model import Graph, GraphKind
from ..graph.program import Program
from ..graph.text import Header
from ..mechanisms.export import signature_names, with_outputs_of_program
from ..mechanisms.protocol import COMPILING
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
        origin = origin_of(obj.graph if isinstance(obj, torch.fx.GraphModule) else obj)
        if origin is None:
            naming = Naming(given=True)
            return convert(obj, name=name, kind=kind, level=_level(obj), naming=naming).graph
        return convert_again(obj, origin, name=name, kind=kind)
    raise TypeError(
        "from_fx takes a torch.fx.GraphModule, a torch.fx.Graph or an ExportedProgram, not "
        f"{type(obj).__name__}: for a model, use capture(model, ...)"
    )


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
