"""The page data of a test, attached to its reports, and the merging of several pages."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Container, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ...audit.facts import LeakedSetting, TestFacts
from ...audit.verdict import AuditOutcome
from ...context import CONTEXT
from ...errors import CaptureError, TorchGraphError
from ...files import parse_json, read_bytes
from ...graph.text import format_mesh
from ...snapshot import RECORD, REPORTED
from ...snapshot.summary import brief
from ...words import format_ranks
from ..comparisons import Comparisons
from ..surfaces import audit_document
from .collect import capture_data
from .html import FORMAT, MOST_BYTES, Data, Parts
from .run_data import ATTRIBUTE, RunData

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...ranks.ranks import Ranks


PICTURES = pytest.StashKey[list[Data]]()
"""Data of the pictures of a test's failed checks, moved into the report of the phase."""


class Gatherer:
    """Plugin that collects the captures of the running test for its report.

    Attributes:
        captures: captures of the test, without duplicates and without captures of `ranks`.
        ranks: captures of several ranks, one entry per `Ranks`.
        sent: digests of the parts already sent with a report. Equal graphs are sent once.
    """

    def __init__(self) -> None:
        self.captures: list[Capture] = []
        self.ranks: list[Ranks] = []
        self.sent: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Collect captures while a test runs, including captures of class and module fixtures."""
        with CONTEXT.subscribed(self._collect):
            try:
                return (yield)
            finally:
                self._clear()

    def _collect(self, announced: Capture | Sequence[Capture]) -> None:
        """Keep a capture, or the captures of `Ranks`; see `Context.notify`."""
        if isinstance(announced, Sequence):
            # Every rank was announced as a capture before. The page shows this capture only below
            # its ranks.
            in_ranks = {id(capture) for capture in announced}
            self.captures = [capture for capture in self.captures if id(capture) not in in_ranks]
            self.ranks.append(cast("Ranks", announced))
        # By identity, because `==` compares graphs. A watch that is entered again is announced
        # again.
        elif not any(capture is announced for capture in self.captures):
            self.captures.append(announced)

    def _unsent_parts(self, parts: Parts) -> Data:
        """Return the parts that no earlier report of this process contains. Note them as sent."""
        new = {key: text for key, text in parts.texts.items() if key not in self.sent}
        self.sent |= new.keys()
        return new

    def _clear(self) -> None:
        self.captures.clear()
        self.ranks.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the data collected so far to the report of a phase."""
        report = yield
        data: Data = {
            "differences": item.stash[RECORD].shown if RECORD in item.stash else [],
            "pictures": item.stash.get(PICTURES, []),
        }
        # Captures of fixtures are sent with the call, so that one report has all captures of the
        # test.
        if report.when != "setup":
            parts = Parts()
            data["captures"] = [_data(capture, parts) for capture in self.captures]
            data["ranks"] = [_ranks_data(ranks, parts) for ranks in self.ranks]
            data["parts"] = self._unsent_parts(parts)
            self._clear()
        item.stash[PICTURES] = []
        if RECORD in item.stash:
            item.stash[RECORD].shown = []
        if any(data.values()) or hasattr(report, REPORTED):
            torch = sys.modules.get("torch")
            # From the process that ran the test: the controller of pytest-xdist may not import
            # torch.
            data["torch"] = str(getattr(torch, "__version__", ""))
            vars(report)[ATTRIBUTE] = data
        return report


def _data(capture: Capture, parts: Parts) -> Data:
    """Return the data of a capture, or a note with the error."""
    try:
        return capture_data(capture, parts)
    except Exception as error:  # the page must not change the outcome of a test
        note = f"cannot be shown: {brief(error)}"
        return {"via": capture.via, "note": note, "graphs": [], "breaks": [], "recompiles": []}


def _ranks_data(ranks: Ranks, parts: Parts) -> Data:
    """Return the data of ranks, or a note with the error."""
    try:
        return ranks_data(ranks, parts)
    except Exception as error:
        return {"note": f"{ranks!r} cannot be shown: {brief(error)}", "classes": []}


MOST_CLASSES = 8
"""Maximum number of classes of equal ranks to show."""
BEFORE = 2
"""Number of equal collectives shown before the first difference between two classes."""
AFTER = 10
"""Number of collectives shown from the first difference on."""
MOST_PROBLEMS = 40
"""Maximum lines about waiting ranks and about sends without a receive."""
LARGEST_GRID = 256
"""Maximum number of ranks of a mesh drawn as a grid."""


