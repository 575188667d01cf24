"""The order in which generated code starts collectives and waits for them, beside their graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..ops.collectives import packet_of
from .collectives import Collective


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A collective as generated code runs it.

    Attributes:
        op: its qualified name.
        group: as `Collective.group`, "" where the code does not say it.
        node: name of the node that it runs, "" where that is not known.
        distance: how many kernels and library calls are launched between its start and its wait;
            None where there is no wait.
        overlap: those of them that compute, by name.
    """

    op: str
    group: str
    node: str
    distance: int | None
    overlap: tuple[str, ...] = ()


def in_schedule(
    found: Iterable[Collective], calls: Sequence[ScheduledCall]
) -> tuple[Collective, ...]:
    """The collectives of a graph in the order of its code, with the distances in there.

    One that is not recognised in the code comes last, and of it no distance is known: none is lost.

    Args:
        found: the collectives, in the order of the graph.
        calls: what its code runs.
    """
    parts: dict[int, list[Collective]] = {}  # one op may be several sends and receives
    for each in found:
        parts.setdefault(id(each.node), []).append(each)
    left = list(parts.values())
    known = {call.node for call in calls if call.node}
    placed: list[Collective] = []
    for call in calls:
        fitting = [each for each in left if _fits(each[0], call, known)]
        if fitting:
            left = [each for each in left if each is not fitting[0]]
            placed += (
                replace(each, distance=call.distance, overlap=call.overlap) for each in fitting[0]
            )
    lost = (replace(each, distance=None, overlap=()) for several in left for each in several)
    return (*placed, *lost)


def _fits(each: Collective, call: ScheduledCall, known: set[str]) -> bool:
    if call.node:
        return each.node.name == call.node
    return (
        each.node.name not in known
        and packet_of(each.node.op) == packet_of(call.op)
        and call.group in ("", each.group)
    )
