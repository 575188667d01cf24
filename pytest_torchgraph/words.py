"""Words of messages that every room may use; this module imports nothing."""

from __future__ import annotations


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
