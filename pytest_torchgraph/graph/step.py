"""One step as one graph: the graphs of a capture are calls, in program order, with cuts.

A run of a compiled graph is a call of a body, and so is a run of eager ops. Each call says where
its inputs come from. `inlined` replaces the calls by their bodies, so that the step is one forward
and one backward, as if nothing had divided it. A cut is a place where the step was divided.

`joined` is the entry for analyses: it calls `inlined`, which makes a `_Phase` of the forward calls,
then one of the backward calls, whose inputs are values of the forward, and one of the update.
`calls_of` returns the calls, and `needs_links` tells whether a text has to state them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ..words import grouped, is_index
from .census import moved
from .inline import Copies, with_order_of_writes
from .model import Arg, Graph, Node, Ref, Symbol, TensorMeta

if TYPE_CHECKING:
    from .events import GraphBreak

MATCHED_BY_NAME = ("parameter", "buffer")
"""Roles of inputs that are one value in all graphs of a step if their names are equal."""
MOST_NODES = 200_000
"""Maximum number of nodes of an inlined step. A file can state a million runs of a large graph."""
MOST_PATHS = 100
"""Maximum number of paths that a run has in place of its graph's.

Each node of the run is looked up in all of them."""
MOST_OF_NAME = 100
"""Maximum number of inputs of one name that are looked through for the same value.

