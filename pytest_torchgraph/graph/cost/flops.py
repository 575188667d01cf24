"""Floating-point operations of graphs, by torch's own formulas (`torch.utils.flop_counter`).

torch counts two FLOPs for each multiply-add of a matrix product, a convolution or an attention, and
zero for all other ops. The formulas take shapes, so a stored graph is enough. torch does not count
attention on the CPU. Here the formula of flash attention counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...errors import CaptureError
from ...ops.collectives import calls_python
from ...ops.flop_formulas import formula_of, without_memory
from ...ops.matching import FLOP_LEVELS
from ..census import Homes, Move, moved, runs
from ..higher_order import KINDS, PLAIN, PREFIX, declared_arguments, executed, ops_named
from ..model import Atom, Graph, Node, Ref, Result, Symbol, TensorMeta, map_arg
from ..sizes import advice

_FREE = PLAIN - {"higher_order.inline_asm_elementwise"}
"""Higher-order ops without a body that do no work."""

_TRANSFORMS = {
    f"torch._functorch.predispatch._{name}_increment_nesting": (
        f"torch._functorch.predispatch._{name}_decrement_nesting"
    )
    for name in ("vmap", "jvp")
}
"""Start and end of a transform in an exported program.

Inside a vmap, ops have the shapes of a single row. Inside a jvp, they do not compute the tangent
yet. So the FLOPs of these ops are unknown.
"""


@dataclass
class Flops:
    """Floating-point operations of some ops.

    Attributes:
        by_module: FLOPs by the path of the innermost module.
        unknown: ops with unknown FLOPs, and the number of their calls.
    """

    by_module: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Total FLOPs over all modules."""
        return sum(self.by_module.values())

    @property
    def known_total(self) -> int | None:
        """Total FLOPs, or `None` if an op that does work has no formula."""
        return None if self.unknown else self.total

    def add(self, other: Flops, times: int = 1, move: Move | None = None) -> None:
        """Add the FLOPs of other ops.

        Args:
            other: the FLOPs to add.
            times: number of runs of the other ops.
            move: for a body, the module in which it was traced and the module that calls it.
        """
        for module, flops in other.by_module.items():
            module = module if move is None else moved(module, move)
            self.by_module[module] = self.by_module.get(module, 0) + flops * times
        for op, count in other.unknown.items():
            self.unknown[op] = self.unknown.get(op, 0) + count


class _RejectedError(Exception):
    """Raised if the formula of an op rejects its arguments; the text names both."""


def flops_of(graph: Graph) -> Flops:
    """Return the floating-point operations of one run of a graph.

    Raises:
        CaptureError: for a graph of torch functions, because these are not dispatched ops. Also if
            a size that a formula requires is unknown or a symbol.
    """
    if graph.level not in FLOP_LEVELS:
        raise CaptureError(
            f"FLOPs are unknown in a graph at level {graph.level!r}, which has torch functions "
            "instead of dispatched ops: capture via 'aot', or for a watch, use capture.at('aot')"
        )
    totals = Flops()
    homes = Homes(graph)
    transforms: list[str] = []
    for node in graph.nodes:
        if not node.is_call:
            continue
        if node.op in _TRANSFORMS:
            transforms.append(node.op)
        elif transforms and node.op == _TRANSFORMS[transforms[-1]]:
            transforms.pop()
        flops = flops_of_call(graph, node, homes)
        # Not the op is named as unknown, but the transform that makes it so.
        if flops.total and transforms:
            totals.unknown[transforms[-1]] = 1
        totals.add(flops)
    return totals


def flops_of_call(graph: Graph, node: Node, homes: Homes | None = None) -> Flops:
    """Return the floating-point operations of one call in a graph, including its bodies.

    Args:
        graph: the graph.
        node: the call.
        homes: homes of the graph, if already computed.

    Raises:
        CaptureError: if a size required by a formula is unknown or a symbol.
    """
    try:
        return _flops_of_call(graph, node, homes)
    except _RejectedError as error:
        return Flops(unknown={str(error): 1})