def ranks_data(ranks: Ranks, parts: Parts | None = None) -> Data:
    """Return the data of ranks, bounded in size for any number of ranks.

    Ranks with equal graphs form a class, represented by the capture of its first rank. Classes are
    named A, B, ... in the order of their first ranks.
    """
    from ...ranks.ranks import classes_of

    classes = classes_of(ranks)
    deadlocked_ranks, problems = _problems(ranks)
    return {
        "mesh": format_mesh(ranks.mesh),
        "captured": len(ranks),
        "world": ranks.world_size,
        "count": len(classes),
        "grid": _grid(ranks, classes),
        "waiting": len(deadlocked_ranks),
        "problems": problems[:MOST_PROBLEMS],
        "classes": [
            {
                "name": name_of(number),
                "ranks": format_ranks([capture.rank for capture in equal_captures]),
                "capture": capture_data(equal_captures[0], parts),
                "order": _order(classes[0], equal_captures, deadlocked_ranks) if number else None,
            }
            for number, equal_captures in enumerate(classes[:MOST_CLASSES])
        ],
    }


def name_of(number: int) -> str:
    """Return the name of a class of equal ranks: `A`, ..., `Z`, `A1`, ..."""
    turn, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")


def _grid(ranks: Ranks, classes: Sequence[Sequence[Capture]]) -> Data | None:
    """Return the mesh as rows of cells, the last dimension from left to right.

    `None` for a mesh of more than `LARGEST_GRID` ranks.
    """
    if ranks.world_size > LARGEST_GRID:
        return None
    *outer, (across, width) = ranks.mesh.items()
    # Ranks that were not captured are in no class, and have empty cells.
    class_names = {
        capture.rank: name_of(number)
        for number, equal_captures in enumerate(classes)
        for capture in equal_captures
    }
    cells = [[rank, class_names.get(rank, "")] for rank in range(ranks.world_size)]
    return {
        "down": ", ".join(name for name, _ in outer),
        "across": across,
        "rows": [cells[start : start + width] for start in range(0, len(cells), width)],
    }


def _problems(ranks: Ranks) -> tuple[frozenset[int | None], list[str]]:
    """Return the deadlocked ranks, and lines about deadlocks and about sends without a receive."""
    from ...ranks.agreement import describe_unpaired, find_deadlocks
    from ...ranks.ranks import format_deadlock

    try:
        deadlocks = find_deadlocks(ranks)
        lines = [
            *(format_deadlock(deadlock, deadlocks) for deadlock in deadlocks),
            *(line.removeprefix("  ") for line in describe_unpaired(ranks)),
        ]
    except CaptureError:  # the graphs do not record their collectives
        return frozenset(), []
    return frozenset(deadlock.capture.rank for deadlock in deadlocks), lines


def _order(
    first: Sequence[Capture], other: Sequence[Capture], deadlocked_ranks: Container[int | None]
) -> Data | None:
    """Return the first difference between the collectives of two classes, or `None` if equal."""
    from ...ranks.agreement import order_difference

    waits = any(capture.rank in deadlocked_ranks for capture in other)
    try:
        difference = order_difference(first[0], other[0], waits=waits)
    except CaptureError:
        return None
    if difference is None:
        return None
    begin, end = max(0, difference.start - BEFORE), difference.start + AFTER
    return {
        "waits": waits,
        "danger": difference.danger,
        "same_order": difference.same_order,
        "words": difference.words,
        "start": difference.start,
        "rows": [[number, *row] for number, row in enumerate(difference.rows[begin:end], begin)],
        "more": max(0, len(difference.rows) - end),
    }


