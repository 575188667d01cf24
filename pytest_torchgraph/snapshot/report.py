"""What a failed comparison shows: the short assertion message, the report's section, the picture.

Nothing in here may change the outcome of a test: what goes wrong while a failure is explained is
said in one line of the explanation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from .. import config as settings
from . import COMPARED, MISMATCHES, WRITTEN
from .compare import Mismatch
from .names import picture_stem
from .stale import DIRECTORY, Stale, remove

if TYPE_CHECKING:
    from ._syrupy import GraphSnapshot

UPDATE = "--torchgraph-update"
PRUNE = "--torchgraph-prune"
MAX_LINES = 60
"""How much of one comparison the section shows; the text file beside the picture has all of it."""

T = TypeVar("T")

_TEMPORARY = pytest.StashKey[Path]()


def complete_report(item: pytest.Item, report: pytest.TestReport) -> None:
    """Add to the report of a phase what its comparisons left in the stash, and empty that."""
    # An attribute of plain data: xdist sends it to the controller.
    vars(report)["torchgraph_written"] = _take(item, WRITTEN)
    vars(report)["torchgraph_compared"] = _take(item, COMPARED)
    mismatches = _take(item, MISMATCHES)
    if not report.failed:
        return
    for mismatch in mismatches:
        report.sections.append(("torchgraph", "\n".join(_section(item, report, mismatch))))


def _take(item: pytest.Item, key: pytest.StashKey[list[T]]) -> list[T]:
    found = item.stash.get(key, [])
    if found:
        del item.stash[key]
    return found


def assertion_lines(op: str, snapshot: GraphSnapshot) -> list[str]:
    """The message of the failed assertion: few lines, because pytest cuts off all beyond eight."""
    mismatch = snapshot.mismatch
    if mismatch is None:  # they are equal, and the test says `!=`
        return [f"graphs {op} stored: {snapshot!r} matches"]
    lines = [f"graphs {op} stored: {_headline(mismatch)}", *_release(mismatch)]
    lines.append(f"accept:  {_accept(snapshot.item)}")
    if not mismatch.is_new:
        lines.append("what differs is in the section 'torchgraph' of this report")
    return lines


def _accept(item: pytest.Item) -> str:
    return settings.command(item, UPDATE)


def _release(mismatch: Mismatch) -> Iterator[str]:
    if mismatch.releases is not None:
        yield "stored with torch {}, now running torch {}".format(*mismatch.releases)


def _headline(mismatch: Mismatch) -> str:
    if mismatch.problem:
        return mismatch.problem
    try:
        return mismatch.diff.heading() if mismatch.diff else "the graphs differ"
    except Exception as error:
        return f"the graphs differ (finding out how failed: {_brief(error)})"


def _section(item: pytest.Item, report: pytest.TestReport, mismatch: Mismatch) -> Iterator[str]:
    headline = _headline(mismatch)
    yield from _release(mismatch)
    yield headline
    item.user_properties.append(("torchgraph", f"{mismatch.path}: {headline}"))
    lines: list[str] = list(mismatch.details)
    try:
        lines += _findings(mismatch)
    except Exception as error:
        lines.append(f"what differs could not be found out: {_brief(error)}")
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield f"... and {len(lines) - MAX_LINES} more lines"
    yield f"file:    {mismatch.path}"
    yield f"accept:  {_accept(item)}"
    try:
        yield from _artifacts(item, report, mismatch, headline)
    except Exception as error:
        yield f"picture: none, {_brief(error)}"


def _findings(mismatch: Mismatch) -> list[str]:
    diff = mismatch.diff
    if not diff:
        return []
    # One finding in ten lines at most, so that all of the section is seen at once.
    few = len(diff.findings) == 1
    text = diff.findings[0].to_text(limit=2) if few else diff.to_text()
    return text.splitlines()


def _artifacts(
    item: pytest.Item, report: pytest.TestReport, mismatch: Mismatch, headline: str
) -> Iterator[str]:
    diff = mismatch.diff
    if not diff:
        return
    directory = _directory(item.config)
    stem = picture_stem(item.nodeid, mismatch.name)
    text = directory / f"{stem}.txt"
    every = "\n".join(
        finding.to_text(limit=len(finding.changes) + len(finding.consequences))
        for finding in diff.findings
    )
    text.write_text(f"{item.nodeid}\n{headline}\n{every}\n", encoding="utf-8")
    from ..render import diff_to_dot, draw

    drawn = draw(diff_to_dot(diff), directory / f"{stem}.svg")
    if drawn.renderer is None:
        yield f"picture: none, {drawn.note}"
        return
    path = drawn.path
    notes = [drawn.note] if drawn.note else []
    if len(every.splitlines()) > len(_findings(mismatch)):
        notes.append("and all of the text beside it, .txt")
    note = f" ({'; '.join(notes)})" if notes else ""
    yield f"picture: {settings.shown(item.config, path)}{note}"
    item.user_properties.append(("torchgraph_picture", str(path)))
    if item.config.pluginmanager.hasplugin("html"):
        from pytest_html import extras

        svg = extras.svg(path.read_text(encoding="utf-8"), name=mismatch.name)
        vars(report)["extras"] = [*getattr(report, "extras", []), svg]


def _directory(config: pytest.Config) -> Path:
    directory = settings.get(config).artifacts
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    cache = getattr(config, "cache", None)
    if cache is not None:
        return Path(cache.mkdir("torchgraph"))
    if _TEMPORARY not in config.stash:
        config.stash[_TEMPORARY] = Path(tempfile.mkdtemp(prefix="pytest-torchgraph-"))
    return config.stash[_TEMPORARY]


def _brief(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def summarize(reporter: pytest.TerminalReporter, stale: Stale | None, prune: bool) -> None:
    """List what was written and removed, from the reports, so that it works with xdist as well."""
    written = sorted(
        {
            (path, how)
            for reports in reporter.stats.values()
            for report in reports
            for how, path in getattr(report, "torchgraph_written", ())
        }
    )
    lines = [f"{how}  {path}" for path, how in written]
    if stale is not None:
        lines += _stale_lines(reporter.config, stale, prune)
    if lines:
        reporter.section("stored graphs")
        for line in lines:
            reporter.line(line)


def _stale_lines(config: pytest.Config, stale: Stale, prune: bool) -> Iterator[str]:
    if not prune:
        if stale.files and not stale.reason:
            first = settings.shown(config, stale.files[0])
            more = f" and {len(stale.files) - 1} more" if stale.files[1:] else ""
            yield f"stale, no test compares them: {first}{more} ({PRUNE} removes them)"
        return
    if stale.reason:
        yield f"nothing removed: {stale.reason}"
        return
    for path, problem in remove(stale):
        shown = settings.shown(config, path)
        yield f"could not remove {shown}: {problem}" if problem else f"removed  {shown}"
    if not stale.files:
        yield "nothing to remove"
    for file, reason in sorted(stale.kept.items()):
        if (config.rootpath / file).parent.joinpath(DIRECTORY, Path(file).stem).is_dir():
            yield f"kept all of {file}: {reason}"
