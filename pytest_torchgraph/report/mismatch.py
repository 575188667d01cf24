"""Report of a failed comparison: the assertion message, the section `torchgraph`, the picture.

Reporting must not change the outcome of a test: an error in this module becomes a line of the
report.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ..settings import config as settings
from ..snapshot import RECORD, REPORTED, Record
from ..snapshot.compare import ONLY_FLOATS, Comparison
from ..snapshot.inline import FAILED
from ..snapshot.summary import brief, headline
from ..words import first_lines, format_ranks, one_line
from . import artifacts
from .comparisons import UPDATE, data_of, review_command, save_pending, save_pending_text
from .failed_check import add_section

if TYPE_CHECKING:
    from ..snapshot.assertion import GraphSnapshot

MAX_LINES = 60
"""Maximum number of lines of findings in a section. A text file next to the picture has all."""
MAX_CHANGES = 2
"""Maximum number of further nodes, and of consequences, listed for a single finding.

The section then has at most a dozen lines and fits on one screen.
"""

MAX_DRAWN = 3
"""Maximum number of differing classes of ranks to draw, one picture each."""

_TEXT_FAILED = pytest.StashKey[bool]()
"""True if an `assert_graph_text` of the test failed in this attempt to run it."""


def add_comparisons(item: pytest.Item, report: pytest.TestReport) -> None:
    """Move the comparisons of a phase from the item's stash into its report.

    If the phase failed, also add a section for each failed comparison.
    """
    record = item.stash[RECORD]
    # Plain data, because pytest-xdist sends it to the controller.
    vars(report)[REPORTED] = {
        # Without duplicates: hypothesis compares with the same file for every example.
        "compared": list(dict.fromkeys(record.compared)),
        "stored": list(dict.fromkeys(record.stored)),
        "replaced": [(path, data_of(comparison)) for path, comparison in record.replaced],
        "failed": [data_of(comparison) for comparison in record.failed.values()]
        if report.failed
        else [],
    }
    why_not_saved = save_pending(item, report.failed, record)
    # A new record for the next phase, before the sections: those of the page go into it.
    item.stash[RECORD] = Record(used=record.used)
    if report.failed:
        for failed, data in zip(
            record.failed.values(), vars(report)[REPORTED]["failed"], strict=True
        ):
            data["section"] = len(report.sections)
            add_section(report, *_report_lines(item, report, failed, why_not_saved))


def add_accept_command(item: pytest.Item, error: BaseException) -> None:
    """Add the accept command to the message of a failed `assert_graph_text`.

    `assert_graph_text` is a plain function and cannot know the start directory of pytest.
    """
    if hasattr(error, FAILED):
        error.args = (f"{error}\naccept:  {settings.rerun_command(item, UPDATE)}",)


def add_text_comparison(
    item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]
) -> None:
    """Add a failed `assert_graph_text` to the report, and keep its pending update for `review`.

    If the test passed, its pending update is deleted.
    """
    if call.when == "setup":
        item.stash[_TEXT_FAILED] = False
    if call.when != "call":
        return
    failed: Comparison | None = getattr(call.excinfo and call.excinfo.value, FAILED, None)
    try:
        if failed is not None and report.failed:
            item.stash[_TEXT_FAILED] = True
            data = vars(report).setdefault(
                REPORTED, {"compared": [], "stored": [], "replaced": [], "failed": []}
            )
            data["failed"].append(data_of(failed))
            save_pending_text(item, failed)
        # pytest reports a unittest test as passed even if its subtests failed.
        elif report.passed and not item.stash.get(_TEXT_FAILED, False):
            save_pending_text(item, None)
    except Exception as error:
        add_section(report, f"no pending update of this text: {brief(error)}")


def fail_ignored_mismatches(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Fail a phase that passed, skipped or called `pytest.xfail` although a comparison failed.

    The test has no `assert`, or catches the failure, so it would never fail. The mark `xfail` stays
    valid, because pytest applies it to the failure later.
    """
    error = call.excinfo and call.excinfo.value
    if error is not None and not isinstance(error, pytest.skip.Exception | pytest.xfail.Exception):
        return
    # pytest converts the failure of such a test to a call of `pytest.xfail`.
    holders = (getattr(item, name, None) for name in ("obj", "cls"))  # the mark of unittest
    if any(getattr(holder, "__unittest_expecting_failure__", False) for holder in holders):
        return
    failed = item.stash[RECORD].failed.values()
    files = [f"  {comparison.path}: {headline(comparison)}" for comparison in failed]
    message = "the test ignored a failed comparison with a stored graph:"
    advice = (
        "write `assert capture == graph_snapshot`, and do not catch its failure. To assert that "
        "graphs differ, write `assert capture != graph_snapshot`"
    )
    try:  # raise and catch, because `from_current` needs an exception with a traceback
        pytest.fail("\n".join([message, *files, advice]), pytrace=False)
    except pytest.fail.Exception:
        call.excinfo = pytest.ExceptionInfo.from_current()


