"""Match the nodes of one graph with the corresponding nodes of another.

No single method is sufficient, so several run in turn:

- A node with an unchanged past (the same ops down to the same inputs) is matched by its past, and a
  node with an unchanged future by its future. Around a single edit this matches every other node,
  wherever the edit is, without using names.
- Between several edits, neither past nor future is unchanged. Nodes there are aligned as sequences
  within their module scopes.
- Remaining nodes are matched through their neighbours.
- A local search improves the matching until no exchange of two partners makes more edges agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from ...words import grouped
from ..equality import NumberedGraph
from ..model import Node
from ..text import quote
from .align import align_items, longest_increasing
from .apart import find_exchanged, find_one_sided_modules
from .correspondence import MANY_USERS, Correspondence, improve_matching
from .paths import instances_of, path_of

Token = Callable[[NumberedGraph, int], Hashable]
"""Computes a token of a node; partners have equal tokens."""
_NUMBERED = re.compile(r"(arg|primals|tangents?|input|getitem)[_.]?\d+(_1)?\Z")
"""Names that are only numbers. In two graphs, they need not mean the same input."""

DERIVED = ("saved", "tangent")
"""Roles of backward inputs that follow from the forward."""

UNEXPLAINED = 8
"""Number of unexplained nodes and edges above which a second matching is tried.

The second matching uses depth-first order, which does not depend on the printed order: it keeps the
nodes of two modules that changed places. A single edit is explained without it. Limits of 4 and 16
give the same findings in 480 cases of several edits."""

NEIGHBOUR_ROUNDS = 6
"""Maximum number of rounds of matching neighbours of new matches.

Each round may settle the next node of a chain. A round without matches is the last. Limits of 3 and
12 give the same findings in the 480 cases."""

ROUNDS = 3
"""Maximum number of rounds of aligning moved or changed nodes.

