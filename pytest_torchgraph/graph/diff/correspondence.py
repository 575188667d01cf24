"""A partial one-to-one relation between the nodes of two graphs. A local search improves it.

In a run of equal ops, it is arbitrary at first which op counts as inserted. Only the edges into the
run decide this. One step of the search gives a node a different partner, or removes its partner.
Every node that lost its partner moves on to the place with the best agreement, along the whole run
if needed. The step is kept if fewer edges disagree than before.

If the edges do not decide, modules and names do: among matchings of a run that explain equally many
edges, the search prefers the matching with the most partners of the same module and name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from ..equality import NumberedGraph

REACH = 200
"""Maximum number of unmatched nodes to traverse from an edge to its matched sources."""

MANY_USERS = 64
"""Maximum number of users of one value to consider as candidates.

A value with hundreds of users does not single out any user, and comparing all users would take
quadratic time. Limits of 32 and 128 give the same findings in the same time."""


class Correspondence:
    """A partial one-to-one relation between the nodes of `a` and of `b`.

    Attributes:
        forward: for each node of `a` the number of its partner in `b`, or -1.
        backward: for each node of `b` the number of its partner in `a`, or -1.
        unmatchable: the nodes of `a` and the nodes of `b` that must not get a partner.
        exchanged: the nodes of `a` whose partner is a different op, next to an added or removed
            module.
        flats: the old and the new graph.
        partners: `forward` and `backward`, by side.
    """

    def __init__(self, a: NumberedGraph, b: NumberedGraph, unmatchable: tuple[set[int], set[int]]):
        self.a = a
        self.b = b
        self.forward = [-1] * len(a.nodes)
        self.backward = [-1] * len(b.nodes)
        self.unmatchable = unmatchable
        self.exchanged: set[int] = set()
        self.flats = a, b
        self.partners = self.forward, self.backward

    def pair_of(self, side: int, number: int) -> tuple[int, int]:
        """Return the old and the new number of a node; -1 if it has no partner."""
        partner = self.partners[side][number]
        return (partner, number) if side else (number, partner)

    def names(self) -> dict[str, str]:
        """Return a map from old to new names of matched nodes."""
        pairs = enumerate(self.forward)
        return {self.a.nodes[i].name: self.b.nodes[j].name for i, j in pairs if j != -1}

    def pair(self, i: int, j: int) -> None:
        """Make `i` and `j` partners. Both must be free."""
        self.forward[i] = j
        self.backward[j] = i

    def are_open(self, i: int, j: int) -> bool:
        """Return True if neither node has a partner yet and both may get one."""
        return self.is_open(0, i) and self.is_open(1, j)

    def is_open(self, side: int, i: int) -> bool:
        """Return True if a node of `a` (side 0) or `b` (side 1) has no partner and may get one."""
        return self.partners[side][i] == -1 and i not in self.unmatchable[side]

    def agreement(self, i: int, j: int) -> int:
        """Return the number of operand and user slots of `i` and `j` that hold partners.

        Slots that only one of the two has do not count.
        """
        agree = sum(
            self.forward[p] == q
            for p, q in zip(self.a.operands[i], self.b.operands[j], strict=False)
        )
        users = {(self.forward[u], slot) for u, slot in self.a.users[i] if self.forward[u] != -1}
        return agree + sum(user in users for user in self.b.users[j])

    # -- edges, looking through added and removed nodes ------------------------------------------

    def edge_agrees(self, p: int, q: int) -> bool:
        """Return True if operand `p` in `a` is the same value as operand `q` of the partner.

        Inserted and removed nodes are looked through: an inserted `clone` counts as its operand.
        """
        if self.forward[p] == q:
            return True
        # Two nodes with other partners are two values. Two nodes without partners took each other's
        # place. If only one has a partner, look through the other one.
        matched = (self.forward[p] != -1) + (self.backward[q] != -1)
        if matched == 2:
            return False
        return matched == 0 or not self.sources(0, p).isdisjoint(self.sources(1, q))

    def sources(self, side: int, i: int) -> set[int]:
        """Return the matched nodes that a node depends on through nodes without a partner.

        Both for an old and for a new node, these are numbers of new nodes.
        """
        sources = _matched_sources(i, self.partners[side], self.flats[side].operands)
        return sources if side else {self.forward[p] for p in sources}

    def bad_edges(self, i: int) -> int:
        """Return the number of operands of `i` that differ from the operands of its partner."""
        j = self.forward[i]
        if j == -1:
            return 0
        return sum(not self.edge_agrees(p, q) for p, q in self.edges(i, j))

    def edges(self, i: int, j: int) -> Iterable[tuple[int, int]]:
        """Return the pairs of operands that `i` and `j` have in the same slots.

        Slots that only one of the two has are left out.
        """
        a, b = self.a.operands[i], self.b.operands[j]
        # The values that a forward saves have no order, so only the returned values of the two
        # output nodes are compared.
        if i == len(self.forward) - 1 and j == len(self.backward) - 1:
            a, b = self.a.returned, self.b.returned
        return zip(a, b, strict=False)


def _matched_sources(start: int, partner: list[int], operands: list[list[int]]) -> set[int]:
    """Return the nodes with a partner that a node depends on through nodes without a partner.

    A node with a partner is its own only source.

    Args:
        start: the node.
        partner: the partner of each node of its graph, or -1.
        operands: the operands of each node of its graph.
    """
    if partner[start] != -1:
        return {start}
    sources: set[int] = set()
    visited = {start}
    todo = [start]
    while todo and len(visited) <= REACH:
        i = todo.pop()
        if partner[i] != -1:
            sources.add(i)
            continue
        for operand in operands[i]:
            if operand not in visited:
                visited.add(operand)
                todo.append(operand)
    return sources


MAX_SHIFT = 100
"""Maximum number of nodes that one step may move along a run of equal ops."""

WORK = 100
"""Maximum number of edges to examine per node of the graphs before the search stops.

