"""`assert_graph_text`: compare graphs with a text inside the test, and update that text.

The text is that of a stored file without the header. In an update, each call records its edit as
plain data in the report of its test. At the end of the run, `TextUpdates` writes each source file
once, in the process that reports: under pytest-xdist, workers write nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import GraphFormatError, OutsideRootError, TorchGraphError
from ..files import read_bytes, write
from ..words import counted, first_lines, grouped
from .literals import Edit, SourceFile, apply_edits, call_in, edit_of, literal_of
from .run import RunRecord

if TYPE_CHECKING:
    from ..graph.model import Detail
    from ..graph.program import Program
    from .compare import Comparison


UPDATES: list[list[dict[str, Any]]] = []
"""Edits of the running test. A run that updates has a list here; the innermost run is last."""
UPDATE = "--torchgraph-update"
EMPTY = "no graph is stored in this call yet: the text is empty"
FAILED = "torchgraph_text"
"""Attribute of an `AssertionError` from `assert_graph_text` that holds its `Comparison`."""
CHANGED = "the file changed while the tests ran: run the tests again"
MAX_LINES = 60
"""Maximum number of lines of findings in a message."""
_ORIGIN = re.compile(r"(via|torch|detail) \S")


def assert_graph_text(capture_or_graph: object, text: str, detail: Detail = "dataflow") -> None:
    """Assert that graphs match a text in the test.

    Indentation, blank lines and the header are ignored. Start with `""`:
    `--torchgraph-update` writes the text, which must be a literal in the call.

    Args:
        capture_or_graph: any value that `graph_snapshot` compares: a capture, a graph, a torch.fx
            graph.
        text: the graphs, in the format of a `.tgraph` file.
        detail: see `graph_snapshot`; with "ops" the text contains the count of each op.

    Raises:
        AssertionError: if the graphs differ, with the findings; if the text is empty.
        TypeError: if `capture_or_graph` or `text` has another type.
        ValueError: if `detail` is unknown.
        GraphFormatError: if the text is malformed.
        TorchGraphError: if an update cannot write the text, with the reason.
    """
    from ..api.many_ranks import are_ranks
    from .compare import DETAILS
    from .subject import program_of

    if detail not in DETAILS:
        raise ValueError(f"detail must be one of {', '.join(DETAILS)}, not {detail!r}")
    if not isinstance(text, str):
        raise TypeError(f"the text must be a str, not {type(text).__name__}")
    if are_ranks(capture_or_graph):
        raise TypeError(
            "assert_graph_text cannot compare ranks: pass ranks[0], or one of its graphs"
        )
    now = _with_via(program_of(capture_or_graph, assert_graph_text.__name__))
    updates = UPDATES[-1] if UPDATES else None
    # In an update, any text that does not match is edited, also one that cannot be parsed.
    try:
        comparison = _compare(text, now, detail)
    except GraphFormatError:
        if updates is None:
            raise
        matches = False
    else:
        matches = comparison is None
        if comparison is not None and updates is None:
            error = AssertionError(_message(comparison))
            setattr(error, FAILED, comparison)
            raise error
    # A match is recorded too: another run of the call may not match, which `merge_edits` refuses.
    if updates is not None:
        _record_edit(updates, sys._getframe(1), text, None if matches else _lines(now, detail))


def _compare(text: str, now: Program, detail: Detail) -> Comparison | None:
    """Compare graphs with a text; `None` for a match.

    The text is parsed with the header of the captured program in place of its own, and with the
    indentation of a file. `parsed` has each line with its row in `text`, 0 for an added line.

    Raises:
        GraphFormatError: for a malformed text, with the line and column in `text`.
    """
    from ..graph.text import parse_text
    from .compare import Comparison, compare

    lines = [*nested(text)]
    if lines and re.fullmatch(r"torchgraph \d+", lines[0][1].strip()):
        del lines[0]
        if lines and _ORIGIN.match(lines[0][1]):
            del lines[0]
    if not lines:
        return Comparison(now, problem=EMPTY, is_new=True)
    # Parse with the newest version: facts missing from the text are compared too.
    parsed = [(0, line) for line in now.to_text(detail).partition("\n\n")[0].split("\n")]
    parsed.append((0, ""))
    for row, line in lines:
        parsed += [(row, line), *[(row, "")] * (line == "}")]  # a blank line after each graph
    try:
        stored = parse_text("".join(f"{line}\n" for _, line in parsed))
    except GraphFormatError as error:
        problem = f"{error.problem}. Correct the text, or rewrite it with {UPDATE}"
        # An error at the end of the text may be on the line after its last one.
        row, line = parsed[min(error.line, len(parsed)) - 1]
        if not row:
            raise GraphFormatError(problem) from None
        written = text.split("\n")[row - 1]
        shift = _indentation(written) - _indentation(line)
        raise GraphFormatError(problem, row, error.column + max(shift, 0)) from None
    return compare(stored, now, detail)


def nested(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each non-blank line of a text, and the line indented by its depth."""
    # `least` is the depth below which no line is, once the last part of a document has begun.
    depth, least = 0, 0
    for row, line in enumerate(map(str.strip, text.split("\n")), 1):
        depth -= line.startswith(("}", "]"))
        if line:
            yield row, "  " * max(depth, least) + line
            least = least or int(line == "links")  # the lines after it have no braces
        depth += line.endswith((" {", "return ["))


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _with_via(now: Program) -> Program:
    """Add a mechanism to the header of a single graph, so that its text equals a capture's."""
    from ..graph.text import VIA_LEVELS

    level = now.graphs[0].level
    # The first mechanism whose graphs have this level.
    via = now.header.via or next(
        via for via, level_of_via in VIA_LEVELS.items() if level_of_via == level
    )
    return replace(now, header=replace(now.header, via=via))


