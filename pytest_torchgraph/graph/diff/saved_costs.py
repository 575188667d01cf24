"""The bytes that edits make a forward save for its backward.

A storage that is saved on one side alone was made, or is saved, because of an edit. One that came
or went with the op that made it is of that op's finding. One whose op is there on both sides is
saved because of who uses it: its finding is that of the changed op that made it or takes it or, of
several, the one that uses it in the backward too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from ...errors import CaptureError
from ...ops.levels import SAVING_LEVELS
from ..cost.saved import base, owners_of_saved, storage_bytes
from ..equality.common import runs_differ
from ..model import Graph, Node, Ref, is_projection
from .bearers import Bearers, Ledger, Side
from .correspondence import Correspondence


def saved_by_finding(bearers: Bearers) -> list[int | None]:
    """The saved bytes of each finding, after minus before; None where they are not known."""
    return _Saved(bearers).run()


class _Saved:
    def __init__(self, bearers: Bearers):
        self.bearers = bearers
        self.ledger = Ledger(bearers.count)

    def run(self) -> list[int | None]:
        for old, new in self.bearers.pairs:
            if any(g is not None and g.level not in SAVING_LEVELS for g in (old, new)):
                continue
            if old is None or new is None:
                for graph, sign in ((old, -1), (new, 1)):
                    if graph is not None:
                        self._add_graph((old, new), graph, sign * graph.runs)
                continue
            matching = self.bearers.matching(old, new)
            if matching is not None and (old.saved or new.saved):
                self._add_matching(matching, new.runs)
            if runs_differ(old, new):
                self._add_graph((old, new), old, new.runs - old.runs)
        return self.ledger.figures

    def _add_graph(self, pair: tuple[Graph | None, Graph | None], graph: Graph, times: int) -> None:
        """Put to the finding of a whole graph what it saves."""
        findings = self.bearers.of_graphs(pair)
        for node in owners_of_saved(graph):
            self._add(findings, _bytes(node), times)

    def _add(self, findings: set[int], amount: int | None, times: int) -> None:
        self.ledger.add(findings, None if amount is None else amount * times)

    def _add_matching(self, matching: Correspondence, times: int) -> None:
        """Put to the findings what a pair of graphs saves that runs some times."""
        a, b = matching.a, matching.b
        old, new = (
            {flat.index[node.name]: node for node in owners_of_saved(flat.graph)} for flat in (a, b)
        )
        for i, node in old.items():
            j = matching.forward[i]
            if j not in new:
                self._add(self._of_storage(matching, (False, i)), _bytes(node), -times)
            elif a.labels[i] != b.labels[j]:
                before, after = _bytes(node), _bytes(new[j])
                amount = None if before is None or after is None else after - before
                self._add(self._makers(matching, (False, i)), amount, times)
        for j, node in new.items():
            if matching.backward[j] not in old:
                self._add(self._of_storage(matching, (True, j)), _bytes(node), times)

    # -- who is the cause ------------------------------------------------------------------------

    def _of_storage(self, matching: Correspondence, owner: Side) -> set[int]:
        """The findings because of which a storage is saved on one side alone; one if it is known.

        Args:
            matching: of the two graphs.
            owner: the node that made the storage.
        """
        is_new, number = owner
        partner = (matching.backward if is_new else matching.forward)[number]
        makers = self._makers(matching, owner)
        if partner == -1 and len(makers) == 1:
            return makers
        sides = [owner] if partner == -1 else [owner, (not is_new, partner)]
        sharing = [
            (side, node) for side, start in sides for node in _sharing(matching, side, start)
        ]
        takers = [taker for side, node in sharing for taker in _takers(matching, side, node)]
        causes = makers | self.bearers.of_nodes(matching, takers)
        if len(causes) == 1:
            return causes
        later = set().union(*(self._in_backward(matching, *node) for node in sharing))
        return (causes & later if causes else later) or causes or self.bearers.within(matching)

    def _makers(self, matching: Correspondence, owner: Side) -> set[int]:
        """The findings of the op that made a storage."""
        is_new, number = owner
        flat = matching.b if is_new else matching.a
        found = self.bearers.of_node(matching, owner)
        node = flat.nodes[number]
        if not found and node.refs:
            producer = flat.index[node.refs[0]]
            if is_projection(node, flat.nodes[producer]):
                return self.bearers.of_node(matching, (is_new, producer))
        return found

    def _in_backward(self, matching: Correspondence, is_new: bool, number: int) -> set[int]:
        """The findings of the ops of a backward that use a saved value."""
        flat = matching.b if is_new else matching.a
        found: set[int] = set()
        for other, taken in self._saved_inputs.get((is_new, flat.nodes[number].name), ()):
            found |= self.bearers.of_nodes(other, _takers(other, is_new, taken))
        return found

    @cached_property
    def _saved_inputs(self) -> Mapping[tuple[bool, str], Sequence[tuple[Correspondence, int]]]:
        """The inputs of changed backward graphs by side and name, where one graph saves the name.

        Several forwards that save values of one name do not tell whose it is.
        """
        savers = Counter(
            (is_new, ref.name)
            for pair in self.bearers.pairs
            for is_new, graph in enumerate(pair)
            if graph is not None
            for ref in {*graph.saved}
        )
        inputs: dict[tuple[bool, str], list[tuple[Correspondence, int]]] = {}
        for matching in self.bearers.matchings:
            for is_new, flat in ((False, matching.a), (True, matching.b)):
                for number in flat.inputs:
                    node = flat.nodes[number]
                    if node.op == "saved" and savers[is_new, node.name] == 1:
                        inputs.setdefault((is_new, node.name), []).append((matching, number))
        return inputs


def _sharing(matching: Correspondence, is_new: bool, owner: int) -> Iterator[int]:
    """The nodes of one graph that have the storage that a node made: itself, its views."""
    flat = matching.b if is_new else matching.a
    name = flat.nodes[owner].name
    seen = {owner}
    todo = [owner]
    while todo:
        number = todo.pop()
        yield number
        for user, _ in flat.users[number]:
            node = flat.nodes[user]
            if user not in seen and node.is_call:
                seen.add(user)
                if base(flat.graph, Ref(node.name)).name == name:
                    todo.append(user)


def _takers(matching: Correspondence, is_new: bool, number: int) -> Iterator[Side]:
    """The ops of one graph that take a value."""
    flat = matching.b if is_new else matching.a
    return ((is_new, user) for user, _ in flat.users[number] if flat.nodes[user].is_call)


def _bytes(node: Node) -> int | None:
    """The bytes of the storage that a node made; None where they are not known."""
    if node.result is None:
        return None
    try:
        return storage_bytes(node)
    except CaptureError:
        return None
