"""What a backward computes again although its forward has computed it.

Found by value numbering (Alpern, Wegman, Zadeck, "Detecting equality of variables in programs",
POPL 1988): two calls have one number if they run the same op on values of the same numbers. A
value that a backward takes from its forward has the number that it has there. So names, tags and
the way of checkpointing do not matter, and a stored graph gives the same answer as a live one.

A storage that is written gets a new version, which is part of the number of all that reads it. The
storage of a buffer does not: batch norm, computed again, reads running statistics that the forward
has already written, and is the same work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import CaptureError
from ...ops.names import Level
from ...ops.views import shared_argument
from ..census import runs
from ..equality.canonical import ALIAS_OP, canonical_op
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
from .cost import Cost
from .flops import flops_of_call
from .step import Received, producer_of, results_bytes, storage_bytes

_RESTORING_STATE = frozenset(
    {PREFIX + "run_with_rng_state", PREFIX + "graphsafe_run_with_rng_state"}
)
"""Ops that run another op with the random state that `SAVING_STATE` has saved."""
_LEVELS: frozenset[Level] = frozenset({"dispatch", "aot"})
_ALIASES = frozenset({ALIAS_OP, "aten.alias.default"})

_Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Recomputed:
    """An op of the forward that the backward runs again.

    Attributes:
        op: the op.
        node: the call in the backward; of several the first.
        original: the call in the forward.
        graph: the name of the backward graph.
        times: how often the backward runs it, also where nothing uses the result.
        by: what runs it again: "checkpoint"; "partitioner", where torch.compile computes a value
            again to save memory; "function", the backward of a `torch.autograd.Function` of the
            user's; "formula", autograd's own formula of a derivative, which nobody can switch off;
            "" if a file does not tell.
        cost: the FLOPs of all these runs, None where they are not known. Nothing is saved by them.
        bytes: the size of the result of one run; None where it depends on a symbol.
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
        """False for a formula of autograd's, which assertions and budgets leave out."""
        return self.by != "formula"


def recomputed(graphs: Sequence[Graph], received: Received) -> tuple[Recomputed, ...]:
    """The ops that backward graphs run again, in the order in which they run them first.

    Views compute nothing, and what depends on constants alone is no work of the forward: both are
    left out.

    Args:
        graphs: those of a step, in the order in which they run.
        received: see `step.Received`.

    Raises:
        CaptureError: where no backward ran, or a graph does not say what it takes from its forward.
    """
    need_backward(graphs)
    numbers = _Numbers()
    known: dict[str, _Values] = {}
    originals: defaultdict[int, list[tuple[_Values, Node]]] = defaultdict(list)
    for graph in graphs:
        if graph.kind in ("forward", "inference"):
            values = known[graph.name] = _Values(graph, numbers, known, received)
            for number, node in values.work:
                originals[number].append((values, node))
    repeated: defaultdict[int, list[tuple[_Values, Node]]] = defaultdict(list)
    for graph in graphs:
        if graph.kind == "backward":
            values = known[graph.name] = _Values(graph, numbers, known, received)
            for number, node in values.work:
                if number in originals:
                    repeated[number].append((values, node))
    return tuple(
        entry
        for number, again in repeated.items()
        for entry in _entries(originals[number], again)
        if entry is not None
    )


def recomputed_if_known(graphs: Sequence[Graph], received: Received) -> tuple[Recomputed, ...]:
    """Return what `recomputed` gives, and nothing where that raises."""
    try:
        return recomputed(graphs, received)
    except CaptureError:
        return ()


def need_backward(graphs: Sequence[Graph]) -> None:
    """Refuse graphs of which it cannot be said what is computed again.

    Raises:
        CaptureError: for a step without a backward; for graphs of another level than "dispatch" and
            "aot"; and for a backward that runs bodies of higher-order ops. `torch.cond`, for one,
            computes its forward again in there.
    """
    unknown = {graph.level for graph in graphs} - _LEVELS
    if unknown:
        raise CaptureError(
            f"graphs at level {min(unknown)!r} do not say what a backward takes from its forward, "
            "so it is not known what is computed again: capture via 'aot', 'inductor' or 'dispatch'"
        )
    if not any(graph.kind == "backward" for graph in graphs):
        raise CaptureError(
            "no backward ran, so nothing was computed again. Does an output require grad, is grad "
            "mode on, and is backward=False not set?"
        )
    for graph in graphs:
        for node in graph.nodes if graph.subgraphs and graph.kind == "backward" else ():
            if runs(graph, node) and KINDS.get(executed(node).op) != "attention":
                raise CaptureError(
                    f"{node.op} (%{node.name} of {graph.name}) runs a body in the backward, and "
                    "what is computed again in a body is not known. Capture via 'dispatch'"
                )


