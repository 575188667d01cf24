"""Pending updates in artifact directories, their differences, and their numbered causes.

`read_pending` reads the JSON files that runs left, one for each failed comparison. `_updates` makes
one `Update` of those for the same stored file, with its `Difference` (`difference_of`).
`PendingUpdates.causes` groups the findings of all updates by edit, and numbers the groups.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from ...errors import GraphFormatError, TorchGraphError
from ...files import inside
from ...graph.diff import (
    LAYOUTS_DIFFER,
    NO_LONGER,
    Finding,
    digits_line,
    group_same_edits,
    losses,
    merge_findings,
    problem_finding,
    shorten,
    whole,
)
from ...graph.program import Program
from ...report.comparisons import NOT_STORED
from ...settings.paths import find_rootdir
from ...snapshot.compare import DETAILS, Comparison, compare, read_stored, text_difference
from ...snapshot.files import read_text
from ...snapshot.pending import PENDING_SUFFIX, SavedUpdate, digest, place_key
from ...snapshot.summary import brief, headline
from ...words import grouped

LOSSES = ("detail ", "digits ", "format ", "compared with", NO_LONGER)
"""Beginnings of details that a headline has."""
SAME_GRAPHS = "only names, line order, strides or devices differ, so the graphs are equal"


@dataclass(frozen=True)
class Difference:
    """The difference between an update and the stored graph.

    Attributes:
        headline: the difference in one line.
        details: further lines about the difference.
        findings: the differences as findings; at least one.
        comparison: the comparison; `None` if a text is unknown or unreadable.
        texts: the stored text and the new text; `None` for an unknown text.
    """

    headline: str
    details: tuple[str, ...]
    findings: tuple[Finding, ...]
    comparison: Comparison | None = None
    texts: tuple[str | None, str | None] = (None, None)

    @property
    def is_upgrade(self) -> bool:
        """True if another torch release produced the new text."""
        return self.comparison is not None and self.comparison.releases is not None

    def text_lines(self) -> list[str]:
        """Return the unified diff of the texts."""
        if self.comparison is not None and (lines := self.comparison.text_diff):
            return lines
        stored, new = (text or "" for text in self.texts)
        return text_difference(stored, new) if stored else new.splitlines()


def difference_of(saved: SavedUpdate, read: Callable[[str], str | None]) -> Difference:
    """Compare the text of an update with the stored text.

    Args:
        saved: the update.
        read: maps the name of a stored file to its text; `None` if it is missing or may not be
            read.
    """
    if saved.text is None and saved.refused:
        return _without_graphs(saved.refused)
    stored, new = _stored_text(saved, read), saved.text
    if new is not None:
        return _compare_texts(saved, stored, new)
    # The update removes its target: compare with the file that replaces the target.
    name = saved.successor or ""
    new = _verify(saved, name, read(name))
    removed = f"removes the stored graph {saved.target}, which {name} replaces"
    if stored is None or new is None:
        return _without_graphs(removed)
    difference = _compare_texts(saved, stored, new)
    return replace(
        difference,
        headline=f"{removed}: {difference.headline}",
        findings=(problem_finding(removed), *difference.findings),
    )


def _stored_text(saved: SavedUpdate, read: Callable[[str], str | None]) -> str | None:
    """Return the text of the comparison, verified by its digest; `None` if unknown."""
    name = saved.compared
    if name is None:
        return None
    if saved.stored is not None and digest(saved.stored) == saved.digests[name]:
        return saved.stored
    return _verify(saved, name, read(name))


def _verify(saved: SavedUpdate, name: str, text: str | None) -> str | None:
    """Return the text of a stored file; `None` if it is unknown or changed since the comparison."""
    return text if text is not None and digest(text) == saved.digests.get(name) else None


def _compare_texts(saved: SavedUpdate, stored: str | None, new: str) -> Difference:
    """Compare two texts of an update.

    Args:
        saved: the update.
        stored: the stored text of the comparison; `None` if there is no file, or if it changed.
        new: the new text.
    """
    captured = read_stored(new)
    program = captured.canonical()
    comparison = Comparison(program, path=saved.target)
    details: tuple[str, ...] = ()
    lost: list[str] = []
    if saved.compared is None:
        comparison = replace(
            comparison, problem=f"{NOT_STORED} for this comparison yet", is_new=True
        )
    elif stored is None:
        return _without_graphs(f"{saved.compared} changed after the comparison: run the test again")
    else:
        try:
            old = read_stored(stored)
        except GraphFormatError as error:
            problem = f"cannot read the stored graph ({error.line}:{error.column}: {error.problem})"
            comparison = replace(comparison, problem=problem)
        else:
            comparison = compare(old, program, program.header.detail) or replace(
                comparison, problem=SAME_GRAPHS
            )
            details, lost = _details(saved, old, captured, comparison.details)
    try:
        findings = comparison.diff.findings
    except TorchGraphError as error:
        findings, details = (), (*details, f"cannot describe the difference: {error}")
    # Different edits may have the same problem, such as "2 op counts differ".
    words = "; ".join([comparison.problem or "the graphs differ", *details])
    return Difference(
        "; ".join([headline(comparison), *(line for line in details if line.startswith(LOSSES))]),
        details,
        # Beside findings, no problem says what is no longer compared.
        (*findings, *map(problem_finding, lost)) if findings else (problem_finding(words),),
        comparison,
        (stored, new),
    )


def _details(
    saved: SavedUpdate, old: Program, captured: Program, details: tuple[str, ...]
) -> tuple[tuple[str, ...], list[str]]:
    """Return all lines about a difference, and those about what is no longer compared.

    Args:
        saved: the update.
        old, captured: the stored and the captured program.
        details: the details of their comparison.
    """
    if saved.compared != saved.target:
        details = (f"compared with {saved.compared}", *details)
    lost = losses(old, captured)
    if captured.digits != old.digits:
        details = (digits_line(old, captured), *details)
    details = tuple(dict.fromkeys((*lost, *details)))
    # No finding about the graphs says that strides or devices differ.
    lost += [line for line in details if line.startswith(LAYOUTS_DIFFER)]
    detail, old_detail = captured.header.detail, old.header.detail
    if detail != old_detail:
        details = (f"detail {detail!r}, was {old_detail!r}", *details)
        lost += details[:1] if DETAILS.index(detail) < DETAILS.index(old_detail) else ()
    return details, lost


def _with_source(finding: Finding, updates: Sequence[SavedUpdate]) -> Finding:
    """Return a finding with the lines of code that runs recorded for the same change."""
    if not finding.places:  # a problem
        return finding
    key = place_key(finding, finding.places[0])
    lines = dict.fromkeys(" ".join(saved.sources.get(key, "").split()) for saved in updates)
    sources = [f"{shorten(line)} (recorded by the run)" for line in lines if line]
    # The line comes from the artifact. Findings on one line also need the same `op` to merge, which
    # is computed from the texts, and a cause prints each form of its change.
    identity = replace(finding.identity, line=updates[0].lines.get(key, ""))
    finding = replace(finding, identity=identity)
    return replace(finding, data={**whole(finding).to_json(), "sources": sources})


def _without_graphs(problem: str) -> Difference:
    """Return the difference of an update without two texts to compare."""
    return Difference(problem, (), (problem_finding(problem),))


# An update can be made, its text is already stored, or it cannot be made.
State = Literal["waits", "stored", "refused"]
DEFAULT_DIRECTORY = Path(".pytest_cache") / "d" / "torchgraph"
"""Directory for the updates of runs without `--torchgraph-artifacts`, below the root directory."""


@dataclass(frozen=True)
class Update:
    """A pending update with its difference.

    Attributes:
        file: the JSON file left by a run.
        root: the directory that paths are relative to.
        equal: the contents of all files with the same change of this stored file, `saved` first.
        difference: the difference from the stored graph.
        conflict: the reason why this stored file cannot be updated; "" if there is none.
    """

    file: Path
    root: Path
    equal: tuple[SavedUpdate, ...]
    difference: Difference
    conflict: str = ""

    @property
    def saved(self) -> SavedUpdate:
        """Content of the JSON file."""
        return self.equal[0]

    @property
    def target(self) -> str:
        """Path of the stored file, relative to `root`."""
        return self.saved.target

    @property
    def path(self) -> Path:
        """Path of the stored file."""
        return self.root / self.target

    def state(self) -> tuple[State, str]:
        """Return the current state of the update and, if refused, the reason."""
        saved = self.saved
        if self.conflict or saved.refused:
            return "refused", self.conflict or saved.refused
        try:
            current_digests = {name: digest(read_text(self.root / name)) for name in saved.digests}
        except TorchGraphError as error:  # it was readable before
            return "refused", str(error)
        if current_digests[self.target] == digest(saved.text):
            return "stored", ""
        for name, recorded_digest in saved.digests.items():
            if current_digests[name] != recorded_digest:
                return "refused", f"{name} changed after the comparison: run the test again"
        return "waits", ""

    def describe_refusal(self, reason: str) -> str:
        """Return the reason for a refusal, preceded by the stored file unless it starts with it."""
        return reason if reason.startswith(f"{self.target} ") else f"{self.target}: {reason}"


@dataclass(frozen=True)
class NumberedCause:
    """A cause of pending updates, with its number.

    Attributes:
        number: the number for `review --cause`, from 1. It does not change when updates are
            accepted. A later run that writes other updates to the directory may change it.
        words: the cause as a finding; its files are the stored files.
        items: the findings merged into the cause, see `merge_findings`.
        updates: the updates that contain the cause.
    """

    number: int
    words: Finding
    items: tuple[tuple[str, Finding], ...]
    updates: tuple[Update, ...]


@dataclass(frozen=True)
class PendingUpdates:
    """All pending updates of one or several directories.

    Attributes:
        directories: the directories.
        updates: the updates, sorted by stored file.
        unreadable: for each update that cannot be used, one line with the reason.
        numbers: the chosen causes; `None` for all.
        files: the stored files of the chosen causes and tests; `None` for all.
        root: the root directory, if the user named it.
    """

    directories: tuple[Path, ...]
    updates: tuple[Update, ...]
    unreadable: tuple[str, ...] = ()
    numbers: frozenset[int] | None = None
    files: frozenset[str] | None = None
    root: Path | None = None

    @property
    def directory(self) -> str:
        """Directories as written on the command line."""
        return shlex.join(map(str, self.directories))

    @property
    def is_default(self) -> bool:
        """True for the directory used by runs without `--torchgraph-artifacts`."""
        return self.directories[0].parts[-len(DEFAULT_DIRECTORY.parts) :] == DEFAULT_DIRECTORY.parts

    @cached_property
    def causes(self) -> tuple[NumberedCause, ...]:
        """Causes, sorted by their number of stored files, largest first."""
        by_target = {update.target: update for update in self.updates}
        items = [(u.target, finding) for u in self.updates for finding in u.difference.findings]
        upgraded = [update.target for update in self.updates if update.difference.is_upgrade]
        groups = [[items[k] for k in group] for group in group_same_edits(items, upgraded=upgraded)]
        findings_and_groups = [(merge_findings(group), tuple(group)) for group in groups]
        # The sort is stable, and the updates are sorted: equal directories have equal numbers.
        findings_and_groups.sort(key=lambda pair: -len(pair[0].files))
        return tuple(
            NumberedCause(number, words, group, tuple(by_target[name] for name in words.files))
            for number, (words, group) in enumerate(findings_and_groups, 1)
        )

    @cached_property
    def causes_by_target(self) -> Mapping[str, frozenset[int]]:
        """For each stored file, the numbers of the causes that change it."""
        causes = grouped(
            (update.target, cause.number) for cause in self.causes for update in cause.updates
        )
        return {target: frozenset(numbers) for target, numbers in causes.items()}

    @cached_property
    def count_causes(self) -> Callable[[tuple[str, ...]], list[tuple[int, int]]]:
        """Count the files of each cause among some stored files; cached, as many causes ask it."""
        causes = self.causes_by_target
        return cache(lambda names: sorted(Counter(k for n in names for k in causes[n]).items()))

    @property
    def chosen(self) -> tuple[Update, ...]:
        """Updates of the chosen stored files."""
        return tuple(u for u in self.updates if self.files is None or u.target in self.files)

    @cached_property
    def states(self) -> dict[str, tuple[State, str]]:
        """State of each chosen update, by stored file, since the last `refresh`."""
        return {update.target: update.state() for update in self.chosen}

    def refresh(self) -> None:
        """Forget the states, because files may have changed."""
        vars(self).pop("states", None)

    def is_open(self, update: Update) -> bool:
        """Return True if a chosen update is not stored yet."""
        return self.states[update.target][0] != "stored"

    @property
    def open_causes(self) -> list[NumberedCause]:
        """The chosen causes with at least one file not stored yet."""
        causes = [self.causes[n - 1] for n in sorted(self.numbers)] if self.numbers else self.causes
        return [cause for cause in causes if any(map(self.is_open, cause.updates))]

    def choose(self, causes: Sequence[int] | None, tests: Sequence[str] | None) -> PendingUpdates:
        """Select the stored files that have one of the causes and belong to one of the tests.

        Args:
            causes: the numbers of causes; `None` for all.
            tests: ids of tests, test files or directories; `None` for all.

        Raises:
            TorchGraphError: for a number or a test without updates, and if no file matches both.
        """
        # Without a readable update, the reasons are printed, not "no cause 1".
        if (causes is None and tests is None) or (self.unreadable and not self.updates):
            return self
        targets = {update.target for update in self.updates}
        if causes is not None:
            for number in causes:
                if not 0 < number <= len(self.causes):
                    raise TorchGraphError(
                        f"no cause {number} in {self.directory}, only 1 to {len(self.causes)}: run "
                        f"`pytest-torchgraph review --list {self.directory}`"
                    )
            targets &= {name for number in causes for name in self.causes[number - 1].words.files}
        if tests is not None:
            test_targets: set[str] = set()
            for test in tests:
                # An update of a stranger may name any test; a refused one writes nothing.
                targets_of_test = {
                    update.target
                    for update in self.updates
                    for saved in update.equal
                    if _belongs_to(saved.test, test) and (saved.is_of_its_test or saved.refused)
                }
                if not targets_of_test:
                    raise TorchGraphError(f"no pending change of test {test} in {self.directory}")
                test_targets |= targets_of_test
            targets &= test_targets
        if not targets:
            raise TorchGraphError("no stored graph matches both --cause and --test")
        numbers = None if causes is None else frozenset(causes)
        return replace(self, numbers=numbers, files=frozenset(targets))


def _belongs_to(nodeid: str, test: str) -> bool:
    """Return True if a test has this id, or is in the file or directory of this name."""
    test = test.rstrip("/")
    return nodeid == test or nodeid.startswith((f"{test}::", f"{test}/", f"{test}["))


def find_directories(directories: Sequence[Path]) -> tuple[Path, ...]:
    """Return the given directories, or the directory of the last run if none is given.

    Raises:
        TorchGraphError: if there is no directory.
    """
    for directory in directories:
        if not directory.is_dir():
            directory.stat()  # raises OSError for a missing directory
            raise TorchGraphError(
                f"{directory} is a file: give the directory of `pytest --torchgraph-artifacts=DIR`"
            )
    if directories:
        return tuple(directories)
    current = Path.cwd()
    for directory in (current, *current.parents):
        # A run without failures creates pytest's cache, but not `DEFAULT_DIRECTORY`.
        if (directory / DEFAULT_DIRECTORY.parts[0]).is_dir():
            return (Path(os.path.relpath(directory / DEFAULT_DIRECTORY)),)
    raise TorchGraphError(
        f"no pending changes: {DEFAULT_DIRECTORY} does not exist here. Run the tests first, or "
        "give the directory of `pytest --torchgraph-artifacts=DIR`"
    )


def read_pending(*directories: Path, root: Path | None = None) -> PendingUpdates:
    """Read the updates that runs left in directories and their subdirectories.

    Args:
        directories: the directories, at least one.
        root: the directory that paths are relative to; `None` for pytest's rootdir, as pytest finds
            it from the working directory, but not above git's work tree. The updates have no say:
            a stranger's artifacts would choose where `review` writes.

    Raises:
        TorchGraphError: if pytest's ini file cannot be read; if there is no update, except in
            pytest's cache, where a run without failures writes none.
    """
    named_root, root = root, root or find_rootdir()
    saved: list[tuple[Path, SavedUpdate]] = []
    unreadable: list[str] = []
    files = {file for directory in directories for file in directory.rglob(f"*{PENDING_SUFFIX}")}
    for file in sorted(files):
        try:
            update = SavedUpdate.read(file)
        except TorchGraphError as error:
            unreadable.append(str(error))
            continue
        if reason := _why_unfit(update, root):
            unreadable.append(f"{file}: cannot store {update.target}: {reason}")
        else:
            saved.append((file, update))
    updates = tuple(_updates(saved, root, unreadable))
    pending = PendingUpdates(directories, updates, tuple(unreadable), root=named_root)
    if not (saved or unreadable or pending.is_default):
        raise TorchGraphError(_why_none(directories))
    return pending


def _why_unfit(update: SavedUpdate, root: Path) -> str:
    """Return why an update cannot be applied below the root; "" if it can."""
    if update.refused:  # it writes nothing
        return ""
    test_file = update.test.partition("::")[0]
    try:
        texts = [read_text(inside(root / name, root)) for name in (*update.digests, test_file)]
    except TorchGraphError as error:
        return str(error)
    if texts[-1] is not None:
        return ""
    return (
        f"{root} has no test file {test_file!r}. Go to the checkout, or give pytest's root "
        "directory with --root=DIR"
    )


def _updates(
    saved: Sequence[tuple[Path, SavedUpdate]], root: Path, unreadable: list[str]
) -> Iterator[Update]:
    """Yield one update per stored file: the first, if shards or releases left several.

    An update whose texts cannot be compared is added to `unreadable`.
    """

    def read(name: str) -> str | None:
        try:
            return read_text(inside(root / name, root))
        except TorchGraphError:  # `Update.state` reports it
            return None

    differences: dict[tuple[object, ...], Difference] = {}
    by_target = grouped((update.target, (file, update)) for file, update in saved)
    for _, same_target in sorted(by_target.items()):
        # The first speaks for all: not one that is refused, or names another test.
        same_target.sort(key=lambda pair: (pair[1].refused, not pair[1].is_named_after_its_test))
        file, update = same_target[0]
        conflict = ""
        for other_file, other_update in same_target:
            if (other_update.text, other_update.digests) != (update.text, update.digests):
                conflict = f"{file} and {other_file} have different graphs"
        # Reuse differences: many tests may store the same graphs, and comparing large graphs takes
        # seconds.
        try:
            # An update whose stored text has changed is described by its target's name only.
            speaks_for_itself = update.compared != update.target or None in (
                update.text,
                _stored_text(update, read),
            )
            compared_digest = update.digests.get(update.compared or "")
            key = update.text, compared_digest, update.target if speaks_for_itself else ""
            if key not in differences:
                differences[key] = difference_of(update, read)
            equal = tuple(saved for _, saved in same_target)
            findings = [_with_source(finding, equal) for finding in differences[key].findings]
            difference = replace(differences[key], findings=tuple(findings))
        except Exception as error:  # whatever the texts of a stranger contain
            unreadable.append(f"{file}: cannot compare {update.target}: {brief(error)}")
        else:
            yield Update(file, root, equal, difference, conflict)


def _why_none(directories: Sequence[Path]) -> str:
    """Return why directories have no pending update, and what to do."""
    directory = shlex.join(map(str, directories))
    if any(file for directory in directories for file in directory.rglob("*.received.tgraph")):
        return (
            f"{directory} has no *{PENDING_SUFFIX} file: the comparisons have passed since, or an "
            "old release of pytest-torchgraph wrote the directory. Run the tests again, or list "
            f"the causes only: `pytest-torchgraph diff {directory}`"
        )
    return (
        f"no pending changes in {directory}: run `pytest --torchgraph-artifacts=DIR`, which "
        f"writes a *{PENDING_SUFFIX} file to DIR for each failed comparison"
    )