def fail_unused(item: pytest.Item) -> None:
    """Fail a test that requests `graph_snapshot` as an argument, but compared nothing with it.

    Three kinds of tests are exempt: a test that gets `graph_snapshot` only through another fixture,
    a test with subtests, which have their own outcomes, and a test that is expected to fail.

    Raises:
        pytest.fail.Exception: unless the test is exempt.
    """
    parameters = inspect.signature(getattr(item, "function", lambda: None)).parameters
    expected = item.get_closest_marker("xfail") is not None
    if "graph_snapshot" not in parameters or "subtests" in parameters or expected:
        return
    pytest.fail(
        "graph_snapshot was requested, but nothing was compared with it\n"
        "write `assert capture == graph_snapshot`, or remove the argument. If there is nothing to "
        "compare, give the reason with pytest.skip(...)",
        pytrace=False,
    )


def assertion_lines(op: str, snapshot: GraphSnapshot) -> list[str]:
    """Return the message of a failed assertion, short because pytest truncates it after 8 lines.

    Args:
        op: operator of the comparison, "==" or "!=".
        snapshot: operand that represents the stored graphs.
    """
    failed = snapshot.failed
    if failed is None:  # the test asserts `!=`, and the graphs are equal
        return [f"graphs {op} stored: expected a difference, but the graphs equal {snapshot!r}"]
    lines = [f"graphs {op} stored: {headline(failed)}", *_release_lines(failed)]
    if failed.is_new or ONLY_FLOATS in failed.details:
        lines += failed.details
    lines += _accept_lines(snapshot.item, failed)
    if not failed.is_new:
        lines.append("differences: see the section 'torchgraph' of this report")
    return lines


def _accept_command(item: pytest.Item, failed: Comparison) -> str:
    """Return the command that accepts the captured graphs, or the reason why there is none."""
    return failed.refused or settings.rerun_command(item, UPDATE)


def _accept_lines(item: pytest.Item, failed: Comparison) -> Iterator[str]:
    """Yield how to accept the captured graphs, and the file if it is not the compared one."""
    yield f"accept:  {_accept_command(item, failed)}"
    if failed.writes:
        yield f"writes:  {failed.writes}"


def _release_lines(failed: Comparison) -> Iterator[str]:
    """Yield lines about a comparison with the graphs of another torch release."""
    if failed.origin:
        yield failed.origin
    if failed.releases is not None:
        yield "stored with torch {}, now running torch {}".format(*failed.releases)


def _report_lines(
    item: pytest.Item, report: pytest.TestReport, failed: Comparison, why_not_saved: str
) -> Iterator[str]:
    """Yield the lines of the section of a failed comparison.

    Also write its texts and pictures, add it to the page of the run and to the JUnit properties. An
    error of one of these is a line.

    Args:
        item: the test.
        report: the report of the failed phase.
        failed: the comparison.
        why_not_saved: the error that prevented writing a pending update; "" if there was none.
    """
    head = headline(failed)
    yield from _release_lines(failed)
    # Skip the headline if the assertion's message already shows it.
    if not (failed.is_new and head in report.longreprtext):
        yield head
    item.user_properties.append(("torchgraph", one_line(f"{failed.path}: {head}")))
    lines: list[str] = list(failed.details)
    try:
        lines += _findings(failed)
    except Exception as error:
        lines.append(f"cannot describe the difference: {brief(error)}")
    yield from first_lines(lines, MAX_LINES)
    yield f"file:    {failed.path}"
    yield from _accept_lines(item, failed)
    if settings.get(item.config).artifacts is not None:
        review = f"none, {why_not_saved}" if why_not_saved else review_command(item.config)
        yield f"review:  {review}"
    drawn_parts = failed.parts[:MAX_DRAWN] or (failed,)  # only ranks have parts
    pictures: list[artifacts.Picture] = []
    try:
        _write_texts(item, failed)
        for part in drawn_parts:
            pictures.append(_draw(item, report, failed, head, part))
            yield from filter(None, [pictures[-1].line])
        if failed.parts[MAX_DRAWN:]:
            undrawn_ranks = [rank for part in failed.parts[MAX_DRAWN:] for rank in part.ranks]
            yield f"no picture of {format_ranks(undrawn_ranks)}"
    except Exception as error:
        yield f"picture: none, {brief(error)}"
    if settings.get(item.config).report is not None:
        try:
            pictures += [artifacts.Picture()] * len(drawn_parts)  # of parts that were not drawn
            # There are more pictures than parts if some or all of the parts were drawn.
            for part, picture in zip(drawn_parts, pictures, strict=False):
                _add_to_page(item, failed, head, lines, part, picture)
        except Exception as error:
            yield f"not in the page of this run: {brief(error)}"