def _entries(
    originals: Sequence[tuple[_Values, Node]], again: Sequence[tuple[_Values, Node]]
) -> list[Recomputed | None]:
    """An entry for each call of the forward; several that compute one value share the runs."""
    found: list[Recomputed | None] = []
    for place, (_, original) in enumerate(originals):
        mine = again[place :: len(originals)]
        found.append(_entry(original, mine) if mine else None)
    return found


def _entry(original: Node, again: Sequence[tuple[_Values, Node]]) -> Recomputed:
    values, node = again[0]
    graph = values.graph
    flops = _flops(values.whole, node)
    cost = Cost(None if flops is None else flops * len(again) * graph.runs, 0)
    return Recomputed(
        executed(node).op, node, original, graph.name, len(again), node.by, cost, _bytes(node)
    )


def _flops(graph: Graph, node: Node) -> int | None:
    try:
        found = flops_of_call(graph, node)
    except CaptureError:  # a size is a symbol
        return None
    return None if found.unknown else found.total


def _bytes(node: Node) -> int | None:
    call = executed(node)
    try:
        return sum(results_bytes(call)) if isinstance(call.result, tuple) else storage_bytes(call)
    except CaptureError:  # a size is a symbol
        return None


class _Numbers:
    """The number of each value, and what the random ops of the forward drew."""

    def __init__(self) -> None:
        self._known: dict[_Key, int] = {}
        self._bodies: list[Graph] = []
        self.drawn: Counter[_Key] = Counter()
        """How often the forward ran a random op on the same values."""
        self.drawn_in: dict[_Key, int] = {}
        """The number of what an op drew, by the random state that was saved and the call."""

    def of(self, *key: object) -> int:
        """The number of what has this key."""
        return self._known.setdefault(key, len(self._known))

    def of_body(self, body: Graph) -> int:
        """A number that equal bodies of higher-order ops share."""
        for number, known in enumerate(self._bodies):
            if known == body:
                return number
        self._bodies.append(body)
        return len(self._bodies) - 1


