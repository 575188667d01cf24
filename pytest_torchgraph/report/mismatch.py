"""The report of a failed comparison: the assertion message, the section `torchgraph`, the picture.

Nothing in here may change the outcome of a test: what goes wrong while a failure is explained is
said in one line of the explanation.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pytest

from ..settings import config as settings
from ..snapshot import COMPARED, DIFFERENCES, MISMATCHES, PENDING, REPLACED, STORED
from ..snapshot.changes import brief
from ..snapshot.compare import Mismatch, Part, findings_of_ranks
from ..words import first_lines, format_ranks
from . import artifacts
from .comparisons import difference_data, headline, unknown_difference
from .pending import UPDATE, review_command, save_pending

if TYPE_CHECKING:
    from ..graph.diff.findings import GraphDiff
    from ..render.drawing import Drawing
    from ..snapshot.assertion import GraphSnapshot

MAX_LINES = 60
"""Lines of findings in the section of a comparison; the text file beside the picture has all."""
MAX_CHANGES = 2
"""How many further nodes, and how many consequences, of an only finding are listed: a dozen lines
at most, so that all of the section is seen at once."""

MOST_DRAWN = 3
"""How many classes of ranks that differ are drawn, each in a picture of its own."""


@dataclass(frozen=True, slots=True)
class DrawnDifference:
    """A difference that was drawn, for the page of the run.

    Attributes:
        diff: the difference.
        drawing: its drawing, for the `id`s of its elements.
        svg: the text of the SVG, "" where none could be made.
        note: what went wrong while it was drawn, "" where nothing did.
    """

    diff: GraphDiff
    drawing: Drawing
    svg: str
    note: str


def add_comparisons(item: pytest.Item, report: pytest.TestReport) -> None:
    """Move the comparisons of a phase from the item's stash into its report.

    The report gets the files that were compared and stored and, where the phase failed, a section
    for each comparison that failed.
    """
    # Attributes of plain data: xdist sends them to the controller.
    # Once each: hypothesis compares with one file for every example.
    compared, stored = item.stash[COMPARED], item.stash.setdefault(STORED, [])
    vars(report)["torchgraph_compared"] = list(dict.fromkeys(compared))
    vars(report)["torchgraph_stored"] = list(dict.fromkeys(stored))
    replaced = item.stash.get(REPLACED, [])
    if replaced:
        vars(report)["torchgraph_replaced"] = [
            (path, _difference(each) or unknown_difference(each)) for path, each in replaced
        ]
        del item.stash[REPLACED]
    by_file = item.stash.setdefault(MISMATCHES, {})
    mismatches = by_file.values()
    not_saved = save_pending(item, report.failed, by_file, headline)
    item.stash.setdefault(PENDING, {})
    del item.stash[COMPARED], item.stash[STORED], item.stash[MISMATCHES], item.stash[PENDING]
    if not report.failed:
        return
    vars(report)[DIFFERENCES] = [*filter(None, map(_difference, mismatches))]
    for mismatch in mismatches:
        lines = _section(item, report, mismatch, not_saved)
        report.sections.append(("torchgraph", "\n".join(lines)))


def _difference(mismatch: Mismatch) -> dict[str, Any] | None:
    """The data for the end of the run; None where what differs cannot be found out."""
    try:
        return difference_data(mismatch)
    except Exception:  # the section says it
        return None


def fail_ignored_mismatches(item: pytest.Item) -> None:
    """Fail a test that passed although a comparison in it failed.

    The `assert` is missing, or something swallows the failure: the test would always pass.

    Raises:
        pytest.fail.Exception: always.
    """
    mismatches = item.stash[MISMATCHES].values()
    files = [f"  {each.path}: {headline(each)}" for each in mismatches]
    message = "a comparison with a stored graph failed, and the test passed all the same:"
    advice = (
        "write `assert capture == graph_snapshot`, with nothing around it that swallows the "
        "failure; that graphs differ is said by `assert capture != graph_snapshot`"
    )
    pytest.fail("\n".join([message, *files, advice]), pytrace=False)


def fail_unused(item: pytest.Item) -> None:
    """Fail a test that passed, asks for `graph_snapshot` itself and compared nothing with it.

    One that another fixture asked for it need not use what that offers. A test with subtests has
    their outcomes, and one that is expected to fail is one that fails by itself.
    """
    parameters = inspect.signature(getattr(item, "function", lambda: None)).parameters
    expected = item.get_closest_marker("xfail") is not None
    if "graph_snapshot" not in parameters or "subtests" in parameters or expected:
        return
    message = (
        "graph_snapshot was requested, and nothing was compared with it\n"
        "write `assert capture == graph_snapshot`, or remove the argument; where there is nothing "
        "to compare, say why with pytest.skip(...)"
    )
    pytest.fail(message, pytrace=False)


def assertion_lines(op: str, snapshot: GraphSnapshot) -> list[str]:
    """The message of a failed assertion: few lines, because pytest cuts off all beyond eight.

    Args:
        op: the operator of the comparison, "==" or "!=".
        snapshot: the side of it that stands for the stored graphs.
    """
    mismatch = snapshot.mismatch
    if mismatch is None:  # they are equal, and the test says `!=`
        return [f"graphs {op} stored: {snapshot!r} matches"]
    lines = [f"graphs {op} stored: {headline(mismatch)}", *_release(mismatch)]
    if mismatch.is_new:
        lines += mismatch.details
    lines += _accept_lines(snapshot.item, mismatch)
    if not mismatch.is_new:
        lines.append("what differs is in the section 'torchgraph' of this report")
    return lines


def _accept(item: pytest.Item, mismatch: Mismatch) -> str:
    """The command that accepts what the test captured, or why there is none."""
    return mismatch.refused or settings.rerun_command(item, UPDATE)


def _accept_lines(item: pytest.Item, mismatch: Mismatch) -> Iterator[str]:
    yield f"accept:  {_accept(item, mismatch)}"
    if mismatch.writes:
        yield f"writes:  {mismatch.writes}"


def _release(mismatch: Mismatch) -> Iterator[str]:
    if mismatch.origin:
        yield mismatch.origin
    if mismatch.releases is not None:
        yield "stored with torch {}, now running torch {}".format(*mismatch.releases)


def _section(
    item: pytest.Item, report: pytest.TestReport, mismatch: Mismatch, not_saved: str
) -> Iterator[str]:
    head = headline(mismatch)
    yield from _release(mismatch)
    if not (mismatch.is_new and head in report.longreprtext):  # the assertion says it as well
        yield head
    item.user_properties.append(("torchgraph", f"{mismatch.path}: {head}"))
    lines: list[str] = list(mismatch.details)
    try:
        lines += _findings(mismatch)
    except Exception as error:
        lines.append(f"what differs could not be found out: {brief(error)}")
    yield from first_lines(lines, MAX_LINES)
    yield f"file:    {mismatch.path}"
    yield from _accept_lines(item, mismatch)
    if settings.get(item.config).artifacts is not None:
        yield f"review:  {f'none, {not_saved}' if not_saved else review_command(item.config)}"
    shown: tuple[Mismatch | Part, ...] = mismatch.parts[:MOST_DRAWN] or (mismatch,)
    drawn: list[DrawnDifference | None] = []
    try:
        _write_texts(item, mismatch)
        for each in shown:
            drawn.append((yield from _draw(item, report, mismatch, head, each)))
        if mismatch.parts[MOST_DRAWN:]:
            rest = [rank for part in mismatch.parts[MOST_DRAWN:] for rank in part.ranks]
            yield f"no picture of {format_ranks(rest)}"
    except Exception as error:
        yield f"picture: none, {brief(error)}"
    if settings.get(item.config).report is not None:
        try:
            for each, picture in zip_longest(shown, drawn):
                _add_to_page(item, mismatch, head, lines, each, picture)
        except Exception as error:
            yield f"not in the page of this run: {brief(error)}"


def _write_texts(item: pytest.Item, mismatch: Mismatch) -> None:
    """Write the expected text, the received one and their diff, where `artifacts` is set.

    They have one line a node: a line of the diff is one of them.
    """
    if settings.get(item.config).artifacts is None:
        return
    stored = mismatch.stored
    detail = stored.header.detail if stored is not None else "dataflow"
    texts = {".received.tgraph": mismatch.subject.to_text(detail, fold=False)}
    if stored is not None and stored.graphs:
        texts[".expected.tgraph"] = mismatch.stored_text
        texts[".diff"] = "".join(f"{line}\n" for line in mismatch.text_diff)
    for suffix, text in texts.items():
        artifacts.path(item, mismatch.name, suffix).write_text(text, encoding="utf-8")


def _add_to_page(
    item: pytest.Item,
    mismatch: Mismatch,
    headline: str,
    lines: list[str],
    shown: Mismatch | Part,
    drawn: DrawnDifference | None,
) -> None:
    """Add a difference to the page: that of the graphs, or of one part of the ranks."""
    from .page.collect import difference_data
    from .page.gather import DIFFERENCES

    data = difference_data(
        file=mismatch.path,
        headline=headline,
        accept=_accept(item, mismatch),
        lines=shown.text_diff or lines,
        diff=drawn.diff if drawn else None,
        drawing=drawn.drawing if drawn else None,
        svg=drawn.svg if drawn else "",
        note=drawn.note if drawn else "",
        ranks=format_ranks(shown.ranks) if isinstance(shown, Part) else "",
    )
    item.stash.setdefault(DIFFERENCES, []).append(data)


def _findings(mismatch: Mismatch) -> list[str]:
    if mismatch.parts:
        return [*_findings_of_ranks(mismatch.parts)]
    diff = mismatch.diff
    if not diff:
        return []
    if len(diff.findings) == 1:
        return diff.findings[0].to_text(limit=MAX_CHANGES).splitlines()
    return diff.to_text().splitlines()


def _findings_of_ranks(parts: tuple[Part, ...]) -> Iterator[str]:
    """What differs, below the ranks in which it does; each finding once."""
    lines: dict[tuple[int, ...], list[str]] = {}
    problems: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for part in parts:
        if part.problem:
            problems.setdefault((part.problem, part.details), []).extend(part.ranks)
    for (problem, details), differing in problems.items():
        lines.setdefault(tuple(sorted(differing)), []).extend([problem, *details])
    for finding, ranks in findings_of_ranks(parts):
        lines.setdefault(ranks, []).extend(finding.to_text(limit=MAX_CHANGES).splitlines())
    for ranks, own in lines.items():
        yield f"{format_ranks(ranks)}:"
        yield from (f"  {line}" for line in own)


def _draw(
    item: pytest.Item,
    report: pytest.TestReport,
    mismatch: Mismatch,
    headline: str,
    shown: Mismatch | Part,
) -> Generator[str, None, DrawnDifference | None]:
    """Write all findings into a text file and the picture beside it; yields the section's line."""
    diff = shown.diff
    if not diff:
        return None
    rank = f".rank-{shown.ranks[0]}" if isinstance(shown, Part) else ""
    of = f" of {format_ranks(shown.ranks)}" if isinstance(shown, Part) else ""
    text = artifacts.path(item, mismatch.name, f"{rank}.txt")
    findings = "\n".join(
        finding.to_text(limit=sum(len(p.changes) + len(p.consequences) for p in finding.places))
        for finding in diff.findings
    )
    text.write_text(f"{item.nodeid}\n{headline}\n{findings}\n", encoding="utf-8")
    from ..render.difference import drawing as drawing_of
    from ..render.output.rendering import draw

    drawing = drawing_of(diff)
    rendered = draw(drawing.digraph, text.with_suffix(".svg"))
    if rendered.renderer is None:
        yield f"picture: none, {rendered.note}"
        return DrawnDifference(diff, drawing, "", f"no picture: {rendered.note}")
    path = rendered.path
    longer = not rank and len(findings.splitlines()) > len(_findings(mismatch))
    note = " (and all of the text beside it, .txt)" if longer else ""
    yield f"picture: {settings.shown(item.config, path)}{of}{note}"
    artifacts.attach(item, report, path, mismatch.name)
    return DrawnDifference(diff, drawing, path.read_text(encoding="utf-8"), "")
