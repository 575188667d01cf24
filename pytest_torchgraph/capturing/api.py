"""The calls that users make: `capture`, `GraphCapture`, `from_fx`, `load`, `diff`."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

from .. import devices
from ..checks import device_types
from ..errors import CaptureError, GraphFormatError, TorchGraphError
from ..graph.diff import GraphDiff, diff_graphs
from ..graph.model import Graph, GraphKind, Level
from ..graph.parse import parse_document
from .aot import Aot
from .convert import convert
from .dispatch import Dispatch
from .mechanism import Mechanism
from .names import Canon
from .result import Capture
from .roots import Roots, callable_of
from .step import Step
from .world import preserved

MECHANISMS: dict[str, Callable[[], Mechanism]] = {"dispatch": Dispatch, "aot": Aot}
PLANNED = ("fx", "dynamo", "compiled_autograd", "export", "inductor")


def capture(
    target: Callable[..., Any],
    /,
    *args: Any,
    via: str | Mechanism = "aot",
    loss_fn: Callable[[Any], torch.Tensor] | None = None,
    backward: bool | None = None,
    fake: bool = False,
    device: str | torch.device | None = None,
    **kwargs: Any,
) -> Capture:
    """Run `target(*args, **kwargs)` once, and its backward, and return the graphs.

    Grad mode, autocast and train/eval mode are those of the caller. Afterwards the RNG state,
    `.grad`, buffers and the tensors among the arguments are what they were, also when the target
    raises; its exception passes through unchanged.

    Args:
        target: a module or any callable.
        via: the mechanism: "aot" (the default) or "dispatch", or a mechanism with options of its
            own such as `Aot(dynamic=True)`.
        loss_fn: from the output to a scalar tensor where the backward starts. Without it the
            backward starts at the output's scalar `loss` where there is one, else at all
            floating-point outputs that require grad, with fixed non-uniform gradients. No op of the
            loss is captured.
        backward: None runs the backward when possible, False never, True raises where it is not.
        fake: not available yet.
        device: run on copies of target and inputs there; the originals stay where they are.

    Raises:
        TypeError: if the target is not callable, or declares a parameter with one of our names.
        ValueError: for an unknown `via`.
        CaptureError: if nothing was captured, with the cause; see also `Step.run`.
    """
    ours = {"loss_fn": loss_fn, "backward": backward, "device": device}
    mechanism = _mechanism(via)
    _check_target(target, {**ours, "via": None if via == "aot" else via, "fake": fake or None})
    if fake:
        raise CaptureError("fake=True is not available yet: capture a smaller config for now")
    if device is not None:
        target, args, kwargs = _moved(target, args, kwargs, torch.device(device))
    roots = Roots(target, args, kwargs)
    step = Step(target, args, kwargs, loss_fn, backward, roots.leaves())
    canon = Canon()
    with preserved(roots):
        captured = mechanism.capture(step, target, roots, canon)
    graphs = _numbered(captured.graphs)
    if not graphs:
        raise CaptureError(f"nothing was captured via {mechanism.name!r}: {captured.why_none}")
    result = Capture(
        graphs,
        via=mechanism.name,
        torch_release=torch.__version__.partition("+")[0],
        output=step.output,
        has_output=True,
        modules=captured.modules,
        device=None if device is None else torch.device(device).type,
    )
    _check_device(result)
    return result


class GraphCapture:
    """What the fixture `graph_capture` gives: `capture` as a callable without state."""

    def __call__(self, target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Capture:
        """See `pytest_torchgraph.capture`."""
        return capture(target, *args, **kwargs)

    def __repr__(self) -> str:
        return "<graph_capture>"


functools.update_wrapper(GraphCapture.__call__, capture, assigned=("__doc__",), updated=())


def _mechanism(via: Any) -> Mechanism:
    if isinstance(via, str):
        if via in MECHANISMS:
            return MECHANISMS[via]()
        if via in PLANNED:
            raise ValueError(f"via={via!r} is not available yet: use {_known()}")
        raise ValueError(f"unknown via={via!r}: use {_known()}, or a mechanism such as Aot()")
    if isinstance(via, type) and isinstance(getattr(via, "name", None), str):
        raise TypeError(f"via={via.__name__}: pass an instance, {via.__name__}()")
    if isinstance(via, Mechanism):
        return via
    raise TypeError(f"via must be a mechanism or its name, not {type(via).__name__}")


def _known() -> str:
    return " or ".join(repr(name) for name in MECHANISMS)


def _check_target(target: Any, ours: dict[str, Any]) -> None:
    if not callable(target):
        raise TypeError(
            f"the target must be a module or another callable, not {type(target).__name__}: "
            "graph_capture(model, x), not graph_capture(model(x))"
        )
    given = [name for name, value in ours.items() if value is not None]
    if not given:
        return
    try:
        declared = inspect.signature(callable_of(target)).parameters
    except (TypeError, ValueError):
        return
    for name in given:
        if name in declared:
            called = getattr(target, "__name__", type(target).__name__)
            raise TypeError(
                f"{called} has a parameter {name!r}, which is also one of graph_capture's. To "
                f"give it to the target, write graph_capture(functools.partial(target, {name}=...)"
                ", ...)"
            )


def _moved(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        moved = value.detach().to(device, copy=True)
        return moved.requires_grad_() if value.requires_grad else moved

    args, kwargs = pytree.tree_map(move, (args, kwargs))
    return _moved_target(target, device, move), args, kwargs


def _moved_target(target: Any, device: torch.device, move: Callable[[Any], Any]) -> Any:
    if isinstance(target, torch.nn.Module):
        return copy.deepcopy(target).to(device)
    if isinstance(target, functools.partial):
        args, keywords = pytree.tree_map(move, (target.args, target.keywords))
        return functools.partial(_moved_target(target.func, device, move), *args, **keywords)
    if inspect.ismethod(target) and isinstance(target.__self__, torch.nn.Module):
        return getattr(copy.deepcopy(target.__self__).to(device), target.__name__)
    elsewhere = {p.device.type for p in (p for _, p in Roots(target, (), {}).parameters())} - {
        device.type
    }
    if elsewhere:
        raise CaptureError(
            f"device={str(device)!r}: the target is a function over a module on "
            f"{', '.join(sorted(elsewhere))}, which cannot be copied. Pass the module itself, its "
            "bound method, or a functools.partial of it."
        )
    return target


def _numbered(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """Graphs of one kind told apart by a number, where there are several."""
    many = Counter(graph.kind for graph in graphs)
    seen: Counter[GraphKind] = Counter()
    named: list[Graph] = []
    for graph in graphs:
        name = graph.kind if many[graph.kind] == 1 else f"{graph.kind}_{seen[graph.kind]}"
        seen[graph.kind] += 1
        named.append(replace(graph, name=name))
    return tuple(named)


def _check_device(result: Capture) -> None:
    expected = devices.expected_device()
    if expected is None:
        return
    found = device_types(result.graphs)
    if expected not in found:
        raise CaptureError(
            f"this test runs for graph_device={expected}, but the capture has nothing on "
            f"{expected} (only {', '.join(sorted(found)) or 'no tensor'}): pass "
            "device=graph_device, or make target and inputs there"
        )


# -- graphs from elsewhere -------------------------------------------------------------------------


def from_fx(obj: Any, *, name: str = "main", kind: GraphKind = "forward") -> Graph:
    """The `Graph` of a GraphModule, fx.Graph or ExportedProgram that you already have.

    Shapes and dtypes are taken from the nodes' `meta` where some pass has put them there.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(obj, torch.export.ExportedProgram):
        return convert(obj.graph_module, name=name, kind=kind, level="export").graph
    if isinstance(obj, torch.fx.GraphModule | torch.fx.Graph):
        return convert(obj, name=name, kind=kind, level=_level(obj)).graph
    raise TypeError(
        f"from_fx takes a torch.fx.GraphModule, a torch.fx.Graph or an ExportedProgram, not "
        f"{type(obj).__name__}"
    )


