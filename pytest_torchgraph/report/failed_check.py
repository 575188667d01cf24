"""Pictures of failed checks, and tracebacks that end at the user's line.

Reporting must not change the outcome of a test: an error in this module becomes a line of the
report. Every failure imports this module, even in projects without graphs. So this module does not
import the graph modules.
"""

from __future__ import annotations

import inspect
import opcode
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import TYPE_CHECKING

import pytest

from ..errors import TorchGraphError, make_printable
from ..settings import config as settings
from ..settings.paths import is_below
from ..snapshot.summary import brief
from ..words import first_lines, one_line
from . import artifacts

if TYPE_CHECKING:
    from ..graph.failures import Failure
    from ..graph.model import Graph
    from ..render.dot import Drawing


FAILURES = f"{__package__.rpartition('.')[0]}.graph.failures"
"""Module of `Failure`. Until it is imported, no error can have a `Failure`."""
DIFFERENCES = f"{__package__.rpartition('.')[0]}.graph.diff.findings"
"""Module of `GraphDiff`. Until it is imported, no assertion can show a difference."""
MAX_LINES = 60
"""Maximum lines of a difference in the section."""


def add_picture(item: pytest.Item, report: pytest.TestReport, error: BaseException) -> None:
    """Add a picture of the problem to the report of a failed check.

    Args:
        item: the test.
        report: report of the failed phase.
        error: exception that failed the phase. Ignored if it has no `Failure`.
    """
    if FAILURES not in sys.modules:
        return
    from ..graph.failures import shown_by

    failure = shown_by(error)
    if failure is None:
        return
    try:
        title, graphs, drawing = _drawing(failure)
        path = artifacts.path(item, title, ".svg")
        picture = artifacts.save_picture(item, report, drawing, path, title)
    except Exception as error:
        add_section(report, f"picture: none, {brief(error)}")
        return
    add_section(report, picture.line)
    if settings.get(item.config).report is not None:
        from .page import PICTURES, picture_data

        try:
            data = picture_data(title, graphs, drawing, picture.svg, picture.note)
        except Exception as error:
            add_section(report, f"not in the page of this run: {brief(error)}")
        else:
            item.stash.setdefault(PICTURES, []).append(data)


def add_differences(report: pytest.TestReport, error: BaseException) -> None:
    """Add the full text of each difference in a failed assertion like `assert not diff(a, b)`."""
    if DIFFERENCES not in sys.modules or not isinstance(error, AssertionError):
        return
    from ..graph.diff import GraphDiff

    # pytest's rewritten assertion keeps intermediate values among the locals of the frame.
    differences: dict[int, GraphDiff] = {}
    for frame, _ in walk_tb(error.__traceback__):
        values = (value for value in frame.f_locals.values() if isinstance(value, GraphDiff))
        differences |= {id(value): value for value in values if value}
    for diff in differences.values():
        # The message starts with the `repr` of the difference, truncated to 240 characters. Of a
        # difference that the assertion is not about, nothing is shown.
        if repr(diff)[:100] in str(error):
            add_section(report, *first_lines(str(diff).splitlines(), MAX_LINES))


def add_section(report: pytest.TestReport, *lines: str) -> None:
    """Add a section to a report, with lines that are safe to print."""
    report.sections.append(("torchgraph", "\n".join(map(one_line, lines))))


def _drawing(failure: Failure) -> tuple[str, tuple[Graph, ...], Drawing]:
    """Return the title, the graphs and the drawing of a failure."""
    from ..checks.compilation import UnexpectedBreaks
    from ..graph.failures import UnexpectedOps

    if isinstance(failure, UnexpectedBreaks):
        from ..render.program import drawing_of_breaks

        capture = failure.capture
        forward_graphs = tuple(graph for graph in capture.program if graph.kind != "backward")
        drawing = drawing_of_breaks(
            capture.forwards, capture.breaks, capture.executions, capture.program
        )
        return "graph breaks", forward_graphs, drawing
    assert isinstance(failure, UnexpectedOps)
    from ..render import difference

    drawing = difference.surplus_drawing(failure.graphs, failure.nodes, failure.title)
    return failure.title, tuple(failure.graphs), drawing


_OURS = str(Path(__file__).parents[1])
_RAISE = opcode.opmap["RAISE_VARARGS"]
"""Opcode of a `raise` statement with an exception, and of `assert`."""


def edit_own_error(excinfo: pytest.ExceptionInfo[BaseException], *, hide: bool) -> None:
    """Make the message of an error that this package raised safe to print, and hide our frames.

    The frames are hidden only if `hide` is set, and unless the error may be our own bug:

    - If a `raise` statement of this package raised the error, all frames of this package are
      hidden, and all frames after the last user frame.
    - Any other error may be a bug of this package. Its frames are hidden only up to the last user
      frame or the call of the capture target. Without user code and target, no frame is hidden.
    """
    steps = list(_traceback_steps(excinfo.tb))
    files = [step.tb_frame.f_code.co_filename for step in steps]
    if not any(is_below(file, _OURS) for file in files):
        return
    is_outcome = not isinstance(excinfo.value, Exception)  # of pytest's, such as pytest.fail
    if is_outcome or is_below(files[-1], _OURS) or isinstance(excinfo.value, TorchGraphError):
        make_printable(excinfo.value)
    if is_outcome or not hide:
        return
    users = [number for number, file in enumerate(files) if _is_user_file(file)]
    last_user_frame = users[-1] if users else -1  # then no frame is up to it
    last_target_call = max(
        [last_user_frame, *(number for number, step in enumerate(steps) if _calls_a_target(step))]
    )
    refusal = _is_refusal(excinfo.value, steps[-1])
    for number, (step, file) in enumerate(zip(steps, files, strict=True)):
        code = step.tb_frame.f_code
        if is_below(file, _OURS):
            hidden = refusal or number <= last_target_call
        else:
            hidden = refusal and bool(users) and number > last_user_frame
        # Only in frames of functions: the locals of a module's frame are its globals, not a copy.
        if hidden and code.co_flags & inspect.CO_OPTIMIZED:
            step.tb_frame.f_locals["__tracebackhide__"] = True


def _traceback_steps(step: TracebackType | None) -> Iterator[TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _calls_a_target(step: TracebackType) -> bool:
    """Return True for the frame that calls the target of a capture."""
    if "pytest_torchgraph.mechanisms.step.invocation" not in sys.modules:
        return False
    from ..mechanisms.step import Invocation

    return step.tb_frame.f_code is Invocation.call.__code__


def _is_refusal(error: BaseException, raised: TracebackType) -> bool:
    """Return True if a `raise` statement in this package raised the error."""
    code = raised.tb_frame.f_code
    if not is_below(code.co_filename, _OURS):
        return False
    # Our own `assert` statements have no message.
    is_raised = code.co_code[raised.tb_lasti] == _RAISE and bool(error.args)
    return is_raised or isinstance(error, TorchGraphError)


def _is_user_file(file: str) -> bool:
    """Return True for a file of neither this package nor torch. Do not import torch."""
    # If torch is not imported, no file belongs to torch.
    if not hasattr(sys.modules.get("torch"), "__file__"):
        return not is_below(file, _OURS)
    from ..convert.source_lines import is_user_file

    return is_user_file(file)
