"""The assertions on syncs and transfers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..settings.within import allows, patterns
from ..syncs.model import BREAKS, STARTS, THREADS, Sync, Transfer
from .compilation import need_graphs

if TYPE_CHECKING:
    from .subject import Subject

_UNKNOWN = (
    "What runs at a graph break is in no graph: remove the break, capture with via='dispatch', "
    "which sees what runs, or tolerate it with allow="
)
_UNKNOWN_BUT_OPS = (
    "The ops that ran at a graph break have been looked at, but not calls of tolist, cpu and "
    "print, nor other threads: remove the break, capture with via='dispatch', which sees such "
    "calls, or tolerate it with allow="
)
_IN_THREADS = "What other threads run is not seen: run it in this one, or tolerate it with allow="


def assert_no_syncs(capture: Subject, allow: str | Sequence[str]) -> None:
    """See `Capture.assert_no_syncs`."""
    __tracebackhide__ = True
    _assert_none("host syncs", capture, capture.syncs, allow)


def assert_no_transfers(capture: Subject, allow: str | Sequence[str]) -> None:
    """See `Capture.assert_no_transfers`."""
    __tracebackhide__ = True
    _assert_none("transfers between devices", capture, capture.transfers, allow)


def _assert_none(
    kind: str,
    capture: Subject,
    found: Sequence[Sync | Transfer],
    allow: str | Sequence[str],
) -> None:
    __tracebackhide__ = True
    allowed = patterns(allow)
    wrong = [each for each in found if not allows(allowed, str(each))]
    if wrong:
        tolerated = len(found) - len(wrong)
        certain = sum(each.certain for each in wrong)
        unknown = len(wrong) - certain
        head = f"{kind}: expected none, found {certain or 'none for certain'}"
        head += f", and {unknown} not known" if unknown else ""
        head += f" ({tolerated} more are allowed)" if tolerated else ""
        lines = [_shown(number, each) for number, each in enumerate(wrong, 1)]
        at_breaks = _UNKNOWN_BUT_OPS if capture.watched is None else _UNKNOWN
        unseen = [each for each in wrong if not each.certain]
        lines += [at_breaks] * any(each.op != STARTS for each in unseen)
        lines += [_IN_THREADS] * any(each.op == STARTS for each in unseen)
        raise AssertionError("\n".join([head, *lines]))
    need_graphs(capture, unreported=True)


def _shown(number: int, each: Sync | Transfer) -> str:
    if not each.certain:
        how = f"{THREADS if each.op == STARTS else BREAKS}: {each.op}"
    elif isinstance(each, Transfer):
        waits = "" if each.blocking else " (Python does not wait)"
        how = f"from {each.source} to {each.target}: {each.op} ({each.seen}){waits}"
    else:
        how = f"{each.kind}: {each.op} ({each.seen})"
    place = str(each).partition("\n")[0]
    lines = [f"  {number}. {place}", f"     {how}"]
    if each.module and each.file:
        lines.append(f"     module {each.module}")
    if each.occurrences > 1:
        lines.append(f"     {each.occurrences} times")
    return "\n".join(lines)
