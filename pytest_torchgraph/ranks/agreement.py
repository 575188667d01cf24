"""Compare ranks: the order of collectives, deadlocks, and matching sends and receives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ..graph.collectives import Collective, format_over, format_size
from ..graph.model import Atom, Ref
from ..words import counted

if TYPE_CHECKING:
    from ..api.result import Capture


PAIRED = frozenset({"send", "recv"})
"""Point-to-point kinds, between two ranks of a group."""
ROOTED = frozenset({"scatter", "gather"})
"""Kinds in which the root holds more tensors than the other ranks."""
UNEVEN = frozenset({"all_to_all"})
"""Kinds whose sizes may differ between ranks."""
WITH_CONSTANTS = ROOTED | {"all_reduce", "reduce_scatter", "reduce", "broadcast", "all_gather"}
"""Kinds whose constant arguments, such as the reduction or the root, must agree on all ranks."""
NO_TIMEOUT = -1
"""The timeout argument of c10d ops if no timeout was set."""
UNLIKE = "which hangs or gives wrong results"
"""Consequence of different sizes, dtypes or reductions. Backends do not check these."""
MAX_ROWS = 12
"""Maximum number of rows of a message that shows the collectives of two ranks."""


class CollectiveSignature(NamedTuple):
    """Properties of a collective that must be equal on two ranks.

    Attributes:
        text: kind, group, and bytes except for rooted kinds.
        details: dtype and constants. For rooted kinds, whose bytes differ, also the shape.
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
    """Return the properties that must agree on all ranks for a collective to complete."""
    if collective.kind in UNEVEN:
        return CollectiveSignature(format_over(collective), collective.dtype)
    return signature_of(collective)


def _constants(values: Iterable[Any]) -> Iterator[str]:
    """Yield the constant arguments of an op; in-place and functional ops give equal texts."""
    # Skip flags and timeouts: each rank may choose whether and how long to wait.
    for value in values:
        if isinstance(value, tuple):
            yield from _constants(value)
        elif isinstance(value, Atom):
            yield value.name.removeprefix("torch.distributed.ReduceOp.").lower()
        elif not (isinstance(value, Ref | bool | None) or value == NO_TIMEOUT):
            yield str(value)


class OrderDifference(NamedTuple):
    """Difference in the order or the contents of the collectives of two ranks.

    Attributes:
        start: number of the first collective that differs.
        rows: the collectives of both ranks as text, in order, those of the first rank first;
            "nothing" for a rank that has no more collectives.
        danger: description of the consequence, "" if unknown.
        same_order: True if kinds and groups agree, and only the contents differ.
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
        if "nothing" in self.rows[self.start]:
            return "run different numbers of collectives"
        return "communicate in different orders"


def order_difference(first: Capture, other: Capture, *, waits: bool) -> OrderDifference | None:
    """Return the difference between the collectives of two ranks, `None` if there is none.

    Args:
        first, other: captures of the two ranks.
        waits: True if one of the ranks is known to deadlock (`find_deadlocks`).
    """
    pairs = list(zip_longest(first.collectives, other.collectives))
    signatures = [[signature_of(c) if c is not None else None for c in pair] for pair in pairs]
    start = next((n for n, (left, right) in enumerate(signatures) if left != right), None)
    if start is None:
        return None
    kinds, other_kinds = (
        [format_over(collective) for collective in capture.collectives]
        for capture in (first, other)
    )
    same_order = kinds == other_kinds
    danger = ""
    if waits:
        danger = UNLIKE if same_order else "so they would deadlock"
    # With point-to-point calls, the consequence is unknown. They differ by design: one rank sends
    # where its peer receives.
    elif not any(
        collective.kind in PAIRED for collective in (*first.collectives, *other.collectives)
    ):
        danger = f"{UNLIKE if same_order else 'which deadlocks'} if they share a group"
    rows = [
        (_format_in_row(collective, counterpart), _format_in_row(counterpart, collective))
        for collective, counterpart in pairs
    ]
    return OrderDifference(start, rows, danger, same_order)


def format_orders(first: Capture, other: Capture, *, waits: bool) -> Iterator[str]:
    """Yield lines with the collectives of two ranks, from the first difference on.

    The other rank stands on the left, because the message compares it with the first.

    Args:
        first, other, waits: see `order_difference`.
    """
    difference = order_difference(first, other, waits=waits)
    if difference is None:
        return
    start, rows = difference.start, difference.rows
    consequence = f", {difference.danger}" if difference.danger else ""
    place = f"{start} (rank {other.rank} vs. rank {first.rank})"
    yield (
        f"the ranks {difference.words}{consequence}. The first difference is at collective {place}:"
    )
    shown_rows = rows[start : start + MAX_ROWS]
    width = max(len(second_text) for _, second_text in shown_rows)
    for number, (first_text, second_text) in enumerate(shown_rows, start):
        yield f"  {number:>3}  {second_text:<{width}}  vs.  {first_text}"
    if len(rows) > start + MAX_ROWS:
        yield f"  ... and {len(rows) - start - MAX_ROWS} more"
    for capture in (other, first):
        if start < len(capture.collectives):
            location = format_place(capture.collectives[start])
            yield f"  collective {start} of rank {capture.rank}: {location}"


def _format_in_row(collective: Collective | None, counterpart: Collective | None) -> str:
    """Format a collective of one rank, next to the other rank's collective of the same number."""
    if collective is None:
        return "nothing"
    others = [] if counterpart is None else [signature_of(counterpart)]
    return format_signature(signature_of(collective), others)


