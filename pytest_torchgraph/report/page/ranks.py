"""Several ranks of one model as plain data: their mesh, classes of equal ranks, and orders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from ...errors import CaptureError
from ...graph.collective_table import format_bytes
from .collect import Data, capture_data

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...graph.collectives import Collective
    from ...ranks.ranks import Ranks

MOST_CLASSES = 8
"""How many classes of equal ranks are shown."""
BEFORE = 2
"""How many collectives on which two classes agree are shown before the first that differs."""
AFTER = 10
"""How many are shown from there on."""
PAIRED = frozenset({"send", "recv"})
"""Kinds that one rank runs and another one answers, so that orders with them differ."""
LARGEST_GRID = 256
"""The most ranks of a mesh that is drawn as a grid."""


def ranks_data(ranks: Ranks) -> Data:
    """The data of ranks: one test, whatever their number.

    Ranks with equal graphs are one class, which the capture of its first rank stands for; classes
    are called A, B, ... in the order of these.
    """
    from ...ranks.ranks import classes_of, format_mesh, format_ranks

    classes = classes_of(ranks)
    first = classes[0][0]
    return {
        "mesh": format_mesh(ranks.mesh),
        "captured": len(ranks),
        "world": ranks.world_size,
        "count": len(classes),
        "grid": _grid(ranks, classes),
        "classes": [
            {
                "name": name_of(number),
                "ranks": format_ranks([each.rank for each in alike]),
                "capture": capture_data(alike[0]),
                "order": _order(first, alike[0]) if number else None,
            }
            for number, alike in enumerate(classes[:MOST_CLASSES])
        ],
    }


def name_of(number: int) -> str:
    """The name of a class of equal ranks: `A`, ..., `Z`, `A1`, ..."""
    turn, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")


def _grid(ranks: Ranks, classes: Sequence[Sequence[Capture]]) -> Data | None:
    """The mesh as rows of cells, its last dimension from left to right; None for a large one."""
    if ranks.world_size > LARGEST_GRID:
        return None
    *outer, (across, width) = ranks.mesh.items()
    named = {each.rank: name_of(n) for n, alike in enumerate(classes) for each in alike}
    cells = [[rank, named.get(rank, "")] for rank in range(ranks.world_size)]
    return {
        "down": ", ".join(name for name, _ in outer),
        "across": across,
        "rows": [cells[start : start + width] for start in range(0, len(cells), width)],
    }


def _order(first: Capture, other: Capture) -> Data | None:
    """Where a class communicates in another order than the first one; None where it does not."""
    try:
        both = first.collectives, other.collectives
    except CaptureError:  # the graphs do not say what they send
        return None
    pairs = list(zip_longest(*(map(_sent, each) for each in both), fillvalue=""))
    start = next((number for number, (one, two) in enumerate(pairs) if one != two), None)
    if start is None:
        return None
    begin, end = max(0, start - BEFORE), start + AFTER
    of_groups = ([_sent(each) for each in side if each.kind not in PAIRED] for side in both)
    return {
        "blocks": next(of_groups) != next(of_groups),
        "start": start,
        "rows": [[number, *pairs[number]] for number in range(begin, min(end, len(pairs)))],
        "more": max(0, len(pairs) - end),
    }


def _sent(each: Collective) -> str:
    return f"{each.kind} over {each.group or '?'}, {format_bytes(each)} bytes"
