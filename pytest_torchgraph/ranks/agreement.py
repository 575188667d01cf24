"""Compare ranks: order of collectives, deadlocks, and matching of sends and receives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ..graph.collectives import Collective, format_over, format_size
from ..graph.model import Atom, Ref

if TYPE_CHECKING:
    from ..api.result import Capture


PAIRED = frozenset({"send", "recv"})
"""Point-to-point kinds, between two ranks of a group."""
ROOTED = frozenset({"scatter", "gather"})
"""Kinds in which one rank holds more tensors than the other ranks."""
UNEVEN = frozenset({"all_to_all"})
"""Kinds in which sizes may differ between ranks."""
WITH_CONSTANTS = frozenset({"all_reduce", "reduce_scatter", "reduce", "broadcast", "all_gather"})
"""Kinds whose constant arguments (e.g. the reduction, the root) are the same on each rank."""
NO_TIMEOUT = -1
"""The timeout argument of c10d ops if no timeout was set."""
UNLIKE = "which hangs or gives wrong results"
"""Consequence of different sizes, dtypes or reductions, which backends do not check.
"""
MOST = 12
"""Maximum number of collectives per rank that a message shows of two orders."""


class CollectiveSignature(NamedTuple):
    """Properties of a collective that must be equal on two ranks.

    Attributes:
        text: kind, group and bytes.
        details: dtype, constants, and the shape for kinds whose bytes differ between ranks.
    """

    text: str
    details: str


def signature_of(collective: Collective) -> CollectiveSignature:
    """Return the properties of a collective that must be equal on another rank."""
    payload = f", {format_size(collective)}"
    details = [collective.dtype] if collective.dtype else []
    if collective.kind in ROOTED:
        payload = ""  # the root holds more tensors, so bytes differ: compare the shape instead
        details.append(f"[{', '.join(map(str, collective.shape))}]")
    if collective.kind in WITH_CONSTANTS:
        arguments = [*collective.node.args, *collective.node.kwargs.values()]
        details += [value for value in _constants(arguments) if value != collective.group]
    return CollectiveSignature(f"{format_over(collective)}{payload}", " ".join(details))


def _entry_signature(collective: Collective) -> CollectiveSignature:
    """Return the properties in which all ranks of a group must agree to enter a collective."""
    if collective.kind in UNEVEN:
        return CollectiveSignature(format_over(collective), collective.dtype)
    return signature_of(collective)


def _constants(values: Iterable[Any]) -> Iterator[str]:
    """Yield the constant arguments of an op, in one form for in-place and functional ops."""
    # Skip flags and timeouts: each rank may wait or not, and for any time.
    for value in values:
        if isinstance(value, tuple):
            yield from _constants(value)
        elif isinstance(value, Atom):
            yield value.name.removeprefix("torch.distributed.ReduceOp.").lower()
        elif not (isinstance(value, Ref | bool | None) or value == NO_TIMEOUT):
            yield str(value)


class OrderDifference(NamedTuple):
    """Difference between two ranks in the order or in the content of their collectives.

    Attributes:
        start: number of the first collective that differs.
        rows: pairs of collectives, in order; "nothing" stands for the collective of a rank that has
            no more.
        danger: description of the consequence, "" if unknown.
        same_order: True if kinds and groups agree, and only the content differs.
    """

    start: int
    rows: Sequence[tuple[str, str]]
    danger: str
    same_order: bool

    @property
    def words(self) -> str:
        """Description of the difference."""
        if self.same_order:
            return "communicate in the same order, but send different data"
        return "communicate in different orders"


def order_difference(first: Capture, other: Capture, *, waits: bool) -> OrderDifference | None:
    """Return the difference between the collectives of two ranks, `None` if there is none.

    Args:
        waits: True if one of the ranks is known to deadlock (`find_deadlocks`).
    """
    first_collectives, second_collectives = first.collectives, other.collectives
    pairs = list(zip_longest(first_collectives, second_collectives))
    start = next(
        (
            n
            for n, (left_item, right_item) in enumerate(pairs)
            if _signatures_differ(left_item, right_item)
        ),
        None,
    )
    if start is None:
        return None
    same_order = list(map(format_over, first_collectives)) == list(
        map(format_over, second_collectives)
    )
    danger = ""
    if waits:
        danger = UNLIKE if same_order else "so they would deadlock"
    # Point-to-point calls differ by design: one rank sends where its peer receives. A different
    # order does not imply a deadlock.
    elif not any(
        collective.kind in PAIRED for collective in (*first_collectives, *second_collectives)
    ):
        danger = f"{UNLIKE if same_order else 'which deadlocks'} if they share a group"
    rows = [
        (_format_in_row(left_item, right_item), _format_in_row(right_item, left_item))
        for left_item, right_item in pairs
    ]
    return OrderDifference(start, rows, danger, same_order)


def format_orders(first: Capture, other: Capture, *, waits: bool) -> Iterator[str]:
    """Yield lines that show both orders of collectives, from the first difference on.

    Args:
        waits: see `order_difference`.
    """
    difference = order_difference(first, other, waits=waits)
    if difference is None:
        return
    start, rows = difference.start, difference.rows
    consequence = f", {difference.danger}" if difference.danger else ""
    yield f"they {difference.words}{consequence}. The first difference is at collective {start}:"
    shown_rows = rows[start : start + MOST]
    width = max(len(second_text) for _, second_text in shown_rows)
    for number, (first_text, second_text) in enumerate(shown_rows, start):
        yield f"  {number:>3}  {second_text:<{width}}  vs.  {first_text}"
    if len(rows) > start + MOST:
        yield f"  ... and {len(rows) - start - MOST} more"
    for capture in (other, first):
        if start < len(capture.collectives):
            location = format_place(capture.collectives[start])
            yield f"  collective {start} of rank {capture.rank}: {location}"


def _signatures_differ(first: Collective | None, second: Collective | None) -> bool:
    return first is None or second is None or signature_of(first) != signature_of(second)


def _format_in_row(collective: Collective | None, counterpart: Collective | None) -> str:
    """Format one collective of a row, with details if the row would otherwise show equal texts."""
    if collective is None:
        return "nothing"
    properties, other_properties = (
        signature_of(collective),
        None if counterpart is None else signature_of(counterpart),
    )
    differ = (
        other_properties is not None
        and properties.text == other_properties.text
        and properties != other_properties
    )
    return f"{properties.text} ({properties.details})" if differ else properties.text


def format_place(collective: Collective) -> str:
    """Format the node, module and source line of a collective."""
    module = f" in {collective.module}" if collective.module else ""
    line = f" ({collective.source})" if collective.source is not None else ""
    return f"%{collective.node.name} of {collective.graph}{module}{line}"


class DeadlockedRank(NamedTuple):
    """A deadlocked rank.

    Attributes:
        capture: capture of the rank.
        collective: the collective that the rank waits in.
        ranks: ranks of the collective's group.
    """

    capture: Capture
    collective: Collective
    ranks: tuple[int, ...]


def find_deadlocks(captures: Sequence[Capture]) -> list[DeadlockedRank]:
    """Return the ranks that would deadlock if each collective were waited for immediately.

    A collective completes once all captured ranks of its group have entered it; ranks that were
    not captured are assumed to enter. Sends and receives never block, since many can be pending
    at a time. Collectives of groups with unknown ranks never block either.
    """
    captured = {capture.rank for capture in captures}
    waiting_by_entry: dict[tuple[CollectiveSignature, tuple[int, ...]], list[_RankCursor]] = {}
    ready = [_RankCursor(capture, iter(_of_groups(capture))) for capture in captures]
    while ready:
        cursor = ready.pop()
        if not cursor.advance():
            continue
        key = _entry_signature(cursor.collective), cursor.ranks
        waiting_by_entry.setdefault(key, []).append(cursor)
        # The collective is complete: all of its ranks go on to their next collective.
        if len(waiting_by_entry[key]) == len(captured.intersection(cursor.ranks)):
            ready += waiting_by_entry.pop(key)
    stuck_cursors = [cursor for cursors in waiting_by_entry.values() for cursor in cursors]
    stuck_cursors.sort(key=lambda cursor: cursor.capture.rank or 0)
    return [
        DeadlockedRank(cursor.capture, cursor.collective, cursor.ranks) for cursor in stuck_cursors
    ]


def share_a_group(captures: Sequence[Capture]) -> bool:
    """Return True if any collective runs over a group with two of the captured ranks."""
    captured = {capture.rank for capture in captures}
    return any(
        len(captured.intersection(ranks)) > 1
        for capture in captures
        for _, ranks in _of_groups(capture)
    )


class _RankCursor:
    """Position of a rank in its sequence of collectives."""

    collective: Collective
    ranks: tuple[int, ...]

    def __init__(self, capture: Capture, remaining: Iterator[tuple[Collective, tuple[int, ...]]]):
        self.capture = capture
        self._remaining = remaining

    def advance(self) -> bool:
        """Enter the next collective. Return False if there is none."""
        following = next(self._remaining, None)
        if following is not None:
            self.collective, self.ranks = following
        return following is not None


def _of_groups(capture: Capture) -> Iterator[tuple[Collective, tuple[int, ...]]]:
    """Yield a rank's collectives over whole groups, with the ranks of the group."""
    ranks_of_group = group_members(capture)
    for collective in capture.collectives:
        ranks = ranks_of_group.get(collective.group, ())
        if collective.kind not in PAIRED and capture.rank in ranks:
            yield collective, ranks


