"""The `graph_snapshot` fixture: a comparison with a stored file, in syrupy's report of the session.

syrupy locates the directory of a snapshot, numbers the comparisons of a test, and reports how many
passed. The rest is ours, because syrupy compares texts, keeps both until the session ends, may
write them only then, turns an exception into "does not match", and deletes the snapshots of tests
that did not reach their assertion (`hide_from_cleanup` excludes our files).

This module uses private names of syrupy, which are the same in 5.3 to 7: `config._syrupy`, and
`_custom_index`, `_executions` and `_execution_results` of `SnapshotAssertion`.
"""

from __future__ import annotations

import copy
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from syrupy.assertion import AssertionResult, SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension
from syrupy.location import PyTestLocation

from ..errors import GraphFormatError, OutsideRootError, TorchGraphError
from ..files import write
from ..settings import config as settings
from ..words import checked_digits, counted
from . import DIFFERENCE_SUFFIX, RECORD, SUFFIX, Record
from .file_names import ReleaseFiles, release_files, stem_of
from .files import CallSite, read_text, refuse_hypothesis, refuse_loop
from .run import PLUGIN

if TYPE_CHECKING:
    from typing import TypeGuard

    from ..graph.diff import GraphDiff
    from ..graph.model import Detail
    from ..graph.program import Program
    from .compare import Comparison
    from .pending import PendingUpdate


class GraphExtension(SingleFileSnapshotExtension):
    """What syrupy knows of our files: `__snapshots__/<test file>/<test>[<name>].tgraph`."""

    file_extension = SUFFIX


def make_snapshot(request: pytest.FixtureRequest) -> GraphSnapshot:
    """Return the `GraphSnapshot` of a test, with syrupy's session and the options of this run."""
    option = request.config.option
    request.node.stash[RECORD] = Record()
    return GraphSnapshot(
        session=request.config._syrupy,  # type: ignore[attr-defined]
        extension_class=GraphExtension,
        test_location=PyTestLocation(request.node),
        update_snapshots=option.update_snapshots or settings.get(request.config).update,
        update_new_snapshots_only=option.update_new_snapshots_only,
    )


@dataclass(frozen=True, slots=True)
class Lookup:
    """A comparison of a text with its stored file.

    Attributes:
        result: the comparison in syrupy's report.
        files: the files that may store the text.
        release: the torch release of the compared file; "" without `torchgraph_releases`.
        stored: the stored text; `None` if there is no file.
        text: the text to store.
        may_write: True if this run stores the text.
    """

    result: AssertionResult
    files: ReleaseFiles
    release: str
    stored: str | None
    text: str
    may_write: bool

    @property
    def location(self) -> str:
        """Path of the compared file."""
        return self.result.snapshot_location

    @property
    def key(self) -> str:
        """Path that identifies the comparison: the file that an update writes."""
        own_path = self.files.own
        return os.path.abspath(own_path) if own_path is not None else self.location


