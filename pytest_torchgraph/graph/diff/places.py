"""Findings that are one edit become one, with a place for each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from ..model import Graph
from .calls import CallKeys
from .findings import Finding
from .keys import EditKeys
from .modules import Numbered, set_modules_apart
from .origins import Origins


def with_places(
    findings: Iterable[Finding], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> list[Finding]:
    """One finding for each edit with all its places, in the order of their first places.

    Args:
        findings: one for each place, in the order of the graphs.
        before, after: all graphs of the two captures.
        origins: where the changes come from.
    """
    numbered = list(enumerate(findings))
    found, others = set_modules_apart(numbered, before, after, origins)
    keys = EditKeys(origins)
    groups: dict[Hashable, list[Numbered]] = {}
    for number, finding in others:
        groups.setdefault(keys.key(finding), []).append((number, finding))
    found += map(_one, _calls_together(list(groups.values()), origins))
    found.sort(key=lambda each: each[0])
    return [finding for _, finding in found]


def _calls_together(
    groups: Sequence[Sequence[Numbered]], origins: Origins
) -> Iterable[Sequence[Numbered]]:
    """Groups of findings in the calls of one shared module or function as one."""
    first = [group[0][1] for group in groups]
    keys = CallKeys(first, origins)
    together: dict[Hashable, list[Numbered]] = {}
    for group, finding in zip(groups, first, strict=True):
        together.setdefault(keys.key(finding), []).extend(group)
    return together.values()


def _one(group: Iterable[Numbered]) -> Numbered:
    """The findings of one edit as one."""
    group = sorted(group, key=lambda each: each[0])
    number, first = group[0]
    return number, replace(first, places=tuple(p for _, each in group for p in each.places))
