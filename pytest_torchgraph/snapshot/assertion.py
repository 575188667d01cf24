"""The `graph_snapshot` fixture: syrupy's assertion and storage, for graphs.

syrupy locates a snapshot, counts and names the comparisons of a test, and reports how many passed.
This package replaces the parts of syrupy that do not work for graphs:

- Comparing: syrupy compares texts. Graphs with different texts are equal if their dataflow is.
- Writing: a file is written immediately and atomically, with every release of syrupy, and also for
  `--torchgraph-update`.
- Errors: syrupy reports an exception as "does not match". Here the exception is raised.
- Memory: syrupy keeps both texts of every comparison until the session ends. Here they are freed.
- Clean-up: `--snapshot-update` deletes the snapshots of tests that did not reach their assertion.
  `hide_from_cleanup` excludes `.tgraph` files.

This module uses private names of syrupy, which are the same in 5.3 to 7: `config._syrupy`, and
`_assert`, `_serialize`, `_custom_index`, `_executions` and `_execution_results` of
`SnapshotAssertion`.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from syrupy.assertion import AssertionResult, SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
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
    """Syrupy's storage for graphs: `__snapshots__/<test file>/<test>[<name>].tgraph`."""

    _write_mode = WriteMode.TEXT
    file_extension = SUFFIX

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: Any = 0) -> str:
        """Return the file name, without suffix, for a comparison of a test."""
        item = test_location.item
        return stem_of(item, index, rank=settings.get(item.config).rank)

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: Any = 0) -> str:
        """Return the file to compare with for the running release of torch."""
        return str(cls.files(test_location, index).compared[1])

    @classmethod
    def files(
        cls, test_location: PyTestLocation, index: str | int, suffix: str = SUFFIX
    ) -> ReleaseFiles:
        """Return all files that may store the graph of a comparison."""
        item, directory = test_location.item, Path(cls.dirname(test_location=test_location))
        config_settings = settings.get(item.config)
        return release_files(
            config_settings.releases,
            lambda release: (
                directory / f"{stem_of(item, index, release, config_settings.rank)}.{suffix}"
            ),
        )

    def read_snapshot_data_from_location(self, *, snapshot_location: str, **_: Any) -> str | None:
        """Return the text of the stored file; `None` if there is no file."""
        return read_text(Path(snapshot_location))

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        """Return True if the texts are equal. Otherwise the graphs are compared later."""
        from .compare import same_text

        return same_text(snapshot_data, serialized_data)


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