def _flops_of_call(graph: Graph, node: Node, homes: Homes | None) -> Flops:
    """Return the result of `flops_of_call`.

    Raises:
        _RejectedError: if a formula rejects the arguments.
    """
    # The common case: one op without bodies.
    if not graph.subgraphs and not node.op.startswith(PREFIX) and node.op not in KINDS:
        own_flops = _node_flops(graph, node)
        # An op that runs Python code can do any work beside its own.
        unknown = {node.op: 1} if own_flops is None or calls_python(node.op) else {}
        return Flops({node.module: own_flops} if own_flops else {}, unknown)
    call = executed(node)
    bodies = runs(graph, node)
    totals = Flops()
    for name in ops_named(node):  # a higher-order op without an entry in `higher_order`
        totals.unknown[name] = 1
    # The bodies of other kinds are counted instead of the op.
    counted = KINDS.get(call.op) in (None, "attention")
    own_flops = _node_flops(graph, call) if counted else None
    if calls_python(call.op) or (own_flops is None and not bodies and call.op not in _FREE):
        totals.unknown[call.op] = 1
    if own_flops:
        totals.by_module[node.module] = own_flops
    inside = [flops_of(run.body) for run in bodies]
    # Like torch's `FlopCounterMode`, count only the branch with the most FLOPs.
    if KINDS.get(call.op) == "branch" and inside:
        most = max(inside, key=lambda flops: flops.total)
        unknown = {op: count for flops in inside for op, count in flops.unknown.items()}
        inside, bodies = [Flops(most.by_module, unknown)], [bodies[inside.index(most)]]
    homes = homes or (Homes(graph) if bodies else None)
    for run, flops in zip(bodies, inside, strict=True):
        # The run count of the body is unknown. A formula does not give it, either.
        if own_flops is not None or run.times is None:
            if flops.total or flops.unknown:
                totals.unknown[call.op] = 1
        else:
            totals.add(flops, run.times, homes.move(node, run.body) if homes else None)
    # A body of an unknown op may be only a part of its work.
    if bodies and counted and own_flops is None:
        totals.unknown[call.op] = 1
    return totals


def flops_if_known(graph: Graph, node: Node) -> int | None:
    """Return the FLOPs of one call; `None` without a formula, or if a size is a symbol."""
    try:
        return flops_of_call(graph, node).known_total
    except CaptureError:
        return None


def _node_flops(graph: Graph, node: Node) -> int | None:
    """Return the FLOPs of a call, or `None` if torch has no formula for an op that does work."""
    try:
        formula = formula_of(node.op)
    except KeyError:
        return None
    if formula is None:
        return 0
    declared = declared_arguments(node.kwargs)
    try:
        args, kwargs = map_arg((node.args, declared), partial(_formula_argument, graph, node))
        out = _formula_tensors(node, node.result)
        return int(formula(*args, **kwargs, out_val=out))
    except CaptureError:
        raise
    except KeyError:  # a part of the op has no formula
        return None
    except Exception as error:  # shapes that do not fit, in a graph that was not captured
        problem = str(error).partition("\n")[0]
        raise _RejectedError(f"the arguments of %{node.name} ({node.op}: {problem})") from error


def _formula_argument(graph: Graph, node: Node, arg: Any) -> Any:
    """Return an argument for a formula. Tensors become metadata without memory."""
    if isinstance(arg, Ref):
        return _formula_tensors(node, graph.by_name[arg.name].result)
    if isinstance(arg, Symbol):
        return _static_size(node, arg)
    return None if isinstance(arg, Atom) else arg


def _formula_tensors(node: Node, result: Result) -> Any:
    """Return a result for a formula; `None` for anything but tensors and tuples of them."""
    if isinstance(result, TensorMeta):
        shape = tuple(_static_size(node, size) for size in result.shape)
        return without_memory(shape, result.dtype)
    if isinstance(result, tuple):
        return tuple(_formula_tensors(node, item) for item in result)
    return None


def _static_size(node: Node, size: int | Symbol) -> int:
    """Return a size; raise a `CaptureError` if it is a symbol."""
    if isinstance(size, Symbol):
        raise CaptureError(
            f"the FLOPs of %{node.name} ({node.op}) depend on the symbolic size {size.expr}: "
            f"{advice(size)}"
        )
    return size


def total_flops(graphs: Sequence[Graph], *, times_run: bool, unknown: str = "fail") -> int:
    """Return the floating-point operations of graphs.

    Args:
        graphs: the graphs.
        times_run: multiply each graph by its run count.
        unknown: "ignore" counts zero for ops without a formula.

    Raises:
        CaptureError: if FLOPs are unknown. The message names the ops without a formula.
    """
    totals = Flops()
    for graph in graphs:
        totals.add(flops_of(graph), graph.runs if times_run else 1)
    if totals.unknown and unknown != "ignore":
        raise CaptureError(
            f"the FLOPs are unknown, because {_why_unknown(totals)}. To count 0 instead, pass "
            "unknown='ignore' to assert_budget"
        )
    return totals.total


def why_none_counted(graphs: Sequence[Graph]) -> str:
    """Return the reason why FLOPs are 0 although an op does work; "" if there is no such op."""
    totals = Flops()
    for graph in graphs:
        totals.add(flops_of(graph))
    return _why_unknown(totals) if totals.unknown and not totals.total else ""


def _why_unknown(flops: Flops) -> str:
    """Return the reason for `flops.unknown`, and a remedy if there is one."""
    ops = [f"{op} ({n} times)" if n > 1 else op for op, n in sorted(flops.unknown.items())]
    problem = f"torch has no formula for {', '.join(ops)}"
    if any(op.startswith("torch.") for op in flops.unknown):  # a hook, or the start of a vmap
        return f"{problem}: capture via 'aot' or 'dispatch'"
    # A formula cannot give the run count of a body, and none is used for a Triton kernel.
    if all(op.startswith("triton.") or op in KINDS for op in flops.unknown):
        return problem
    return f"{problem}: register one with torch.utils.flop_counter.register_flop_formula"