def merge_pages(pages: Sequence[Path]) -> tuple[Data, Parts]:
    """Return the data of a page that combines several pages.

    A test that is in several pages is listed once per page, with the page's path in its id: runs on
    different devices or torch releases are not reruns of each other.

    Args:
        pages: files written by `--torchgraph-report`.

    Raises:
        TorchGraphError: if a file is not a page of this version or is given twice.
        OSError: if a file cannot be read.
    """
    for path, count in Counter(path.resolve() for path in pages).items():
        if count > 1:
            raise TorchGraphError(f"{path}: this page is given {count} times: give it once")
    parts = Parts()
    runs = []
    # All pages together may take as much memory as one: each leaves the rest to the next.
    for path in pages:
        data, page_parts = read_page(path, parts.most)
        parts.most = page_parts.most
        runs.append(RunData.of_page(data, page_parts))
        # `RunData.data` writes these two parts anew, from all runs together.
        obsolete = {data["run"], data["search"]}
        parts.texts |= {key: text for key, text in page_parts.texts.items() if key not in obsolete}
    counts = Counter(test for run in runs for test in _tests_of(run))
    # A name that ends with a page could be the new name of a test of that page.
    ends = tuple(f" @ {path}" for path in pages)
    repeated = {test for test in counts if counts[test] > 1 or test.endswith(ends)}
    renamed_runs = [
        _with_unique_ids(run, str(path), repeated) for run, path in zip(runs, pages, strict=True)
    ]
    return _combine_runs(renamed_runs, [str(path) for path in pages]).data(parts), parts


def _tests_of(run: RunData) -> set[str]:
    """Return the ids of all tests that a page says something of."""
    listed = {test["id"] for test in run.tests} | {*(run.audit or {}).get("tests", ())}
    return listed | run.facts.keys() | run.failures.keys() | run.comparisons.tests.keys()


def _with_unique_ids(run: RunData, page: str, repeated_ids: set[str]) -> RunData:
    """Return the run with the page's path added to the ids of tests in `repeated_ids`.

    The ids are the keys of most of its parts.
    """

    def name(test: str) -> str:
        return f"{test} @ {page}" if test in repeated_ids else test

    def renamed(values: Data) -> Data:
        return {name(test): value for test, value in values.items()}

    search_texts = renamed(run.search_texts).items()
    return replace(
        run,
        tests=[{**test, "id": name(test["id"])} for test in run.tests],
        search_texts={test: _search_text(test, text) for test, text in search_texts},
        failures=renamed(run.failures),
        comparisons=Comparisons(renamed(run.comparisons.tests)),
        facts=renamed(run.facts),
        audit=run.audit and {**run.audit, "tests": renamed(run.audit["tests"])},
    )


def _search_text(test: str, text: str) -> str:
    """Return the search text of a test, starting with the test id, which may be new."""
    lines = text.splitlines()
    return text if lines[:1] == [test.lower()] else "\n".join([test.lower(), *lines])


def _combine_runs(runs: Sequence[RunData], pages: Sequence[str]) -> RunData:
    """Combine runs whose test ids are unique.

    Args:
        runs: the runs, at least one.
        pages: the path of each page. A page that was itself merged keeps its own list (`shards`).
    """
    versions = {
        name: " and ".join(filter(None, dict.fromkeys(run.versions[name] for run in runs)))
        for name in runs[0].versions
    }
    tests = [test for run in runs for test in run.tests]

    def joined(values: Iterable[dict[str, Any]]) -> Data:
        return {test: value for part in values for test, value in part.items()}

    return RunData(
        versions=versions,
        others=sum(run.others for run in runs),
        crashed=sum(run.crashed for run in runs),
        tests=sorted(tests, key=lambda test: (test["place"], test["id"])),
        search_texts=joined(run.search_texts for run in runs),
        failures=joined(run.failures for run in runs),
        comparisons=Comparisons(joined(run.comparisons.tests for run in runs)),
        accept="",  # `--lf` only covers the failures of one run
        audit=_audit(runs),
        facts=joined(run.facts for run in runs),
        shards=[
            shard for run, page in zip(runs, pages, strict=True) for shard in run.shards or [page]
        ],
    )


def _audit(runs: Sequence[RunData]) -> Data | None:
    """Return the combined audit of all runs, or `None` if no run had an audit."""
    audits = [run.audit for run in runs if run.audit is not None]
    if not audits:
        return None
    facts = {
        test: TestFacts.from_json(values) for run in runs for test, values in run.facts.items()
    }
    document = audit_document(
        AuditOutcome(
            mode=next((audit["mode"] for audit in audits if audit["mode"]), ""),
            isolated=any(audit["isolated"] for audit in audits),
            tests=sum(audit["totals"]["tests"] for audit in audits),
            facts=facts,
            settings=[
                LeakedSetting(**setting) for audit in audits for setting in audit["settings_left"]
            ],
            passed={
                t for audit in audits for t, result in audit["tests"].items() if result["passed"]
            },
            broken="; ".join(dict.fromkeys(audit["broken"] for audit in audits if audit["broken"])),
        )
    )
    baselines = [audit["baseline"] for audit in audits if audit["baseline"] is not None]
    document["baseline"] = _baseline(baselines, facts) if baselines else None
    return document


