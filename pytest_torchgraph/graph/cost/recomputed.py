"""Ops of a forward that its backward recomputes.

Value numbering finds them (Alpern, Wegman, Zadeck, "Detecting equality of variables in programs",
POPL 1988): two calls have the same number if they run the same op on operands with the same
numbers. A value that a backward receives from its forward keeps its number. The result therefore
does not depend on names, tags or the kind of checkpointing, and is the same for stored and live
graphs.

A write gives a storage a new version. The version is part of the number of every later read.
Buffers have no versions: a recomputed batch norm reads running statistics that the forward has
already updated, but it still repeats the work of the forward.

`_Values` numbers the values of one graph, and `_Numbers` holds the numbers that the graphs of a
step share. `_iter_recomputations` compares the numbers of the forward and of the backward.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...errors import CaptureError
from ...ops.matching import Level
from ...ops.views import shared_argument
from ...words import CHECK_BACKWARD, grouped
from ..census import runs
from ..equality import ALIAS_OP, canonical_op
from ..higher_order import KINDS, PREFIX, SAVING_STATE, executed
from ..model import (
    Arg,
    Atom,
    Device,
    Graph,
    Node,
    RecomputedBy,
    Ref,
    SubgraphRef,
    Symbol,
)
from ..step import InlinedStep, NodeOrigin, joined
from ..text import format_result
from .cost import Cost
from .storages import producer_of, results_bytes, storage_bytes, with_savers

_RESTORING_STATE = frozenset(
    {PREFIX + "run_with_rng_state", PREFIX + "graphsafe_run_with_rng_state"}
)
"""Ops that run another op with the random state saved by `SAVING_STATE`."""
_LEVELS: frozenset[Level] = frozenset({"dispatch", "aot"})
_OTHER_DTYPE = frozenset(
    "cumprod cumsum eq ne lt le gt ge logical_and logical_not logical_or logical_xor".split()
)
"""Packets whose result may have another dtype than that of the op in place."""
_ALIASES = frozenset({ALIAS_OP, "aten.alias.default"})

_Key: TypeAlias = tuple[object, ...]
_Run: TypeAlias = tuple["_Values", Node]
"""A call, with the values of its graph."""


@dataclass(frozen=True, slots=True, eq=False)
class Recomputed:
    """An op of the forward that the backward runs again.

    Attributes:
        op: the op of the forward.
        node: the call in the backward; the first if there are several.
        original: the call in the forward.
        graph: name of the backward graph.
        times: number of runs in the backward, including runs with an unused result. A stored
            capture via "dispatch" lacks such runs, so its number is a minimum.
        by: reason for the recomputation: "checkpoint"; "partitioner", if torch.compile recomputes a
            value to save memory; "function", the backward of a user's `torch.autograd.Function`, or
            a hook of the user; "formula", autograd's own derivative formula, which cannot be
            switched off; "" if a file does not record it.
        cost: FLOPs of all these runs; `None` if unknown. The saved bytes are zero.
        bytes: result size of one run; `None` if it depends on a symbol.
    """

    op: str
    node: Node
    original: Node
    graph: str
    times: int
    by: RecomputedBy
    cost: Cost
    bytes: int | None

    @property
    def counts(self) -> bool:
        """False for autograd's derivative formulas, which assertions and budgets ignore."""
        return self.by != "formula"


def recomputed_ops(graphs: Sequence[Graph]) -> tuple[Recomputed, ...]:
    """Return the ops that backward graphs recompute, in the order of their first recomputation.

    Views are omitted because they compute nothing. Values that depend only on constants are omitted
    because they are no work of the forward.

    Args:
        graphs: graphs of a step, in execution order.

    Raises:
        CaptureError: if no backward ran, or if a graph does not record its inputs from the forward.
    """
    need_backward(graphs)
    step = joined(graphs)
    # Runs of a captured graph in one module share an entry.
    by_original: dict[_Key, tuple[Node, list[_Run]]] = {}
    for original, reruns in _iter_recomputations(step.graphs):
        graph, _, node = _captured(step, original)
        key = graph.name, node.name, node.module, reruns[0][1].by
        by_original.setdefault(key, (node, []))[1].extend(reruns)
    return tuple(_make_entry(step, node, reruns) for node, reruns in by_original.values())