def _write_texts(item: pytest.Item, failed: Comparison) -> None:
    """Write the stored text, the captured text and their diff, if an artifact directory is set."""
    if settings.get(item.config).artifacts is None:
        return
    stored = failed.stored
    detail = stored.header.detail if stored is not None else "dataflow"
    texts = {".received.tgraph": failed.current.to_text(detail)}
    if stored is not None and stored.graphs:
        texts[".expected.tgraph"] = failed.stored_text
        texts[".diff"] = "".join(f"{line}\n" for line in failed.text_diff)
    for suffix, text in texts.items():
        artifacts.save(item, failed.name, suffix, text)


def _add_to_page(
    item: pytest.Item,
    failed: Comparison,
    summary: str,
    lines: list[str],
    part: Comparison,
    picture: artifacts.Picture,
) -> None:
    """Add the difference of the graphs, or of one class of ranks, to the page of the run."""
    from .page import comparison_data

    data = comparison_data(
        file=failed.path,
        headline=summary,
        accept=_accept_command(item, failed),
        lines=part.text_diff or lines,
        diff=part.diff if picture.drawing else None,
        drawing=picture.drawing,
        svg=picture.svg,
        note=picture.note,
        ranks=format_ranks(part.ranks) if part.ranks else "",
    )
    item.stash[RECORD].shown.append(data)


def _findings(failed: Comparison) -> list[str]:
    """Return the lines about the findings. There is room for the places of a single one."""
    diff = failed.diff
    if failed.parts:
        return [*_findings_of_ranks(failed)]
    if len(diff.findings) == 1:
        return diff.findings[0].to_text(limit=MAX_CHANGES).splitlines()
    return diff.to_text().splitlines() if diff else []


def _findings_of_ranks(failed: Comparison) -> Iterator[str]:
    """Yield each finding once, grouped under the ranks that have it."""
    # Lines by the ranks that have them. Equal problems of several parts become one.
    lines: dict[tuple[int, ...], list[str]] = {}
    problems: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for part in failed.parts:
        if part.problem:
            problems.setdefault((part.problem, part.details), []).extend(part.ranks)
    for (problem, details), differing in problems.items():
        lines.setdefault(tuple(sorted(differing)), []).extend([problem, *details])
    for finding in failed.diff.findings:
        finding_lines = lines.setdefault(finding.ranks or (), [])
        finding_lines.extend(finding.to_text(limit=MAX_CHANGES).splitlines())
    for ranks, finding_lines in lines.items():
        yield f"{format_ranks(ranks)}:"
        yield from (f"  {line}" for line in finding_lines)


def _draw(
    item: pytest.Item, report: pytest.TestReport, failed: Comparison, summary: str, part: Comparison
) -> artifacts.Picture:
    """Write all findings of a comparison, or of one class of its ranks, to a file, and draw them.

    Args:
        item, report: the test and its report.
        failed: the comparison.
        summary: its headline.
        part: the class of ranks; `failed` itself without ranks.
    """
    diff = part.diff
    if not diff:
        return artifacts.Picture()
    rank = f".rank-{part.ranks[0]}" if part.ranks else ""
    findings = "\n".join(finding.to_text(limit=sys.maxsize) for finding in diff.findings)
    content = f"{item.nodeid}\n{summary}\n{findings}\n"
    text = artifacts.save(item, failed.name, f"{rank}.txt", content)
    from ..render.difference import drawing

    path = text.with_suffix(".svg")
    picture = artifacts.save_picture(item, report, drawing(diff), path, failed.name)
    line = picture.line
    if part.ranks:
        line += f" of {format_ranks(part.ranks)}"
    elif len(findings.splitlines()) > len(_findings(failed)):  # the section has not all of them
        line += " (full text in the .txt file next to it)"
    return picture._replace(line=line) if picture.svg else picture
