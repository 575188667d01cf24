"""Findings of many comparisons as causes: one edit that is found in forty files is one cause."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ..cost.cost import Cost, sum_of
from .findings import Finding, GraphDiff
from .identity import Identity


@dataclass(frozen=True, slots=True)
class Cause:
    """One edit, with all the files that it is found in.

    Attributes:
        finding: the finding of the first file, with its places there.
        files: the files, or whatever was compared, in the order given, each once.
        findings: the findings of all files, in the order given: at least one for each; () where
            they are not kept.
    """

    finding: Finding
    files: tuple[str, ...]
    findings: tuple[Finding, ...] = field(default=(), repr=False, compare=False)

    @property
    def places(self) -> int:
        """How many places the edit has over all files."""
        return sum(len(finding.places) for finding in self.findings or (self.finding,))

    @property
    def cost(self) -> Cost:
        """What the edit costs over all files; a figure that one of them does not know is None."""
        return sum_of(finding.cost for finding in self.findings or (self.finding,))


def causes_of(
    diffs: Iterable[tuple[str, GraphDiff]], *, upgraded: Collection[str] = ()
) -> tuple[Cause, ...]:
    """The causes of several differences, in the order of their first findings.

    Two findings are one cause where they are one edit of the same code, or on one line of it; where
    they put the same ops in the place of nodes of the same names; or where files that differ in
    what they are tell that one op was replaced by others everywhere.
    Two different edits are never one cause.

    Args:
        diffs: what was compared, a label each (a file, a test), and the difference.
        upgraded: the labels of those whose two sides were captured by different releases of torch.
            Of these the same ops that came and went are one cause in whatever modules: a release
            rewrites ops wherever they are.
    """
    labels: list[str] = []
    findings: list[Finding] = []
    for label, diff in diffs:
        labels += [label] * len(diff.findings)
        findings += diff.findings
    groups = same_edits(
        [(label, each.identity) for label, each in zip(labels, findings, strict=True)],
        upgraded=upgraded,
    )
    return tuple(
        Cause(
            findings[group[0]],
            tuple(dict.fromkeys(labels[k] for k in group)),
            tuple(findings[k] for k in group),
        )
        for group in groups
    )


def same_edits(
    items: Sequence[tuple[str, Identity]], *, upgraded: Collection[str] = ()
) -> list[list[int]]:
    """The numbers of the items that are one edit, as groups, in the order of their first ones.

    Args:
        items: of each finding the label of its comparison, and its identity.
        upgraded: see `causes_of`.
    """
    leader = list(range(len(items)))

    def find(k: int) -> int:
        while leader[k] != k:
            leader[k] = leader[leader[k]]
            k = leader[k]
        return k

    def join(k: int, other: int) -> None:
        k, other = sorted((find(k), find(other)))
        leader[other] = k

    first: dict[str, int] = {}
    for k, (_, identity) in enumerate(items):
        for token in (*identity.edits, identity.line):
            if token:
                join(first.setdefault(token, k), k)
    upgraded = frozenset(upgraded)
    rewrites: dict[str, list[int]] = {}
    for k, (label, identity) in enumerate(items):
        token = identity.release if label in upgraded else identity.rewrite
        if token:
            rewrites.setdefault(token, []).append(k)
    for members in rewrites.values():
        if _is_of_unlike_files(members, items, [find(k) for k in members]):
            for k in members:
                join(members[0], k)
    places: dict[str, list[int]] = {}
    for k, (_, identity) in enumerate(items):
        if identity.where:
            places.setdefault(identity.where, []).append(k)
    for members in places.values():
        if len({items[k][0] for k in members}) == len(members):
            for k in members:
                join(members[0], k)
    groups: dict[int, list[int]] = {}
    for k in range(len(items)):
        groups.setdefault(find(k), []).append(k)
    return list(groups.values())


def _is_of_unlike_files(
    members: Sequence[int], items: Sequence[tuple[str, Identity]], edits: Sequence[int]
) -> bool:
    """Whether the edits of a rewrite are found in different files.

    Two edits that the same files have may well be two: only files that have one of them without the
    other tell that there is something behind both.
    """
    files: dict[int, set[str]] = {}
    for k, edit in zip(members, edits, strict=True):
        files.setdefault(edit, set()).add(items[k][0])
    return len(set(map(frozenset, files.values()))) > 1
