"""Exact isomorphism of dataflow, at each level of detail.

Live nodes need no search. Operands are ordered, so any path from the output or a side effect to a
live node identifies this node. Walking both graphs in lockstep from their outputs pairs all live
nodes. Hashes would not be enough, because they confuse a node used twice with two equal nodes. Dead
code is paired by its colours. A colour stands for what a node computes and how it is used.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from ..model import Arg, Atom, Device, Graph, Node, Result, TensorMeta, map_arg
from .canonical_form import aliases_of, canonical, canonical_graph
from .numbered_graph import NumberedGraph, OrderFree, positions_in_saver
from .shared_facts import drop_unshared_facts

COLOR_ROUNDS = 3
"""Rounds of colour refinement of dead nodes, by users and then by operands.

Dead nodes of one colour count as equal: they compute the same and are used alike. What is left is
symmetry that no result depends on."""


_IN_ORDER = "saves_in_order_of"
"""Attribute of a forward: another forward that is known to save equal values in the same order."""


def _record_same_order(first: Graph, second: Graph) -> None:
    """Note on `first` that it saves values equal to those of `second`, in the same order."""
    # Graphs are frozen, so `__dict__` is changed directly. The reference is weak, because a cache
    # must not keep a graph alive.
    first.__dict__[_IN_ORDER] = weakref.ref(second)


def _have_same_order(first: Graph, second: Graph) -> bool:
    """Return True if `_record_same_order` noted these graphs; False if that is unknown."""
    noted = first.__dict__.get(_IN_ORDER)
    return noted is not None and noted() is second


def isomorphic(a: Graph, b: Graph) -> bool:
    """Return True if two graphs have the same dataflow (see `Graph`)."""
    return _compare_canonical(a, b) is not None


class EquivalenceClasses:
    """Equivalence classes of graphs: graphs with the same dataflow have the same number.

    Bodies of higher-order ops are compared by their class numbers. The live part of a graph has a
    canonical numbering, in the order in which the output reaches its nodes. So two bodies are
    compared node by node only if they have constants with known values.

    Attributes:
        ids: numbers of live parts, colours and classes, by key.
        known: each classified graph with its class number, by `id`.
        flats: each graph numbered for a diff, by `id`.
        order_free: each graph numbered for equality, by `id`.
        alike: one graph of each class with its number, by form.
    """

    def __init__(self) -> None:
        self.ids: dict[Hashable, int] = {}
        self.known: dict[int, tuple[Graph, int]] = {}
        self.flats: dict[int, NumberedGraph] = {}
        self.order_free: dict[int, OrderFree] = {}
        self.alike: dict[Hashable, list[tuple[OrderFree, int]]] = {}

    def flat(self, graph: Graph) -> NumberedGraph:
        """Return the numbered graph; its labels contain the class numbers of subgraphs."""
        flat = self.flats.get(id(graph))
        if flat is None:
            flat = self.flats[id(graph)] = NumberedGraph(graph, self._label_bodies(graph))
        return flat

    def compared(self, graph: Graph) -> OrderFree:
        """Return the numbered graph in the form used for comparison."""
        flat = self.order_free.get(id(graph))
        if flat is None:
            flat = self.order_free[id(graph)] = OrderFree(self.flat(graph))
        return flat

    def _label_bodies(self, graph: Graph) -> Callable[[str], str]:
        """Return a function that gives each body's class number by the body's name."""
        bodies = graph.subgraphs_by_name

        def label(name: str) -> str:
            # The body can be missing in a file.
            return str(self.number(bodies[name])) if name in bodies else f"?{name}"

        return label

    def equal(self, first: Graph, second: Graph) -> bool:
        """Return True if two graphs are in one class."""
        if not self._may_be_equal(first, second):
            return False
        if self._pair_in_order(first, second) is not None:
            return True
        return self.number(first) == self.number(second)

    def pairing(self, first: Graph, second: Graph) -> list[int] | None:
        """Return the counterpart's number for each node of `first`; `None` if the graphs differ."""
        if not self._may_be_equal(first, second):
            return None
        in_order = self._pair_in_order(first, second)
        if in_order is not None:
            return in_order
        return self._pair(self.compared(first), self.compared(second))

    def _may_be_equal(self, first: Graph, second: Graph) -> bool:
        """Return False if the nodes differ, so that no order needs to be computed."""
        a, b = self.flat(first), self.flat(second)
        # Graphs that differ usually differ in at least one label. Comparing labels costs one pass;
        # pairing and hashing cost several.
        return len(a.nodes) == len(b.nodes) and Counter(a.valueless) == Counter(b.valueless)

    def _pair_in_order(self, first: Graph, second: Graph) -> list[int] | None:
        """Pair graphs whose saved values and sums have the same order, which is the common case.

        This takes half the time of `pairing`. `None` can also mean that the order differs. If the
        graphs are paired, it is noted that they save values in the same order.
        """
        if not self._have_same_inputs(first, second):
            return None
        partners = self._pair(self.flat(first), self.flat(second))
        if partners is not None and first.saved:
            _record_same_order(first, second)
        return partners

    def _have_same_inputs(self, first: Graph, second: Graph) -> bool:
        """Return True if two backwards have the same saved inputs in the same order.

        Also True for two graphs without a saver, such as forwards.
        """
        if first.saver is None or second.saver is None:
            return first.saver is second.saver
        if positions_in_saver(first) != positions_in_saver(second):
            return False
        savers = first.saver, second.saver
        # In general, a saved value is identified by a hash of its computation in the forward. If
        # both forwards save equal values in the same order, its position is enough.
        if savers[0] is not savers[1] and not _have_same_order(*savers):
            a, b = map(canonical_graph, savers)
            if not self._may_be_equal(a, b) or self._pair_in_order(a, b) is None:
                return False
            _record_same_order(*savers)
        # Inputs at one position must be values that the forwards save at one position, too. An
        # alias counts as its original.
        originals = [aliases_of(saver) for saver in savers]
        saved_names = [
            dict.fromkeys(names.get(ref.name, ref.name) for ref in saver.saved)
            for saver, names in zip(savers, originals, strict=True)
        ]
        input_names = [
            [names.get(node.name, node.name) for node in graph.inputs if node.op == "saved"]
            for graph, names in zip((first, second), originals, strict=True)
        ]
        pairs = {*zip(*saved_names, strict=False)}
        return len(input_names[0]) == len(input_names[1]) and pairs.issuperset(
            zip(*input_names, strict=True)
        )

    def number(self, graph: Graph) -> int:
        """Return the number of a graph's class."""
        entry = self.known.get(id(graph))
        if entry is None:
            entry = self.known[id(graph)] = graph, self._classify(self.compared(graph))
        return entry[1]

    def _classify(self, flat: OrderFree) -> int:
        """Return the number of a graph's class, a new one for the first graph of a class."""
        candidates = self.alike.setdefault(self._form(flat)[0], [])
        for other, number in candidates:
            # The form has no values of constants, and an unknown value equals any value.
            if not flat.values or self._pair(flat, other) is not None:
                return number
        number = self.ids.setdefault(("graph", len(self.ids)), len(self.ids))
        candidates.append((flat, number))
        return number

    def _pair(self, a: NumberedGraph, b: NumberedGraph) -> list[int] | None:
        """Return the partner of each node of `a`; `None` if the graphs differ."""
        (form, order), (other_form, other_order) = self._form(a), self._form(b)
        if form != other_form:
            return None
        partners = dict(zip(order, other_order, strict=True))
        for i in a.values.keys() & {*partners}:
            # An unknown value counts as equal to any value.
            if a.values[i] != b.values.get(partners[i], a.values[i]):
                return None
        return [partners[i] for i in range(len(a.nodes))]

    def _form(self, flat: NumberedGraph) -> tuple[Hashable, list[int]]:
        """Return a form that equal graphs have in common, and the nodes in the order of the form.

        The form leaves out the values of constants.
        """
        numbers = _number_live_nodes(flat)
        number_of, labels, operands = numbers.__getitem__, flat.valueless, flat.operands
        dead = [i for i in range(len(flat.nodes)) if i not in numbers]
        form: Hashable = (
            len(flat.roots),
            len(flat.graph.saved),
            flat.graph.output is None,
            *[(labels[i], *map(number_of, operands[i])) for i in numbers],
        )
        if not dead:
            return form, [*numbers]
        # Colours refer to live nodes by the live part's number and the node's number in it.
        number = self.ids.setdefault(form, len(self.ids))
        colors = _color_dead_nodes(flat, dead, lambda i: ("live", number, numbers[i]), self.ids)
        # Constants of one colour are paired in the order of their values.
        dead.sort(key=lambda i: (colors[i], flat.values.get(i, "")))
        return (number, *(colors[i] for i in dead)), [*numbers, *dead]