Limits of 1 and 6 give the same findings too."""


def match_graphs(a: NumberedGraph, b: NumberedGraph, names: Mapping[str, str]) -> Correspondence:
    """Match the nodes of two graphs.

    Args:
        a, b: the old and the new graph.
        names: maps inputs of `a` to the corresponding inputs of `b`, by name, as far as known.
    """
    if names and _agree_in_order(a, b, names):  # a backward of which only the forward changed
        in_order = Correspondence(a, b, (set(), set()))
        for i in range(len(a.nodes)):
            in_order.pair(i, i)
        return in_order
    # Modules of only one graph are set apart first. Otherwise the norm of a ninth layer would take
    # the partner of the norm after the last layer, and 16 of the layer's 210 ops would not count.
    first = Correspondence(a, b, find_one_sided_modules(a, b))
    best = _Matcher(first, names, by_depth=False).run()
    cost = count_disagreements(best)
    if cost > UNEXPLAINED:
        second = Correspondence(a, b, first.unmatchable)
        other = _Matcher(second, names, by_depth=True).run()
        if count_disagreements(other) < cost:
            return other
    return best


def _agree_in_order(a: NumberedGraph, b: NumberedGraph, names: Mapping[str, str]) -> bool:
    """Return True if two graphs have equal nodes, edges and inputs in the same order.

    A saved input corresponds by `names`, because an edit of the forward can rename saved values.
    Any other input corresponds by its name.
    """
    return (
        a.operands == b.operands
        and a.labels == b.labels
        and all(x.module == y.module for x, y in zip(a.nodes, b.nodes, strict=True))
        and all(
            (names.get(a.nodes[i].name) if a.nodes[i].op == "saved" else a.nodes[i].name)
            == b.nodes[i].name
            for i in a.inputs
        )
    )


def count_disagreements(matching: Correspondence) -> int:
    """Return the number of unmatched nodes and disagreeing edges of a matching."""
    unmatched = matching.forward.count(-1) + matching.backward.count(-1)
    edges = 0
    for i, j in enumerate(matching.forward):
        if j != -1:
            edges += sum(matching.forward[p] != q for p, q in matching.edges(i, j))
    return unmatched + edges


class _Matcher:
    """Extends a correspondence step by step. Each step matches only nodes without a partner.

    Args:
        m: the correspondence to extend.
        names: see `match_graphs`.
        by_depth: True to align sequences in depth-first order instead of printed order.

    Attributes:
        m, a, b: the correspondence and its graphs.
        new_names: see `names`.
        other_modules: the module paths that only one of the graphs has.
        order_a, order_b: the node numbers in the order in which sequences are aligned.
    """

    def __init__(self, m: Correspondence, names: Mapping[str, str], *, by_depth: bool):
        self.m = m
        self.a = a = m.a
        self.b = b = m.b
        self.new_names = names
        self.other_modules = {n.module for n in a.nodes} ^ {n.module for n in b.nodes}
        self.order_a = _sort_depth_first(a) if by_depth else list(range(len(a.nodes)))
        self.order_b = _sort_depth_first(b) if by_depth else list(range(len(b.nodes)))

    def run(self) -> Correspondence:
        """Run all steps, the most certain ones first, and return the correspondence."""
        if not self.a.nodes or not self.b.nodes:
            return self.m
        self.match_inputs()
        # The outputs are always partners.
        self.m.pair(len(self.a.nodes) - 1, len(self.b.nodes) - 1)
        self.match_by_past_and_future()
        self.match_sequences(_label_and_operands)
        self.match_sequences(_module_and_label)
        self.match_neighbours(self.is_equal, NEIGHBOUR_ROUNDS)
        # The label of a call contains the classes of its bodies, so a changed body changes the
        # label. Match such calls by the rest of the label if an edge agrees.
        if self.a.graph.subgraphs or self.b.graph.subgraphs:
            self.match_sequences(_module_and_plain, self.has_matched_neighbour)
        improve_matching(self.m, self.token_across_modules)
        self.match_differing()
        # `match_differing` can match nodes of modules that only one graph has, so search again.
        if self.other_modules:
            improve_matching(self.m, self.token_across_modules)
            for i, j in find_exchanged(self.m):
                self.m.pair(i, j)
                self.m.exchanged.add(i)
        return self.m

    # -- inputs ----------------------------------------------------------------------------------

    def match_inputs(self) -> None:
        """Match the inputs: by `new_names`, by their own names, and then in order.

        In order, inputs of one layer are matched first, then inputs anywhere with equal labels,
        then with different labels.
        """
        a, b = self.a, self.b
        input_by_name = {b.nodes[j].name: j for j in b.inputs}
        for i in a.inputs:
            j = input_by_name.get(self.new_names.get(a.nodes[i].name, ""), -1)
            if j != -1 and self.m.are_open(i, j):
                self.m.pair(i, j)
        rest_a = [i for i in a.inputs if self.m.is_open(0, i)]
        rest_b = [j for j in b.inputs if self.m.is_open(1, j)]
        for i in rest_a:
            name = a.nodes[i].name
            j = input_by_name.get(name, -1)
            if j != -1 and not _NUMBERED.match(name) and self.m.are_open(i, j):
                self.m.pair(i, j)
        # A value that only one side saves has no partner. If it took a partner from its neighbours,
        # the numbers of added and missing saved values would be wrong.
        if self.new_names:
            self.m.unmatchable[0].update(i for i in rest_a if a.nodes[i].op == "saved")
            self.m.unmatchable[1].update(j for j in rest_b if b.nodes[j].op == "saved")
        # Within one layer first: otherwise an MLP that became a gated MLP in
        # three layers, with one more weight in each, would count as four edits.
        for place_of, token_of in (
            (_layer_of, _role_and_label),
            (_no_layer, _role_and_label),
            (_no_layer, _derived_role),
        ):
            rest_a = [i for i in rest_a if self.m.is_open(0, i)]
            rest_b = [j for j in rest_b if self.m.is_open(1, j)]
            # Inputs with different labels are matched only if no input was added or removed.
            if token_of is _derived_role and len(rest_a) != len(rest_b):
                break
            by_place = grouped((place_of(b, j), j) for j in rest_b)
            for place, inputs in grouped((place_of(a, i), i) for i in rest_a).items():
                others = by_place.get(place, [])
                tokens = [token_of(a, i) for i in inputs], [token_of(b, j) for j in others]
                for x, y in list(align_items(*tokens)):
                    i, j = inputs[x], others[y]
                    if token_of is _role_and_label or self.may_be_partners(i, j):
                        self.m.pair(i, j)

    def may_be_partners(self, i: int, j: int) -> bool:
        """Return False if one of two parameters belongs to a module that both graphs have.

        The bias that a norm lost and the weight of an added module have nothing in common.
        """
        shared = self.shared_owners
        return _owner_of(self.a, i) not in shared and _owner_of(self.b, j) not in shared

    @cached_property
    def shared_owners(self) -> set[str]:
        """Modules with parameters or buffers in both graphs."""
        owners_a, owners_b = ({_owner_of(f, i) for i in f.inputs} - {""} for f in (self.a, self.b))
        return owners_a & owners_b

    # -- certain matches -------------------------------------------------------------------------

    def match_by_past_and_future(self) -> None:
        """Match nodes whose past, future or both occur once in each graph, and are equal."""
        ids: dict[Hashable, int] = {}
        past_a = _number_pasts(self.a, self.m.forward, 0, ids)
        past_b = _number_pasts(self.b, self.m.backward, 1, ids)
        slots_a, slots_b = self.number_output_slots()
        future_a = _number_futures(self.a, slots_a, ids)
        future_b = _number_futures(self.b, slots_b, ids)
        both_a, both_b = (
            [*zip(*keys, strict=True)] for keys in ((past_a, future_a), (past_b, future_b))
        )
        # Past and future together single out a node whose past occurs twice, such as one of two
        # equal ops on one value. If a layer came or went, the same mask in another layer has the
        # same past, and may have the same future: first the nodes that stayed in their modules.
        for key_a, key_b, accept in (
            (both_a, both_b, self.are_in_one_module),
            (past_a, past_b, self.have_no_other_users),
            (both_a, both_b, self.have_no_other_users),
            (future_a, future_b, self.have_one_past),
        ):
            once_a, once_b = self.find_unique(0, key_a), self.find_unique(1, key_b)
            for key, i in once_a.items():
                j = once_b.get(key, -1)
                if j != -1 and self.a.labels[i] == self.b.labels[j] and accept(i, j):
                    self.m.pair(i, j)

    def are_in_one_module(self, i: int, j: int) -> bool:
        """Return True if two nodes are in modules of one path."""
        return self.a.nodes[i].module == self.b.nodes[j].module

    def have_one_past(self, i: int, j: int) -> bool:
        """Return True if two nodes depend on the same parameters, of those in both graphs.

        Of a query and a key that were exchanged, each has the future of the other. An edit in an
        earlier layer changes the past of both, but not the parameters that they depend on.
        """
        old, new = self.parameters
        return old[i] == new[j] and self.have_no_other_users(i, j)

    @cached_property
    def parameters(self) -> tuple[list[int], list[int]]:
        """The parameters that each node of both graphs depends on: a bit for each pair."""
        shared: dict[int, int] = {}  # one object for equal sets: each has a bit for each parameter
        sides: tuple[list[int], list[int]] = [], []
        for side, flat in enumerate((self.a, self.b)):
            for i, node in enumerate(flat.nodes):
                partner = self.m.partners[side][i] if node.op == "parameter" else -1
                bits = 0 if partner == -1 else 1 << (i if side else partner)
                for operand in flat.operands[i]:
                    bits |= sides[side][operand]
                sides[side].append(shared.setdefault(bits, bits))
        return sides

    def have_no_other_users(self, i: int, j: int) -> bool:
        """Return True unless a user of one node has a partner that does not use the other."""
        partners = {self.m.forward[u] for u, _ in self.a.users[i]} - {-1}
        return partners <= {u for u, _ in self.b.users[j]}

    def find_unique(self, side: int, keys: Sequence[Hashable]) -> dict[Hashable, int]:
        """Map each key that is unique among the nodes without partner to its node."""
        rest = [i for i in range(len(keys)) if self.m.is_open(side, i)]
        counts = Counter(keys[i] for i in rest)
        return {keys[i]: i for i in rest if counts[keys[i]] == 1}

    def number_output_slots(self) -> tuple[list[int], list[int]]:
        """Number the operands of the two outputs. Corresponding operands have equal numbers."""
        last_a, last_b = self.a.operands[-1], self.b.operands[-1]
        if len(last_a) == len(last_b):
            return list(range(len(last_a))), list(range(len(last_b)))
        return align_outputs(self.a, self.b)

    # -- neighbours ------------------------------------------------------------------------------

    def match_neighbours(self, fits: Callable[[int, int], bool], rounds: int) -> None:
        """Match fitting nodes that their matched neighbours single out, until no node is left.

        Args:
            fits: returns True for two nodes that can be partners.
            rounds: maximum number of passes over all nodes.
        """
        for _ in range(rounds):
            any_matched = False
            for i in range(len(self.a.nodes)):
                if self.m.is_open(0, i) and (j := self.find_best_candidate(i, fits)) != -1:
                    self.m.pair(i, j)
                    any_matched = True
            if not any_matched:
                return

    def is_equal(self, i: int, j: int) -> bool:
        """Return True if two nodes are equal except for their operands."""
        return _module_and_label(self.a, i) == _module_and_label(self.b, j)

    def find_best_candidate(self, i: int, fits: Callable[[int, int], bool]) -> int:
        """Return the free node of `b` that agrees most with `i`.

        Candidates are the neighbours of the partners of the neighbours of `i`. Return -1 if no
        candidate agrees, or if several agree equally.
        """
        beside: dict[int, None] = {}
        for slot, operand in enumerate(self.a.operands[i]):
            partner = self.m.forward[operand]
            if partner != -1:
                users = self.b.users[partner]
                if len(users) <= MANY_USERS:
                    beside.update((u, None) for u, used_slot in users if used_slot == slot)
        for user, slot in self.a.users[i]:
            partner = self.m.forward[user]
            if partner != -1 and slot < len(self.b.operands[partner]):
                beside[self.b.operands[partner][slot]] = None
        candidates = [j for j in beside if self.m.is_open(1, j) and fits(i, j)]
        scores = {j: self.m.agreement(i, j) for j in candidates}
        best_score = max(scores.values(), default=0)
        best = [j for j, score in scores.items() if score == best_score]
        # In a run of equal ops, several candidates agree equally. Edges farther away decide in the
        # local search.
        return best[0] if len(best) == 1 and best_score else -1

    # -- sequences -------------------------------------------------------------------------------

    def match_sequences(
        self, token: Token, accept: Callable[[int, int], bool] | None = None
    ) -> bool:
        """Align the nodes between existing matches. Return True if any pair was matched.

        Args:
            token: computes the token by which nodes are aligned.
            accept: returns False for two aligned nodes that must not be matched; `None` accepts
                all.
        """
        for side, partner in enumerate(self.m.partners):
            if not any(self.is_open(side, i) for i in range(len(partner))):
                return False
        position_b = {j: y for y, j in enumerate(self.order_b)}
        matched = [
            (x, position_b[self.m.forward[i]])
            for x, i in enumerate(self.order_a)
            if self.m.forward[i] != -1 and self.a.nodes[i].kind != "placeholder"
        ]
        # Matched nodes that changed places cannot all be anchors: take as many as are in order.
        anchors = longest_increasing(matched)
        any_matched = False
        ends = (len(self.order_a), len(self.order_b))
        for (x0, y0), (x1, y1) in pairwise([(-1, -1), *anchors, ends]):
            if x1 - x0 == 1 or y1 - y0 == 1:
                continue
            gap_a = [i for i in self.order_a[x0 + 1 : x1] if self.is_open(0, i)]
            gap_b = [j for j in self.order_b[y0 + 1 : y1] if self.is_open(1, j)]
            pairs = align_items(
                [token(self.a, i) for i in gap_a], [token(self.b, j) for j in gap_b]
            )
            for x, y in sorted(pairs):
                i, j = gap_a[x], gap_b[y]
                if accept is None or accept(i, j):
                    self.m.pair(i, j)
                    any_matched = True
        return any_matched

    def is_open(self, side: int, i: int) -> bool:
        """Return True if a node still needs a partner. Inputs are not matched again."""
        flat = self.b if side else self.a
        return self.m.is_open(side, i) and flat.nodes[i].kind != "placeholder"

    def token_across_modules(self, flat: NumberedGraph, i: int) -> Hashable:
        """Return a token that treats all modules of only one graph as the same module."""
        module = flat.nodes[i].module
        # The projections of a gated MLP are named differently from those of the MLP that it
        # replaced.
        return "" if module in self.other_modules else module, flat.plain[i]

    # -- nodes that moved or changed -------------------------------------------------------------

    def match_differing(self) -> None:
        """Match nodes that moved to a different module, then differing nodes by their place.

        Of the moved nodes, called modules are matched last, because their names may differ. Of the
        others, nodes that differ only in their result are matched first.
        """
        steps: tuple[tuple[Token, Callable[[int, int], bool]], ...] = (
            (lambda flat, i: flat.labels[i], self.is_moved),
            (nameless_label, self.is_moved),
            (lambda flat, i: (flat.nodes[i].module, flat.shapeless[i]), self.takes_equal_operands),
            (lambda flat, i: (flat.nodes[i].module, flat.nodes[i].op), self.has_matched_neighbour),
        )
        for token, accept in steps:
            for _ in range(ROUNDS):
                if not self.match_sequences(token, accept):
                    break
        self.match_neighbours(self.is_in_same_place, ROUNDS)

    def is_moved(self, i: int, j: int) -> bool:
        """Return True if nodes of different modules have equal operands and a matched neighbour."""
        # Nodes of one label have equally many arguments, but may follow more or fewer effects.
        operands = zip(self.a.operands[i], self.b.operands[j], strict=False)
        return (
            self.a.nodes[i].module != self.b.nodes[j].module
            and self.has_matched_neighbour(i, j)
            and all(self.m.edge_agrees(p, q) for p, q in operands)
        )

    def has_matched_neighbour(self, i: int, j: int) -> bool:
        """Return True if two nodes have at least one pair of matched neighbours."""
        return self.m.agreement(i, j) > 0

    def takes_equal_operands(self, i: int, j: int) -> bool:
        """Return True if two nodes have matched neighbours, or if all their operands agree.

        Operands are compared through added nodes, such as casts around an op.
        """
        operands = self.a.operands[i], self.b.operands[j]
        if self.has_matched_neighbour(i, j):
            return True
        if not operands[0] or len(operands[0]) != len(operands[1]):
            return False
        return all(self.m.edge_agrees(p, q) for p, q in zip(*operands, strict=True))

    def is_in_same_place(self, i: int, j: int) -> bool:
        """Return True if two nodes have the same place: a common operand and a common use."""
        if not self.is_open(0, i) or not self.is_open(1, j):
            return False
        operands = {self.m.forward[p] for p in self.a.operands[i]}
        users = {(self.m.forward[u], slot) for u, slot in self.a.uses(i)}
        common = any(q in operands for q in self.b.operands[j])
        # A node without operands is placed by its use only.
        if not self.a.operands[i] or not self.b.operands[j]:
            common = True
        return common and any(user in users for user in self.b.uses(j))


def _number_pasts(
    flat: NumberedGraph, partner: list[int], side: int, ids: dict[Hashable, int]
) -> list[int]:
    """Number the nodes of a graph. In both graphs, equal numbers mean equal dependencies.

    Args:
        flat: the graph.
        partner: the partner of each node in the other graph, or -1.
        side: 0 for the old graph, 1 for the new graph.
        ids: numbers of the keys, shared by both graphs; extended in place.
    """
    numbers: list[int] = []
    for i, label in enumerate(flat.labels):
        key: Hashable = (label, *[numbers[o] for o in flat.operands[i]])
        if flat.nodes[i].kind == "placeholder":
            j = partner[i]
            # An input is equal only to its partner: both have the number of the new input. An
            # unmatched input must equal no input of the other graph: one graph gets odd negative
            # numbers, the other even ones.
            key = ("input", (i if side else j) if j != -1 else -1 - 2 * i - side)
        numbers.append(ids.setdefault(key, len(ids)))
    return numbers


def _number_futures(
    flat: NumberedGraph, slots: Sequence[int], ids: dict[Hashable, int]
) -> list[int]:
    """Number the nodes of a graph. In both graphs, equal numbers mean equal dependents.

    Args:
        flat: the graph.
        slots: a number for each operand of the output; see `number_output_slots`.
        ids: numbers of the keys, shared by both graphs; extended in place.
    """
    numbers = [0] * len(flat.nodes)
    last = len(flat.nodes) - 1
    numbers[last] = ids.setdefault("output", len(ids))
    for i in range(last - 1, -1, -1):
        users = sorted(
            # An added output shifts the slots of all later outputs.
            (numbers[u], slots[slot] if u == last else slot)
            for u, slot in flat.users[i]
        )
        numbers[i] = ids.setdefault(("future", flat.labels[i], *users), len(ids))
    return numbers


def align_outputs(a: NumberedGraph, b: NumberedGraph) -> tuple[list[int], list[int]]:
    """Number the operands of both outputs, aligned by module and label.

    Corresponding operands have equal numbers. The number of any other operand is negative and
    occurs once: odd in `a`, even in `b`.
    """

    def token(flat: NumberedGraph, i: int) -> Hashable:
        return (flat.nodes[i].module, flat.labels[i])

    last_a, last_b = a.operands[-1], b.operands[-1]
    slots_a = [-1 - 2 * slot for slot in range(len(last_a))]
    slots_b = [-2 - 2 * slot for slot in range(len(last_b))]
    pairs = align_items([token(a, i) for i in last_a], [token(b, j) for j in last_b])
    for x, y in pairs:
        slots_a[x] = slots_b[y] = x
    return slots_a, slots_b


def nameless_label(flat: NumberedGraph, i: int) -> str:
    """Return the label of a node, without the name of the module that it calls."""
    node = flat.nodes[i]
    return without_target(node, flat.labels[i]) if node.kind == "call_module" else flat.labels[i]


def without_target(node: Node, label: str) -> str:
    """Return a label without the path of the attribute or module."""
    return label.replace(quote(node.target), "", 1) if node.target else label


def _module_and_label(flat: NumberedGraph, i: int) -> Hashable:
    return flat.nodes[i].module, flat.labels[i]


def _module_and_plain(flat: NumberedGraph, i: int) -> Hashable:
    return flat.nodes[i].module, flat.plain[i]


def _label_and_operands(flat: NumberedGraph, i: int) -> Hashable:
    return _module_and_label(flat, i), *[flat.labels[o] for o in flat.operands[i]]


def _layer_of(flat: NumberedGraph, i: int) -> Hashable:
    return instances_of(path_of(flat.nodes[i]))[-1:]


def _no_layer(_flat: NumberedGraph, _i: int) -> Hashable:
    return ()


def _role_and_label(flat: NumberedGraph, i: int) -> Hashable:
    return _derived_role(flat, i), flat.labels[i]


def _derived_role(flat: NumberedGraph, i: int) -> Hashable:
    """Return the role of a saved value or a tangent; "" for any other input."""
    op = flat.nodes[i].op
    # Without the role, a tangent was paired with a saved value of its shape. The first of three
    # equal edits then had one added and one removed node instead of a changed node.
    return op if op in DERIVED else ""


def _owner_of(flat: NumberedGraph, i: int) -> str:
    """Return the module that a parameter or buffer belongs to; "" for other inputs."""
    node = flat.nodes[i]
    return node.name.rpartition(".")[0] if node.op in ("parameter", "buffer") else ""


def _sort_depth_first(flat: NumberedGraph) -> list[int]:
    """Return the nodes in depth-first post-order from the output, independent of printed order."""
    # The first root is the output. The later roots are dead code.
    order: list[int] = []
    visited = [False] * len(flat.nodes)
    for root in range(len(flat.nodes) - 1, -1, -1):
        if visited[root]:
            continue
        stack = [(root, 0)]
        visited[root] = True
        branch: list[int] = []
        while stack:
            i, slot = stack.pop()
            if slot < len(flat.operands[i]):
                stack.append((i, slot + 1))
                operand = flat.operands[i][slot]
                if not visited[operand]:
                    visited[operand] = True
                    stack.append((operand, 0))
            else:
                branch.append(i)
        order.extend(branch)
    return order