def _level(obj: torch.fx.GraphModule | torch.fx.Graph) -> Level:
    graph = obj.graph if isinstance(obj, torch.fx.GraphModule) else obj
    calls = [node for node in graph.nodes if node.op.startswith("call_")]
    dispatched = [
        isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)
        for node in calls
    ]
    return "aot" if any(dispatched) and not any(n.op == "call_module" for n in calls) else "fx"


def load(path: str | Path) -> Capture:
    """The graphs that a `.tgraph` file holds, as a Capture.

    Raises:
        GraphFormatError: if the file is malformed, with line and column.
        OSError: if it cannot be read.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
        document = parse_document(text)
    except UnicodeDecodeError as error:
        raise GraphFormatError(f"not UTF-8: {error.reason}", path=str(path)) from None
    except GraphFormatError as error:
        raise GraphFormatError(error.problem, error.line, error.column, str(path)) from None
    if not document.graphs:
        raise GraphFormatError("the file holds op counts only (detail ops)", path=str(path))
    header = document.header
    return Capture(document.graphs, via=header.via, torch_release=header.torch)


def diff(a: Any, b: Any) -> GraphDiff:
    """The structural difference from `a` to `b`; false where they have the same dataflow.

    Args:
        a, b: each a Capture, a Graph, or what `from_fx` takes.
    """
    return diff_graphs(graphs_of(a), graphs_of(b))


def graphs_of(obj: Any) -> tuple[Graph, ...]:
    """The graphs of a Capture, a Graph, or anything that `from_fx` takes."""
    if isinstance(obj, Capture):
        return obj.graphs
    if isinstance(obj, Graph):
        return (obj,)
    with contextlib.suppress(TypeError):
        return (from_fx(obj),)
    raise TypeError(
        f"expected a Capture, a Graph, a torch.fx graph or an ExportedProgram, not "
        f"{type(obj).__name__}"
    )


__all__ = ["GraphCapture", "TorchGraphError", "capture", "diff", "from_fx", "load"]
