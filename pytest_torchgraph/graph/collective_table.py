"""Collectives as text: what is said of one, and a table with a line for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ops.dtypes import ABBREVIATIONS
from ..words import counted
from .text.format import format_shape
from .text.table import aligned, right_aligned

if TYPE_CHECKING:
    from .collectives import Collective

NONE = "no collectives"
"""The table of none."""


def format_collectives(found: Sequence[Collective]) -> str:
    """Collectives in columns; one in which nothing would stand is left out.

    Args:
        found: the collectives, which are numbered from 0 on.
    """
    if not found:
        return NONE
    columns = [
        right_aligned(["#", *(str(number) for number in range(len(found)))]),
        ["kind", *(each.kind for each in found)],
        ["group", *(each.group or "?" for each in found)],
        right_aligned(["bytes", *(format_bytes(each) for each in found)]),
        ["tensor", *(format_tensor(each) for each in found)],
        ["wait", *(format_wait(each) for each in found)],
        ["module", *(each.module for each in found)],
        ["line", *(str(each.source or "") for each in found)],
        ["graph", *(each.graph for each in found)],
    ]
    said = [column for column in columns if any(column[1:])]
    return aligned([list(cells) for cells in zip(*said, strict=True)])


def format_over(each: Collective, of: str = "") -> str:
    """The kind and the group of a collective: `all_reduce over tp`.

    Args:
        each: the collective.
        of: what has it, where that is to be said: a graph.
    """
    return f"{each.kind}{f' of {of}' if of else ''} over {each.group or 'an unknown group'}"


def format_size(each: Collective) -> str:
    """How much a collective moves, in words: `1,024 bytes`."""
    return "unknown bytes" if each.bytes is None else f"{each.bytes:,} bytes"


def format_bytes(each: Collective) -> str:
    """How many bytes a collective moves, "?" where a size is a symbol."""
    return "?" if each.bytes is None else f"{each.bytes:,}"


def format_tensor(each: Collective) -> str:
    """dtype and shape of a collective's tensor, "" where it has none."""
    dtype = ABBREVIATIONS.get(each.dtype, each.dtype)
    return f"{dtype}[{format_shape(each.shape)}]" if dtype else ""


def format_wait(each: Collective) -> str:
    """When a collective is waited for: `at once`, `after 3 ops`; "" where nothing waits for it."""
    if each.distance is None:
        return ""
    if not each.distance:
        return "at once"
    after = f"after {counted(each.distance, 'op')}"
    return f"{after}, none computes" if each.exposed else after
