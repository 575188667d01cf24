"""What a failed comparison shows: the short assertion message, the report's section, the picture.

Nothing in here may change the outcome of a test: what goes wrong while a failure is explained is
said in one line of the explanation.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ..graph.text import format_document
from ..settings import config as settings
from ..snapshot import COMPARED, MISMATCHES, STORED
from ..snapshot.changes import brief
from ..snapshot.compare import Mismatch
from . import artifacts

if TYPE_CHECKING:
    from ..graph.diff.report import GraphDiff
    from ..render.picture import Picture
    from ..snapshot.assertion import GraphSnapshot

UPDATE = "--torchgraph-update"
MAX_LINES = 60
"""How much of one comparison the section shows; the text file beside the picture has all of it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A difference and its picture, as the page shows them."""

    diff: GraphDiff
    picture: Picture
    svg: str
    note: str


def complete_report(item: pytest.Item, report: pytest.TestReport) -> None:
    """Add to the report of a phase what its comparisons left in the stash, and empty that."""
    # Attributes of plain data: xdist sends them to the controller.
    # Once each: hypothesis compares with one file for every example.
    compared, stored = item.stash[COMPARED], item.stash.setdefault(STORED, [])
    vars(report)["torchgraph_compared"] = list(dict.fromkeys(compared))
    vars(report)["torchgraph_stored"] = list(dict.fromkeys(stored))
    mismatches = item.stash.setdefault(MISMATCHES, {}).values()
    del item.stash[COMPARED], item.stash[STORED], item.stash[MISMATCHES]
    if not report.failed:
        return
    for mismatch in mismatches:
        report.sections.append(("torchgraph", "\n".join(_section(item, report, mismatch))))


def fail_unheard(item: pytest.Item) -> None:
    """Fail a test that passed although a comparison in it failed.

    A forgotten `assert`, `or True`, or something that swallows the failure: it would pass for ever.
    """
    mismatches = item.stash[MISMATCHES].values()
    files = [f"  {each.path}: {_headline(each)}" for each in mismatches]
    message = "a comparison with a stored graph failed, and the test passed all the same:"
    advice = (
        "write `assert capture == graph_snapshot`, with nothing around it that swallows the "
        "failure; that graphs differ is said by `assert capture != graph_snapshot`"
    )
    pytest.fail("\n".join([message, *files, advice]), pytrace=False)


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
    return settings.rerun_command(item, UPDATE)


def _release(mismatch: Mismatch) -> Iterator[str]:
    if mismatch.releases is not None:
        yield "stored with torch {}, now running torch {}".format(*mismatch.releases)


def _headline(mismatch: Mismatch) -> str:
    if mismatch.problem:
        return mismatch.problem
    try:
        return mismatch.diff.heading() if mismatch.diff else "the graphs differ"
    except Exception as error:
        return f"the graphs differ (finding out how failed: {brief(error)})"


def _section(item: pytest.Item, report: pytest.TestReport, mismatch: Mismatch) -> Iterator[str]:
    headline = _headline(mismatch)
    yield from _release(mismatch)
    yield headline
    item.user_properties.append(("torchgraph", f"{mismatch.path}: {headline}"))
    lines: list[str] = list(mismatch.details)
    try:
        lines += _findings(mismatch)
    except Exception as error:
        lines.append(f"what differs could not be found out: {brief(error)}")
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield f"... and {len(lines) - MAX_LINES} more lines"
    yield f"file:    {mismatch.path}"
    yield f"accept:  {_accept(item)}"
    shown: Shown | None = None
    try:
        _keep_texts(item, mismatch)
        shown = yield from _artifacts(item, report, mismatch, headline)
    except Exception as error:
        yield f"picture: none, {brief(error)}"
    if settings.get(item.config).report is not None:
        try:
            _tell_page(item, mismatch, headline, lines, shown)
        except Exception as error:
            yield f"not in the page of this run: {brief(error)}"


def _keep_texts(item: pytest.Item, mismatch: Mismatch) -> None:
    """Put what was expected, what came and the difference where the user collects such files."""
    if settings.get(item.config).artifacts is None:
        return
    stored = mismatch.stored
    detail = stored.header.detail if stored is not None else "dataflow"
    texts = {".received.tgraph": mismatch.subject.to_text(detail)}
    if stored is not None and stored.graphs:
        texts[".expected.tgraph"] = format_document(stored.graphs, stored.header, detail)
        texts[".diff"] = "".join(f"{line}\n" for line in mismatch.text_diff)
    for suffix, text in texts.items():
        artifacts.path(item, mismatch.name, suffix).write_text(text, encoding="utf-8")


def _tell_page(
    item: pytest.Item, mismatch: Mismatch, headline: str, lines: list[str], shown: Shown | None
) -> None:
    from .page.collect import difference_data
    from .page.gather import DIFFERENCES

    data = difference_data(
        file=mismatch.path,
        headline=headline,
        accept=_accept(item),
        lines=mismatch.text_diff or lines,
        diff=shown.diff if shown else None,
        picture=shown.picture if shown else None,
        svg=shown.svg if shown else "",
        note=shown.note if shown else "",
    )
    item.stash.setdefault(DIFFERENCES, []).append(data)


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
) -> Generator[str, None, Shown | None]:
    diff = mismatch.diff
    if not diff:
        return None
    text = artifacts.path(item, mismatch.name, ".txt")
    every = "\n".join(
        finding.to_text(limit=len(finding.changes) + len(finding.consequences))
        for finding in diff.findings
    )
    text.write_text(f"{item.nodeid}\n{headline}\n{every}\n", encoding="utf-8")
    from ..render.difference import picture
    from ..render.output.drawing import draw

    drawing = picture(diff)
    drawn = draw(drawing.digraph, text.with_suffix(".svg"))
    if drawn.renderer is None:
        yield f"picture: none, {drawn.note}"
        return Shown(diff, drawing, "", f"no picture: {drawn.note}")
    path = drawn.path
    notes = [drawn.note] if drawn.note else []
    if len(every.splitlines()) > len(_findings(mismatch)):
        notes.append("and all of the text beside it, .txt")
    note = f" ({'; '.join(notes)})" if notes else ""
    yield f"picture: {settings.shown(item.config, path)}{note}"
    artifacts.attach(item, report, path, mismatch.name)
    return Shown(diff, drawing, path.read_text(encoding="utf-8"), drawn.note or "")
