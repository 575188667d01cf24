"""Agreement between ranks: on collectives, and on the two ends of sends and receives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ..graph.collectives import Collective, format_over, format_size
from ..graph.model import Atom, Ref

if TYPE_CHECKING:
    from ..api.result import Capture


PAIRED = frozenset({"send", "recv"})
"""Kinds that concern two ranks of a group."""
ROOTED = frozenset({"scatter", "gather"})
"""Kinds in which one rank has more tensors than the others."""
UNEVEN = frozenset({"all_to_all"})
"""Kinds in which each rank may have another size."""
WITH_CONSTANTS = frozenset({"all_reduce", "reduce_scatter", "reduce", "broadcast", "all_gather"})
"""Kinds whose other arguments, as the reduction and the root, are the same on each rank."""
NO_TIMEOUT = -1
"""What c10d's ops are given where nobody said how long they may take."""
UNLIKE = "which hangs or gives wrong numbers"
"""What comes of collectives whose sizes, dtypes or reductions differ; backends do not check it."""
MOST = 12
"""How many collectives of one order a message shows."""


class Sent(NamedTuple):
    """What two ranks have to have in common in a collective.

    Attributes:
        text: kind, group and bytes.
        details: the dtype, the shape where bytes say nothing, and constants.
    """

    text: str
    details: str


def sent(each: Collective) -> Sent:
    """What another rank has to have in common with a collective."""
    payload = f", {format_size(each)}"
    details = [each.dtype] if each.dtype else []
    if each.kind in ROOTED:
        payload = ""
        details.append(f"[{', '.join(map(str, each.shape))}]")
    if each.kind in WITH_CONSTANTS:
        given = [*each.node.args, *each.node.kwargs.values()]
        details += [value for value in _constants(given) if value != each.group]
    return Sent(f"{format_over(each)}{payload}", " ".join(details))


def _entry(each: Collective) -> Sent:
    """What all ranks of a group have in common when they enter a collective."""
    if each.kind in UNEVEN:
        return Sent(format_over(each), each.dtype)
    return sent(each)


def _constants(values: Iterable[Any]) -> Iterator[str]:
    """What an op is told beside tensors, alike for one in place and a functional one.

    Whether a call waits, and for how long, is each rank's own affair.
    """
    for value in values:
        if isinstance(value, tuple):
            yield from _constants(value)
        elif isinstance(value, Atom):
            yield value.name.removeprefix("torch.distributed.ReduceOp.").lower()
        elif not (isinstance(value, Ref | bool | None) or value == NO_TIMEOUT):
            yield str(value)


class OrderDifference(NamedTuple):
    """Where two ranks communicate in another order, or send other things in the same.

    Attributes:
        start: the number of the first collective that differs.
        rows: what each of them communicates, in order; "nothing" where the order of one has ended.
        danger: what it leads to, in words; "" where nothing is known of that.
        same_order: whether kinds and groups are the same, and what is sent is not.
    """

    start: int
    rows: Sequence[tuple[str, str]]
    danger: str
    same_order: bool

    @property
    def words(self) -> str:
        """What the ranks do."""
        if self.same_order:
            return "communicate in the same order, but do not send the same"
        return "do not communicate in the same order"


def order_difference(first: Capture, other: Capture, *, waits: bool) -> OrderDifference | None:
    """Where two ranks communicate differently; None where they do not.

    Args:
        waits: whether it is known that one of them would wait for ever (`stuck`).
    """
    left, right = first.collectives, other.collectives
    pairs = list(zip_longest(left, right))
    start = next((n for n, (one, two) in enumerate(pairs) if _differ(one, two)), None)
    if start is None:
        return None
    same_order = list(map(format_over, left)) == list(map(format_over, right))
    danger = ""
    if waits:
        danger = UNLIKE if same_order else "so that they would wait for each other for ever"
    elif not any(each.kind in PAIRED for each in (*left, *right)):
        danger = UNLIKE if same_order else "a deadlock in waiting"
        danger += " where they are in one group"
    rows = [(_text(one, two), _text(two, one)) for one, two in pairs]
    return OrderDifference(start, rows, danger, same_order)