Further ones count as different values: the search takes the square of their number.
"""
OUTSIDE = -1
"""Number of the call that makes the inputs of the step: none."""


class Link(NamedTuple):
    """The source of a value.

    Attributes:
        call: number of the call that makes the value, or `OUTSIDE`.
        name: name of the value in the graph of that call, or of the input of the step.
        role: role of an input of the step, see `INPUT_OPS`; "" for a value of a call.
    """

    call: int
    name: str
    role: str = ""


class Cut(NamedTuple):
    """A place where a step is divided: between two calls, or before the first one.

    Attributes:
        graph_break: what divided the step; `None` if unknown.
        direct: True at the break itself; False where a caller of the broken code is divided, or
            where compiled code goes on after eager ops.
    """

    graph_break: GraphBreak | None = None
    direct: bool = False


@dataclass(frozen=True, slots=True)
class StepCall:
    """One run of a graph.

    Attributes:
        number: position among all calls of the step, in program order.
        inputs: source of each input of the graph, by the input's name. An input that is left out is
            an input of the step, with the same name and role; a constant is the graph's own.
        cut: the cut before the call; `None` if there is none.
        module: path of the module that was running when the call began.
        results: sources of the step's results, known to the last call of a forward or backward:
            outputs by path, gradients by the name of their input.
        order: names of the step's inputs, parameters and buffers in the target's order, known to
            the first call; () if inputs come first, and both are in the order of their first use.
    """

    number: int
    inputs: Mapping[str, Link] = field(default_factory=dict)
    cut: Cut | None = None
    module: str = ""
    results: Mapping[str, Link] = field(default_factory=dict)
    order: tuple[str, ...] = ()


class Boundary(NamedTuple):
    """A cut in an inlined graph.

    Attributes:
        cut: the cut.
        position: number of nodes before it, inputs included.
        graph: name of the graph before it, or of the first graph.
        module: path of the module that was running.
        eager: True if eager ops follow.
    """

    cut: Cut
    position: int
    graph: str
    module: str
    eager: bool


class NodeOrigin(NamedTuple):
    """The captured node of an inlined one, its graph, and the number of the call."""

    graph: Graph
    call: int
    node: Node


class InlinedStep(NamedTuple):
    """An inlined step.

    Attributes:
        graphs: the forward, and the backward if the step has one.
        boundaries: the cuts of the forward.
        origins: the origin of each node, by the name of its inlined graph and its own; empty for a
            step that nothing divides.
    """

    graphs: tuple[Graph, ...]
    boundaries: tuple[Boundary, ...] = ()
    origins: Mapping[tuple[str, str], NodeOrigin] = MappingProxyType({})

    def origin(self, graph: Graph, node: Node) -> NodeOrigin:
        """Return the origin of a node of an inlined graph; otherwise the node itself."""
        return self.origins.get((graph.name, node.name)) or NodeOrigin(graph, OUTSIDE, node)


def calls_of(graphs: Sequence[Graph]) -> list[tuple[StepCall, Graph]] | None:
    """Return the calls of a step with their graphs, in program order; `None` if unknown."""
    if any(graph.calls is None for graph in graphs):
        return None
    pairs = [(call, graph) for graph in graphs for call in graph.calls or ()]
    pairs.sort(key=lambda pair: pair[0].number)
    # A number is missing if some of the step's graphs were left out.
    known = [call.number for call, _ in pairs] == [*range(len(pairs))]
    return pairs if known and pairs else None


def with_calls(graphs: Sequence[Graph], of: Sequence[Graph]) -> tuple[Graph, ...]:
    """Return graphs with the calls of the same graphs at another level, which has other names.

    Graphs of another level, the compiled ones, are changed in place, because live modules are
    looked up by their `id`. A graph that is the same at both levels, an eager one, is copied. The
    graphs are returned as they are if their numbers of inputs or results differ from those of `of`.

    Args:
        graphs: the graphs.
        of: the graphs of the other level, in the same order.
    """
    names: dict[tuple[int, str], str] = {}
    for graph, other in zip(graphs, of, strict=True):
        new = [node.name for node in (*graph.inputs, *graph.outputs)]
        old = [node.name for node in (*other.inputs, *other.outputs)]
        new += [ref.name for ref in graph.saved]
        old += [ref.name for ref in other.saved]
        if len(new) != len(old) or other.calls is None:
            return tuple(graphs)
        for call in other.calls:
            names.update(((call.number, o), n) for o, n in zip(old, new, strict=True))

    def renamed(link: Link) -> Link:
        return link._replace(name=names.get((link.call, link.name), link.name))

    linked = []
    for graph, other in zip(graphs, of, strict=True):
        calls = tuple(
            replace(
                call,
                inputs={names.get((call.number, n), n): renamed(k) for n, k in call.inputs.items()},
                results={label: renamed(link) for label, link in call.results.items()},
            )
            for call in other.calls or ()
        )
        if graph is not other:
            object.__setattr__(graph, "calls", calls)
        linked.append(graph if graph.calls == calls else replace(graph, calls=calls))
    return tuple(linked)


def is_divided(graphs: Sequence[Graph]) -> bool:
    """Return True for a step with several runs of forward graphs, or with eager graphs."""
    forwards = [graph for graph in graphs if graph.kind not in ("backward", "update")]
    # A graph whose calls are unknown ran at least once.
    runs = sum(max(len(graph.calls or ()), 1) for graph in forwards)
    return runs > 1 or any(graph.eager for graph in graphs)


def forward_of(numbers: Mapping[str, Sequence[int]], graph: Graph, number: int) -> int | None:
    """Return the run of the forward whose backward a run is; `None` if unknown.

    Backwards run in the opposite order of their forwards.

    Args:
        numbers: the runs of each graph, by its name.
        graph: the graph of the run.
        number: the run.
    """
    if graph.eager or graph.saver is None or graph.kind != "backward":
        return None
    place = bisect_left(numbers[graph.name], number)
    return earlier_run(numbers.get(graph.saver.name, ()), number, place)


def earlier_run(numbers: Sequence[int], number: int, place: int = 0) -> int | None:
    """Return the last of some runs before a run, or the one `place` runs before the last.

    Return `None` if there is no such run.

    Args:
        numbers: the runs, ascending.
        number: the run.
        place: number of runs to go back from the last one.
    """
    index = bisect_left(numbers, number) - 1 - place
    return numbers[index] if index >= 0 else None


def needs_links(graphs: Sequence[Graph]) -> bool:
    """Return True for a step that is more than one run of a forward graph, and its backward.

    Only in such a step can a value come from any of several runs.
    """
    alone = len(graphs) == 1 and len(graphs[0].calls or ()) < 2
    return (is_divided(graphs) and not alone) or len(graphs) > 2


def inlined(graphs: Sequence[Graph]) -> InlinedStep | None:
    """Return a step with its calls replaced by their bodies.

    Return `None` if its calls are unknown, if it has no forward, or more than `MOST_NODES` nodes.
    """
    calls = calls_of(graphs)
    if calls is None:
        return None
    sizes = {graph.name: count_nodes(graph) for graph in graphs}
    if sum(sizes[graph.name] for _, graph in calls) > MOST_NODES:
        return None
    forwards = [pair for pair in calls if pair[1].kind not in ("backward", "update")]
    if not forwards:
        return None
    forward = _Phase(forwards)
    backwards = [pair for pair in calls if pair[1].kind == "backward"]
    backward = _Phase(backwards, forward) if backwards else None
    updates = [pair for pair in calls if pair[1].kind == "update"]
    update = _Phase(updates, forward) if updates else None
    of_update = () if update is None else (update.graph,)
    origins = forward.origins | ({} if update is None else update.origins)
    # Eager code saves what its backward takes; a graph says what it saves.
    taken = () if backward is None else (node.name for node in backward.inputs.values())
    saved = dict.fromkeys([*forward.saved, *taken])
    saver = replace(forward.graph, saved=tuple(Ref(n) for n in saved if n in forward.graph.by_name))
    of_backward = () if backward is None else (replace(backward.graph, saver=saver),)
    graphs = in_order((saver, *of_backward, *of_update))
    if backward is not None:
        origins |= backward.origins
    return InlinedStep(graphs, tuple(forward.boundaries), origins)


def count_nodes(graph: Graph) -> int:
    """Return the number of nodes of a graph with its bodies."""
    return sum(len(part.nodes) for part in graph.walk())


def joined(graphs: Sequence[Graph]) -> InlinedStep:
    """Return a divided step inlined; its graphs if it is undivided, or if `inlined` gives up."""
    return (inlined(graphs) if is_divided(graphs) else None) or InlinedStep(tuple(graphs))


SUM_OP = "aten.add.Tensor"
"""Op with which autograd adds gradients."""


def in_order(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """Return a forward and its backward, in which inputs and saved values have the forward's order.

    The update of a training step comes last.
    """
    updates = [graph for graph in graphs if graph.kind == "update"]
    graphs = [graph for graph in graphs if graph.kind != "update"]
    forward, *backwards = sorted(graphs, key=lambda graph: graph.kind == "backward")
    # The last run of a divided step computes a part of the results, so all of them have paths.
    if forward.output == tuple((str(n), Ref(v.name)) for n, v in enumerate(forward.outputs)):
        forward = replace(forward, output=())
    if not backwards:
        return (forward, *updates)
    [backward] = backwards
    place = {node.name: number for number, node in enumerate(forward.nodes)}
    # As in every converted backward, the inputs of the step come before saved values and tangents.
    roles = {"saved": 1, "tangent": 2}
    inputs = sorted(
        backward.inputs, key=lambda node: (roles.get(node.op, 0), place.get(node.name, -1))
    )
    others = [node for node in backward.nodes if node.kind != "placeholder"]
    # The runs of a divided step save their values run by run.
    saved = sorted(forward.saved, key=lambda ref: place[ref.name])
    forward = replace(forward, saved=tuple(saved))
    return forward, replace(backward, nodes=(*inputs, *others), saver=forward), *updates


def crossed(
    graph: Graph, positions: Sequence[int], aliases: Mapping[str, str]
) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each value of a forward, and the range of the positions that it crosses.

    A value crosses a position if it is computed before, and used after it. Inputs do not cross. The
    range is given by the index of its first position, and the index after its last one.

    Args:
        positions: numbers of the ops before each position, ascending.
        aliases: the original of each alias, whose uses are those of the original.
    """
    ops = [node for node in graph.nodes if node.kind != "placeholder"]
    made = {node.name: number for number, node in enumerate(ops)}
    last: dict[str, int] = {}
    for number, node in enumerate(ops):
        for name in (*node.refs, *(ref.name for ref in node.after)):
            last[aliases.get(name, name)] = number
    for name, use in last.items():
        # The range of an input is empty, as if its last use made it.
        yield name, bisect_right(positions, made.get(name, use)), bisect_right(positions, use)