def format_signature(signature: CollectiveSignature, others: Iterable[CollectiveSignature]) -> str:
    """Format a signature, with its details if a different signature has the same text."""
    differ = any(other.text == signature.text and other != signature for other in others)
    return f"{signature.text} ({signature.details})" if differ else signature.text


def format_place(collective: Collective) -> str:
    """Format the node, module and source line of a collective."""
    module = f", module {collective.module}" if collective.module else ""
    line = f" ({collective.source})" if collective.source is not None else ""
    return f"%{collective.node.name} in graph {collective.graph!r}{module}{line}"


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
    """Return the ranks that would deadlock if each rank waited for each collective immediately.

    A collective completes once all captured ranks of its group have entered it. Ranks that were not
    captured are assumed to enter it. Sends and receives do not block, because many can be pending
    at a time. Collectives of groups with unknown ranks do not block either.
    """
    captured = {capture.rank for capture in captures}
    # Ranks that can continue, each with an iterator over its remaining collectives.
    ready = [(capture, _group_collectives(capture)) for capture in captures]
    # Ranks that have entered a collective, by what must agree.
    waiting: dict[Any, list[tuple[DeadlockedRank, Any]]] = {}
    while ready:
        capture, remaining = ready.pop()
        entered = next(remaining, None)
        if entered is None:  # the rank has finished
            continue
        collective, ranks = entered
        key = _entry_signature(collective), ranks
        group = waiting.setdefault(key, [])
        group.append((DeadlockedRank(capture, collective, ranks), remaining))
        # The collective is complete: all its ranks continue with their next collective.
        if len(group) == len(captured.intersection(ranks)):
            ready += [(rank.capture, rest) for rank, rest in waiting.pop(key)]
    stuck = [rank for group in waiting.values() for rank, _ in group]
    return sorted(stuck, key=lambda rank: rank.capture.rank or 0)


def share_a_group(captures: Sequence[Capture]) -> bool:
    """Return True if any collective runs over a group with two of the captured ranks."""
    captured = {capture.rank for capture in captures}
    return any(
        len(captured.intersection(ranks)) > 1
        for capture in captures
        for _, ranks in _group_collectives(capture)
    )


def _group_collectives(capture: Capture) -> Iterator[tuple[Collective, tuple[int, ...]]]:
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
"""Sends into a channel and receives from it, in order, with the keys "send" and "recv"."""