def group_members(capture: Capture) -> Mapping[str, tuple[int, ...]]:
    """Return the ranks of each process group of a capture, by group name."""
    return {
        name: ranks
        for top in capture.program
        for graph in top.walk()
        for name, ranks in graph.groups.items()
    }


class Channel(NamedTuple):
    """One direction of communication between two ranks.

    Attributes:
        source, target: rank numbers in the whole mesh.
        group: ranks of the process group.
    """

    source: int
    target: int
    group: tuple[int, ...]


ChannelEnds = dict[str, list[tuple["Capture", Collective]]]
"""Sends into a channel and receives from it, in order, under the keys "send" and "recv"."""


def channels_between(captures: Sequence[Capture]) -> dict[Channel, ChannelEnds]:
    """Return the sends and receives between captured ranks, by channel.

    Receives that accept any sender are left out, and so are groups with unknown ranks.
    """
    captured = {capture.rank for capture in captures}
    channels_found: dict[Channel, ChannelEnds] = {}
    for capture in captures:
        ranks_of_group = group_members(capture)
        for collective in capture.collectives:
            ranks = ranks_of_group.get(collective.group, ())
            if (
                collective.kind not in PAIRED
                or collective.peer is None
                or collective.peer >= len(ranks)
            ):
                continue
            # Peers are numbered within the group. The calls of a rank that was not captured are
            # unknown.
            own_rank, peer_rank = capture.rank, ranks[collective.peer]
            if own_rank is None or peer_rank not in captured:
                continue
            ends = (own_rank, peer_rank) if collective.kind == "send" else (peer_rank, own_rank)
            channel = channels_found.setdefault(Channel(*ends, ranks), {"send": [], "recv": []})
            channel[collective.kind].append((capture, collective))
    return channels_found


