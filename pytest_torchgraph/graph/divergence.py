"""`Divergence`: the first node at which a captured run differs from the eager run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..ops.views import is_view
from ..words import listed
from .model import Graph, Node, Ref, Source, map_arg

Stage: TypeAlias = Literal[
    "eager", "dynamo", "aot", "decomposition", "partition", "passes", "codegen"
]
DivergenceKind: TypeAlias = Literal[
    "formula", "precision", "random", "state", "write", "fake", "operand", ""
]

_UNROUNDED = "and eager's result has no rounding error"
_ABSENT = "and eager has no op here"
_STAGES: dict[str, str] = {
    "eager": "in the eager run",
    "dynamo": "in the graph that Dynamo traced",
    "aot": "in AOTAutograd's graph",
    "decomposition": "in the decompositions",
    "partition": "in the partitioned graph",
    "passes": "in inductor's passes",
    "codegen": "in inductor's generated code",
}
_PROVEN: dict[str, str] = {
    "state": "has hidden state",
    "write": "writes to an argument without declaring it",
    "fake": "has a fake implementation that differs from the op",
}
_VERDICTS: dict[str, str] = {
    "formula": "a different formula, not rounding",
    "operand": "the same ops on other operands",
    "random": "different random numbers",
    "state": "hidden state, because the same op returns a different result for the same values",
    "precision": "the same formula, less precise",
}
MAX_OPS = 6
"""Maximum number of ops of one side that the message names, the last ones."""


@dataclass(frozen=True)
class Divergence:
    """The first difference between a captured run and an eager run.

    Attributes:
        stage: the compiler stage that made the difference. The stage before it agrees with eager.
            "eager" if an op or Python code gives different results in equal runs. Without `nodes`,
            the last stage that was checked.
        kind: "formula" (another computation), "precision" (the same computation, rounded more),
            "random" (other random numbers), "operand" (the same ops on other values), "state"
            (hidden state), "write" (a write that the schema does not declare) or "fake" (a fake
            implementation with another result); "" if unknown.
        nodes: the nodes that differ, in the graph of the stage. The last node has the compared
            value.
        eager_nodes: the eager nodes that compute the same value. Both sides start from values that
            agree.
        module: path of the module, "" if unknown.
        graph: name of the graph, "" if unknown.
        kernel: name of the kernel, "" if unknown.
        source: the line of the user's code.
        size: the distance between the results of the two formulas, both evaluated in float64 on
            eager's values, relative to the largest value. Infinity if eager's value is zero
            everywhere, NaN if the two differ in numbers that are not finite.
        rounding: the distance of eager's own value from its value in float64, relative to the
            largest value.
        sure: True if the difference is proven: with eager's value at `nodes`, the rest of the step
            gives eager's results. False if the difference may also be before `nodes`.
        more: further differences. Each remains after eager's values are put in at all earlier
            differences.
        reason: why the search ended without `nodes`.
        inputs: names of the values that the nodes start from. These values agree with eager.
        statistics: range and mean of eager's value, and of the value at the stage.
        calls: eager's ops and the ops of the stage, as text with operands and constants. If a side
            names several ops, only those with a number among their arguments. Empty if it is
            uncertain which of several nodes differs.
        drawn: the graph that contains `nodes`.
        pass_name: at the stage "passes", the first pass after which the run differs; see
            `PassRun.name`. "" elsewhere, and if unknown.
    """

    stage: Stage
    kind: DivergenceKind = ""
    nodes: tuple[Node, ...] = ()
    eager_nodes: tuple[Node, ...] = ()
    module: str = ""
    graph: str = ""
    kernel: str = ""
    source: Source | None = None
    size: float = 0.0
    rounding: float = 0.0
    sure: bool = False
    more: tuple[Divergence, ...] = ()
    reason: str = ""
    inputs: tuple[str, ...] = ()
    statistics: tuple[str, str] = ("", "")
    calls: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    drawn: Graph | None = field(default=None, repr=False, compare=False)
    pass_name: str = ""

    def __str__(self) -> str:
        if self.reason:
            last_stage = _STAGES[self.stage].removeprefix("in ")
            return (
                f"First difference: not found, because {self.reason}. Last stage compared: "
                f"{last_stage}."
            )
        places = _place(self)
        # Equal eager runs differ, so there is one side only, and a cause instead of a change.
        if self.stage == "eager":
            subject = (
                self.nodes[-1].op.removesuffix(".default") if self.nodes else "the Python code"
            )
            location = f" ({', '.join(places)})" if places else ""
            return f"Cause: {subject} {_PROVEN.get(self.kind, self.kind)}{location}."
        opening = "First difference" if self.sure else "First difference at or before"
        where = f"in inductor's pass {self.pass_name}" if self.pass_name else _STAGES[self.stage]
        place = ", ".join([where, *places])
        lines = [f"{opening}: {place}: {_format_change(self)}."]
        lines += [f"  {line}" for line in self._verdict_lines()]
        for other in self.more:
            place = ", ".join(_place(other)) or other.graph
            lines.append(f"  Also: {place}: {_format_change(other)}.")
        return "\n".join(lines)

    def _verdict_lines(self) -> Sequence[str]:
        """Return the lines about sizes, inputs and proof."""
        lines = [f"eager: {call}" for call in self.calls[0]]
        lines += [f"captured: {call}" for call in self.calls[1]]
        computed = " in float64"
        if math.isnan(self.size):
            extent = " in numbers that are not finite"
        elif math.isinf(self.size):
            extent = ", and eager's is zero everywhere"
        elif self.size:
            share = f"{100 * self.size:.3g}% of the largest value"
            extent = f" by {share}, {self._format_rounding()}"
        else:
            computed = extent = ""
        if verdict := _VERDICTS.get(self.kind, self.kind):
            lines.append(f"Cause: {verdict}.")
        lines.append(f"Recomputed{computed} from eager's values, the results differ{extent}.")
        if self.inputs:
            names = [f"%{name}" for name in self.inputs[:4]]
            more = len(self.inputs) - len(names)
            # A wrong operand is a value of the eager run too, but eager's op reads another one.
            values = " with values of the eager run" if self.kind == "operand" else ""
            lines.append(
                f"The inputs agree{values}: {listed(names)}{f' and {more} more' * (more > 0)}."
            )
        if self.statistics[0]:
            lines.append(f"values of %{self.nodes[-1].name}: {self.statistics[1]}")
            lines.append(f"values in eager: {self.statistics[0]}")
        if self.sure:
            replaced = [f"%{d.nodes[-1].name}" for d in (self, *self.more) if d.nodes]
            values = "values" if len(replaced) > 1 else "value"
            lines.append(
                f"If {listed(replaced)} had eager's {values}, the rest of the run would match "
                "eager."
            )
        return lines

    def _format_rounding(self) -> str:
        if self.rounding:
            return f"{self.size / self.rounding:,.0f} times eager's rounding error"
        eager, nodes = headline(self.eager_nodes, self.nodes)
        return _ABSENT if nodes and not eager else _UNROUNDED


def headline(
    eager_nodes: Sequence[Node], nodes: Sequence[Node]
) -> tuple[Sequence[Node], Sequence[Node]]:
    """Return the nodes that the message names: the eager nodes, and the nodes of the stage.

    Views and projections compute nothing, so they are left out unless there are no other nodes. Ops
    that both sides have are left out too, so that a removed op is named alone. If both sides have
    the same ops, the last op of each side is named.
    """
    shown = [_leave_out_views(side) for side in (eager_nodes, nodes)]
    if not any(shown):
        return eager_nodes, nodes
    unshared = _drop_shared(*shown)
    if any(unshared):
        return unshared
    return shown[0][-1:], shown[1][-1:]


def nodes_to_show(
    eager_nodes: Sequence[Node], nodes: Sequence[Node]
) -> tuple[Sequence[Node], Sequence[Node]]:
    """Return the nodes of `headline`, or all if both sides have the same ops.

    A side is empty if several of its nodes may be the one without a counterpart.
    """
    shown = [_leave_out_views(side) for side in (eager_nodes, nodes)]
    if not any(shown):
        return eager_nodes, nodes
    # If the direction decides which of equal nodes is left, each of them may be the one.
    unshared, from_start = (_drop_shared(*shown, from_end=from_end) for from_end in (True, False))
    if not any(unshared):
        return shown[0], shown[1]
    sure = [side if side == other else [] for side, other in zip(unshared, from_start, strict=True)]
    return sure[0], sure[1]


def _leave_out_views(nodes: Sequence[Node]) -> list[Node]:
    return [n for n in nodes if n.op != "operator.getitem" and not is_view(n.op)]


def _drop_shared(
    eager_nodes: Sequence[Node], nodes: Sequence[Node], *, from_end: bool = True
) -> tuple[list[Node], list[Node]]:
    """Leave out the nodes that correspond to a node with the same op on the other side.

    Nodes correspond first if they have the same constants, module and line, then if they have the
    same constants, and last if only their ops are the same. Among equal nodes the last ones
    correspond, because the compared values do; with `from_end=False`, the first ones.
    """
    step = -1 if from_end else 1
    left = [[*eager_nodes][::step], [*nodes][::step]]
    for likeness in (
        lambda node: repr((form_of(node), node.module, node.source)),
        lambda node: repr(form_of(node)),
        lambda node: node.op,
    ):
        counts = [Counter(likeness(node) for node in side) for side in left]
        for number, side in enumerate(left):
            shared, left[number] = counts[0] & counts[1], []
            for node in side:
                if shared[likeness(node)]:
                    shared[likeness(node)] -= 1
                else:
                    left[number].append(node)
    return left[0][::step], left[1][::step]


def form_of(node: Node) -> tuple[str, object]:
    """Return the op and the constants of a node, with a mark for each operand."""
    operands = node.args, dict(node.kwargs)
    return node.op, map_arg(operands, lambda value: "%" if isinstance(value, Ref) else value)


def _place(divergence: Divergence) -> Sequence[str]:
    """Return the module, marked if it runs backward, and the line; each only if known."""
    module = divergence.module
    # A backward node has the module and the line of its forward.
    if divergence.drawn is not None and divergence.drawn.kind == "backward":
        module = f"backward of {module}" if module else "backward"
    return [part for part in (module, str(divergence.source or "")) if part]


def _format_change(divergence: Divergence) -> str:
    """Format what became of eager's ops: `aten.mm -> aten.addmm`, `aten.mm removed`."""
    before, after = map(_format_ops, headline(divergence.eager_nodes, divergence.nodes))
    if before == after:
        return f"{after} changed"
    if before and after:
        return f"{before} -> {after}"
    return f"{before} removed" if before else f"{after} added"


def _format_ops(nodes: Sequence[Node]) -> str:
    # A get_attr reads a constant and runs nothing.
    ops = [node.op.removesuffix(".default") for node in nodes if node.kind != "get_attr"]
    shown = ops if len(ops) <= MAX_OPS else ["...", *ops[-MAX_OPS:]]
    return ", ".join(shown)
