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
"""Consequence of collectives with different sizes, dtypes or reductions. Backends do not check."""
MOST = 12
"""Maximum number of collectives that a message shows of one order."""


class Sent(NamedTuple):
    """Properties of a collective that must be equal on two ranks.

    Attributes:
        text: kind, group and bytes.
        details: dtype, constants, and the shape for kinds whose bytes differ between ranks.
    """

    text: str
    details: str


def sent(each: Collective) -> Sent:
    """Return the properties of a collective that must be equal on another rank."""
    payload = f", {format_size(each)}"
    details = [each.dtype] if each.dtype else []
    if each.kind in ROOTED:
        payload = ""  # the root holds more tensors, so bytes differ: compare the shape instead
        details.append(f"[{', '.join(map(str, each.shape))}]")
    if each.kind in WITH_CONSTANTS:
        given = [*each.node.args, *each.node.kwargs.values()]
        details += [value for value in _constants(given) if value != each.group]
    return Sent(f"{format_over(each)}{payload}", " ".join(details))


def _entry(each: Collective) -> Sent:
    """Return the properties that are equal on all ranks of a group entering a collective."""
    if each.kind in UNEVEN:
        return Sent(format_over(each), each.dtype)
    return sent(each)


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
        rows: pairs of collectives, in order; "nothing" after a rank's last collective.
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
        waits: True if one of the ranks is known to deadlock (`stuck`).
    """
    left, right = first.collectives, other.collectives
    pairs = list(zip_longest(left, right))
    start = next((n for n, (one, two) in enumerate(pairs) if _differ(one, two)), None)
    if start is None:
        return None
    same_order = list(map(format_over, left)) == list(map(format_over, right))
    danger = ""
    if waits:
        danger = UNLIKE if same_order else "so they would deadlock"
    elif not any(each.kind in PAIRED for each in (*left, *right)):
        danger = f"{UNLIKE if same_order else 'which deadlocks'} if they share a group"
    rows = [(_text(one, two), _text(two, one)) for one, two in pairs]
    return OrderDifference(start, rows, danger, same_order)


def orders(first: Capture, other: Capture, *, waits: bool) -> Iterator[str]:
    """Yield lines that show both orders of collectives, from the first difference on.

    Args:
        waits: see `order_difference`.
    """
    found = order_difference(first, other, waits=waits)
    if found is None:
        return
    start, rows = found.start, found.rows
    why = f", {found.danger}" if found.danger else ""
    yield f"they {found.words} from collective {start} on{why}:"
    shown = rows[start : start + MOST]
    width = max(len(two) for _, two in shown)
    for number, (one, two) in enumerate(shown, start):
        yield f"  {number:>3}  {two:<{width}}  vs.  {one}"
    if len(rows) > start + MOST:
        yield f"  ... and {len(rows) - start - MOST} more"
    for capture in (other, first):
        if start < len(capture.collectives):
            where = place(capture.collectives[start])
            yield f"  collective {start} of rank {capture.rank}: {where}"


def _differ(one: Collective | None, two: Collective | None) -> bool:
    return one is None or two is None or sent(one) != sent(two)


def _text(one: Collective | None, beside: Collective | None) -> str:
    """Format one collective of a row, with details if both would look alike without them."""
    if one is None:
        return "nothing"
    what, other = sent(one), None if beside is None else sent(beside)
    differ = other is not None and what.text == other.text and what != other
    return f"{what.text} ({what.details})" if differ else what.text


def place(each: Collective) -> str:
    """Format the node, module and source line of a collective."""
    where = f" in {each.module}" if each.module else ""
    line = f" ({each.source})" if each.source is not None else ""
    return f"%{each.node.name} of {each.graph}{where}{line}"


class Stuck(NamedTuple):
    """A deadlocked rank.

    Attributes:
        capture: capture of the rank.
        collective: the collective that the rank waits in.
        ranks: ranks of the collective's group.
    """

    capture: Capture
    collective: Collective
    ranks: tuple[int, ...]


def stuck(captures: Sequence[Capture]) -> list[Stuck]:
    """Return the ranks that would deadlock if each collective were waited for immediately.

    A collective completes once all captured ranks of its group have entered it; ranks that were
    not captured are assumed to enter. Sends and receives never block, since many can be pending
    at a time. Collectives of groups with unknown ranks never block either.
    """
    captured = {each.rank for each in captures}
    entered: dict[tuple[Sent, tuple[int, ...]], list[_Waiting]] = {}
    ready = [_Waiting(each, iter(_of_groups(each))) for each in captures]
    while ready:
        waiting = ready.pop()
        if not waiting.step():
            continue
        key = _entry(waiting.collective), waiting.ranks
        entered.setdefault(key, []).append(waiting)
        # The collective is complete: all of its ranks go on to their next collective.
        if len(entered[key]) == len(captured.intersection(waiting.ranks)):
            ready += entered.pop(key)
    found = [each for those in entered.values() for each in those]
    found.sort(key=lambda each: each.capture.rank or 0)
    return [Stuck(each.capture, each.collective, each.ranks) for each in found]


def meeting(captures: Sequence[Capture]) -> bool:
    """Return True if any collective runs over a group with two of the captured ranks."""
    captured = {each.rank for each in captures}
    return any(
        len(captured.intersection(ranks)) > 1 for each in captures for _, ranks in _of_groups(each)
    )


class _Waiting:
    """Position of a rank in its sequence of collectives."""

    collective: Collective
    ranks: tuple[int, ...]

    def __init__(self, capture: Capture, left: Iterator[tuple[Collective, tuple[int, ...]]]):
        self.capture = capture
        self.left = left

    def step(self) -> bool:
        """Enter the next collective. Return False if there is none."""
        following = next(self.left, None)
        if following is not None:
            self.collective, self.ranks = following
        return following is not None


def _of_groups(capture: Capture) -> Iterator[tuple[Collective, tuple[int, ...]]]:
    """Yield a rank's collectives over whole groups, with the ranks of the group."""
    known = members(capture)
    for each in capture.collectives:
        ranks = known.get(each.group, ())
        if each.kind not in PAIRED and capture.rank in ranks:
            yield each, ranks