def _number_live_nodes(flat: NumberedGraph) -> dict[int, int]:
    """Number the inputs and all nodes that the output needs, identically in equal graphs.

    The dict has the nodes in the order of their numbers. Missing nodes are dead code.
    """
    numbers = {i: number for number, i in enumerate(flat.roots)}
    todo = [len(flat.nodes) - 1] if flat.nodes else []
    for i in flat.roots:
        todo.extend(flat.operands[i])
    while todo:
        i = todo.pop()
        if i not in numbers:
            numbers[i] = len(numbers)
            todo.extend(flat.operands[i])
    return numbers


def pairing(first: Graph, second: Graph) -> list[int] | None:
    """Return the counterpart's number for each node of `first`, or `None` if the graphs differ.

    Nodes are numbered by their positions in the canonical forms.
    """
    compared = _compare_canonical(first, second)
    # The same nodes as in `second` have the same numbers.
    if compared is None or compared[0].nodes is second.nodes:
        return None if compared is None else compared[1]
    # `drop_unshared_facts` can put parameters in another order.
    position = {node.name: number for number, node in enumerate(canonical_graph(second).nodes)}
    return [position[compared[0].nodes[partner].name] for partner in compared[1]]


def _compare_canonical(first: Graph, second: Graph) -> tuple[Graph, list[int]] | None:
    """Return the canonical form of `second` used for comparison, and the pairing with its nodes.

    `None` if the graphs differ.
    """
    original = first, second
    first, second = map(canonical_graph, drop_unshared_facts(first, second))
    if len(first.nodes) != len(second.nodes) or len(first.saved) != len(second.saved):
        return None
    partners = EquivalenceClasses().pairing(first, second)
    if partners is None:
        return None
    if _have_same_order(first, second) and not (original[0].given or original[1].given):
        _record_same_order(*original)  # The backwards have these graphs as savers.
    return second, partners