def _captured(step: InlinedStep, run: _Run) -> NodeOrigin:
    """Return the origin of a call, with the module of its run."""
    values, node = run
    origin = step.origin(values.graph, node)
    if origin.node.module == node.module:
        return origin
    return origin._replace(node=replace(origin.node, module=node.module))


def _iter_recomputations(graphs: Sequence[Graph]) -> Iterator[tuple[_Run, Sequence[_Run]]]:
    """Yield each recomputed forward call, with its runs in the backward."""
    need_backward(graphs)
    numbers = _Numbers()
    values_by_graph: dict[str, _Values] = {}
    originals: defaultdict[int, list[_Run]] = defaultdict(list)
    backward_runs: defaultdict[int, list[_Run]] = defaultdict(list)
    # All forwards come first, because a backward refers to their values.
    for kinds, runs_by_number in (
        (("forward", "inference"), originals),
        (("backward",), backward_runs),
    ):
        for graph in graphs:
            if graph.kind in kinds:
                values = _Values(graph, numbers, values_by_graph)
                values_by_graph[graph.name] = values
                for number, node in values.work:
                    runs_by_number[number].append((values, node))
    for number, reruns in backward_runs.items():
        # A derivative formula may compute a value that the partitioner recomputes too.
        reasons = grouped((node.by, (values, node)) for values, node in reruns)
        # Forward calls that compute the same value share the runs, in turn.
        same_value = originals.get(number, ())
        for runs_for_reason in reasons.values():
            for index, original in enumerate(same_value):
                if own_runs := runs_for_reason[index :: len(same_value)]:
                    yield original, own_runs


def recomputed_if_known(graphs: Sequence[Graph]) -> tuple[Recomputed, ...]:
    """Return the result of `recomputed_ops`, or `()` if it raises a `CaptureError`."""
    try:
        return recomputed_ops(graphs)
    except CaptureError:
        return ()


def changed_recomputation(
    before: Sequence[Graph], after: Sequence[Graph]
) -> dict[str, tuple[int, int]]:
    """Return the ops that the backward recomputes more or less often, with both counts.

    The result is empty if a side has no backward. Recomputation by autograd's derivative formulas
    is left out, if both sides record the reasons.
    """
    sides = before, after
    if not all(any(graph.kind == "backward" for graph in graphs) for graphs in sides):
        return {}
    old, new = map(_count_runs, sides)
    # A file lacks the reason for each recomputation. Then those by formulas count on both sides.
    formula = None if any(by == "" for _, by in (*old, *new)) else "formula"
    before_and_after: dict[str, list[int]] = {}
    for side, counts in enumerate((old, new)):
        for (op, by), count in counts.items():
            if by != formula:
                before_and_after.setdefault(op, [0, 0])[side] += count
    return {
        op: (old_count, new_count)
        for op, (old_count, new_count) in before_and_after.items()
        if old_count != new_count
    }


def recomputed_nodes(graphs: Sequence[Graph]) -> list[Node]:
    """Return the nodes that backward graphs recompute, the first run of each; [] if unknown."""
    with suppress(CaptureError):
        return [reruns[0][1] for _, reruns in _iter_recomputations(with_savers(graphs))]
    return []


def _count_runs(graphs: Sequence[Graph]) -> Counter[tuple[str, RecomputedBy]]:
    """Count the recomputations of each op, by op and reason; none if unknown.

    This needs no FLOPs and no torch.
    """
    counts_by_op: Counter[tuple[str, RecomputedBy]] = Counter()
    with suppress(CaptureError):
        for (_, original), reruns in _iter_recomputations(graphs):
            _, node = reruns[0]
            counts_by_op[executed(original).op, node.by] += len(reruns)
    return counts_by_op


