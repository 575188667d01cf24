"""`assert_graph_text`: the comparison with a text inside the test, and the update of the source.

The text is that of a stored file without its header. An update notes what is to be written, as
plain data; `inline_update` writes it, in the process that reports.

Tests note what is to be written; their reports bring it to the process that reports, which writes
each file once, at the end. Workers of pytest-xdist write nothing.
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
from ..words import counted
from .files import read_bytes, write_text
from .literals import Edit, SourceFile, applied, call_in, edit_of, literal_of
from .run import RunRecord

if TYPE_CHECKING:
    from ..graph.model import Detail
    from ..graph.program import Program
    from .compare import Comparison


UPDATES: list[list[dict[str, Any]]] = []
"""What the running test is to write, while a run updates: the innermost run is the last."""
UPDATE = "--torchgraph-update"
MAX_LINES = 60
"""The most lines of findings in a message."""
_ORIGIN = re.compile(r"(via|torch|detail) \S")


def assert_graph_text(capture_or_graph: object, text: str, detail: Detail = "dataflow") -> None:
    """Assert that graphs are those that a text in the test describes.

    Indentation, blank lines and the header do not count. `--torchgraph-update` writes the text,
    which must be a literal in the call; it begins as `""`.

    Args:
        capture_or_graph: what `graph_snapshot` compares: a capture, a graph, a torch.fx graph.
        text: the graphs, as a `.tgraph` file has them.
        detail: as of `graph_snapshot`; with "ops" the text has the number of each op.

    Raises:
        AssertionError: if the graphs differ, with the findings.
        GraphFormatError: if the text is empty or malformed.
        TorchGraphError: if an update cannot write the text, with the reason.
    """
    __tracebackhide__ = True
    from ..api.many_ranks import are_ranks
    from .compare import DETAILS
    from .subject import program_of

    if detail not in DETAILS:
        raise ValueError(f"detail must be one of {', '.join(DETAILS)}, not {detail!r}")
    if not isinstance(text, str):
        raise TypeError(f"the text must be a str, not {type(text).__name__}")
    if are_ranks(capture_or_graph):
        raise TypeError(
            "assert_graph_text compares one capture: pass ranks[0], or one of its graphs"
        )
    now = _with_via(program_of(capture_or_graph))
    updates = UPDATES[-1] if UPDATES else None
    try:
        different = _compare(text, now, detail)
    except GraphFormatError:
        if updates is None:
            raise
        matches = False
    else:
        matches = different is None
        if different is not None and updates is None:
            raise AssertionError(_message(different))
    if updates is not None:
        _note(updates, sys._getframe(1), text, None if matches else _lines(now, detail))


def _compare(text: str, now: Program, detail: Detail) -> Comparison | None:
    __tracebackhide__ = True
    from ..graph.text.ranks import parse_text
    from .compare import compare

    lines = [*nested(text)]
    if lines and re.fullmatch(r"torchgraph \d+", lines[0].strip()):
        del lines[0]
        if lines and _ORIGIN.match(lines[0]):
            del lines[0]
    if not lines:
        raise GraphFormatError(f"the text is empty: write it with {UPDATE}", path="<text>")
    body = "\n".join(line if line != "}" else "}\n" for line in lines)
    # A text says all that a newest file says: what it lacks is compared too.
    head = _head(now, detail)
    try:
        stored = parse_text(f"{head}\n\n{body}\n")
    except GraphFormatError as error:
        line, column = _position(text, lines, error, head.count("\n") + 2)
        problem = f"{error.problem}: write the text anew with {UPDATE}"
        raise GraphFormatError(problem, line, column) from None
    return compare(stored, now, detail)


def nested(text: str) -> Iterator[str]:
    """Yield the lines of a text that are not blank, indented by what they are in."""
    depth = 0
    for line in map(str.strip, text.split("\n")):
        depth -= line.startswith(("}", "]"))
        if line:
            yield "  " * max(depth, 0) + line
        depth += line.endswith((" {", "return ["))


def _with_via(now: Program) -> Program:
    """Return a program whose header names a mechanism: a graph has the text of its capture."""
    from ..graph.text.format import VIA_LEVELS

    level = now.graphs[0].level
    via = now.header.via or next(via for via, own in VIA_LEVELS.items() if own == level)
    return replace(now, header=replace(now.header, via=via))


def _head(now: Program, detail: Detail) -> str:
    from ..graph.text.format import FACTS_VERSION

    head = now.to_text(detail).partition("\n\n")[0]
    return re.sub(r"\Atorchgraph \d+", f"torchgraph {FACTS_VERSION}", head)


def _position(text: str, lines: list[str], error: GraphFormatError, header: int) -> tuple[int, int]:
    """Return the line and column in the text of an error in the text as it was parsed."""
    at = error.line - header - 1
    body = "\n".join(line if line != "}" else "}\n" for line in lines).split("\n")
    if not 0 <= at < len(body):
        return 1, 1
    nth = sum(bool(line) for line in body[:at])
    rows = [row for row, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows = rows[len(rows) - len(lines) :]
    row = rows[min(nth, len(rows) - 1)]
    own = text.split("\n")[row - 1]
    shift = len(own) - len(own.lstrip()) - (len(body[at]) - len(body[at].lstrip()))
    return row, error.column + max(shift, 0)


def _lines(now: Program, detail: Detail) -> list[str]:
    body = now.to_text(detail).partition("\n\n")[2]
    return [line for line in body.split("\n") if line.strip()]


def _message(different: Comparison) -> str:
    lines = [f"graphs differ from the text: {_headline(different)}", *different.details]
    told = str(different.diff).splitlines() if different.diff else []
    more = [f"... and {len(told) - MAX_LINES} more lines"] * (len(told) > MAX_LINES)
    return "\n".join([*lines, *told[:MAX_LINES], *more, f"accept:  {_accept()}"])


def _headline(different: Comparison) -> str:
    if different.problem:
        return different.problem
    return different.diff.heading() if different.diff else "the graphs differ"


def _accept() -> str:
    import shlex

    # pytest sets it to the id of the test and its phase.
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return f"python -m pytest {shlex.quote(test) if test else 'FILE'} {UPDATE}"


def _note(
    updates: list[dict[str, Any]], frame: FrameType, text: str, lines: list[str] | None
) -> None:
    """Note what an update writes for the call of a frame.

    Args:
        updates: what the running test is to write.
        frame: the frame that calls.
        text: the text that it passed.
        lines: the new text; `None` if the old one stays.

    Raises:
        TorchGraphError: if the text is no literal in the call, or the file is not what runs.
    """
    __tracebackhide__ = True
    file = Path(os.path.abspath(frame.f_code.co_filename))
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    refused = ""
    try:
        data = read_bytes(file)
        source = SourceFile(data.decode())
        call = call_in(source, frame, assert_graph_text.__name__)
        literal = literal_of(call, 1, "text")
        if literal.value != text:
            raise TorchGraphError("the file changed since it was imported: run again")
        edit = edit_of(source, call, literal, lines or ())
    except (OSError, UnicodeDecodeError) as error:
        refused = f"the source cannot be read as UTF-8: {error}"
    except TorchGraphError as error:
        refused = str(error)
    if refused:
        if lines is None:
            return
        raise TorchGraphError(f"{place}: the text cannot be updated: {refused}")
    updates.append(
        {
            "path": str(file),
            "digest": hashlib.sha256(data).hexdigest(),
            "line": call.lineno,
            "lines": lines,
            "edit": (edit.start, edit.end, edit.text),
        }
    )


def joined(noted: list[dict[str, Any]]) -> Iterator[tuple[Path, list[dict[str, Any]], str]]:
    """Yield a file, the calls in it that get a new text, and why nothing is written; "" if it is.

    One call may run many times, as that of a parametrized test, with one graph.
    """
    files: dict[str, dict[tuple[int, int], list[dict[str, Any]]]] = {}
    for note in noted:
        # A call that matched has the same place; its edit may differ in the end alone.
        calls = files.setdefault(note["path"], {})
        calls.setdefault((note["line"], note["edit"][0]), []).append(note)
    for path, calls in sorted(files.items()):
        changing = {at: every for at, every in calls.items() if any(n["lines"] for n in every)}
        if not changing:
            continue
        refused = ""
        for (line, _), every in sorted(changing.items()):
            if any(note["lines"] != every[0]["lines"] for note in every):
                refused = (
                    f"the call in line {line} got two different graphs: give each its own call, "
                    "or compare with graph_snapshot"
                )
        if len({note["digest"] for every in calls.values() for note in every}) > 1:
            refused = "the file changed while the tests ran: run again"
        yield Path(path), [every[0] for _, every in sorted(changing.items())], refused


PLUGIN = "torchgraph-texts"
_REPORTED = "torchgraph_texts"
"""Attribute of a report with what its test notes."""


class TextUpdates:
    """A plugin of pytest that collects the texts to write, and writes them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._running: list[dict[str, Any]] = []
        self._noted: list[dict[str, Any]] = []
        UPDATES.append(self._running)

    def pytest_unconfigure(self) -> None:
        """End the update: `assert_graph_text` compares again."""
        UPDATES[:] = [noted for noted in UPDATES if noted is not self._running]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Move what a phase noted into its report."""
        report = yield
        vars(report)[_REPORTED] = [*self._running]
        self._running.clear()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what a test noted."""
        self._noted += getattr(report, _REPORTED, ())

    def write(self, run: RunRecord) -> None:
        """Write the files; the record of the run gets what became of each."""
        run.comparing.update(note["path"] for note in self._noted)
        for path, notes, refused in joined(self._noted):
            how, what = "updated", refused or self._written(path, notes)
            if refused or what:
                how = "refused"
                run.end_with_trouble()
            else:
                where = ", ".join(str(note["line"]) for note in notes)
                lines = "line" if len(notes) == 1 else "lines"
                what = f"{counted(len(notes), 'text')} in {lines} {where}"
            run.stored.append((how, str(path), what))

    def _written(self, path: Path, notes: list[dict[str, Any]]) -> str:
        """Write one file; return the reason if that is refused, else ""."""
        try:
            data = read_bytes(path)
            if any(note["digest"] != hashlib.sha256(data).hexdigest() for note in notes):
                return "the file changed while the tests ran: run again"
            text = applied(data.decode(), (Edit(*note["edit"]) for note in notes))
            # A text that is no Python would lose the user's file.
            compile(text.removeprefix("\ufeff"), str(path), "exec", dont_inherit=True)
            write_text(path, text, root=self.config.rootpath)
        except OutsideRootError as error:
            return error.reason
        except (OSError, TorchGraphError, SyntaxError, UnicodeError) as error:
            return str(error)
        return ""


def texts_of(config: pytest.Config) -> Iterator[TextUpdates]:
    """Yield the plugin of a run that updates."""
    plugin = config.pluginmanager.getplugin(PLUGIN)
    if plugin is not None:
        yield plugin
