"""Sends and receives of several ranks: each has to have its other end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..graph.collective_table import format_size
from ..graph.collectives import Collective
from .agreement import PAIRED, members, place

if TYPE_CHECKING:
    from ..api.result import Capture


class Channel(NamedTuple):
    """One way between two ranks.

    Attributes:
        source, target: the ranks, counted in the whole mesh.
        group: the ranks of the group.
    """

    source: int
    target: int
    group: tuple[int, ...]


Ends = dict[str, list[tuple["Capture", Collective]]]
"""What goes into a channel and comes out, in order: by "send" and "recv"."""


def channels(captures: Sequence[Capture]) -> dict[Channel, Ends]:
    """What is sent and received between ranks that were captured.

    Receives from any rank are left out, and what goes over groups whose ranks are not known.
    """
    captured = {each.rank for each in captures}
    found: dict[Channel, Ends] = {}
    for capture in captures:
        known = members(capture)
        for each in capture.collectives:
            ranks = known.get(each.group, ())
            if each.kind not in PAIRED or each.peer is None or each.peer >= len(ranks):
                continue
            here, there = capture.rank, ranks[each.peer]
            if here is None or there not in captured:
                continue
            ends = (here, there) if each.kind == "send" else (there, here)
            channel = found.setdefault(Channel(*ends, ranks), {"send": [], "recv": []})
            channel[each.kind].append((capture, each))
    return found


def unpaired(captures: Sequence[Capture]) -> Iterator[str]:
    """What is sent and not received, or received and not sent, or of another size."""
    for channel, ends in channels(captures).items():
        yield from _unpaired(channel, ends)


def _unpaired(channel: Channel, ends: Ends) -> Iterator[str]:
    sends, receives = ends["send"], ends["recv"]
    way = f"from rank {channel.source} to rank {channel.target}"
    for number, ((_, sent), (_, received)) in enumerate(zip(sends, receives, strict=False)):
        if (sent.bytes, sent.dtype) != (received.bytes, received.dtype):
            yield f"  send {number} {way} is of another size than what is received:"
            yield f"      {_size(sent)}: {place(sent)} of rank {channel.source}"
            yield f"      {_size(received)}: {place(received)} of rank {channel.target}"
            return
    over = sends[len(receives) :] or receives[len(sends) :]
    if over:
        what = ("sent", "received") if len(sends) > len(receives) else ("received", "sent")
        _, first = over[0]
        yield f"  {len(over)} {what[0]} {way} and not {what[1]}, the first of {_size(first)}:"
        yield f"      {place(first)} of rank {over[0][0].rank}"


def _size(each: Collective) -> str:
    return f"{format_size(each)} {each.dtype}".rstrip()