def channels_between(captures: Sequence[Capture]) -> dict[Channel, ChannelEnds]:
    """Return the sends and receives between captured ranks, by channel.

    Receives from any sender are left out, and so are groups with unknown ranks.
    """
    captured = {capture.rank for capture in captures}
    channels: dict[Channel, ChannelEnds] = {}
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
            # Peers are numbered within the group. Without a capture of the peer, its calls are
            # unknown.
            own_rank, peer_rank = capture.rank, ranks[collective.peer]
            if own_rank is None or peer_rank not in captured:
                continue
            ends = (own_rank, peer_rank) if collective.kind == "send" else (peer_rank, own_rank)
            channel = channels.setdefault(Channel(*ends, ranks), {"send": [], "recv": []})
            channel[collective.kind].append((capture, collective))
    return channels


def describe_unpaired(captures: Sequence[Capture]) -> Iterator[str]:
    """Yield lines about sends without a receive, receives without a send, and different sizes."""
    for channel, ends in channels_between(captures).items():
        yield from _describe_channel(channel, ends)
    yield from _describe_uneven(captures)


def _describe_channel(channel: Channel, ends: ChannelEnds) -> Iterator[str]:
    """Yield lines about the first problem of a channel."""
    sends, receives = ends["send"], ends["recv"]
    # What has no counterpart is described below.
    for number, ((_, send), (_, receive)) in enumerate(zip(sends, receives, strict=False)):
        if (send.bytes, send.dtype) != (receive.bytes, receive.dtype):
            direction = f"from rank {channel.source} to rank {channel.target}"
            yield f"  send {number} {direction} differs from its receive:"
            yield f"      {_size(send)}: {format_place(send)} of rank {channel.source}"
            yield f"      {_size(receive)}: {format_place(receive)} of rank {channel.target}"
            return
    # A channel delivers in order, so the unmatched sends or receives are the last ones.
    unmatched = sends[len(receives) :] or receives[len(sends) :]
    if unmatched:
        capture, first = unmatched[0]
        if first.kind == "send":
            words = f"sends to rank {channel.target} without a matching receive"
        else:
            words = f"receives from rank {channel.source} without a matching send"
        times = counted(len(unmatched), "time")
        yield f"  rank {capture.rank} {words} ({times}, first {_size(first)}):"
        yield f"      {format_place(first)} of rank {capture.rank}"


def _describe_uneven(captures: Sequence[Capture]) -> Iterator[str]:
    """Yield lines about the first all-to-all in which a rank sends another size than expected."""
    calls: defaultdict[tuple[int, ...], dict[int, list[Collective]]] = defaultdict(dict)
    for capture in captures:
        for collective, ranks in _group_collectives(capture):
            if collective.kind in UNEVEN and capture.rank is not None:
                calls[ranks].setdefault(capture.rank, []).append(collective)
    for ranks, calls_by_rank in calls.items():
        # Each call both sends and receives: compare each rank's calls as sends with those of each
        # other rank as receives. A rank with fewer calls deadlocks, which `find_deadlocks` reports.
        for (source, sends), (target, receives) in permutations(calls_by_rank.items(), 2):
            for send, receive in zip(sends, receives, strict=False):
                sent = _split(send, 1, ranks.index(target))
                expected = _split(receive, 0, ranks.index(source))
                if None not in (sent, expected) and sent != expected:
                    what = f"sends {sent} to rank {target}, which expects {expected}"
                    yield f"  rank {source} {what}:"
                    yield f"      {format_place(send)} of rank {source}"
                    yield f"      {format_place(receive)} of rank {target}"
                    return


def _split(collective: Collective, argument: int, peer: int) -> int | None:
    """Return the split size of an all-to-all for a peer; `None` if unknown or even.

    Args:
        collective: the all-to-all.
        argument: 0 for output sizes, 1 for input sizes, as in the schemas of the ops.
        peer: number of the peer within the group.
    """
    # For even splits, c10d ops have empty tuples.
    arguments = [value for value in collective.node.args if isinstance(value, tuple)]
    sizes = arguments[argument] if len(arguments) == 2 else ()
    size = sizes[peer] if peer < len(sizes) else None
    return size if isinstance(size, int) else None


def _size(collective: Collective) -> str:
    return f"{format_size(collective)} {collective.dtype}".rstrip()