def members(capture: Capture) -> Mapping[str, tuple[int, ...]]:
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


Ends = dict[str, list[tuple["Capture", Collective]]]
"""Sends into a channel and receives from it, in order, under the keys "send" and "recv"."""


def channels(captures: Sequence[Capture]) -> dict[Channel, Ends]:
    """Return the sends and receives between captured ranks, by channel.

    Receives from any rank are left out, and so are groups with unknown ranks.
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
    """Yield lines on sends without receive, receives without send, and sizes that differ."""
    for channel, ends in channels(captures).items():
        yield from _unpaired(channel, ends)


def _unpaired(channel: Channel, ends: Ends) -> Iterator[str]:
    sends, receives = ends["send"], ends["recv"]
    way = f"from rank {channel.source} to rank {channel.target}"
    for number, ((_, sent), (_, received)) in enumerate(zip(sends, receives, strict=False)):
        if (sent.bytes, sent.dtype) != (received.bytes, received.dtype):
            yield f"  send {number} {way} has a different size than its receive:"
            yield f"      {_size(sent)}: {place(sent)} of rank {channel.source}"
            yield f"      {_size(received)}: {place(received)} of rank {channel.target}"
            return
    over = sends[len(receives) :] or receives[len(sends) :]
    if over:
        what = ("sent", "received") if len(sends) > len(receives) else ("received", "sent")
        _, first = over[0]
        yield f"  {len(over)} {what[0]} {way} but not {what[1]}, the first of {_size(first)}:"
        yield f"      {place(first)} of rank {over[0][0].rank}"


def _size(each: Collective) -> str:
    return f"{format_size(each)} {each.dtype}".rstrip()