def _color_dead_nodes(
    flat: NumberedGraph,
    dead: list[int],
    live: Callable[[int], Hashable],
    ids: dict[Hashable, int],
) -> dict[int, int]:
    """Return colours of dead nodes.

    Nodes of one colour compute the same and have the same uses, up to some distance.

    Args:
        dead: nodes to colour, in order.
        live: key of each other node, equal for partners in two graphs.
        ids: numbers of the keys, shared by the compared graphs.
    """

    def intern(key: Hashable) -> int:
        return ids.setdefault(key, len(ids))

    # A first colour stands for what a node computes. Each round adds the users, and the colours of
    # the operands, which know their users by then.
    members = set(dead)
    colors: dict[int, int] = {}
    for i in dead:
        below = tuple(colors[o] if o in members else intern(live(o)) for o in flat.operands[i])
        colors[i] = intern((flat.valueless[i], below))
    for _ in range(COLOR_ROUNDS):
        above: dict[int, int] = {}
        for i in reversed(dead):
            users = sorted((above[u], slot) for u, slot in flat.users[i])
            above[i] = intern((colors[i], tuple(users)))
        colors = {}
        for i in dead:
            operands = tuple(colors.get(o, -1) for o in flat.operands[i])
            colors[i] = intern((above[i], operands))
    return colors


def renamed_values(old: Sequence[Graph], new: Sequence[Graph]) -> list[tuple[str, str]]:
    """Return the old and new name of each renamed value, in the old order.

    Args:
        old: graphs of one capture.
        new: equal graphs of another capture, in the same order.
    """
    return [
        pair
        for before, after in zip(canonical(old), canonical(new), strict=True)
        for pair in _renamed_in_graph(before, after)
    ]


def _renamed_in_graph(old: Graph, new: Graph) -> list[tuple[str, str]]:
    """Return the renamed values of a graph and of its bodies; [] if the graphs differ."""
    counterparts = pairing(old, new)
    if counterparts is None:
        return []
    pairs = [
        (node.name, new.nodes[number].name)
        for node, number in zip(old.nodes, counterparts, strict=True)
        if node.name != new.nodes[number].name
    ]
    # A body that no op calls is not compared, so equal graphs can have more or fewer of these.
    for before, after in zip(old.subgraphs, new.subgraphs, strict=False):
        pairs += _renamed_in_graph(before, after)
    return pairs


def strict(graph: Graph) -> Graph:
    """Return the graph with strides and devices as part of dtypes and constants, for `==`."""
    return graph.map_nodes(_strict_node)


def _strict_node(node: Node) -> Node:
    return replace(
        node,
        args=map_arg(node.args, _strict_arg),
        kwargs=map_arg(node.kwargs, _strict_arg),
        result=_strict_result(node.result),
    )


def _strict_result(result: Result) -> Result:
    if isinstance(result, TensorMeta):
        return replace(result, dtype=f"{result.dtype} {result.stride} {result.device}")
    if isinstance(result, tuple):
        return tuple(map(_strict_result, result))
    return result


def _strict_arg(value: Arg) -> Arg:
    return Atom(f"device {value.name}") if isinstance(value, Device) else value
