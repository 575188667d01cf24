"""Words of messages that every room may use."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, noun: str) -> str:
    """`1 file`, `1,416 files`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def amount(count: int, unit: str, *, signed: bool = False) -> str:
    """A number of units with a prefix of the SI: `999 B`, `65.5 kB`, `1.2 MFLOP`.

    Args:
        count: how many.
        unit: its symbol.
        signed: whether a plus stands before what is not negative, as in a difference.
    """
    sign = "-" if count < 0 else "+" if signed else ""
    size, prefixes = abs(count), " kMGTPE"
    if size < 1000:
        return f"{sign}{size} {unit}"
    power = 1
    while power < len(prefixes) - 1 and size >= 999.95 * 1000**power:
        power += 1
    return f"{sign}{size / 1000**power:,.1f} {prefixes[power]}{unit}"


def format_ranks(ranks: Iterable[int | None]) -> str:
    """Numbers of ranks with their ranges: `ranks 0-3, 7`."""
    numbers = sorted(rank for rank in ranks if rank is not None)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(texts)}"