class _Values:
    """The numbers of the values of one graph.

    Args:
        graph: the graph.
        numbers: those of all graphs.
        others: the graphs before this one, by name.
        received: see `step.Received`.

    Attributes:
        whole: the graph, of a backward with the ops too whose results nothing uses.
        work: the calls that compute something, each with the number of what it gives.
    """

    def __init__(
        self,
        graph: Graph,
        numbers: _Numbers,
        others: Mapping[str, _Values],
        received: Received,
    ):
        self.graph = graph
        self.work: list[tuple[int, Node]] = []
        self._numbers = numbers
        self._others = others
        self._received = received.get(graph.name, {})
        self._number: dict[str, int] = {}
        self._base: dict[str, str] = {}
        """The value that has the storage of each value."""
        self._version: dict[str, int] = {}
        """The number of the last write into each storage."""
        self._defined: dict[str, int | None] = {}
        """That number when each value was made."""
        self._constant: set[str] = set()
        """The values that depend on constants alone."""
        self._buffers: set[str] = set()
        self._drawn: Counter[_Key] = Counter()
        self.whole = graph.whole or graph
        for node in self.whole.nodes:
            if node.is_call:
                self._call(node)
            elif node.kind != "output":
                self._input(node)

    def of(self, name: str) -> int | None:
        """The number of a value as it is now, None for a value that the graph does not have."""
        number = self._number.get(name)
        if number is None:
            return None
        # A view that was made after a write is told by what it views: another run of it may take
        # the written value from a forward, and has not seen the write.
        version = self._version.get(self._base[name])
        same = version == self._defined[name]
        return number if same else self._numbers.of("written", number, version)

    def _define(self, node: Node, number: int, base: str = "", *, constant: bool = False) -> None:
        self._number[node.name] = number
        self._base[node.name] = self._base[base] if base else node.name
        self._defined[node.name] = self._version.get(self._base[node.name])
        if constant:
            self._constant.add(node.name)

    def _input(self, node: Node) -> None:
        number = self._taken(node)
        if number is None:
            shared = node.op in ("parameter", "buffer", "input")  # of the whole step
            where = "" if shared else self.graph.name
            number = self._numbers.of("input", where, node.name or node.target)
        self._define(node, number, constant=node.op in ("constant", "get_attr"))
        if node.op == "buffer":
            self._buffers.add(node.name)

    def _taken(self, node: Node) -> int | None:
        """The number of a value that another graph of the step made."""
        saver = self.graph.saver
        if saver is not None and node.op != "tangent" and saver.name in self._others:
            number = self._others[saver.name].of(node.name)
            if number is not None:
                return number
        name, _, value = self._received.get(node.name, node.name).partition(":")
        return self._others[name].of(value) if value and name in self._others else None

    def _call(self, node: Node) -> None:
        refs = node.refs
        if node.op in _ALIASES:
            self._define(node, self._number[refs[0]], refs[0], constant=refs[0] in self._constant)
            return
        producer = producer_of(self.whole, node) if node.op == "operator.getitem" else None
        if producer is not None:
            self._part(node, producer)
            return
        call = executed(node)
        body = (canonical_op(call.op), self._key(call.args), self._key(dict(call.kwargs)))
        number = self._run(node, body)
        position = shared_argument(call.op)
        viewed = call.args[position] if position is not None and call.args[position:] else None
        base = viewed.name if isinstance(viewed, Ref) else ""
        writes = [each.target.name for each in node.effects if each.target is not None]
        draws = any(effect.kind == "random" for effect in node.effects)
        constant = not draws and all(name in self._constant for name in refs)
        for target in writes:
            written = self._base.get(target)
            if written is not None and written not in self._buffers:
                self._version[written] = number
        of_buffer = writes and base and self._base[base] in self._buffers
        self._define(node, self._number[base] if of_buffer else number, base, constant=constant)
        is_view = bool(base) and not writes
        if not is_view and not constant:
            self.work.append((number, node))

    def _part(self, node: Node, producer: Node) -> None:
        """One of several results."""
        of, index = self._number[producer.name], node.args[1]
        if producer.op == SAVING_STATE:  # of the random state and the result of the op inside
            number = of if index == 1 else self._numbers.of("state", of)
        else:
            number = self._numbers.of("part", of, index)
        base = producer.name if self._base[producer.name] != producer.name else ""
        self._define(node, number, base, constant=producer.name in self._constant)

    def _run(self, node: Node, body: _Key) -> int:
        """The number of what a call gives."""
        numbers = self._numbers
        if node.op in _RESTORING_STATE:
            state = node.kwargs.get("rng_state", node.args[0] if node.args else None)
            saved = (self._key(state), body)
            return numbers.drawn_in.get(saved, numbers.of("in state", *saved))
        draws = node.op == SAVING_STATE or any(each.kind == "random" for each in node.effects)
        if not draws:
            return numbers.of("call", body)
        # What a checkpoint computes again draws what the forward drew, in the same order, and does
        # so anew each time that it is computed again.
        self._drawn[body] += 1
        time = self._drawn[body]
        if self.graph.kind == "backward":
            time = (time - 1) % (numbers.drawn[body] or time) + 1
        else:
            numbers.drawn[body] = max(time, numbers.drawn[body])
        number = numbers.of("drawn", body, time)
        if node.op == SAVING_STATE:
            state = ("value", numbers.of("state", number))
            numbers.drawn_in[state, body] = number
        return number

    def _key(self, value: Arg) -> object:
        """What tells one argument from another: of a value its number."""
        match value:
            case Ref():
                return ("value", self.of(value.name))
            case SubgraphRef():
                bodies = {body.name: body for body in self.graph.subgraphs}
                return ("body", self._numbers.of_body(bodies[value.name]))
            case tuple():
                return ("tuple", *map(self._key, value))
            case slice():
                return ("slice", *map(self._key, (value.start, value.stop, value.step)))
            case Symbol():
                return ("symbol", value.expr)
            case Atom() | Device():
                return ("name", value.name)
            case Mapping():
                items = sorted((str(name), self._key(item)) for name, item in value.items())
                return ("dict", *items)
            case _:
                return (type(value).__name__, repr(value))
