"""What the benchmarks share: medians of alternatives that take turns, and tables."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def medians(works: Mapping[str, Callable[[], Any]], repeat: int = 5) -> dict[str, float]:
    """Median seconds of each work; they take turns, so that a slow moment hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeat):
        for name, work in works.items():
            gc.collect()
            start = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def paired(
    yardstick: Callable[[], Any], work: Callable[[], Any], repeat: int = 7
) -> tuple[float, float, float, float]:
    """Median seconds of both, and the median ratios of runs that follow each other.

    A machine that is slow for a while is slow for both halves of a pair; which one goes first
    alternates. The last ratio is that of the time on the processor, which other work does not
    lengthen.
    """
    pairs: list[dict[Callable[[], Any], tuple[float, float]]] = []
    for number in range(repeat + 1):
        taken: dict[Callable[[], Any], tuple[float, float]] = {}
        for each in (yardstick, work) if number % 2 else (work, yardstick):
            gc.collect()
            start, busy = time.perf_counter(), time.process_time()
            each()
            taken[each] = time.perf_counter() - start, time.process_time() - busy
        pairs.append(taken)
    del pairs[0]  # imports and first uses
    return (
        statistics.median(pair[yardstick][0] for pair in pairs),
        statistics.median(pair[work][0] for pair in pairs),
        statistics.median(pair[work][0] / pair[yardstick][0] for pair in pairs),
        statistics.median(pair[work][1] / pair[yardstick][1] for pair in pairs),
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows in columns, numbers to the right."""
    cells = [list(heads), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for number, row in enumerate(cells):
        print("  ".join(_aligned(cell, width) for cell, width in zip(row, widths, strict=True)))
        if number == 0:
            print("  ".join("-" * width for width in widths))
    print(flush=True)


def _text(cell: object) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) and abs(cell) < 1000 else f"{cell}"


def _aligned(cell: str, width: int) -> str:
    return cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)