class GraphSnapshot(SnapshotAssertion):
    """The stored graphs of one test: `assert capture == graph_snapshot`.

    The file is stored next to the test, for example in
    `__snapshots__/test_net/test_step[cpu].tgraph`. The comparison covers the dataflow (see
    `Graph`). If only names differ, the test passes, and an update rewrites the file. An update also
    rewrites a matching file of an older version that lacks facts. It does not touch any other
    matching file.

    Private attributes: `_pending` is the pending update of the comparison in progress, as recorded
    by `_record_pending`. `_handled` has the files that this test wrote, or found unchanged. All
    copies that `__call__` returns share `_handled`, `_call_sites` and `_unnamed`.

    Attributes:
        failed: the last comparison if it failed, else `None`.
        function: the name of the function that the user calls to compare, for messages.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._detail: Detail = "dataflow"
        self._digits = settings.get(self.item.config).digits
        self.failed: Comparison | None = None
        self.function = "graph_snapshot"
        self._pending: tuple[str, str, PendingUpdate | None] | None = None
        self._handled: set[str] = set()
        self._call_sites: set[CallSite] = set()
        # The text of each unnamed comparison's file before it, and its result, by `Lookup.key`.
        self._unnamed: dict[str, tuple[str | None, AssertionResult]] = {}

    def __call__(  # type: ignore[override]
        self, *, name: str | None = None, detail: Detail | None = None, digits: int | None = None
    ) -> GraphSnapshot:
        """Return this snapshot with other options.

        Args:
            name: distinguishes several comparisons of one test; part of the file name. Unnamed
                comparisons are numbered, so a new comparison renames the files of all later
                comparisons. A name is required in a loop and under hypothesis.
            detail: the level of detail to store and compare. "ops": the count of each op;
                "dataflow" (the default): ops, operands, constants, dtypes and shapes; "full": also
                strides and devices.
            digits: the number of significant digits of float constants to store and compare, 0 to
                17; with 0 each constant is stored as `~` and not compared. `None` uses the ini
                value `torchgraph_digits`, or else all digits. A file keeps the number with which it
                was written until it is updated. A comparison uses the smaller of the file's number
                and this one.

        Raises:
            ValueError: for an empty name, an unknown detail or a number of digits out of range.
        """
        from .compare import DETAILS

        digits = checked_digits(digits)
        if detail is not None and detail not in DETAILS:
            raise ValueError(f"detail must be one of {', '.join(DETAILS)}, not {detail!r}")
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError(f"name must be a non-empty str, not {name!r}")
        # Return a copy, because a test may bind two snapshots before it compares the first. The
        # copies share the list of results, because syrupy only looks at the list of the original.
        bound = copy.copy(self)
        bound._custom_index = name if name is not None else self._custom_index
        bound._detail = detail or self._detail
        bound._digits = self._digits if digits is None else digits
        return bound

    def __repr__(self) -> str:
        return f"<graph_snapshot {stem_of(self.item, self._custom_index or 0)}>"

    def __eq__(self, other: object) -> bool:
        """Compare a value with its stored graph, or store it; see `_assert`.

        `capture == snapshot` comes here as well: `Capture.__eq__` returns `NotImplemented`.
        """
        self._refuse_unordered(sys._getframe(1))
        try:
            return self._assert(other)
        finally:
            self._record_pending()

    def __ne__(self, other: object) -> bool:
        """Return True if the stored graph differs; write nothing.

        If no graph is stored, the comparison is recorded as failed.
        """
        self._refuse_unordered(sys._getframe(1))
        update = self.update_snapshots, self.update_new_snapshots_only
        # An update would store the graph that the test expects to differ.
        self.update_snapshots = self.update_new_snapshots_only = False
        try:
            equal = self._assert(other, refused="none, because != stores nothing: compare with ==")
        finally:
            self.update_snapshots, self.update_new_snapshots_only = update
        failed = self.failed
        # If the test expects the difference, the comparison did not fail.
        if failed is not None and not failed.is_new:
            record = self._record
            record.failed = {key: c for key, c in record.failed.items() if c is not failed}
        return not equal

    def _refuse_unordered(self, caller: FrameType) -> None:
        """Refuse an unnamed comparison in a loop or under hypothesis; see `files.refuse_loop`."""
        self._record.used = True
        if self._custom_index is None:
            refuse_hypothesis(self.item)
            try:
                refuse_loop(self._call_sites, self.item, caller)
            except TorchGraphError:
                self._undo_unnamed()
                raise

    def _undo_unnamed(self) -> None:
        """Restore the files of unnamed comparisons, which a loop would number by iteration."""
        record = self._record
        for key, (text, result) in self._unnamed.items():
            result.created = result.updated = result.success = False  # in syrupy's summary
            path = Path(key)
            if text is None or read_text(path) != text:
                write(path, text, root=self.item.config.rootpath)
            if key in record.pending:
                record.pending[key] = record.pending[key][0], None
        record.stored = [entry for entry in record.stored if entry[1] not in self._unnamed]
        record.replaced = [entry for entry in record.replaced if entry[0] not in self._unnamed]

    @property
    def item(self) -> pytest.Item:
        """Test that uses this fixture."""
        return self.test_location.item

    @property
    def _record(self) -> Record:
        return self.item.stash[RECORD]

    def _assert(self, data: Any, *, refused: str = "") -> bool:
        """Compare a value with its stored file, and write the file if this run does.

        Args:
            data: a difference, or any value that `program_of` converts.
            refused: the reason why nothing may be written; "" if it may.
        """
        self.failed = self._pending = None
        # A difference has no pending update: `review` compares and stores graphs.
        if _is_difference(data):
            from .compare import stored_difference

            lookup = self._look_up(stored_difference(data), DIFFERENCE_SUFFIX)
            lookup.result.success = self._assert_difference(data, lookup, refused)
            return lookup.result.success
        from .subject import program_of

        program = program_of(data, self.function)
        text = program.to_text(self._detail, digits=self._digits)
        lookup = self._look_up(text, SUFFIX)
        equal = lookup.result.success = self._assert_program(program, lookup, refused)
        pending = None if equal else self._pending_update(program, lookup)
        self._pending = (lookup.key, lookup.result.snapshot_name, pending)
        return equal

    def _look_up(self, text: str, suffix: str) -> Lookup:
        """Read the stored file of the next comparison, and add it to syrupy's results.

        Args:
            text: the text to store.
            suffix: the suffix of the file, without a dot.
        """
        # Several copies of a snapshot count their comparisons in the list that they share.
        number = self._executions = len(self._execution_results)
        item, index, config = self.item, self.index, settings.get(self.item.config)
        directory = Path(GraphExtension.dirname(test_location=self.test_location))
        files = release_files(
            config.releases,
            lambda release: directory / f"{stem_of(item, index, release, config.rank)}.{suffix}",
        )
        release, path = files.compared
        # Without texts, which syrupy keeps until the session ends: 400 comparisons of 1 MB took
        # 854 MB of memory, without them 41 MB.
        result = self._execution_results[number] = AssertionResult(
            snapshot_location=os.path.abspath(path),
            snapshot_name=stem_of(item, index, rank=config.rank),
            asserted_data=None,
            recalled_data=None,
            created=False,
            updated=False,
            success=False,
            exception=None,
            test_location=self.test_location,
        )
        self._executions += 1
        self._record.compared.append(result.snapshot_location)
        stored = read_text(path)
        writes = self.update_snapshots or (self.update_new_snapshots_only and stored is None)
        # A test writes a file once, because a second graph would overwrite the first.
        if files.own is None or os.path.abspath(files.own) in self._handled:
            writes = False
        lookup = Lookup(result, files, release, stored, text, writes)
        if self._custom_index is None:
            self._unnamed.setdefault(lookup.key, (read_text(Path(lookup.key)), result))
        return lookup

    def _assert_program(self, program: Program, lookup: Lookup, refused: str) -> bool:
        """Let a comparison pass or fail, or write its file.

        Record the outcome for the report of the test: in `Record.failed`, or in `Record.stored`.

        Args:
            program: the captured program.
            lookup: its comparison.
            refused: see `_assert`.

        Returns:
            True if the graphs are equal, or stored now.
        """
        from ..graph.census import describe_python_calls
        from . import summary
        from .compare import same_text, storable

        files, detail = lookup.files, self._detail
        if lookup.may_write and self._next_has_graph(program, files):
            self._remove_redundant_file(lookup)
            return True
        # `same` and `failed` leave three cases: equal texts, equal graphs in another text, and a
        # failed comparison, also of a graph that is not stored yet.
        same = lookup.stored is not None and same_text(lookup.stored, lookup.text)
        failed = None if same else self._compare(program, lookup)
        if failed is not None and not lookup.may_write:
            if refused:
                failed = replace(failed, refused=failed.refused or refused, writes="")
            self.failed = self._record.failed[lookup.location] = failed
            return False
        names = facts = ""
        if failed is None and not same:
            # Equal graphs in another text: rewrite the file only for new names or added facts.
            names, facts = summary.describe_other_text(str(lookup.stored), program, detail)
        if not lookup.may_write:
            # The comparison passed without these facts, so the run must list them.
            if facts:
                facts += " (--torchgraph-update adds them)"
            if facts := describe_python_calls(program.graphs) or facts:
                self._record_outcome("not compared", lookup.location, facts)
            elif self.update_snapshots and files.own is not None:
                self._record_outcome("unchanged", lookup.location)
            return True

        outcome, change = "unchanged", ""
        if failed is not None:
            outcome = "created" if failed.is_new else "updated"
            change = summary.describe(failed, detail)
        elif names:
            outcome, change = "renamed", names
        elif facts:
            outcome, change = "updated", summary.ADDED + facts
        # It was compared with the file of another release, so its own file is new.
        if lookup.release != files.running:
            outcome, change = "created", summary.describe_new_file(lookup.release, files, change)
        text = lookup.text if outcome == "unchanged" else storable(lookup.text)
        self._write(lookup, outcome, text, change)
        if failed is not None and not failed.is_new:
            self._record.replaced.append((lookup.key, failed))
        return True

    def _assert_difference(self, difference: GraphDiff, lookup: Lookup, refused: str) -> bool:
        """Compare a difference with its stored text, or store it; see `stored_difference`.

        Raises:
            AssertionError: if no text is stored, or the texts differ; the latter not with
                `refused`, which is for `!=`.
        """
        from .compare import difference_lines
        from .summary import UPDATE

        stored, text, files = lookup.stored, lookup.text, lookup.files
        equal = stored == text
        if lookup.may_write:
            outcome = "unchanged" if equal else "created" if stored is None else "updated"
            self._write(lookup, outcome, text, difference.heading())
            return True
        if equal or (refused and stored is not None):
            return equal
        path = settings.display_path(self.item.config, Path(lookup.key))
        reason = refused or files.why_not_written()
        remedy = reason or f"to store it: {settings.rerun_command(self.item, UPDATE)}"
        raise AssertionError("\n".join(difference_lines(stored, text, path, remedy)))

    def _next_has_graph(self, program: Program, files: ReleaseFiles) -> bool:
        """Return True if the next release's file stores this graph.

        This release then needs no file of its own.
        """
        if files.next is None:
            return False
        from .compare import is_stored

        text = read_text(files.next[1])
        return text is not None and is_stored(text, program.with_digits(self._digits), self._detail)

    def _remove_redundant_file(self, lookup: Lookup) -> None:
        """Remove this release's file, because the next release's file has the same graph."""
        assert lookup.files.next is not None
        release, file = lookup.files.next
        if read_text(Path(lookup.key)) is not None:
            reason = f"equal to the graph stored for torch {release}"
            self._write(lookup, "removed", None, reason)
        else:
            self._handled.add(lookup.key)
            self._record_outcome("unchanged", os.path.abspath(file))

    def _write(self, lookup: Lookup, outcome: str, text: str | None, change: str) -> None:
        """Write the file of an update, or with `None` remove it, and record the outcome.

        An "unchanged" file is not written, and has no change.
        """
        location = lookup.key
        if outcome == "unchanged":  # the file of another release, for a difference
            location, change = lookup.location, ""
        else:
            try:
                write(Path(lookup.key), text, root=self.item.config.rootpath)
            except OutsideRootError as error:
                self._record_outcome("refused", lookup.key, error.reason)
                raise
            lookup.result.created = outcome == "created"
            lookup.result.updated = outcome in ("updated", "renamed")
        self._handled.add(lookup.key)
        self._record_outcome(outcome, location, change)

    def _record_outcome(self, outcome: str, location: str, change: str = "") -> None:
        """Record for the report what this run did with a file; see `Record.stored`."""
        self._record.compared.append(location)
        self._record.stored.append((outcome, location, change))
        if outcome not in ("unchanged", "not compared"):
            run = self.item.config.pluginmanager.getplugin(PLUGIN)
            run.note(self.item.nodeid, outcome, location, change)

    def _pending_update(self, program: Program, lookup: Lookup, problem: str = "") -> PendingUpdate:
        """Return the update that `--torchgraph-update` would make for a failed comparison."""
        from .pending import PendingUpdate, pending_update

        files = lookup.files
        try:
            text = None if self._next_has_graph(program, files) else lookup.text
            return pending_update(files, lookup.stored, text, problem)
        except TorchGraphError as error:  # the file of another release cannot be read
            return PendingUpdate(Path(lookup.key), None, None, {}, problem, str(error))

    def _record_pending(self) -> None:
        """Record for the report the pending update of a completed comparison."""
        if self._pending is None:
            return
        key, name, pending = self._pending
        pending_updates = self._record.pending
        # If an earlier comparison has the same file, merge both, unless both passed.
        if key in pending_updates and (pending or pending_updates[key][1]):
            from .pending import merge_updates

            pending = merge_updates(pending_updates[key][1], pending)
        pending_updates[key] = name, pending

    def _compare(self, program: Program, lookup: Lookup) -> Comparison | None:
        """Return the failed comparison of the graphs; `None` if they are equal.

        Raises:
            GraphFormatError: for an unreadable stored text that this run does not overwrite.
        """
        from .compare import Comparison, same_flat_text

        config, files = self.item.config, lookup.files
        path = settings.display_path(config, Path(lookup.location))
        writes = settings.display_path(config, Path(lookup.key))
        failed = Comparison(
            program,
            name=lookup.result.snapshot_name,
            path=path,
            writes=writes if writes != path else "",
            refused=files.why_not_written(),
        )
        if lookup.stored is None:
            rank = settings.get(config).rank
            process = (
                f"RANK and WORLD_SIZE are set, so this process is {rank} and has a stored file of "
                "its own"
            )
            problem = "no graph is stored for this comparison yet"
            why = (process,) if rank and not lookup.may_write else ()
            return replace(failed, problem=problem, details=why, is_new=True)
        failed = replace(failed, origin=files.why_compared(lookup.release))
        if same_flat_text(lookup.stored, program.with_digits(self._digits), self._detail):
            return None
        return self._compare_graphs(program, lookup, failed, lookup.stored)

    def _compare_graphs(
        self, program: Program, lookup: Lookup, failed: Comparison, stored: str
    ) -> Comparison | None:
        """Parse the stored text, and compare its graphs; see `_compare`.

        A run that writes the file also fails a comparison if the text is unreadable, or has another
        detail or other digits: so the file is written.

        Args:
            program: the captured program.
            lookup: its comparison.
            failed: the comparison without its difference.
            stored: the stored text.
        """
        from . import summary
        from .compare import compare, parse_stored, read_stored

        if lookup.may_write:
            try:
                old = read_stored(stored)
            except GraphFormatError as error:
                position = f"{error.line}:{error.column}"
                problem = f"cannot read the stored graph ({position}: {error.problem})"
                return replace(failed, problem=problem)
            if old.header.detail != self._detail:
                problem = f"detail {self._detail!r}, was {old.header.detail!r}"
                return replace(failed, problem=problem)
            if old.digits != self._digits and self._detail != "ops":
                words = map(_digits_in_words, (self._digits, old.digits))
                return replace(failed, problem=", was ".join(words))
        else:
            try:
                update = settings.rerun_command(self.item, summary.UPDATE)
                old = parse_stored(stored, failed.path, update)
            except GraphFormatError as error:
                pending = self._pending_update(program, lookup, str(error))
                self._pending = (lookup.key, failed.name, pending)
                raise
        # Round to the digits of the file first: rounding twice may change the last digit.
        current = program.with_digits(old.digits).with_digits(self._digits)
        difference = compare(old, current, self._detail)
        if difference is None:
            return None
        details = difference.details
        if lookup.key in self._handled:
            advice = (
                "this test already stored a different graph in this file: pass "
                "graph_snapshot(name=...)"
            )
            details = (advice, *details)
        return replace(
            failed,
            current=difference.current,
            stored=old,
            problem=difference.problem,
            details=details,
            parts=difference.parts,
        )


def _is_difference(value: object) -> TypeGuard[GraphDiff]:
    from ..graph.diff import GraphDiff

    return isinstance(value, GraphDiff)


def _digits_in_words(digits: int | None) -> str:
    return "exact floats" if digits is None else f"floats with {counted(digits, 'digit')}"