def _baseline(baselines: Sequence[Data], facts: Iterable[str]) -> Data:
    """Return the combined comparison with the baseline of all shards.

    Args:
        baselines: `baseline` of each audit that compared or recorded.
        facts: the ids of the tests that ran in any of the runs.
    """
    verdicts = [baseline["verdict"] for baseline in baselines if baseline["verdict"] is not None]
    return {
        "file": " and ".join(dict.fromkeys(baseline["file"] for baseline in baselines)),
        "said": [*dict.fromkeys(line for baseline in baselines for line in baseline["said"])],
        "compared": sum(baseline["compared"] for baseline in baselines),
        "verdict": _verdict(verdicts, set(facts)) if verdicts else None,
    }


def _verdict(verdicts: Sequence[Data], tests_run: set[str]) -> Data:
    """Return the combined verdict of all shards. A test that any shard ran is not gone."""
    gone_everywhere = set.intersection(*(set(verdict["gone"]) for verdict in verdicts))
    return {
        "worse": _changes(verdict["worse"] for verdict in verdicts),
        "better": _changes(verdict["better"] for verdict in verdicts),
        "new": sorted({test for verdict in verdicts for test in verdict["new"]}),
        "gone": sorted(gone_everywhere - tests_run),
        "renamed": sorted(pair for verdict in verdicts for pair in verdict["renamed"]),
    }


def _changes(lists: Iterable[Sequence[Data]]) -> list[Data]:
    """Merge equal changes of all shards and their tests, sorted by number of tests, descending."""
    groups: dict[tuple[Any, ...], Data] = {}
    for change in (change for changes in lists for change in changes):
        key = tuple(change[part] for part in ("text", "file", "line", "function"))
        groups.setdefault(key, {**change, "tests": set()})["tests"].update(change["tests"])
    changes = [{**change, "tests": sorted(change["tests"])} for change in groups.values()]
    return sorted(changes, key=lambda change: (-len(change["tests"]), change["text"]))


# Not `.*?`: with a million opening tags and none that closes, the search would be quadratic.
_DATA = re.compile(r'<script type="application/json" id="data">([^<]*)</script>')
_PART = re.compile(r'<script type="text/plain" data-part="(\w+)">([^<]*)</script>')


def read_page(path: Path, most: int = MOST_BYTES) -> tuple[Data, Parts]:
    """Return the data of a page and the parts that the data refer to.

    The page may come from others.

    Args:
        path: file written by `--torchgraph-report`.
        most: maximum size of the parts, in bytes.

    Raises:
        TorchGraphError: if the file is not a complete page, or is from another plugin version.
        OSError: if the file cannot be read.
    """
    text = read_bytes(path).decode(errors="replace")
    match = _DATA.search(text)
    if match is None:
        raise TorchGraphError(f"{path}: not a page written by pytest --torchgraph-report=FILE")
    parts = Parts(most)
    try:
        data: Data = parse_json(match[1])
        if data.get("format") != FORMAT:
            raise ValueError(
                f"format {data.get('format')}, this version reads {FORMAT}: write all pages with "
                "one version of pytest-torchgraph"
            )
        embedded = _PART.findall(text)
        # Each beginning of a part must be one that matches as a whole.
        if len(embedded) != text.count(_PART.pattern.partition("(")[0]):
            raise ValueError("a part has markup")
        for key, part in embedded:
            parts.take(key, part)
        if {test["part"] for test in data["tests"]} - parts.texts.keys():
            raise ValueError("the details of its tests are missing")
        # A page that fails alone would fail with the others.
        run = RunData.of_page(data, parts)
        _ = run.comparisons.every_cause
        _combine_runs([run], [str(path)]).data(Parts())
    except Exception as error:  # whatever a stranger wrote
        problem = f"the page is incomplete or malformed ({brief(error)})"
        raise TorchGraphError(f"{path}: {problem}") from None
    return data, parts
