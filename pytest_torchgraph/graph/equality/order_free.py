"""A numbered graph that does not depend on the order of the user's independent statements.

Three things of a training graph follow the order in which the forward ran:

- the values that a forward saves: here they are sorted by what they compute;
- the inputs of a backward that its forward saved: here they have no order, and a label that says
  what they are in the forward;
- the sums of gradients: autograd adds the gradients of one value as they come in, `(a + b) + c` or
  `(c + b) + a`. Here such a sum is one op, whose operands are sorted by what they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ..model import Graph, Ref
from .canonical import aliases_of, canonical_graph
from .common import WITH_SUMS
from .numbered_graph import NumberedGraph

SUM_OP = "aten.add.Tensor"
"""The op by which autograd adds gradients."""
PARTIAL_SUM = "partial sum"
"""The label of a sum that is an operand of the next one: its operands are those of the last."""


class OrderFree(NumberedGraph):
    """A graph as it is compared; see `NumberedGraph`.

    The saved inputs are no roots if the forward is known.

    Attributes:
        sums: the last sums of gradients, each with the gradients that are added.
    """

    def __init__(self, graph: Graph, subgraph_label: Callable[[str], str] | None = None):
        super().__init__(graph, subgraph_label)
        if graph.saver is not None:
            self._label_saved(hashes_by_name(graph.saver))
        self.sums = dict(self._find_sums()) if graph.kind in WITH_SUMS else {}
        if not self.sums and len(graph.saved) < 2:
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
        """Say in the labels of the saved inputs what they are in the forward."""
        saved = [i for i in self.inputs if self.nodes[i].op == "saved"]
        if not all(self.nodes[i].name in hashes for i in saved):
            return  # without a label their order is all that tells them apart
        self.roots = [i for i in self.inputs if self.nodes[i].op != "saved"]
        for i in saved:
            self._add_to_label(i, f" {hashes[self.nodes[i].name]}")

    def _add_to_label(self, i: int, text: str) -> None:
        self.labels[i] += text
        if self.valueless is not self.labels:
            self.valueless[i] += text

    def _find_sums(self) -> Iterator[tuple[int, list[int]]]:
        """Each last sum of gradients with the gradients that are added.

        Partial sums lose their operands: as nodes that nothing uses they are counted, and no more.
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
                alone = operand in sums and len(self.users[operand]) == 1
                if alone and self.labels[operand] == self.labels[i]:
                    partial.add(operand)
                    terms[i] += terms[operand]
                else:
                    terms[i].append(operand)
        for i in partial:
            self._add_to_label(i, f" {PARTIAL_SUM}")
            self.operands[i] = []
        self.__dict__.pop("users", None)  # they are of the operands before
        yield from ((i, terms[i]) for i in sums - partial)

    def hashes(self) -> list[int]:
        """For each node a hash of what it computes and is used for.

        It is the same in equal graphs of one process. Nodes of one hash are interchangeable, but
        for the rare graph that is only told apart by a search.
        """
        position = {i: number for number, i in enumerate(self.roots)}
        last = len(self.nodes) - 1
        end = self.arity[-1] if self.arity else 0
        saved = range(end - len(self.graph.saved), end)
        below: list[int] = []
        for i, label in enumerate(self.valueless):
            terms = self.sums.get(i)
            codes = [below[operand] for operand in terms or self.operands[i]]
            if terms is not None:
                codes.sort()
            elif i == last and saved:
                codes[saved.start : saved.stop] = sorted(codes[saved.start : saved.stop])
            below.append(hash((label, position.get(i, -1), *codes)))
        uses: list[list[tuple[int, int]]] = [[] for _ in below]
        codes = [0] * len(below)
        for i in range(last, -1, -1):
            codes[i] = hash((below[i], *sorted(uses[i])))
            for slot, operand in enumerate(self.sums.get(i) or self.operands[i]):
                if i == last and slot in saved:
                    continue
                uses[operand].append((codes[i], -1 if i in self.sums else slot))
        return codes


def hashes_by_name(graph: Graph) -> dict[str, int]:
    """A hash of what each value of a graph computes, by its name; of an alias that of its value.

    What the target returned is left out: a stored graph need not know it.
    """
    flat = OrderFree(replace(canonical_graph(graph), output=None))
    hashes = {node.name: code for node, code in zip(flat.nodes, flat.hashes(), strict=True)}
    aliases = aliases_of(graph)
    return hashes | {alias: hashes[value] for alias, value in aliases.items()}
