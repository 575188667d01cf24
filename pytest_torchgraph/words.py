"""Words of messages that every room may use; this module imports nothing."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 file`, `1,416 files`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
