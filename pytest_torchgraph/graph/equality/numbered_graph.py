"""A graph as arrays of numbers, independent of the order of independent statements.

All dependencies become ordered operands of a node:

- its arguments, in order;
- `Node.after`, the writes that must precede it;
- the functions that begin the regions around it, such as `torch.no_grad()` (see `ModeRegions`);
- the preceding effect on the same resource (an input, an attribute, the random numbers, ...);
- for the output: the values saved for backward, the values that the target returned
  (`Graph.output`), and the last effect on each resource.

Equality and diff therefore need no knowledge of side effects. A node is live if it is reachable
from the output.

`NumberedGraph` is the form for a diff. `OrderFree` is the form for equality, which also has the
three properties below.

A stored file of an older version, a printed graph and fake tensors lack facts that a capture has.
`shared_facts` removes such facts before a comparison.

Three properties of a training graph depend on the order in which the forward ran:

- The values that a forward saves. They are sorted by their computation.
- The inputs of a backward that its forward saved. They have no order, and a label identifies each
  by its computation in the forward.
- The sums of gradients. Autograd adds the gradients of one value as they arrive, `(a + b) + c` or
  `(c + b) + a`. Here the sum is one op, and its operands are sorted by their computation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import TypeVar

from ..higher_order import PREFIX, SAVING_STATE, body_names
from ..model import (
    Arg,
    Device,
    Effect,
    Graph,
    InputRef,
    Node,
    Ref,
    Result,
    SubgraphRef,
    Symbol,
    TensorMeta,
)
from ..step import SUM_OP
from ..text import format_arg, format_key, format_result, quote
from .canonical_form import aliases_of, canonical_graph
from .mode_regions import ModeRegions

_T = TypeVar("_T")
_TANGENT = re.compile(r"tangent\.[1-9]\d*\Z")


class NumberedGraph:
    """A graph with its nodes numbered by position.

    Attributes:
        graph: the graph.
        nodes: its nodes; the output is the last.
        index: number of each node, by name.
        inputs: numbers of the placeholders.
        roots: numbers of the inputs that must correspond by position: all inputs, except saved ones
            if the forward is known.
        labels: for each node, a string of all that is compared except the operands: kind, op,
            constants, effects, dtype and shape, and the classes of subgraphs.
        valueless: the labels, without the values of constant tensors.
        values: value of each constant tensor, as a string, if known.
        plain: the labels without the classes of subgraphs.
        shapeless: the labels without dtype and shape.
        operands: numbers of each node's operands, in the order of the list in the module docstring.
        arity: how many of each node's operands are arguments; for the output, how many are returned
            or saved values.

    Args:
        graph: the graph.
        subgraph_label: returns what a label contains for a body, by the body's name; `None` for
            nothing.
    """

    def __init__(self, graph: Graph, subgraph_label: Callable[[str], str] | None = None):
        subgraph_label = subgraph_label or _no_label
        self.graph = graph
        self.nodes = graph.nodes
        self.index = {node.name: i for i, node in enumerate(graph.nodes)}
        self.inputs = [i for i, node in enumerate(self.nodes) if node.kind == "placeholder"]
        self.roots = self.inputs
        self.labels: list[str] = []
        self.valueless = self.labels
        self.values: dict[int, str] = {}
        self.plain: list[str] = []
        self.shapeless: list[str] = []
        self.operands: list[list[int]] = []
        self.arity: list[int] = []
        heads: dict[str, int] = {}  # the last effect on each resource
        regions = ModeRegions()
        results: dict[Result, str] = {}  # each result as text: many nodes have the same
        of_bodies: dict[int, list[Effect]] = {}  # see `_iter_effects`
        for i, node in enumerate(self.nodes):
            refs: list[str] = []
            call = self._format_call(node, refs, subgraph_label)
            result = results.get(node.result)
            if result is None:
                result = results[node.result] = _format_label_result(node)
            label = f"{call}:{result}"
            self.shapeless.append(call)
            self.labels.append(label)
            if node.args and is_constant(node):
                self.values[i] = format_arg(node.args)
            if graph.subgraphs:  # otherwise the label is plain already
                label = f"{self._format_call(node, [], _no_label)}:{result}"
            self.plain.append(label)
            if node.kind == "output":
                refs.extend(ref.name for ref in graph.saved)
            operands = [self.index[name] for name in refs]
            self.arity.append(len(operands))
            writes = [self.index[ref.name] for ref in node.after]
            if node.kind == "output" and writes:
                # A write that a result depends on precedes the return anyway, and only some torch
                # releases record it here. So leave it out.
                needed = reachable(operands, self.operands.__getitem__)
                writes = [write for write in writes if write not in needed]
            operands += writes
            # Regions begin and end with a function. Outside of them, no other node is concerned.
            if node.kind == "call_function" or regions.is_inside:
                operands += regions.around(node, i)
            if node.kind == "output" and graph.output is not None:
                operands += self._add_returned_values()
            if effects := dict.fromkeys(_iter_effects(graph, node, of_bodies)):
                # Of two effects of one node, the second would follow the node itself.
                before = self._iter_effects_before(effects, i, heads)
                operands += [operand for operand in before if operand != i]
            if node.kind == "output":
                operands += [heads[key] for key in sorted(heads)]
            self.operands.append(operands)
        # A constant with an unknown value equals any constant, so there are labels without values.
        if self.values:
            self.valueless = [*self.labels]
            for i, value in self.values.items():
                self.labels[i] += f"={value}"
                self.plain[i] += f"={value}"

    def _add_returned_values(self) -> list[int]:
        """Add the target's return values to the output's label. Return the nodes among them."""
        refs: list[str] = []
        leaves = [
            f"{quote(path)}={_format_skeleton(value, refs, _no_label)}"
            for path, value in sorted(self.graph.output or (), key=itemgetter(0))
        ]
        for labels in (self.labels, self.plain, self.shapeless):
            labels[-1] += "".join(f" output {leaf}" for leaf in leaves)
        return [self.index[name] for name in refs]

    def _format_call(
        self, node: Node, refs: list[str], subgraph_label: Callable[[str], str]
    ) -> str:
        """Return the label without dtype and shape, and append its references to `refs`."""
        if node.kind == "placeholder":
            # The number of a tangent names the output of the forward that it is the gradient of.
            # `tangent.0` equals the unnumbered tangent of an eager graph in the middle of a step.
            is_numbered = node.op == "tangent" and _TANGENT.match(node.name)
            return f"placeholder {node.name}" if is_numbered else "placeholder"
        of_call = () if is_constant(node) else node.args
        args = [_format_skeleton(arg, refs, subgraph_label) for arg in of_call]
        if node.kwargs:
            args += [
                f"{format_key(key)}={_format_skeleton(node.kwargs[key], refs, subgraph_label)}"
                for key in sorted(node.kwargs)
                # Devices do not belong to the dataflow: a capture on a GPU equals one on a CPU.
                if not isinstance(node.kwargs[key], Device)
            ]
        # An op that writes to its second argument is not one that writes to its first.
        effects = "".join([f"!{e.kind}{_place_of(e, node)}" for e in node.effects])
        target = quote(node.target) if node.target else ""
        target += quote(node.options) if node.options else ""
        return f"{node.kind} {node.op}{target}({','.join(args)}){effects}"

    def _iter_effects_before(
        self, effects: Iterable[Effect], i: int, heads: dict[str, int]
    ) -> Iterator[int]:
        """Yield the earlier effects that a node's effects must follow.

        Args:
            effects: the effects of the node.
            i: number of the node.
            heads: last effect on each resource so far; updated in place.
        """
        for effect in effects:
            # Unknown code may use every resource, so it follows all effects, and all later effects
            # follow it.
            if effect.kind == "opaque":
                yield from (heads[key] for key in sorted(heads))
                heads.clear()
                heads["opaque"] = i
                continue
            key: str = effect.kind
            if effect.target is not None:
                owner = self.index[effect.target.name]
                kind, target = self.nodes[owner].kind, self.nodes[owner].target
                if kind == "placeholder":
                    # The number is padded, because the output's operands are sorted by these keys.
                    key = f"mutates input {owner:09}"
                elif kind == "get_attr":
                    key = f"mutates {quote(target)}"
                else:
                    continue  # Operands and `after` order the uses of a storage of the graph.
            if key in heads:
                yield heads[key]
            elif "opaque" in heads:
                yield heads["opaque"]
            heads[key] = i

    @cached_property
    def users(self) -> list[list[tuple[int, int]]]:
        """The (user, slot) pairs of each node, for every use as an operand."""
        users: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for i, operands in enumerate(self.operands):
            for slot, operand in enumerate(operands):
                users[operand].append((i, slot))
        return users

    @property
    def returned(self) -> list[int]:
        """Values that the graph returns, without saved values. The graph must have an output."""
        return self.operands[-1][: self.arity[-1] - len(self.graph.saved)]

    def uses(self, i: int) -> list[tuple[int, int]]:
        """Return the (user, slot) pairs in which a node is an operand, except in two cases.

        A saved value does not count as used by the output, because the backward decides which
        values a forward saves. A random op does not count as used by the next random op, which
        only keeps the order. A node that has only such uses gets the single use (output, slot -1).
        """
        last = len(self.nodes) - 1
        end = self.arity[last]
        saved = range(end - len(self.graph.saved), end)
        use_pairs = [
            (user, slot)
            for user, slot in self.users[i]
            if not (user == last and slot in saved) and not self.takes_turns(user, slot)
        ]
        return use_pairs or [(last, -1)] * bool(self.users[i])

    def takes_turns(self, i: int, slot: int) -> bool:
        """Return True if an operand only orders effects, without a shared value or storage.

        For example, each random op is an operand of the next random op, and the last random op is
        an operand of the output.
        """
        if slot < self.arity[i]:
            return False
        node, other = self.nodes[i], self.nodes[self.operands[i][slot]]
        if any(ref.name == other.name for ref in node.after):
            return False
        return not {*_iter_mutated(node)} & {*_iter_mutated(other)}

    def live(self) -> list[bool]:
        """Return, for each node, True if the output or a side effect needs it."""
        live = [False] * len(self.nodes)
        if live:
            live[-1] = True
        for i in range(len(self.nodes) - 1, -1, -1):
            if live[i]:
                for operand in self.operands[i]:
                    live[operand] = True
        return live


def reachable(starts: Iterable[_T], following: Callable[[_T], Iterable[_T]]) -> set[_T]:
    """Return items, and all items that follow from them directly or through other items."""
    reached: set[_T] = set()
    worklist = [*starts]
    while worklist:
        item = worklist.pop()
        if item not in reached:
            reached.add(item)
            worklist += following(item)
    return reached


def _place_of(effect: Effect, node: Node) -> str:
    """Return the position of an effect's target among the node's references; "" if it has none."""
    name = None if effect.target is None else effect.target.name
    return str(node.refs.index(name)) if name in node.refs else ""


def is_constant(node: Node) -> bool:
    """Return True for a constant tensor, whose only argument is its value."""
    return node.kind == "get_attr" or node.op == "constant"


def _iter_effects(graph: Graph, node: Node, of_bodies: dict[int, list[Effect]]) -> Iterator[Effect]:
    """Yield the effects of a node, and the global effects (without a target) of its bodies.

    A call of a checkpointed or shared region draws random numbers if its body does. Only the body
    records this.

    Args:
        graph: the graph of the node.
        node: the node.
        of_bodies: the global effects of each body so far, by `id`; updated in place.
    """
    yield from node.effects
    if node.op == SAVING_STATE:  # the wrapped op draws, which nothing else records
        yield Effect("random")
    for name in body_names(node) if graph.subgraphs and node.op.startswith(PREFIX) else ():
        body = graph.subgraphs_by_name.get(name)
        if body is not None and id(body) not in of_bodies:
            found = (e for inner in body.nodes for e in _iter_effects(body, inner, of_bodies))
            of_bodies[id(body)] = [*dict.fromkeys(e for e in found if e.target is None)]
        yield from () if body is None else of_bodies[id(body)]


def _iter_mutated(node: Node) -> Iterator[str]:
    """Yield the names of the nodes that a node writes to."""
    return (effect.target.name for effect in node.effects if effect.target is not None)


def _no_label(_name: str) -> str:
    """Return the label of any body in a form that leaves bodies out."""
    return ""


def _format_label_result(node: Node) -> str:
    """Return dtype and shape of a node for its label."""
    if isinstance(node.result, TensorMeta | Symbol):
        return format_result(node.result)
    return ""  # The projections of a tuple have results. Other results follow from the call.


def _format_skeleton(value: Arg, refs: list[str], subgraph_label: Callable[[str], str]) -> str:
    """Print an argument with placeholders for its references. Append the references to `refs`."""

    def skeleton(part: Arg) -> str:
        return _format_skeleton(part, refs, subgraph_label)

    match value:
        case Ref(name):
            refs.append(name)
            return "%"
        case tuple():
            return f"[{','.join(map(skeleton, value))}]"
        case dict():
            items = sorted(((format_arg(k), item) for k, item in value.items()), key=itemgetter(0))
            return f"{{{','.join(f'{key}:{skeleton(item)}' for key, item in items)}}}"
        case slice():
            return f"slice({','.join(map(skeleton, (value.start, value.stop, value.step)))})"
        case SubgraphRef(name):
            return f"@{subgraph_label(name)}"
        case Device():
            return "device"
        case InputRef(position):
            return f"input {position}"
    return format_arg(value)


KINDS_WITH_GRADIENT_SUMS = ("backward", "joint")
"""Kinds of graphs in which the operands of a sum have no order."""

DIVIDES = "divides"
"""Effect of a cut of a step, and of no op. The operands of a cut, the values that cross it, have no
order."""
PARTIAL_SUM = "partial sum"
"""Label of a sum that is an operand of the next sum. The last sum takes over its operands."""


class OrderFree(NumberedGraph):
    """A graph in the form used for comparison; see `NumberedGraph`.

    Saved values, and the operands of sums of gradients and of cuts, are in an order that depends
    only on their computation. The saved inputs are not roots if the forward is known.

    Args:
        flat: the numbered graph; it is not changed.

    Attributes:
        sums: the last sum of each chain of gradient sums, with the gradients that the chain adds.
            Also each cut, with the values that cross it, because these have no order either.
    """

    def __init__(self, flat: NumberedGraph):
        # The labels are copied, because formatting them again took a third of a comparison.
        self.__dict__.update(flat.__dict__)
        self.__dict__.pop("users", None)  # The cached users belong to the operands of `flat`.
        self.labels = [*flat.labels]
        self.valueless = self.labels if flat.valueless is flat.labels else [*flat.valueless]
        self.operands = [*map(list, flat.operands)]
        graph = flat.graph
        if graph.saver is not None:
            self._label_saved(hashes_by_name(graph.saver))
            for i, position in zip(self.inputs, positions_in_saver(graph), strict=True):
                self._add_to_label(i, f" {position}")
        self.sums = dict(self._find_sums()) if graph.kind in KINDS_WITH_GRADIENT_SUMS else {}
        for i, node in enumerate(self.nodes):
            if any(effect.kind == DIVIDES for effect in node.effects):
                self.sums[i] = self.operands[i]
        if not self.sums and len(graph.saved) < 2:  # nothing to sort
            return
        hashes = self.hashes()
        for i, terms in self.sums.items():
            self.operands[i] = sorted(terms, key=hashes.__getitem__)
        if graph.saved:
            end = self.arity[-1]
            start = end - len(graph.saved)
            last = self.operands[-1]
            last[start:end] = sorted(last[start:end], key=hashes.__getitem__)

    def _label_saved(self, hashes: Mapping[str, int]) -> None:
        """Identify the saved inputs, in their labels, by their value in the forward.

        They are no longer identified by their positions, so `roots` loses them.
        """
        saved = [i for i in self.inputs if self.nodes[i].op == "saved"]
        if not all(self.nodes[i].name in hashes for i in saved):
            # The value of a saved input is unknown. Label none of them: their order then tells them
            # apart.
            return
        self.roots = [i for i in self.inputs if self.nodes[i].op != "saved"]
        for i in saved:
            self._add_to_label(i, f" {hashes[self.nodes[i].name]}")

    def _add_to_label(self, i: int, text: str) -> None:
        """Extend the label of a node, and its label without values."""
        self.labels[i] += text
        if self.valueless is not self.labels:
            self.valueless[i] += text

    def _find_sums(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the last sum of each chain of gradient sums, with the gradients of the chain.

        Partial sums lose their operands, but stay as unused nodes, so that graphs with different
        numbers of sums differ.
        """
        sums = {
            i
            for i, node in enumerate(self.nodes)
            if node.op == SUM_OP
            and not node.kwargs
            and not node.effects
            and not node.after
            and len(node.args) == 2
            and all(type(arg) is Ref for arg in node.args)
        }
        partial: set[int] = set()
        terms: dict[int, list[int]] = {}
        for i in sorted(sums):
            terms[i] = []
            for operand in self.operands[i]:
                has_one_user = operand in sums and len(self.users[operand]) == 1
                # The gradients of one value have the same dtype and shape. A sum with another label
                # does not belong to the chain.
                if has_one_user and self.labels[operand] == self.labels[i]:
                    partial.add(operand)
                    terms[i] += terms[operand]
                else:
                    terms[i].append(operand)
        for i in partial:
            self._add_to_label(i, f" {PARTIAL_SUM}")
            self.operands[i] = []
        self.__dict__.pop("users", None)  # The cached users belong to the former operands.
        yield from ((i, terms[i]) for i in sums - partial)

    def hashes(self) -> list[int]:
        """Return a hash of each node's computation and uses.

        In one process, equal graphs have equal hashes. Nodes with the same hash are
        interchangeable, except in rare graphs that only a search can distinguish.
        """
        # First from the operands down, then from the users up.
        position = {i: number for number, i in enumerate(self.roots)}
        last = len(self.nodes) - 1
        end = self.arity[-1] if self.arity else 0
        saved = range(end - len(self.graph.saved), end)
        below: list[int] = []
        for i, label in enumerate(self.valueless):
            terms = self.sums.get(i)
            inside = [below[operand] for operand in terms or self.operands[i]]
            # The terms of a sum have no order, and neither have the saved values.
            if terms is not None:
                inside.sort()
            elif i == last and saved:
                inside[saved.start : saved.stop] = sorted(inside[saved.start : saved.stop])
            below.append(hash((label, position.get(i, -1), *inside)))
        uses: list[list[tuple[int, int]]] = [[] for _ in below]
        codes = [0] * len(below)
        for i in range(last, -1, -1):
            codes[i] = hash((below[i], *sorted(uses[i])))
            for slot, operand in enumerate(self.sums.get(i) or self.operands[i]):
                # That a value is saved does not tell it from other saved values.
                if i == last and slot in saved:
                    continue
                # Without an order, the terms of a sum have no slots.
                uses[operand].append((codes[i], -1 if i in self.sums else slot))
        return codes


def positions_in_saver(graph: Graph) -> list[int]:
    """Return the position of each input among the inputs of the forward, -1 if it has none.

    Without it, the gradients of two parameters of one shape could be exchanged. Constants get -1,
    because each graph numbers its own, so equal names show nothing.
    """
    names = {} if graph.saver is None else {n.name: i for i, n in enumerate(graph.saver.inputs)}
    return [names.get(n.name, -1) if n.op != "constant" else -1 for n in graph.inputs]


def hashes_by_name(graph: Graph) -> dict[str, int]:
    """Return a hash of each value's computation and uses. An alias has the hash of its value.

    Values returned by the target are left out, because a stored graph may not record them.
    """
    flat = OrderFree(NumberedGraph(replace(canonical_graph(graph), output=None)))
    hashes = {node.name: code for node, code in zip(flat.nodes, flat.hashes(), strict=True)}
    aliases = aliases_of(graph)
    return hashes | {alias: hashes[value] for alias, value in aliases.items()}
