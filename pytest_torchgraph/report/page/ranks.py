"""Several ranks of one model as plain data: their mesh, classes of equal ranks, and orders."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from ...errors import CaptureError
from ...graph.text.format import format_mesh
from ...words import format_ranks
from .collect import Data, capture_data

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...ranks.ranks import Ranks
    from .parts import Parts

MOST_CLASSES = 8
"""How many classes of equal ranks are shown."""
BEFORE = 2
"""How many collectives on which two classes agree are shown before the first that differs."""
AFTER = 10
"""How many are shown from there on."""
MOST_PROBLEMS = 40
"""How many lines say which ranks wait, and what is sent and not received."""
LARGEST_GRID = 256
"""The most ranks of a mesh that is drawn as a grid."""


def ranks_data(ranks: Ranks, parts: Parts | None = None) -> Data:
    """The data of ranks: one test, whatever their number.

    Ranks with equal graphs are one class, which the capture of its first rank stands for; classes
    are called A, B, ... in the order of these.
    """
    from ...ranks.ranks import classes_of

    classes = classes_of(ranks)
    waiting, problems = _problems(ranks)
    return {
        "mesh": format_mesh(ranks.mesh),
        "captured": len(ranks),
        "world": ranks.world_size,
        "count": len(classes),
        "grid": _grid(ranks, classes),
        "waiting": len(waiting),
        "problems": problems[:MOST_PROBLEMS],
        "classes": [
            {
                "name": name_of(number),
                "ranks": format_ranks([each.rank for each in alike]),
                "capture": capture_data(alike[0], parts),
                "order": _order(classes[0], alike, waiting) if number else None,
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


def _problems(ranks: Ranks) -> tuple[frozenset[int | None], list[str]]:
    """The ranks that would wait for ever, and lines about these and about what is not received."""
    from ...ranks.agreement import stuck
    from ...ranks.pairing import unpaired
    from ...ranks.ranks import format_stuck

    try:
        waiting = stuck(ranks)
        lines = [
            *(format_stuck(each, waiting) for each in waiting),
            *(line.removeprefix("  ") for line in unpaired(ranks)),
        ]
    except CaptureError:  # the graphs do not say what they send
        return frozenset(), []
    return frozenset(each.capture.rank for each in waiting), lines


def _order(
    first: Sequence[Capture], other: Sequence[Capture], waiting: Container[int | None]
) -> Data | None:
    """Where a class communicates otherwise than the first one; None where it does not."""
    from ...ranks.agreement import order_difference

    waits = any(each.rank in waiting for each in other)
    try:
        found = order_difference(first[0], other[0], waits=waits)
    except CaptureError:
        return None
    if found is None:
        return None
    begin, end = max(0, found.start - BEFORE), found.start + AFTER
    return {
        "waits": waits,
        "danger": found.danger,
        "same_order": found.same_order,
        "words": found.words,
        "start": found.start,
        "rows": [[number, *row] for number, row in enumerate(found.rows[begin:end], begin)],
        "more": max(0, len(found.rows) - end),
    }