def describe_unpaired(captures: Sequence[Capture]) -> Iterator[str]:
    """Yield lines about sends without a receive, receives without a send, and different sizes."""
    for channel, ends in channels_between(captures).items():
        yield from _describe_channel(channel, ends)


def _describe_channel(channel: Channel, ends: ChannelEnds) -> Iterator[str]:
    sends, receives = ends["send"], ends["recv"]
    direction = f"from rank {channel.source} to rank {channel.target}"
    for number, ((_, send), (_, receive)) in enumerate(zip(sends, receives, strict=False)):
        if (send.bytes, send.dtype) != (receive.bytes, receive.dtype):
            yield f"  send {number} {direction} has a different size than its receive:"
            yield f"      {_size(send)}: {format_place(send)} of rank {channel.source}"
            yield f"      {_size(receive)}: {format_place(receive)} of rank {channel.target}"
            return
    # A channel delivers in order, so unmatched sends or receives are at the end.
    unmatched = sends[len(receives) :] or receives[len(sends) :]
    if unmatched:
        verbs = ("sent", "received") if len(sends) > len(receives) else ("received", "sent")
        _, first = unmatched[0]
        count = f"{len(unmatched)} {verbs[0]} {direction} but not {verbs[1]}"
        yield f"  {count}, the first of {_size(first)}:"
        yield f"      {format_place(first)} of rank {unmatched[0][0].rank}"


def _size(collective: Collective) -> str:
    return f"{format_size(collective)} {collective.dtype}".rstrip()