def _lines(now: Program, detail: Detail) -> list[str]:
    """Return the lines to write into a test: those of a stored file without the header."""
    from .compare import storable

    body = storable(now.to_text(detail)).partition("\n\n")[2]
    return [line for line in body.split("\n") if line.strip()]


def _message(comparison: Comparison) -> str:
    """Return the message of a failed comparison: the problem, then the findings."""
    if comparison.is_new:
        return comparison.problem
    diff = comparison.diff
    # The text of a difference begins with its heading, which is then the problem already.
    problem = comparison.problem or (diff.heading() if diff else "the graphs differ")
    lines = [f"graphs differ from the text: {problem}", *comparison.details]
    finding_lines = str(diff).removeprefix(f"{problem}\n").splitlines() if diff else []
    return "\n".join([*lines, *first_lines(finding_lines, MAX_LINES)])


def _record_edit(
    updates: list[dict[str, Any]], frame: FrameType, text: str, lines: list[str] | None
) -> None:
    """Record the edit that an update makes for a frame's call.

    Args:
        updates: the list of the running test's edits.
        frame: the calling frame.
        text: the text passed to the call.
        lines: the new text; `None` to keep the old text.

    Raises:
        TorchGraphError: if the text is not a literal in the call, or if the file changed after it
            was imported.
    """
    file = Path(os.path.abspath(frame.f_code.co_filename))
    location = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    refused = ""
    try:
        data = read_bytes(file)
        source = SourceFile(data.decode())
        call = call_in(source, frame, assert_graph_text.__name__)
        literal = literal_of(call, 1, "text")
        if literal.value != text:
            raise TorchGraphError("the file changed after it was imported: run the test again")
        edit = edit_of(source, literal, lines or ())
    except (OSError, UnicodeDecodeError) as error:
        refused = f"cannot read the source as UTF-8 ({file.name}): {error}"
    except TorchGraphError as error:
        refused = str(error)
    if refused:
        # The text matches, so the call needs no edit.
        if lines is None:
            return
        raise TorchGraphError(f"{location}: cannot update the text: {refused}")
    updates.append(
        {
            "path": str(file),
            "digest": hashlib.sha256(data).hexdigest(),
            "line": call.lineno,
            "start": edit.start,
            "end": edit.end,
            "text": None if lines is None else edit.text,
        }
    )


