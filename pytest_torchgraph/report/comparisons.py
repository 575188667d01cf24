"""Failed comparisons of a run as plain data, and pending updates for `review`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import OutsideRootError
from ..files import inside
from ..graph.diff import source_text
from ..settings import config as settings
from ..snapshot.pending import OUTSIDE, PENDING_SUFFIX, SavedUpdate, digest, place_key
from ..snapshot.summary import brief, headline
from ..words import counted, grouped
from . import artifacts

if TYPE_CHECKING:
    from pathlib import Path

    from ..graph.diff import Finding
    from ..snapshot import Record
    from ..snapshot.compare import Comparison
    from ..snapshot.pending import PendingUpdate


Data = dict[str, Any]

NOT_STORED = "no graph is stored"
"""Start of the problem if a stored graph is missing."""
MAX_FINDINGS = 50
"""Maximum number of findings of one comparison in a report. Further findings are only counted."""


def data_of(failed: Comparison) -> Data:
    """Return the plain data of a failed comparison, of bounded size.

    Returns:
        A dictionary: `problem` is one line; `releases` is the pair of torch releases, or `None` if
        they are equal; `difference` is the result of `GraphDiff.to_json`, or `None` without
        findings. `mismatch.add_comparisons` adds `section`, its number in the sections of the
        report.
    """
    problem, difference = failed.problem or "the graphs differ", None
    if failed.stored is not None and failed.stored.header.detail == "ops":
        # Different edits have the same problem, such as "2 op counts differ".
        problem = "; ".join([problem, *failed.details])
    try:
        difference = failed.diff.to_json(MAX_FINDINGS) if failed.diff else None
    except Exception:  # the section of the report has the reason
        problem = failed.problem or "cannot describe the difference"
    return {"problem": problem, "releases": failed.releases, "difference": difference}


def findings_of(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings in data from `data_of`; without findings, yield the problem as one."""
    from ..graph.diff import Finding, problem_finding

    if data["difference"] is None:
        yield problem_finding(data["problem"])
        return
    yield from map(Finding.from_json, data["difference"]["findings"])


class Comparisons:
    """Failed comparisons of a run.

    Attributes:
        tests: data of the failed comparisons of each test, keyed by test id. Whoever changes it
            sets `_every_cause`, which keeps the merged findings, to `None`.
    """

    def __init__(self, tests: Mapping[str, list[Data]] | None = None):
        self.tests: dict[str, list[Data]] = dict(tests or {})
        self._every_cause: Sequence[Finding] | None = None

    @property
    def causes(self) -> Sequence[Finding]:
        """Causes, the most widespread first. Empty unless at least two comparisons failed."""
        return self.every_cause if len(self._failures) > 1 else []

    @property
    def every_cause(self) -> Sequence[Finding]:
        """Causes as in `causes`, but also for a single failed comparison."""
        if self._every_cause is None:
            from ..graph.diff import merge_edits

            upgraded = [
                test
                for test, failures in self.tests.items()
                if any(data["releases"] for data in failures)
            ]
            # Findings with equal words are merged, and no others, whatever their tokens say: a
            # stranger's page may have the tokens of another edit.
            by_words = grouped(
                (finding.to_json()["sign"] + finding.summary, (test, finding))
                for test, failures in sorted(self.tests.items())
                for finding in chain.from_iterable(map(findings_of, failures))
            )
            merged = (merge_edits(items, upgraded=upgraded) for items in by_words.values())
            causes = chain.from_iterable(merged)
            self._every_cause = sorted(causes, key=lambda cause: -len(cause.files))
        return self._every_cause

    @property
    def _failures(self) -> list[Data]:
        return [*chain.from_iterable(self.tests.values())]

    @property
    def are_new(self) -> bool:
        """True if every comparison failed because no graph is stored."""
        failures = self._failures
        return bool(failures) and all(data["problem"].startswith(NOT_STORED) for data in failures)

    def heading(self) -> str:
        """Return the number of causes and of tests, as text."""
        causes = counted(len(self.every_cause), "cause")
        return f"{causes} in {counted(len(self.tests), 'test')}{self.omitted()}"

    def omitted(self) -> str:
        """Return the number of findings that `data_of` left out, as text; "" if there are none."""
        differences = filter(None, (data["difference"] for data in self._failures))
        omitted = sum(difference["left"] for difference in differences)
        return f", {counted(omitted, 'further finding')} not listed" if omitted else ""

    def releases(self) -> list[str]:
        """Return the distinct (stored, running) torch releases, formatted as `2.13.0 -> 2.15.0`."""
        pairs = (data["releases"] for data in self._failures if data["releases"])
        return [*dict.fromkeys(f"{old} -> {new}" for old, new in pairs)]