def orders(first: Capture, other: Capture, *, waits: bool) -> Iterator[str]:
    """Where two ranks communicate differently: both orders, from the first difference on.

    Args:
        waits: as in `order_difference`.
    """
    found = order_difference(first, other, waits=waits)
    if found is None:
        return
    start, rows = found.start, found.rows
    why = f", {found.danger}" if found.danger else ""
    yield f"they {found.words}{why}, from collective {start} on:"
    shown = rows[start : start + MOST]
    width = max(len(two) for _, two in shown)
    for number, (one, two) in enumerate(shown, start):
        yield f"  {number:>3}  {two:<{width}}  beside  {one}"
    if len(rows) > start + MOST:
        yield f"  ... and {len(rows) - start - MOST} more"
    for capture in (other, first):
        if start < len(capture.collectives):
            yield f"  {start} of rank {capture.rank} is {place(capture.collectives[start])}"


def _differ(one: Collective | None, two: Collective | None) -> bool:
    return one is None or two is None or sent(one) != sent(two)


def _text(one: Collective | None, beside: Collective | None) -> str:
    """One collective of a row; with details where without them both would look alike."""
    if one is None:
        return "nothing"
    what, other = sent(one), None if beside is None else sent(beside)
    differ = other is not None and what.text == other.text and what != other
    return f"{what.text} ({what.details})" if differ else what.text


def place(each: Collective) -> str:
    """The node, the module and the user's line of a collective."""
    where = f" in {each.module}" if each.module else ""
    line = f" ({each.source})" if each.source is not None else ""
    return f"%{each.node.name} of {each.graph}{where}{line}"


class Stuck(NamedTuple):
    """A rank that would wait for ever.

    Attributes:
        capture: what it runs.
        collective: what it waits in.
        ranks: those of its group.
    """

    capture: Capture
    collective: Collective
    ranks: tuple[int, ...]


def stuck(captures: Sequence[Capture]) -> list[Stuck]:
    """The ranks that would wait for ever if each collective were waited for at once.

    All ranks of a group, of those that were captured, have to enter the same collective; the others
    are taken to come. Nothing waits for sends and receives, of which many are pending at a time,
    nor for collectives of a group of which the ranks are not known.
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
        if len(entered[key]) == len(captured.intersection(waiting.ranks)):
            ready += entered.pop(key)
    found = [each for those in entered.values() for each in those]
    found.sort(key=lambda each: each.capture.rank or 0)
    return [Stuck(each.capture, each.collective, each.ranks) for each in found]


def meeting(captures: Sequence[Capture]) -> bool:
    """Whether any collective is over a group with two of the ranks."""
    captured = {each.rank for each in captures}
    return any(
        len(captured.intersection(ranks)) > 1 for each in captures for _, ranks in _of_groups(each)
    )


class _Waiting:
    """A rank on its way through its collectives."""

    collective: Collective
    ranks: tuple[int, ...]

    def __init__(self, capture: Capture, left: Iterator[tuple[Collective, tuple[int, ...]]]):
        self.capture = capture
        self.left = left

    def step(self) -> bool:
        """Enter the next collective; False where there is none."""
        following = next(self.left, None)
        if following is not None:
            self.collective, self.ranks = following
        return following is not None


def _of_groups(capture: Capture) -> Iterator[tuple[Collective, tuple[int, ...]]]:
    """The collectives of whole groups that a rank is in, with the ranks of the group."""
    known = members(capture)
    for each in capture.collectives:
        ranks = known.get(each.group, ())
        if each.kind not in PAIRED and capture.rank in ranks:
            yield each, ranks


def members(capture: Capture) -> Mapping[str, tuple[int, ...]]:
    """The ranks of the groups of a capture, by their names."""
    return {
        name: ranks
        for top in capture.program
        for graph in top.walk()
        for name, ranks in graph.groups.items()
    }


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