def need_backward(graphs: Sequence[Graph]) -> None:
    """Reject graphs for which recomputation cannot be determined.

    Raises:
        CaptureError: for a step without a backward, for graphs of a level other than "dispatch" and
            "aot", and for a backward that runs bodies of higher-order ops. For example,
            `torch.cond` recomputes its forward inside a body.
    """
    unknown = {graph.level for graph in graphs} - _LEVELS
    if unknown:
        raise CaptureError(
            f"recomputation is unknown: graphs at level {min(unknown)!r} do not record which "
            "forward values a backward uses. Capture via 'aot', 'inductor' or 'dispatch'"
        )
    if not any(graph.kind == "backward" for graph in graphs):
        raise CaptureError(f"no backward ran, so nothing was recomputed: {CHECK_BACKWARD}")
    for graph in graphs:
        for node in graph.nodes if graph.subgraphs and graph.kind == "backward" else ():
            kind = KINDS.get(executed(node).op)
            if runs(graph, node) and kind != "attention":
                # In eager code, a region is a plain call. The other ops compile themselves.
                remedy = "Capture via 'dispatch'" if kind == "call" else "Check a model without it"
                raise CaptureError(
                    f"recomputation is unknown: {node.op} (%{node.name} of {graph.name}) runs a "
                    f"subgraph in the backward. {remedy}"
                )


def _make_entry(step: InlinedStep, original: Node, reruns: Sequence[_Run]) -> Recomputed:
    """Return the entry of an op of the forward. The first run in the backward stands for all."""
    from .flops import flops_if_known  # imports torch; a comparison of files needs no FLOPs

    values, node = reruns[0]
    flops = flops_if_known(values.graph, node)
    cost = Cost(None if flops is None else flops * len(reruns) * values.graph.runs, 0)
    captured, _, node = _captured(step, reruns[0])
    return Recomputed(
        executed(original).op,
        node,
        original,
        captured.name,
        len(reruns),
        node.by,
        cost,
        _bytes_if_known(node),
    )


def _bytes_if_known(node: Node) -> int | None:
    """Return `Recomputed.bytes` of a call: of all results, if it has several."""
    call = executed(node)
    try:
        return sum(results_bytes(call)) if isinstance(call.result, tuple) else storage_bytes(call)
    except CaptureError:  # a size is a symbol
        return None