def merge_edits(edits: list[dict[str, Any]]) -> Iterator[tuple[Path, list[dict[str, Any]], str]]:
    """Yield each file to change, its calls with a new text, and the reason for a refusal or "".

    A call may run many times, for example in a parametrized test. All runs must have one graph. If
    not, the call is yielded apart, as a refusal without calls.
    """
    for path, of_file in sorted(grouped((edit["path"], edit) for edit in edits).items()):
        # Keyed by the start of the edit: its end depends on whether the text matched.
        calls = grouped((edit["start"], edit) for edit in of_file)
        changing = []
        for _, same_call in sorted(calls.items()):
            by_text = grouped((edit["text"], edit) for edit in same_call)
            first, *others = (same_text[0] for same_text in by_text.values())
            if others:
                tests = " and ".join(dict.fromkeys(edit["test"] for edit in (first, *others[:1])))
                refusal = (
                    f"the call on line {first['line']} got two different graphs in {tests}: write "
                    "a separate call for each graph, or store the graphs in files, with "
                    "graph_snapshot or assertGraph"
                )
                yield Path(path), [], refusal
            elif first["text"] is not None:
                changing.append(first)
        if changing:
            # The positions of edits in two states of a file do not fit together.
            is_mixed = len({edit["digest"] for edit in of_file}) > 1
            yield Path(path), changing, CHANGED if is_mixed else ""


PLUGIN = "torchgraph-texts"
_REPORTED = "torchgraph_texts"
"""Attribute of a report with the edits that its test recorded."""


class TextUpdates:
    """Plugin that collects the edits of all tests and writes them.

    `assert_graph_text` appends to `_edits_of_phase`, through `UPDATES`. Reports take the edits from
    there, and bring them into `_edits`, under pytest-xdist those of the controller.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._edits_of_phase: list[dict[str, Any]] = []
        self._edits: list[dict[str, Any]] = []
        UPDATES.append(self._edits_of_phase)

    def pytest_unconfigure(self) -> None:
        """End the update, so that `assert_graph_text` compares again."""
        UPDATES[:] = [updates for updates in UPDATES if updates is not self._edits_of_phase]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Move the edits of a phase into its report."""
        report = yield
        vars(report)[_REPORTED] = [*self._edits_of_phase]
        self._edits_of_phase.clear()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the edits of a test, with its id."""
        edits = getattr(report, _REPORTED, ())
        self._edits += [{**edit, "test": report.nodeid} for edit in edits]

    def write(self, run: RunRecord) -> None:
        """Write the files, and add the outcome of each file to the record of the run."""
        run.comparing.update(note["path"] for note in self._edits)
        for path, notes, refused in merge_edits(self._edits):
            outcome, detail = "updated", refused or self._write_file(path, notes)
            if detail:  # why nothing was written
                outcome = "refused"
                run.end_with()
            else:
                line_numbers = ", ".join(str(note["line"]) for note in notes)
                lines = "line" if len(notes) == 1 else "lines"
                detail = f"{counted(len(notes), 'text')} on {lines} {line_numbers}"
            run.stored.append((outcome, str(path), detail))

    def _write_file(self, path: Path, notes: list[dict[str, Any]]) -> str:
        """Write one file; return the reason for a refusal, else ""."""
        try:
            data = read_bytes(path)
            # An edit is a range of characters. If the file was saved during the run, the range
            # would cover other code.
            if any(note["digest"] != hashlib.sha256(data).hexdigest() for note in notes):
                return CHANGED
            edits = (Edit(note["start"], note["end"], note["text"]) for note in notes)
            text = apply_edits(data.decode(), edits)
            # Compile first: writing invalid Python would destroy the user's file.
            compile(text.removeprefix("\ufeff"), str(path), "exec", dont_inherit=True)
            write(path, text, root=self.config.rootpath)
        except OutsideRootError as error:
            return error.reason
        except (OSError, TorchGraphError, SyntaxError, UnicodeError) as error:
            return str(error)
        return ""