class _Outside(NamedTuple):
    """An input of the step, and the call that holds it as its own constant, or `OUTSIDE`."""

    call: int
    node: Node


def _owner_of(call: StepCall, node: Node) -> int:
    """Return the call if an input is a constant that its graph holds itself, or `OUTSIDE`."""
    return call.number if node.op == "constant" and node.name not in call.inputs else OUTSIDE


def _may_be_same(node: Node, other: Node) -> bool:
    """Return True if two inputs can be one value: equal constants, equal dtypes and shapes.

    A size can be a symbol in one graph, and a number in another.
    """
    a, b = node.result, other.result
    if (node.args or other.args) and repr(node.args) != repr(other.args):
        return False
    if not isinstance(a, TensorMeta) or not isinstance(b, TensorMeta):
        return a == b
    sizes = zip(a.shape, b.shape, strict=False)  # shapes of other lengths differ anyway
    return (a.dtype, a.layout, len(a.shape)) == (b.dtype, b.layout, len(b.shape)) and all(
        x == y or isinstance(x, Symbol) or isinstance(y, Symbol) for x, y in sizes
    )


class _Phase:
    """The forward, the backward or the update of a step, inlined.

    The constructor does all the work: it collects the inputs of all calls, then copies the ops of
    each call, and builds `graph`.

    Args:
        calls: its calls with their graphs, in program order.
        forward: the inlined forward, if this is the backward or the update.

    Attributes:
        runs: the calls with their graphs, by number.
        values: name of each value, by call and name in the call's graph.
        inputs: the inputs, by their key, see `_key`.
        keys: key in `inputs` of each input of a call, by call and name.
        outside: the inputs of the step, by role and name; several values can share both.
        copies: the ops of all calls.
        template: the graph whose other attributes `graph` has.
        origins: see `InlinedStep`.
        boundaries: the cuts, in a forward only.
        saved: names of the values that the graphs save.
        graph: the inlined graph.
    """

    def __init__(self, calls: Sequence[tuple[StepCall, Graph]], forward: _Phase | None = None):
        self.calls = calls
        self.forward = forward
        self.runs = {call.number: (call, graph) for call, graph in calls}
        self.values: dict[tuple[int, str], str] = {}
        self.inputs: dict[Hashable, Node] = {}
        self.keys: dict[tuple[int, str], Hashable] = {}
        self.outside: dict[tuple[str, str], list[_Outside]] = {}
        self.copies = Copies()
        # A part without gradients does not make the step an inference, nor eager ops make it eager.
        self.template = min(
            (graph for _, graph in calls), key=lambda g: (g.kind == "inference", g.eager)
        )
        self.origins: dict[tuple[str, str], NodeOrigin] = {}
        self.boundaries: list[Boundary] = []
        self.saved: list[str] = []
        wanted: dict[Hashable, str] = {}  # the name of each input outside, by its key
        for call, graph in calls:  # first, so that ops do not take the names of inputs
            for node in graph.inputs:
                link = self._link(call, node)
                if link.call not in self.runs:
                    wanted.setdefault(self._add_input(call, node), link.name)
        # In the target's order, if it is known. Otherwise inputs come before parameters.
        place = {name: number for number, name in enumerate(calls[0][0].order)}
        ordered = sorted(
            self.inputs,
            key=lambda key: (place.get(wanted[key], len(place)), self.inputs[key].op != "input"),
        )
        self.inputs = {key: self.inputs[key] for key in ordered}
        before = calls[0][1].name
        for call, graph in calls:
            if call.cut is not None and forward is None:
                self.boundaries.append(
                    Boundary(call.cut, len(self.copies.nodes), before, call.module, graph.eager)
                )
            before = graph.name
            self._add_body(call, graph)
        self.graph = self._build()

    def _link(self, call: StepCall, node: Node) -> Link:
        return call.inputs.get(node.name) or Link(OUTSIDE, node.name, node.op)

    def _key(self, call: StepCall, node: Node) -> Hashable:
        """Return the key of an input of a call. Inputs with equal keys are one value.

        The key is a name for a value of the forward, the `Symbol` of a symbolic size, the `Link` of
        a gradient that a backward makes, and otherwise role, name and number of an input of the
        step, because inputs of one name may be different values.
        """
        link = self._link(call, node)
        if self.forward is not None:
            name = self.forward.name_of(link, node)
            if name is not None:
                return name
        if isinstance(node.result, Symbol):  # one symbol is one input, whoever takes it
            return node.result
        if link.call != OUTSIDE:
            return link
        role, number = link.role or node.op, _owner_of(call, node)
        known = self.outside.get((role, link.name), [])
        for place, other in enumerate(known[:MOST_OF_NAME]):
            if other.call == number and _may_be_same(other.node, node):
                return role, link.name, place
        return role, link.name, len(known)

    def name_of(self, link: Link, node: Node | None = None) -> str | None:
        """Return the name of a value; `None` if it is not in this phase.

        Args:
            link: the source of the value.
            node: the input that takes it, if any: inputs of one name may be different values.
        """
        if link.call != OUTSIDE:
            return self.values.get((link.call, link.name))
        if node is not None and isinstance(node.result, Symbol):
            known = self.inputs.get(node.result)
            return None if known is None else known.name
        same_name = self.outside.get((link.role, link.name), [])
        for place, other in enumerate(same_name[:MOST_OF_NAME]):
            if node is None or _may_be_same(other.node, node):
                return self.inputs[link.role, link.name, place].name
        return None

    def _add_input(self, call: StepCall, node: Node) -> Hashable:
        """Add an input of a call to `inputs`, unless it is there, and return its key."""
        key = self.keys[call.number, node.name] = self._key(call, node)
        if key in self.inputs:
            return key
        link = self._link(call, node)
        name, role = link.name, link.role or node.op
        known = None if self.forward is None else self.forward.graph.by_name
        if known is not None and isinstance(key, str):  # a value of the forward
            name = key
            role = known[name].op if known[name].kind == "placeholder" else "saved"
        elif isinstance(key, Link):
            role = "tangent"  # a gradient, from a backward in the middle of the step
        elif isinstance(key, tuple):
            self.outside.setdefault((role, name), []).append(_Outside(_owner_of(call, node), node))
        # A backward takes a value of its forward by its name.
        while known is not None and name in known and name != key:
            name = f"outside.{name}"
        name = self.copies.claim(name)
        same = (name, role) == (node.name, node.op)
        self.inputs[key] = node if same else replace(node, name=name, op=role)
        return key

    def value(self, call: StepCall, node: Node) -> str:
        """Return the name of the value that a call receives as an input."""
        link = self._link(call, node)
        if link.call in self.runs:
            return self.values[link.call, link.name]
        return self.inputs[self.keys[call.number, node.name]].name

    def _add_body(self, call: StepCall, graph: Graph) -> None:
        """Add the ops of a call to `copies`, and their names to `values`."""
        taken = ((node.name, self.value(call, node)) for node in graph.inputs)
        values: dict[str, Arg] = {old: Ref(new) for old, new in taken if new != old}
        # A backward takes few parameters, so it has the paths of its forward.
        run, source = self._forward_run(call, graph) or (call, graph)
        paths = renamed_paths(source, run.inputs)

        def name_of(name: str) -> str:
            return self.copies.claim(moved(name, *paths))

        def module_of(path: str) -> str:
            return moved(path, *paths) or call.module  # unknown to Dynamo where it resumes

        def added(node: Node, copy: Node) -> None:
            self.origins[self.template.kind, copy.name] = NodeOrigin(graph, call.number, node)

        self.copies.add(graph, values, name_of, module_of, added=added)
        for name in graph.by_name:
            value = values.get(name)
            self.values[call.number, name] = value.name if isinstance(value, Ref) else name
        self.saved += [self.values[call.number, ref.name] for ref in graph.saved]

    def _left_over(self, results: Iterable[str | None]) -> list[str]:
        """Return what the runs return to code that is not recorded, such as a compiled backward."""
        taken = {
            *results,
            *(self.name_of(link) for c, _ in self.calls for link in c.inputs.values()),
        }
        returned = [
            self.values[call.number, node.name]
            for call, graph in self.calls
            for node in graph.outputs
            if node.is_call
        ]
        return [name for name in dict.fromkeys(returned) if name not in taken]

    @cached_property
    def _numbers(self) -> Mapping[str, Sequence[int]]:
        """Runs of each graph of the step so far, by its name."""
        runs = self.runs if self.forward is None else self.forward.runs | self.runs
        return grouped((graph.name, number) for number, (_, graph) in runs.items())

    def _forward_run(self, call: StepCall, graph: Graph) -> tuple[StepCall, Graph] | None:
        """Return the run of the forward whose backward a run is."""
        number = None if self.forward is None else forward_of(self._numbers, graph, call.number)
        return None if number is None or self.forward is None else self.forward.runs[number]

    def _build(self) -> Graph:
        """Return the inlined graph.

        A forward returns the results of the step, a backward one gradient or `None` for each input
        of the forward. A backward also returns what only code without a record takes.
        """
        last, _ = self.calls[-1]
        is_backward = self.template.kind == "backward"
        prefix = "grad " if is_backward else "output "
        named = {label: self.name_of(link) for label, link in last.results.items()}
        results = {
            label.removeprefix(prefix): name
            for label, name in named.items()
            if name is not None and label.startswith(prefix)
        }
        output = None
        if is_backward and self.forward is not None:
            inputs = self.forward.graph.inputs
            known = [Ref(results[n.name]) if n.name in results else None for n in inputs]
            value: Arg = (*known, *map(Ref, self._left_over(named.values())))
        else:
            # A text names first what is not obvious, so the target's own order is restored.
            returned = [graph.output for _, graph in self.calls]
            # One graph has the outputs of the target: the last one, which need not run last.
            paths = next(filter(None, returned), () if () in returned else None)
            place = {path: number for number, (path, _) in enumerate(paths or ())}
            ordered = sorted(results, key=lambda p: place.get(p, int(p) if is_index(p) else -1))
            refs = tuple(Ref(results[path]) for path in ordered)
            value = refs[0] if len(refs) == 1 else refs
            output = paths and tuple(
                (path, Ref(results[path]) if path in results else value) for path, value in paths
            )
        end = Node("output", "output", "output", (value,))

        def run_of(node: Node) -> int:
            origin = self.origins.get((self.template.kind, node.name))
            return OUTSIDE if origin is None else origin.call

        return replace(
            self.template,
            nodes=(*self.inputs.values(), *with_order_of_writes([*self.copies.nodes, end], run_of)),
            name=self.template.kind,
            # Eager graphs have the level "dispatch" in every step, so a compiled one gives it.
            level=min((graph for _, graph in self.calls), key=lambda graph: graph.eager).level,
            subgraphs=tuple(self.copies.subgraphs),
            saved=(),
            eager=False,
            runs=1,
            counted=False,
            output=output,
            calls=None,
        )


def renamed_paths(graph: Graph, inputs: Mapping[str, Link]) -> list[tuple[str, str]]:
    """Return the module paths that a run has in place of its graph's, longest first.

    A graph that was compiled once and runs for several layers has the paths of its first run. The
    parameters that a run takes show its own. A run with more than `MOST_PATHS` keeps the graph's.
    """
    pairs = set()
    for node in graph.inputs:
        link = inputs.get(node.name)
        if link is None or link.call != OUTSIDE or node.op not in MATCHED_BY_NAME:
            continue
        if link.name != node.name:
            old, new = node.name.split("."), link.name.split(".")
            while old and new and old[-1] == new[-1]:
                old, new = old[:-1], new[:-1]
            pairs.add((".".join(old), ".".join(new)))
    if len(pairs) > MOST_PATHS:
        return []
    return sorted(pairs, key=lambda pair: (-len(pair[0]), pair))