UPDATE = "--torchgraph-update"
REVIEW = "pytest-torchgraph review"
TEXT_TARGET = "assert_graph_text"
"""Name of the pending update of a text in a test, in place of the name of a stored file."""


def review_command(config: pytest.Config) -> str:
    """Return the command that reviews the pending updates of this run; "" if none are kept."""
    directory = artifacts.known_directory(config)
    if directory is None:
        return ""
    configured = settings.get(config).artifacts
    return (
        f"{REVIEW} {settings.display_path(config, directory)}" if configured is not None else REVIEW
    )


def save_pending(item: pytest.Item, failed: bool, record: Record) -> str:
    """Write a pending update for each failed comparison of a phase.

    The pending update of a comparison is deleted if the comparison or the phase passed.

    Args:
        item: the test.
        failed: True if the phase failed. For an expected failure this is False.
        record: comparisons of the phase.

    Returns:
        The error of the last file that could not be written; "" if all files were written.
    """
    pending_updates = record.pending
    problem = ""
    if not pending_updates or not artifacts.known_directory(item.config):
        return problem
    for name, pending in pending_updates.values():
        try:
            content = None
            if pending is not None and failed:
                # The compared file is one of those with a digest. An unreadable one has no
                # comparison, and its problem instead.
                paths = map(str, pending.digests)
                comparison = next((record.failed[p] for p in paths if p in record.failed), None)
                summary = headline(comparison) if comparison else " ".join(pending.problem.split())
                content = _saved_update(item, pending, comparison).to_json(
                    summary, pending.refused or settings.rerun_command(item, UPDATE)
                )
            artifacts.save(item, name, PENDING_SUFFIX, content)
        except Exception as error:
            problem = brief(error)
    return problem


def save_pending_text(item: pytest.Item, failed: Comparison | None) -> None:
    """Write the pending update of a test's `assert_graph_text`, or delete it if `failed` is `None`.

    A review lists this update and refuses it, because only a run of the test can write its text.
    """
    if not artifacts.known_directory(item.config):
        return
    if failed is None:
        artifacts.save(item, TEXT_TARGET, PENDING_SUFFIX, None)
        return
    stored = failed.stored
    command = settings.rerun_command(item, UPDATE)
    stored_text = stored.to_text(stored.header.detail) if stored is not None else None
    # No file has this name, but a refused update needs none.
    saved = SavedUpdate(
        test=item.nodeid,
        target=item.nodeid,
        text=failed.current.to_text(stored.header.detail if stored is not None else "dataflow"),
        stored=stored_text,
        digests={item.nodeid: digest(stored_text)},
        refused=f"this text is in the test: run {command}",
        **_sources(failed),
    )
    artifacts.save(item, TEXT_TARGET, PENDING_SUFFIX, saved.to_json(headline(failed), command))


def _saved_update(
    item: pytest.Item, pending: PendingUpdate, comparison: Comparison | None
) -> SavedUpdate:
    """Return a pending update with paths relative to the root directory.

    An update with a path outside of it is refused.
    """
    paths = {path: _below_root(item.config, path) for path in (pending.target, *pending.digests)}
    may_write = all(paths.values())
    return SavedUpdate(
        test=item.nodeid,
        target=paths[pending.target] or str(pending.target),
        text=pending.text,
        stored=pending.stored,
        digests={name: pending.digests[path] for path in pending.digests if (name := paths[path])},
        refused=pending.refused or ("" if may_write else OUTSIDE),
        **(_sources(comparison) if comparison else {}),
    )


def _sources(comparison: Comparison) -> dict[str, dict[str, str]]:
    """Return `SavedUpdate.sources` and `SavedUpdate.lines` for a comparison."""
    sources, lines = {}, {}
    for finding in comparison.diff.findings:
        for place in finding.places:
            key = place_key(finding, place)
            own = place.changes[0].node.source if place.changes else finding.source
            if source := source_text(own):
                sources[key] = source
            if finding.identity.line:
                lines[key] = finding.identity.line
    return {"sources": sources, "lines": lines}


def _below_root(config: pytest.Config, path: Path) -> str:
    """Return a path relative to the root directory, with forward slashes; "" if it is outside."""
    root = config.rootpath
    try:
        real_path = inside(path, root)
    except OutsideRootError:
        return ""
    # As written, because `review` resolves the links of its own checkout.
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return real_path.relative_to(os.path.realpath(root)).as_posix()