class GraphSnapshot(SnapshotAssertion):
    """The stored graphs of one test: `assert capture == graph_snapshot`.

    The file is stored next to the test, for example in
    `__snapshots__/test_net/test_step[cpu].tgraph`. The comparison covers the dataflow (see
    `Graph`). If only names differ, the test passes, and an update rewrites the file. An update also
    rewrites a matching file of an older version that lacks facts. It does not touch any other
    matching file.

    Attributes:
        failed: the last comparison if it failed, else `None`.
        function: the name of the function that the user calls to compare, for messages.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._detail: Detail = "dataflow"
        self._digits = settings.get(self.item.config).digits
        self._program: Program | None = None
        self.failed: Comparison | None = None
        self.function = "graph_snapshot"
        self._pending: tuple[str, str, PendingUpdate | None] | None = None
        self._handled: set[str] = set()
        self._call_sites: set[CallSite] = set()
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
        __tracebackhide__ = True
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
        __tracebackhide__ = True
        self._record.used = True
        self._refuse_unordered(sys._getframe(1))
        if _is_difference(other):
            return self._assert_difference(other)
        try:
            return self._assert(other)
        finally:
            self._record_pending()

    def __ne__(self, other: object) -> bool:
        """Return True if the stored graph differs; write nothing.

        If no graph is stored, the comparison is recorded as failed.
        """
        __tracebackhide__ = True
        self._record.used = True
        self._refuse_unordered(sys._getframe(1))
        if _is_difference(other):
            with self._without_update():
                return not self._assert_difference(other, fails=False)
        with self._without_update():
            equal = self._assert(other)
        if (failed := self.failed) is not None:
            reason = failed.refused or "none, because != stores nothing: compare with =="
            self.failed = replace(failed, refused=reason, writes="")
            # If the test expects the difference, the comparison did not fail.
            record = self._record
            record.failed = {
                key: self.failed if c is failed else c
                for key, c in record.failed.items()
                if c is not failed or failed.is_new
            }
        return not equal

    def _refuse_unordered(self, caller: FrameType) -> None:
        """Refuse an unnamed comparison in a loop or under hypothesis; see `files.refuse_loop`."""
        __tracebackhide__ = True
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
                write(path, text, root=self._root)
            if key in record.pending:
                record.pending[key] = record.pending[key][0], None
        record.stored = [entry for entry in record.stored if entry[1] not in self._unnamed]
        record.replaced = [entry for entry in record.replaced if entry[0] not in self._unnamed]

    @contextmanager
    def _without_update(self) -> Iterator[None]:
        """Return a context in which syrupy writes nothing."""
        update = self.update_snapshots, self.update_new_snapshots_only
        self.update_snapshots = self.update_new_snapshots_only = False
        try:
            yield
        finally:
            self.update_snapshots, self.update_new_snapshots_only = update

    @property
    def item(self) -> pytest.Item:
        """Test that uses this fixture."""
        return self.test_location.item

    @property
    def _record(self) -> Record:
        return self.item.stash[RECORD]

    def _serialize(self, data: Any) -> str:
        return self._current.to_text(self._detail, digits=self._digits)

    @property
    def _current(self) -> Program:
        assert self._program is not None
        return self._program

    def _assert(self, data: Any) -> bool:
        __tracebackhide__ = True
        from .subject import program_of

        self.failed = self._pending = None
        self._program = program_of(data, self.function)
        result, files = self._compare_texts()
        location = os.path.abspath(result.snapshot_location)
        self._record.compared.append(location)
        # syrupy would turn the exception into "does not match".
        error, result.exception = result.exception, None
        try:
            if error is not None:
                raise error
            lookup = Lookup(result, files, self._may_write(result, files))
            if self._custom_index is None:
                self._unnamed.setdefault(lookup.key, (read_text(Path(lookup.key)), result))
            if lookup.may_write and self._next_has_graph(files):
                self._remove_redundant_file(files)
                result.success = True
            else:
                self._decide_outcome(lookup)
            pending = None if result.success else self._pending_update(lookup)
            self._pending = (lookup.key, result.snapshot_name, pending)
            return result.success
        except BaseException:
            result.success = False  # else syrupy would report that the snapshot passed
            raise
        finally:
            self._program = None
            # syrupy keeps each result until the session ends. With both texts, 400 comparisons of 1
            # MB took 854 MB of memory, without them 41 MB.
            result.asserted_data = result.recalled_data = None

    def _compare_texts(self) -> tuple[AssertionResult, ReleaseFiles]:
        """Let syrupy compare the texts. Return its result and the candidate files."""
        number = self._executions = len(self._execution_results)
        files = GraphExtension.files(self.test_location, self.index)
        with self._without_update():
            # Outside an update, syrupy does not write. `_decide_outcome` writes the file.
            super()._assert(self._program)
        return self._execution_results[number], files

    def _decide_outcome(self, lookup: Lookup) -> None:
        """Let a comparison pass or fail, or write its file."""
        __tracebackhide__ = True
        result, files = lookup.result, lookup.files
        failed = None if result.success else self._compare(lookup)
        if failed is not None and not lookup.may_write:
            self.failed = self._record.failed[lookup.location] = failed
            return
        result.success, same_text = True, result.success
        stored = str(result.recalled_data)
        from ..graph.census import describe_python_calls
        from . import summary
        from .compare import storable

        if not lookup.may_write:
            if calls := describe_python_calls(self._current.graphs):
                self._record_outcome("not compared", lookup.location, calls)
            elif self.update_snapshots and files.own is not None:
                self._record_outcome("unchanged", lookup.location)
            elif not same_text:
                # The comparison passed without these facts, so the run must list them.
                names, facts = summary.describe_other_text(stored, self._current, self._detail)
                if facts:
                    change = f"{facts} (--torchgraph-update adds them)"
                    self._record_outcome("not compared", lookup.location, change)
                elif names:
                    self._record_outcome(summary.OLD_NAMES, lookup.location, names)
            return

        outcome, change = "unchanged", ""
        if failed is not None:
            outcome = "created" if failed.is_new else "updated"
            change = summary.describe(failed, self._detail)
        elif not same_text:
            # Equal graphs in another text: rewrite the file only for new names or added facts.
            names, facts = summary.describe_other_text(stored, self._current, self._detail)
            change = names or (f"now includes: {facts}" if facts else "")
            outcome = "renamed" if names else "extended" if facts else outcome
        if lookup.release != files.running:
            outcome, change = "created", summary.describe_new_file(lookup.release, files, change)
        if outcome != "unchanged":
            text = storable(str(result.asserted_data))
            with self._recording_refusal(lookup.key):
                write(Path(lookup.key), text, root=self._root)
            result.created, result.updated = outcome == "created", outcome != "created"
        if failed is not None and not failed.is_new:
            self._record.replaced.append((lookup.key, failed))
        self._handled.add(lookup.key)
        self._record_outcome(outcome, lookup.key, change)

    def _assert_difference(self, difference: GraphDiff, *, fails: bool = True) -> bool:
        """Compare a difference with its stored text, or store it; see `stored_difference`.

        Raises:
            AssertionError: if there is no difference or no text is stored; with `fails`, also if
                the texts differ.
        """
        __tracebackhide__ = True
        from .stored_differences import difference_lines, stored_difference
        from .summary import UPDATE

        text = stored_difference(difference)
        number = self._executions = len(self._execution_results)
        files = GraphExtension.files(self.test_location, self.index, DIFFERENCE_SUFFIX)
        location = os.path.abspath(files.compared[1])
        self._record.compared.append(location)
        stored = read_text(files.compared[1])
        result = AssertionResult(
            snapshot_location=location,
            snapshot_name=stem_of(self.item, self.index),
            asserted_data=None,
            recalled_data=stored,
            created=False,
            updated=False,
            success=stored == text,
            exception=None,
            test_location=self.test_location,
        )
        self._execution_results[number] = result
        self._executions += 1
        may_write = self._may_write(result, files)
        result.recalled_data = None
        if stored == text:
            if may_write:
                self._handled.add(location)
            return True
        path = settings.display_path(self.item.config, files.own or files.compared[1])
        if not may_write and not fails and stored is not None:
            return False
        if not may_write:
            none = "!= stores nothing: compare with =="
            reason = files.why_not_written() if fails else none
            command = settings.rerun_command(self.item, UPDATE)
            remedy = reason or f"to store it: {command}"
            raise AssertionError("\n".join(difference_lines(stored, text, path, remedy)))
        assert files.own is not None
        key = os.path.abspath(files.own)
        with self._recording_refusal(key):
            write(files.own, text, root=self._root)
        result.success, result.created, result.updated = True, stored is None, stored is not None
        self._handled.add(key)
        self._record_outcome("created" if stored is None else "updated", key, difference.heading())
        return True

    def _next_has_graph(self, files: ReleaseFiles) -> bool:
        """Return True if the next release's file stores this graph.

        This release then needs no file of its own.
        """
        if files.next is None:
            return False
        from .compare import is_stored

        text = read_text(files.next[1])
        current = self._current.with_digits(self._digits)
        return text is not None and is_stored(text, current, self._detail)

    def _remove_redundant_file(self, files: ReleaseFiles) -> None:
        """Remove this release's file, because the next release's file has the same graph."""
        assert files.own is not None
        assert files.next is not None
        release, file = files.next
        self._handled.add(os.path.abspath(files.own))
        with self._recording_refusal(os.path.abspath(files.own)):
            removed = write(files.own, None, root=self._root)
        if removed:
            reason = f"equal to the graph stored for torch {release}"
            self._record_outcome("removed", os.path.abspath(files.own), reason)
        else:
            self._record_outcome("unchanged", os.path.abspath(file))

    @property
    def _root(self) -> Path:
        return self.item.config.rootpath

    @contextmanager
    def _recording_refusal(self, location: str) -> Iterator[None]:
        """Record a refusal for the summary if a path leads outside the root directory."""
        __tracebackhide__ = True
        try:
            yield
        except OutsideRootError as error:
            self._record_outcome("refused", location, error.reason)
            raise

    def _record_outcome(self, outcome: str, location: str, change: str = "") -> None:
        """Record for the report what this run did with a file.

        Args:
            outcome: "created", "updated", "renamed", "extended", "removed", "unchanged",
                "refused", "not compared" or `summary.OLD_NAMES`.
            location: the path of the file.
            change: description of the change, or the reason for the refusal, or "".
        """
        self._record.compared.append(location)
        self._record.stored.append((outcome, location, change))
        if outcome not in ("unchanged", "not compared"):
            run = self.item.config.pluginmanager.getplugin(PLUGIN)
            run.note(self.item.nodeid, outcome, location, change)

    def _pending_update(self, lookup: Lookup, problem: str = "") -> PendingUpdate:
        """Return the update that `--torchgraph-update` would make for a failed comparison."""
        from .pending import PendingUpdate, pending_update

        result, files = lookup.result, lookup.files
        try:
            text = None if self._next_has_graph(files) else str(result.asserted_data)
            stored = None if result.recalled_data is None else str(result.recalled_data)
            return pending_update(files, stored, text, problem)
        except TorchGraphError as error:  # the file of another release cannot be read
            return PendingUpdate(Path(lookup.key), None, None, {}, problem, str(error))

    def _record_pending(self) -> None:
        """Record for the report the pending update of a completed comparison."""
        if self._pending is None:
            return
        key, name, pending = self._pending
        pending_updates = self._record.pending
        if key in pending_updates and (pending or pending_updates[key][1]):
            from .pending import merge_updates

            pending = merge_updates(pending_updates[key][1], pending)
        pending_updates[key] = name, pending

    def _may_write(self, result: AssertionResult, files: ReleaseFiles) -> bool:
        """Return True if this run writes the file.

        A test writes a file once, because a second graph would overwrite the first.
        """
        if files.own is None or os.path.abspath(files.own) in self._handled:
            return False
        is_new = result.recalled_data is None
        return self.update_snapshots or (self.update_new_snapshots_only and is_new)

    def _compare(self, lookup: Lookup) -> Comparison | None:
        """Return the failed comparison of the graphs; `None` if they are equal.

        Raises:
            GraphFormatError: for an unreadable stored text that this run does not overwrite.
        """
        __tracebackhide__ = True
        from . import summary
        from .compare import Comparison, compare, parse_stored, read_stored, same_flat_text

        config, result, files = self.item.config, lookup.result, lookup.files
        path = settings.display_path(config, Path(result.snapshot_location))
        own_path = settings.display_path(config, files.own) if files.own is not None else ""
        fields: dict[str, Any] = {
            "name": result.snapshot_name,
            "path": path,
            "writes": own_path if own_path != path else "",
            "refused": files.why_not_written(),
        }
        if result.recalled_data is None:
            details = () if lookup.may_write else self._why_missing()
            problem = "no graph is stored for this comparison yet"
            return Comparison(self._current, None, problem, details, is_new=True, **fields)
        fields["origin"] = files.why_compared(lookup.release)
        stored = str(result.recalled_data)
        if same_flat_text(stored, self._current.with_digits(self._digits), self._detail):
            return None
        if lookup.may_write:
            try:
                program = read_stored(stored)
            except GraphFormatError as error:
                position = f"{error.line}:{error.column}"
                problem = f"cannot read the stored graph ({position}: {error.problem})"
                return Comparison(self._current, None, problem, **fields)
            if program.header.detail != self._detail:
                problem = f"detail {self._detail!r}, was {program.header.detail!r}"
                return Comparison(self._current, None, problem, **fields)
            if program.digits != self._digits and self._detail != "ops":
                words = [_digits_in_words(digits) for digits in (self._digits, program.digits)]
                return Comparison(self._current, None, ", was ".join(words), **fields)
        else:
            try:
                command = settings.rerun_command(self.item, summary.UPDATE)
                program = parse_stored(stored, path, command)
            except GraphFormatError as error:
                pending = self._pending_update(lookup, str(error))
                self._pending = (lookup.key, result.snapshot_name, pending)
                raise
        # Round to the digits of the file first: rounding twice may change the last digit.
        current = self._current.with_digits(program.digits).with_digits(self._digits)
        difference = compare(program, current, self._detail)
        if difference is None:
            return None
        if lookup.key in self._handled:
            advice = (
                "this test already stored a different graph in this file: pass "
                "graph_snapshot(name=...)"
            )
            fields["details"] = (advice, *difference.details)
        return replace(difference, **fields)

    def _why_missing(self) -> tuple[str, ...]:
        rank = settings.get(self.item.config).rank
        process = (
            f"RANK and WORLD_SIZE are set, so this process is {rank} and has a stored file of its "
            "own"
        )
        return (process,) if rank else ()


def _is_difference(value: object) -> TypeGuard[GraphDiff]:
    from ..graph.diff import GraphDiff

    return isinstance(value, GraphDiff)


def _digits_in_words(digits: int | None) -> str:
    return "exact floats" if digits is None else f"floats with {counted(digits, 'digit')}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A comparison with its candidate files and the permission to write.

    Attributes:
        result: syrupy's comparison of the texts.
        files: the files that may store the graph.
        may_write: True if this run stores the graph.
    """

    result: AssertionResult
    files: ReleaseFiles
    may_write: bool

    @property
    def location(self) -> str:
        """Path of the compared file."""
        return os.path.abspath(self.result.snapshot_location)

    @property
    def release(self) -> str:
        """Torch release that the compared file belongs to; "" without `torchgraph_releases`."""
        paths = {os.path.abspath(path): release for release, path in self.files.candidates}
        return paths[self.location]

    @property
    def key(self) -> str:
        """Path that identifies the comparison: the file that an update writes."""
        own_path = self.files.own
        return os.path.abspath(own_path) if own_path is not None else self.location