class _Numbers:
    """Value numbers of a step, and the random draws of its forward."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._bodies: list[Graph] = []
        self.drawn: Counter[_Key] = Counter()
        """Number of forward runs of a random op on the same values."""
        self.drawn_in: dict[_Key, int] = {}
        """Number of a random result, by the saved random state and the call."""

    def number_of(self, *key: object) -> int:
        """Return the number of a key."""
        return self._numbers.setdefault(key, len(self._numbers))

    def number_of_body(self, body: Graph) -> int:
        """Return a number that equal bodies of higher-order ops share."""
        for number, earlier in enumerate(self._bodies):
            if earlier == body:
                return number
        self._bodies.append(body)
        return len(self._bodies) - 1


class _Values:
    """Value numbers of one graph.

    Args:
        graph: the graph.
        numbers: numbers shared by all graphs.
        others: values of the graphs before this graph, by name of the graph.

    Attributes:
        work: calls that compute something, with the number of their result.
    """

    def __init__(self, graph: Graph, numbers: _Numbers, others: Mapping[str, _Values]):
        self.graph = graph
        self.work: list[tuple[int, Node]] = []
        self._numbers = numbers
        self._others = others
        self._number: dict[str, int] = {}
        self._base: dict[str, str] = {}
        """Value that owns the storage of each value."""
        self._version: dict[str, int] = {}
        """Number of the last write to each storage."""
        self._defined: dict[str, int | None] = {}
        """For each value, the number of the last write to its storage when the value was made."""
        self._copied: dict[object, object] = {}
        """For the key of each clone, the key of its original."""
        self._constant: set[str] = set()
        """Values that depend only on constants."""
        self._buffers: set[str] = set()
        self._drawn: Counter[_Key] = Counter()
        for node in graph.nodes:
            if node.is_call:
                self._number_call(node)
            elif node.kind != "output":
                self._number_input(node)

    def number_of(self, name: str) -> int | None:
        """Return the current number of a value, or `None` if the graph does not have the value."""
        number = self._number.get(name)
        if number is None:
            return None
        # A view made after a write needs no version, because the number of its base has it. The
        # backward may rerun such a view on the forward's written value, without the write.
        version = self._version.get(self._base[name])
        if version == self._defined[name]:
            return number
        return self._numbers.number_of("written", number, version)

    def _define_value(self, node: Node, number: int, base: str = "", *, constant: bool) -> None:
        """Record a value.

        Args:
            node: the node that makes the value.
            number: the number of the value.
            base: a value whose storage it shares; "" for a storage of its own.
            constant: True if it depends only on constants.
        """
        self._number[node.name] = number
        self._base[node.name] = self._base[base] if base else node.name
        self._defined[node.name] = self._version.get(self._base[node.name])
        if constant:
            self._constant.add(node.name)

    def _number_input(self, node: Node) -> None:
        """Number an input: by its value in another graph, its constant, or its name."""
        number = self._number_received(node)
        if number is None and node.op == "get_attr" and node.args:
            # The partitioner copies a constant into the backward under another name.
            number = self._numbers.number_of(
                "constant", self._key_of(node.args), format_result(node.result)
            )
        if number is None:
            # The graphs of a step share the inputs of the step. Any other input is the graph's own.
            belongs_to_step = node.op in ("parameter", "buffer", "input")
            graph_name = "" if belongs_to_step else self.graph.name
            number = self._numbers.number_of("input", graph_name, node.name or node.target)
        self._define_value(node, number, constant=node.op in ("constant", "get_attr"))
        if node.op == "buffer":
            self._buffers.add(node.name)

    def _number_received(self, node: Node) -> int | None:
        """Return the number of a value made by another graph of the step; `None` if unknown."""
        saver = self.graph.saver
        # The input of an eager graph is named `graph:value`.
        name, _, value = node.name.partition(":")
        if saver is not None and node.op != "tangent":
            # Each graph numbers its constants. The forward saves the constants that both use.
            names = {ref.name for ref in saver.saved} if node.op == "constant" else saver.by_name
            if node.name in names:
                name, value = saver.name, node.name
        return self._others[name].number_of(value) if name in self._others else None

    def _number_call(self, node: Node) -> None:
        """Number the result of a call, record its writes, and add it to `work` if it is work."""
        refs = node.refs
        if node.op in _ALIASES and refs:
            self._define_value(
                node, self._number[refs[0]], refs[0], constant=refs[0] in self._constant
            )
            return
        producer = producer_of(self.graph, node) if node.op == "operator.getitem" else None
        if producer is not None:
            self._number_projection(node, producer)
            return
        call = executed(node)
        draws = any(effect.kind == "random" for effect in node.effects)
        number = self._number_result(node, self._key_of_call(call, draws))
        if call.op == "aten.clone.default" and call.args:  # see `_key_of_call`
            self._copied["value", number] = self._key_of(call.args[0])
        # A view, or an op in place, shares the storage of this argument.
        position = shared_argument(call.op)
        viewed = call.args[position] if position is not None and call.args[position:] else None
        base = viewed.name if isinstance(viewed, Ref) else ""
        writes = [effect.target.name for effect in node.effects if effect.target is not None]
        constant = not draws and all(name in self._constant for name in refs)
        for target in writes:  # later reads of the storage read this result
            written = self._base.get(target)
            if written is not None and written not in self._buffers:
                self._version[written] = number
        # A write to a buffer returns the buffer, whose number no write changes.
        of_buffer = writes and base and self._base[base] in self._buffers
        self._define_value(
            node, self._number[base] if of_buffer else number, base, constant=constant
        )
        # Views compute nothing, and what depends only on constants is no work of the forward.
        is_view = bool(base) and not writes
        if not is_view and not constant:
            self.work.append((number, node))

    def _key_of_call(self, call: Node, draws: bool) -> _Key:
        """Return a key of an op and its arguments. An op in place has the key of the plain op.

        Args:
            call: the call, without a wrapper around it.
            draws: True if it draws random numbers.
        """
        op, args = canonical_op(call.op), [self._key_of(arg) for arg in call.args]
        namespace, _, name = op.partition(".")
        packet, _, overload = name.partition("_.")  # of an op in place; "" for any other overload
        if namespace == "aten" and overload and args and not draws and packet not in _OTHER_DTYPE:
            results = [call.result, *(self.graph.by_name[name].result for name in call.refs)]
            if len({getattr(result, "dtype", None) for result in results}) == 1:
                # `x.clone().exp_()` computes the value of `x.exp()`, as no dtype is promoted.
                op = f"aten.{packet}.{overload}"
                args[0] = self._copied.get(args[0], args[0])
        return op, *args, self._key_of(dict(call.kwargs))

    def _number_projection(self, node: Node, producer: Node) -> None:
        """Number one result of a multi-output op."""
        of, index = self._number[producer.name], node.args[1]
        if producer.op == SAVING_STATE:  # It returns the random state and the wrapped op's result.
            number = of if index == 1 else self._numbers.number_of("state", of)
        else:
            number = self._numbers.number_of("part", of, index)
        # A result of an op that returns views, such as `split`, shares the storage that the op has.
        base = producer.name if self._base[producer.name] != producer.name else ""
        self._define_value(node, number, base, constant=producer.name in self._constant)

    def _number_result(self, node: Node, key: _Key) -> int:
        """Return the number of a call's result.

        Args:
            node: the call.
            key: the op that the call runs, and its arguments.
        """
        numbers = self._numbers
        if node.op in _RESTORING_STATE:
            state = node.kwargs.get("rng_state", node.args[0] if node.args else None)
            saved = (self._key_of(state), key)
            return numbers.drawn_in.get(saved, numbers.number_of("in state", *saved))
        draws = node.op == SAVING_STATE or any(effect.kind == "random" for effect in node.effects)
        if not draws:
            return numbers.number_of("call", key)
        # A recomputed checkpoint repeats the random draws of the forward in the same order. Each
        # recomputation starts with the first draw.
        self._drawn[key] += 1
        draw = self._drawn[key]
        if self.graph.kind == "backward":
            # Without a draw in the forward, the draw is the backward's own.
            draw = (draw - 1) % (numbers.drawn[key] or draw) + 1
        else:
            numbers.drawn[key] = max(draw, numbers.drawn[key])
        number = numbers.number_of("drawn", key, draw)
        # A later op that restores this state repeats this draw.
        if node.op == SAVING_STATE:
            state = ("value", numbers.number_of("state", number))
            numbers.drawn_in[state, key] = number
        return number

    def _key_of(self, value: Arg) -> object:
        """Return a key that identifies an argument. The key of a value has its number."""
        match value:
            case Ref():
                return ("value", self.number_of(value.name))
            case SubgraphRef():
                bodies = self.graph.subgraphs_by_name
                return ("body", self._numbers.number_of_body(bodies[value.name]))
            case tuple():
                return ("tuple", *map(self._key_of, value))
            case slice():
                return ("slice", *map(self._key_of, (value.start, value.stop, value.step)))
            case Symbol():
                return ("symbol", value.expr)
            case Atom() | Device():
                return ("name", value.name)
            case Mapping():
                items = sorted((str(name), self._key_of(item)) for name, item in value.items())
                return ("dict", *items)
            case _:  # with the type, because `True`, `1` and `1.0` are different constants
                return (type(value).__name__, repr(value))
