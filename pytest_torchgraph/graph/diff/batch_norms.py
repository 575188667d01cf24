"""Batch norms of quantized models that follow from an edit.

A quantizer folds a batch norm into the weight and the bias of the convolution before it. An op
between the two prevents folding: the batch norm appears in the graph, and the convolution loses the
bias that the batch norm was folded into. Both are consequences of the op between. If that op is
removed, the batch norm disappears.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .constants import quantizes
from .findings import Change, Finding, one_place
from .moves import OWN_VALUES
from .origins import Key, Origins
from .rules import FOLDED_NORM

BIAS = 2
"""Position of the bias among the arguments of a convolution or linear layer."""


def attach_batch_norms(findings: Iterable[Finding], origins: Origins) -> list[Finding]:
    """Return the findings, with unfolded and newly folded batch norms as consequences.

    Args:
        findings: the findings of one comparison, one place each.
        origins: the origins of the changes.
    """
    return [_without_batch_norms(finding, origins) for finding in findings]


def _without_batch_norms(finding: Finding, origins: Origins) -> Finding:
    changes = finding.changes
    if finding.summary or not any(map(_is_batch_norm, changes)):
        return finding
    unfolded = _Unfolded(changes, origins)
    kept = [change for change in changes if id(change) not in unfolded.follow]
    # If there is no op in between, the user added or removed the batch norm.
    if not unfolded.follow or not any(change.node.is_call for change in kept):
        return finding
    follow = [change for change in changes if id(change) in unfolded.follow]
    origins.because(FOLDED_NORM, follow, kept[0])
    return one_place(kept, consequences=(*follow, *finding.consequences))


def _is_batch_norm(change: Change) -> bool:
    return change.kind in ("added", "removed") and "batch_norm" in change.node.op


class _Unfolded:
    """The changes of a finding that follow from unfolding, or folding, its batch norms.

    Args:
        changes: the changes of the finding.
        origins: their origins.
    """

    def __init__(self, changes: Sequence[Change], origins: Origins):
        self.origins = origins
        self.own: Mapping[Key, Change] = {
            node.key: change for change in changes for node in origins.nodes(change)
        }
        self.follow: set[int] = set()
        """The `id`s of the changes."""
        for change in changes:
            if _is_batch_norm(change):
                self.unfold(change)
        users = {key for key, change in self.own.items() if id(change) in self.follow}
        for change in changes:
            if change.node.op in OWN_VALUES and all(
                node.at(user).key in users
                for node in origins.nodes(change)
                for user, _ in node.flat.users[node.number]
            ):
                self.follow.add(id(change))

    def unfold(self, batch_norm: Change) -> None:
        """Record a batch norm and the convolution before the ops that prevent folding."""
        node = next(self.origins.nodes(batch_norm), None)
        between = 0
        while node is not None and (operands := node.flat.operands[node.number]):
            node = node.at(operands[0])
            change = self.own.get(node.key)
            if change is None or change.kind != batch_norm.kind:
                break
            between += 1
        else:
            return
        if between and change is not None and self.differs_in_bias(change):
            self.follow |= {id(batch_norm), id(change)}

    def differs_in_bias(self, change: Change) -> bool:
        """Return True if an op of a quantized graph differs only in the presence of its bias."""
        before, after = change.before, change.after
        if before is None or after is None or before.op != after.op or change.kind != "changed":
            return False
        if (len(before.refs) == len(after.refs)) or before.kwargs != after.kwargs:
            return False
        if before.args[BIAS + 1 :] != after.args[BIAS + 1 :]:
            return False
        # Compressed weights have no quantize op, so any quantize op in the graph counts.
        flats = (node.flat for node in self.origins.nodes(change))
        return all(any(map(quantizes, flat.nodes)) for flat in flats)
