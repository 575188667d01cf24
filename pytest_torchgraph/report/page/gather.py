"""Puts the page's data of a test into its reports, in the process that runs the test."""

from __future__ import annotations

import sys
from collections.abc import Container, Generator, Sequence
from typing import TYPE_CHECKING, cast

import pytest

from ...api.listeners import subscribed
from ...errors import CaptureError
from ...graph.text.format import format_mesh
from ...snapshot import RECORD, REPORTED
from ...snapshot.changes import brief
from ...words import format_ranks
from .collect import capture_data
from .parts import Data, Parts
from .session import ATTRIBUTE

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...ranks.ranks import Ranks
    from .parts import Parts


PICTURES = pytest.StashKey[list[Data]]()
"""The data of the picture of a test's failed check, moved into the report of the phase."""


class Gatherer:
    """A plugin that keeps the captures of the running test until they are in its report.

    Attributes:
        captures: the captures of the test, each once.
        ranks: those that are captures of ranks, together.
        sent: the digests of the parts that reports have brought: equal graphs are sent once.
    """

    def __init__(self) -> None:
        self.captures: list[Capture] = []
        self.ranks: list[Ranks] = []
        self.sent: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Listen while a test runs, with the fixtures of its class and module."""
        with subscribed(self._keep):
            try:
                return (yield)
            finally:
                self._forget()

    def _keep(self, made: Capture | Sequence[Capture]) -> None:
        if isinstance(made, Sequence):
            each_of = {id(each) for each in made}
            self.captures = [each for each in self.captures if id(each) not in each_of]
            self.ranks.append(cast("Ranks", made))
        elif not any(each is made for each in self.captures):
            self.captures.append(made)

    def _new(self, parts: Parts) -> Data:
        """The parts that no earlier report of this process has."""
        new = {key: text for key, text in parts.texts.items() if key not in self.sent}
        self.sent |= new.keys()
        return new

    def _forget(self) -> None:
        self.captures.clear()
        self.ranks.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the data that there are by now into the report of a phase."""
        report = yield
        data: Data = {
            "differences": item.stash[RECORD].shown if RECORD in item.stash else [],
            "pictures": item.stash.get(PICTURES, []),
        }
        if report.when != "setup":
            parts = Parts()
            data["captures"] = [_data(capture, parts) for capture in self.captures]
            data["ranks"] = [_ranks_data(ranks, parts) for ranks in self.ranks]
            data["parts"] = self._new(parts)
            self._forget()
        item.stash[PICTURES] = []
        if RECORD in item.stash:
            item.stash[RECORD].shown = []
        if any(data.values()) or hasattr(report, REPORTED):
            torch = sys.modules.get("torch")
            data["torch"] = str(getattr(torch, "__version__", ""))
            vars(report)[ATTRIBUTE] = data
        return report


def _data(capture: Capture, parts: Parts) -> Data:
    """The data of a capture, or a note of what went wrong: that must change no outcome."""
    try:
        return capture_data(capture, parts)
    except Exception as error:
        note = f"cannot be shown: {brief(error)}"
        return {"via": capture.via, "note": note, "graphs": [], "breaks": [], "recompiles": []}


def _ranks_data(ranks: Ranks, parts: Parts) -> Data:
    """The data of ranks, or a note as for a capture."""
    try:
        return ranks_data(ranks, parts)
    except Exception as error:
        return {"note": f"{ranks!r} cannot be shown: {brief(error)}", "classes": []}


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