If nearly everything differs, no exchange helps."""


LEAST_WORK = 100_000
"""Edges that may be examined in a graph of any size, so that the search of a small graph always
finishes."""

STEPS, LEAST_STEPS = 20, 200
"""Steps to try for each node whose edges disagree at first, and the minimum for a whole graph.

A node has several steps, because a successful step retries the neighbours."""

SAME_MODULE, SAME_NAME = 2, 1
"""Weights of an equal module and an equal name of two nodes.

A name consists of the module and a number. The number is weaker evidence than the module."""


def improve_matching(
    matching: Correspondence, token: Callable[[NumberedGraph, int], Hashable]
) -> None:
    """Improve `matching` in place. Only nodes with equal tokens become partners.

    There is one exception: nodes of a run may exchange partners if only their modules differ.
    """
    improver = _LocalSearch(matching, token)
    improver.run()
    improver.settle_runs()


class _LocalSearch:
    """The local search of `improve_matching`. It changes the partners of `m` in place.

    A *bad edge* is an operand that differs from the partner's operand in its slot; see
    `edge_agrees`. Sides are 0 for `a` and 1 for `b`.

    Args:
        m: the correspondence to improve.
        token: computes the token of a node. Only nodes with equal tokens become partners.

    Attributes:
        partner: the partners of the nodes of each side, -1 for none.
        work_left: the number of edges that may still be examined; see `WORK`.
    """

    def __init__(self, m: Correspondence, token: Callable[[NumberedGraph, int], Hashable]):
        self.m = m
        self.flats = m.flats
        self.token = token
        self.partner = m.partners
        self.work_left = WORK * (len(m.forward) + len(m.backward)) + LEAST_WORK

    def run(self) -> None:
        """Try steps for the nodes with bad edges, until none is left or the budget is spent."""
        todo = [i for i, j in enumerate(self.m.forward) if j != -1 and self.m.bad_edges(i)]
        budget = STEPS * len(todo) + LEAST_STEPS
        while todo and budget and self.work_left > 0:
            budget -= 1
            i = todo.pop()
            j = self.m.forward[i]
            if j == -1:
                continue
            for p, q in self.m.edges(i, j):
                if self.work_left <= 0:  # a return may have thousands of edges
                    break
                if not self.m.edge_agrees(p, q) and self.mend_edge(p, q):
                    # The step changed edges of these nodes, so each may now need its own step.
                    todo.extend((i, p, *(u for u, _ in self.m.a.users[p])))
                    break
            # No single edge could be mended: give `j`, and then `i`, any other partner.
            else:
                if self.m.bad_edges(i) and (
                    self.shift_partners(1, j, -1, i) or self.shift_partners(0, i, -1, j)
                ):
                    todo.append(i)

    def mend_edge(self, p: int, q: int) -> bool:
        """Make the operands `p` and `q` agree: pair them, or take the partner from one of them.

        Return True if a step was kept.
        """
        # The two cannot be paired if one must keep its partner, so only the other one can move.
        if self.is_fixed(0, p) or self.is_fixed(1, q):
            movable_p, movable_q = not self.is_fixed(0, p), not self.is_fixed(1, q)
        else:
            movable_p = movable_q = True
            if self.token(self.m.a, p) == self.token(self.m.b, q) and self.shift_partners(
                0, p, q, -1
            ):
                return True
        # Give the partner that `q` has now, or that `p` has now, any other partner.
        rival = self.m.backward[q]
        if movable_q and rival != -1 and self.shift_partners(0, rival, -1, q):
            return True
        rival = self.m.forward[p]
        return movable_p and rival != -1 and self.shift_partners(1, rival, -1, p)

    def is_fixed(self, side: int, i: int) -> bool:
        """Return True if the search must not change a node's partner.

        The node is an input, the output, or a node set apart.
        """
        kind = self.flats[side].nodes[i].kind
        return kind in ("placeholder", "output") or i in self.m.unmatchable[side]

    def shift_partners(self, side: int, moving: int, target: int, banned: int) -> bool:
        """Give `moving` the partner `target`, or its best partner if `target` is -1.

        A node that loses its partner in this way gets its own best partner, and so on. No node is
        given the partner `banned`, except by `target`. Undo the shift if it leaves more nodes
        without a partner, or does not reduce the number of bad edges.

        Returns:
            True if the shift was kept.
        """
        partners, owners = self.partner[side], self.partner[1 - side]
        old_partners: dict[int, int] = {}
        if target == -1:
            old_partners[moving] = partners[moving]
            self.assign_partner(side, moving, -1)
            target = self.find_best_place(side, moving, old_partners, banned)
        for _ in range(MAX_SHIFT):
            if target == -1 or self.work_left <= 0:
                break
            displaced = owners[target]
            for node in (moving, displaced):
                if node != -1:
                    old_partners.setdefault(node, partners[node])
                    self.assign_partner(side, node, -1)
            self.assign_partner(side, moving, target)
            # Go on with the node that lost its partner.
            if displaced == -1:
                break
            moving = displaced
            target = self.find_best_place(side, moving, old_partners, banned)
        new_partners = {node: partners[node] for node in old_partners}
        if (
            list(new_partners.values()).count(-1) > list(old_partners.values()).count(-1)
            or new_partners == old_partners
        ):
            self.restore_partners(side, old_partners)
            return False
        # Count the bad edges with the new partners, and then with the old ones.
        region = self.affected_nodes(side, old_partners, new_partners)
        after = self.count_bad_edges(region)
        self.restore_partners(side, old_partners)
        if after >= self.count_bad_edges(region):
            return False
        self.restore_partners(side, new_partners)
        return True

    def assign_partner(self, side: int, i: int, j: int) -> None:
        """Make `j` the partner of `i`, and no longer of any other node; -1 for no partner."""
        partners, owners = self.partner[side], self.partner[1 - side]
        if partners[i] != -1:
            owners[partners[i]] = -1
        partners[i] = j
        if j != -1:
            owners[j] = i

    def restore_partners(self, side: int, pairs: Mapping[int, int]) -> None:
        """Give each node of `pairs` its partner there."""
        # First free all of them: a partner may still belong to another node of `pairs`.
        for i in pairs:
            self.assign_partner(side, i, -1)
        for i, j in pairs.items():
            self.assign_partner(side, i, j)

    def count_bad_edges(self, region: Iterable[int]) -> int:
        """Return the number of bad edges of these nodes of `a`, and charge the work."""
        nodes = list(region)
        # A list of thousands of operands is one node, and takes as long as hundreds.
        self.work_left -= sum(2 + len(self.m.a.operands[i]) // 8 for i in nodes)
        return sum(map(self.m.bad_edges, nodes))

    def affected_nodes(self, side: int, old: Mapping[int, int], new: Mapping[int, int]) -> set[int]:
        """Return the nodes of `a` whose edges the step may have changed.

        Args:
            side: the side of the nodes that moved.
            old, new: the partners of these nodes before and after the step, -1 for none.
        """
        own_nodes = set(old)
        partners = {j for pairs in (old, new) for j in pairs.values() if j != -1}
        nodes_a, nodes_b = (own_nodes, partners) if side == 0 else (partners, own_nodes)
        affected_a = {u for i in nodes_a for u, _ in self.m.a.users[i]} | nodes_a
        affected_b = {u for j in nodes_b for u, _ in self.m.b.users[j]} | nodes_b
        return affected_a | {i for j in affected_b if (i := self.m.backward[j]) != -1}

    def find_best_place(self, side: int, i: int, moved: Mapping[int, int], banned: int) -> int:
        """Return the equal node of the other graph whose edges agree best with those of `i`.

        The node may have a partner already. `banned`, and nodes that this step gave to another
        node, are excluded. Return -1 if no node is left.
        """
        flat, other = self.flats[side], self.flats[1 - side]
        partners, owners = self.partner[side], self.partner[1 - side]
        candidates = {j for j in moved.values() if j != -1}
        for slot, operand in enumerate(flat.operands[i]):
            partner = partners[operand]
            users = other.users[partner] if partner != -1 else []
            candidates.update(user for user, used_slot in users[:MANY_USERS] if used_slot == slot)
        for user, slot in flat.users[i]:
            partner = partners[user]
            if partner != -1 and slot < len(other.operands[partner]):
                candidates.add(other.operands[partner][slot])
        # The users of the partner that `i` just lost include the next node of the run.
        candidates.update(user for user, _ in other.users[moved.get(i, -1)][:MANY_USERS])
        token, excluded = self.token(flat, i), self.m.unmatchable[1 - side]
        self.work_left -= len(candidates) * (1 + len(flat.operands[i]) + len(flat.users[i]))
        self.work_left -= sum(len(other.users[j]) // 8 for j in candidates)
        # Among equal scores, prefer a node without partner, then the first node.
        scores = [
            (
                self.m.agreement(j, i) if side else self.m.agreement(i, j),
                owners[j] == -1,
                -j,
            )
            for j in candidates
            if self.token(other, j) == token
            and j != banned
            and owners[j] not in moved
            and j not in excluded
        ]
        return -max(scores)[2] if scores else -1

    # -- runs of equal ops -----------------------------------------------------------------------

    def settle_runs(self) -> None:
        """Choose by modules and names which nodes of a run of equal ops have no partner."""
        for side in (0, 1):
            partner = self.partner[side]
            nodes = range(len(partner) if -1 in partner else 0)
            # In this order, the loop still visits a node that a slide leaves without a partner.
            for order, upwards in ((reversed(nodes), True), (nodes, False)):
                for i in order:
                    if partner[i] == -1 and not self.is_fixed(side, i):
                        self.slide_gap(side, i, upwards)

    def is_equal(self, side: int, i: int, other: int) -> bool:
        """Return True if two nodes of one graph are equal except for modules and operands."""
        flat = self.flats[side]
        return flat.labels[i] == flat.labels[other] and not self.is_fixed(side, other)

    def slide_gap(self, side: int, free: int, upwards: bool) -> None:
        """Move the gap, a node without a partner, along its run to the best place.

        At each step, the next node of the run gives its partner to the free node and becomes free.
        At the best place, the fewest edges disagree and the most modules and names agree.
        """
        partners = self.partner[side]
        gain = bad_edges_change = 0
        # The best pair of fewer bad edges and gain so far, and the number of steps that lead to it.
        best, steps = (0, 0), list[tuple[int, int]]()
        best_length = 0
        for _ in range(MAX_SHIFT):
            node = self.find_next_paired(side, free, upwards)
            mate = partners[node] if node != -1 else -1
            if mate == -1 or self.flats[1 - side].labels[mate] != self.flats[side].labels[node]:
                break
            # A node keeps a partner of its module and name, so the gap stops before it.
            current_likeness = self.likeness(side, node, mate)
            if current_likeness == SAME_MODULE + SAME_NAME or self.work_left <= 0:
                break
            touched = self.nodes_affected_by(side, (free, node), mate)
            bad_edges_change -= self.count_bad_edges(touched)
            self.assign_partner(side, node, -1)
            self.assign_partner(side, free, mate)
            bad_edges_change += self.count_bad_edges(touched)
            gain += self.likeness(side, free, mate) - current_likeness
            steps.append((free, node))
            if (-bad_edges_change, gain) > best:
                best, best_length = (-bad_edges_change, gain), len(steps)
            free = node
        # Undo the steps beyond the best place.
        for earlier_free, node in reversed(steps[best_length:]):
            mate = partners[earlier_free]
            self.assign_partner(side, earlier_free, -1)
            self.assign_partner(side, node, mate)

    def find_next_paired(self, side: int, free: int, upwards: bool) -> int:
        """Return the first node with a partner in a run of equal nodes, -1 if there is none.

        The run begins next to `free`, and follows operands (upwards) or users.
        """
        flat = self.flats[side]
        for _ in range(MAX_SHIFT):
            neighbours = flat.operands[free] if upwards else [user for user, _ in flat.users[free]]
            free = next((i for i in neighbours if self.is_equal(side, free, i)), -1)
            if free == -1 or self.partner[side][free] != -1:
                break
        return free

    def likeness(self, side: int, i: int, j: int) -> int:
        """Return a score for equal modules and names of two nodes."""
        node, other = self.flats[side].nodes[i], self.flats[1 - side].nodes[j]
        return SAME_MODULE * (node.module == other.module) + SAME_NAME * (node.name == other.name)

    def nodes_affected_by(self, side: int, nodes: Iterable[int], mate: int) -> set[int]:
        """Return the nodes of `a` whose edges depend on the partners of `nodes` or of `mate`.

        Edges are compared through nodes without a partner, so the search passes through such nodes
        too.

        Args:
            side: 0 if `nodes` are in `a`, 1 if they are in `b`.
            nodes: nodes of one graph.
            mate: a node of the other graph.
        """
        affected: set[int] = set()
        for flat, partner, start in (
            (self.flats[side], self.partner[side], set(nodes)),
            (self.flats[1 - side], self.partner[1 - side], {mate}),
        ):
            reached, todo = set(start), list(start)
            while todo and len(reached) <= REACH:
                users = {user for user, _ in flat.users[todo.pop()]} - reached
                reached |= users
                todo.extend(user for user in users if partner[user] == -1)
            affected |= reached if flat is self.m.a else {self.m.backward[j] for j in reached}
        return affected - {-1}
