"""FLOPs of edits. Importing this module imports torch, which has the formulas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..census import bodies_of
from ..cost import flops_of, flops_of_call
from ..higher_order import KINDS, executed
from ..model import Graph, Node
from .correspondence import Correspondence
from .costs import FindingIndex, Ledger
from .differing import have_same_result
from .origins import Occurrence


def flops_by_finding(index: FindingIndex) -> list[int | None]:
    """Return the FLOPs of each finding, after minus before; `None` if unknown."""
    ledger = Ledger(index)
    differences = _FlopDifferences(index, ledger)
    ledger.add_pairs(index.origins.pairs, lambda graph: [_graph_flops(graph)], differences.add)
    return ledger.figures


class _FlopDifferences:
    """The FLOP differences of two graphs.

    FLOPs depend on an op and the shapes of its operands. So only changed nodes and their users can
    differ.

    Args:
        index: the findings.
        ledger: receives the differences.
    """

    def __init__(self, index: FindingIndex, ledger: Ledger):
        self.index = index
        self.ledger = ledger

    def add(self, matching: Correspondence, times: int) -> None:
        """Attribute the FLOP differences of a pair of graphs that runs `times` times."""
        for i, j in _nodes_near_changes(matching, self.index):
            if not self._calls_bodies(matching, i, j):
                difference = _flop_difference(matching, i, j)
                self.ledger.add(self._of(matching, i, j), difference, times)
        a, b = matching.a.graph, matching.b.graph
        if not a.subgraphs or not b.subgraphs:
            return
        called: Counter[tuple[int, int]] = Counter()
        bodies: dict[tuple[int, int], tuple[Graph, Graph]] = {}
        for i, j in enumerate(matching.forward):
            if not self._calls_bodies(matching, i, j):
                continue
            old, new = matching.a.nodes[i], matching.b.nodes[j]
            pairs = [*zip(bodies_of(a, old), bodies_of(b, new), strict=True)]
            # These ops run a body once, so edits in a body have their costs there, times its calls.
            # Other ops run a body several times, or count only the branch with the most FLOPs: for
            # them, the difference of the whole op is attributed.
            op = executed(old).op
            if op == executed(new).op and KINDS.get(op) in ("call", "function"):
                for pair in pairs:
                    called[id(pair[0]), id(pair[1])] += 1
                    bodies[id(pair[0]), id(pair[1])] = pair
            elif inside := self._within_bodies(pairs):
                difference = _subtract(_call_flops(b, new), _call_flops(a, old))
                self.ledger.add(inside | self._of(matching, i, j), difference, times)
        for key, (old_body, new_body) in bodies.items():
            inner = self.index.matching(old_body, new_body)
            if inner is not None:
                self.add(inner, times * called[key])

    def _calls_bodies(self, matching: Correspondence, i: int, j: int) -> bool:
        """Return True if two matched nodes call bodies, and both call equally many."""
        if i == -1 or j == -1:
            return False
        a, b = matching.a, matching.b
        counts = len(bodies_of(a.graph, a.nodes[i])), len(bodies_of(b.graph, b.nodes[j]))
        return counts[0] == counts[1] > 0

    def _within_bodies(self, pairs: list[tuple[Graph, Graph]]) -> set[int]:
        """Return the findings that contain a node of one of these pairs of bodies."""
        matchings = [self.index.matching(old, new) for old, new in pairs]
        return {number for m in matchings if m is not None for number in self.index.within(m)}

    def _of(self, matching: Correspondence, i: int, j: int) -> set[int]:
        """Return the findings of a node, or of its first changed operand if it did not change.

        If the operands belong to two edits, neither edit is possible without the other, so the
        choice does not matter.
        """
        numbers = [(is_new, number) for is_new, number in ((True, j), (False, i)) if number != -1]
        nodes = [Occurrence(matching, *number) for number in numbers]
        findings = self.index.of_nodes(nodes)
        for node in nodes:
            for operand in node.flat.operands[node.number]:
                findings = findings or self.index.of_nodes([node.at(operand)])
        return findings


def _nodes_near_changes(matching: Correspondence, index: FindingIndex) -> Iterable[tuple[int, int]]:
    """Return the nodes in findings and their users, each with its partner."""
    pairs: dict[tuple[int, int], None] = {}
    for side, number in index.of_matching[id(matching)]:
        pair = matching.pair_of(side, number)
        pairs[pair] = None
        for at, i in enumerate(pair):
            users = matching.flats[at].users[i] if i != -1 else ()
            pairs.update((matching.pair_of(at, user), None) for user, _ in users)
    return pairs


def _flop_difference(matching: Correspondence, i: int, j: int) -> int | None:
    """Return the FLOPs of a node, after minus before; `None` if unknown."""
    a, b = matching.a, matching.b
    # The same op on the same shapes costs the same, even if its FLOPs are unknown.
    if i != -1 and j != -1 and a.plain[i] == b.plain[j]:
        # Equal labels have equally many arguments. Further operands only order effects.
        operands = [*zip(a.operands[i], b.operands[j], strict=False)]
        if all(have_same_result(a.nodes[p], b.nodes[q]) for p, q in operands):
            return 0
    before = _call_flops(a.graph, a.nodes[i]) if i != -1 else 0
    after = _call_flops(b.graph, b.nodes[j]) if j != -1 else 0
    return _subtract(after, before)


def _subtract(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _graph_flops(graph: Graph) -> int | None:
    """Return the FLOPs of a graph; `None` if unknown. For the exceptions, see `_call_flops`."""
    try:
        return flops_of(graph).known_total
    except Exception:
        return None


def _call_flops(graph: Graph, node: Node) -> int | None:
    """Return the FLOPs of a node; `None` if unknown.

    Formulas are third-party code that asserts properties of the arguments. For a hand-written graph
    a formula may raise any exception. The exception must not prevent the difference.
    """
    if not node.is_call:
        return 0
    try:
        return flops_of_call(graph, node).known_total
    except Exception:
        return None
