"""Join nodes whose differences follow from a changed shape or dtype to the changed operand."""

from __future__ import annotations

import re

from ...ops.views import is_view
from .constants import SizePair, constants_follow, iter_changed_sizes
from .node_changes import NodeChanges, have_same_result
from .rules import SIZE, SUMMED_SIZE

_PRODUCTS = re.compile(
    r"\.(?:mm|addmm|bmm|baddbmm|matmul|linear|einsum|convolution|conv(?:_transpose)?\dd"
    r"|_?scaled_dot_product_\w+)(?:\.|$)"
)
"""Names of ops that sum over a size that two of their operands have in common."""


def join_derived(changes: NodeChanges) -> set[int]:
    """Join each node that differs only in shape or dtype to the operands that caused it.

    Returns:
        The old numbers of the nodes that differ only in this way.
    """
    joiner = _DerivedNodes(changes)
    for i, j in enumerate(changes.m.forward):
        if j != -1:
            joiner.join(i, j)
    return joiner.derived


class _DerivedNodes:
    """Nodes that differ because an operand has another shape or dtype.

    Attributes:
        changes: the changes of the two graphs.
        different: nodes of the old graph whose shape or dtype differs from their partner's.
        derived: nodes of the old graph that differ only in sizes or dtypes that follow from an
            operand.
        passed: the operand with the same shapes, for each of these nodes that is another op.
        factors: the changed sizes that a product sums over, each with an operand of this size, by
            the old number of the product or of a view of it.
    """

    def __init__(self, changes: NodeChanges):
        self.changes = changes
        self.a, self.b, self.m = changes.a, changes.b, changes.m
        self.different: set[int] = set()
        self.derived: set[int] = set()
        self.passed: dict[int, int] = {}
        self.factors: dict[int, dict[SizePair, int]] = {}

    def join(self, i: int, j: int) -> None:
        """Join two partners to the operands from which their differences follow.

        Operands must be joined before their users.
        """
        node, other = self.a.nodes[i], self.b.nodes[j]
        same_op = node.op == other.op or node.kind == "placeholder"
        if have_same_result(node, other):
            self.join_factors(i, j)
            if self.changes.kind_of(("a", i)) != "changed" or not same_op:
                return
        elif node.result is not None:
            self.different.add(i)
        if not same_op:
            # Another op is an edit beside the new size. Its users have the size of its operand.
            self.pass_through(i, j)
            return
        sources = [self.passed.get(p, p) for p in self.a.operands[i] if p in self.different]
        origins = [self.changes.key_of_old(p) for p in sources]
        if i in self.different:
            keys = [
                *map(self.changes.key_of_old, self.a.operands[i]),
                *map(self.changes.key_of_new, self.b.operands[j]),
            ]
            origins += [key for key in keys if self.changes.kind_of(key) in ("removed", "added")]
        for origin in origins:
            self.changes.join(SIZE, ("a", i), origin)
        if origins:
            # A changed stride or epsilon does not follow from sizes. Its node stays an edit, and is
            # sorted before the ops that changed the shape.
            if constants_follow(self.a, i, self.b, j):
                self.derived.add(i)
        else:
            self.join_scale(i, j)

    def pass_through(self, i: int, j: int) -> None:
        """Note the operand that gives a replaced op its size, if there is one."""
        node, other = self.a.nodes[i], self.b.nodes[j]
        for p in self.a.operands[i]:
            q = self.m.forward[p]
            pairs = (node, self.a.nodes[p]), (other, self.b.nodes[q])
            if p in self.different and q != -1 and all(have_same_result(*pair) for pair in pairs):
                self.passed[i] = self.passed.get(p, p)

    def join_factors(self, i: int, j: int) -> None:
        """Join the operands of a product if the size that the product sums over changed in both.

        A wider hidden layer changes the output of one `Linear` and the input of the next. Neither
        can change alone.

        Args:
            i, j: partners with equal results, so no other size of the operands can have changed.
        """
        operands, op = self.a.operands[i], self.a.nodes[i].op
        if self.factors and operands and operands[0] in self.factors and is_view(op):
            self.factors[i] = self.factors[operands[0]]
        if self.different.isdisjoint(operands) or _PRODUCTS.search(op) is None:
            return
        factors: dict[SizePair, int] = {}
        for p, q in zip(operands, self.b.operands[j], strict=False):
            if self.m.forward[p] == q:
                for sizes in iter_changed_sizes(self.a.nodes[p], self.b.nodes[q]):
                    self.changes.join(SUMMED_SIZE, ("a", factors.setdefault(sizes, p)), ("a", p))
        if factors:
            self.factors[i] = factors

    def join_scale(self, i: int, j: int) -> None:
        """Join a scale of a product to the product's operands if it follows from their size.

        Attention divides its scores by the root of a size that the scores do not have.
        """
        products = [self.factors[p] for p in self.a.operands[i] if p in self.factors]
        sizes = {size for product in products for size in product}
        if sizes and constants_follow(self.a, i, self.b, j, sizes):
            self.derived.add(i)
            for product in products:
                for factor in product.values():
                    self.changes.join(SUMMED_SIZE, ("a", i), ("a", factor))
