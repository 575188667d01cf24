"""Pictures of failed checks, and tracebacks that end at the user's line.

Nothing in here may change the outcome of a test: what goes wrong is said in the section. Importing
this module imports no graphs: every failure comes by here, also in projects without graphs.
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

from ..errors import TorchGraphError
from ..settings import config as settings
from ..settings.paths import is_below
from ..snapshot.summary import brief
from . import artifacts

if TYPE_CHECKING:
    from ..graph.failures import Failure
    from ..graph.model import Graph
    from ..render.whole import Drawing


FAILURES = f"{__package__.rpartition('.')[0]}.graph.failures"
"""The module of `Failure`; while nothing has imported it, no error can have one."""
DIFFERENCES = f"{__package__.rpartition('.')[0]}.graph.diff.findings"
"""The module of `GraphDiff`, likewise."""
MAX_LINES = 60
"""How many lines of a difference are shown."""


def add_picture(item: pytest.Item, report: pytest.TestReport, error: BaseException) -> None:
    """Add a picture of what is wrong to the report of a failed check.

    Args:
        item: the test.
        report: the report of the phase that failed.
        error: what it failed with; nothing is added for an error that has no `Failure`.
    """
    if FAILURES not in sys.modules:
        return
    from ..graph.failures import shown_by

    failure = shown_by(error)
    if failure is None:
        return
    from ..render.output.rendering import draw

    try:
        title, graphs, drawing = _drawing(failure)
        path = artifacts.path(item, title, ".svg")
        rendered = draw(drawing.digraph, path)
    except Exception as error:
        line = f"picture: none, {brief(error)}"
        report.sections.append(("torchgraph", line))
        return
    if rendered.renderer is None:
        report.sections.append(("torchgraph", f"picture: none, {rendered.note}"))
        svg = ""
    else:
        shown = settings.shown(item.config, rendered.path)
        report.sections.append(("torchgraph", f"picture: {shown}"))
        svg = rendered.path.read_text(encoding="utf-8")
        artifacts.attach(item, report, rendered.path, title)
    if settings.get(item.config).report is not None:
        from .page.collect import picture_data
        from .page.gather import PICTURES

        try:
            data = picture_data(title, graphs, drawing, svg, rendered.note)
        except Exception as error:
            line = f"not in the page of this run: {brief(error)}"
            report.sections.append(("torchgraph", line))
        else:
            item.stash.setdefault(PICTURES, []).append(data)


def add_differences(report: pytest.TestReport, error: BaseException) -> None:
    """Add the text of each difference that a failed assertion shows, as `assert not diff(a, b)`.

    The rewritten assertion keeps its intermediate values among the locals of the frame, and its
    message begins with the `repr` of the difference, cut at 240 characters.
    """
    if DIFFERENCES not in sys.modules or not isinstance(error, AssertionError):
        return
    from ..graph.diff.findings import GraphDiff

    found: dict[int, GraphDiff] = {}
    for frame, _ in walk_tb(error.__traceback__):
        values = (value for value in frame.f_locals.values() if isinstance(value, GraphDiff))
        found |= {id(value): value for value in values if value}
    for diff in found.values():
        if repr(diff)[:100] in str(error):
            lines = str(diff).splitlines()
            more = [f"... and {len(lines) - MAX_LINES} more lines"] * (len(lines) > MAX_LINES)
            report.sections.append(("torchgraph", "\n".join([*lines[:MAX_LINES], *more])))


def _drawing(failure: Failure) -> tuple[str, tuple[Graph, ...], Drawing]:
    """The title, the graphs and the drawing of what is wrong."""
    from ..checks.compilation import UnexpectedBreaks
    from ..graph.failures import UnexpectedOps

    if isinstance(failure, UnexpectedBreaks):
        from ..render.program import drawing_of_breaks

        of = failure.capture
        drawn = tuple(graph for graph in of.program if graph.kind != "backward")
        drawing = drawing_of_breaks(of.forwards, of.breaks, of.executions, of.program)
        return "graph breaks", drawn, drawing
    assert isinstance(failure, UnexpectedOps)
    from ..render import difference

    drawing = difference.surplus_drawing(failure.graphs, failure.nodes, failure.title)
    return failure.title, tuple(failure.graphs), drawing


_OURS = str(Path(__file__).parents[1])
_RAISE = opcode.opmap["RAISE_VARARGS"]
"""The instruction of a `raise` with an exception."""
_OF_WRONG_ARGUMENTS = (TypeError, ValueError)


def hide_own_frames(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Hide the frames of this package where it refused something, and what it called to do so.

    Of any other error those on the way to the target that is captured, or to other code of the
    user's, are hidden. Behind it, and where there is none, the error may be one of this package,
    and all frames stay.
    """
    if not isinstance(excinfo.value, Exception):  # an outcome of pytest's, such as pytest.fail
        return
    steps = list(_steps(excinfo.tb))
    files = [step.tb_frame.f_code.co_filename for step in steps]
    if not any(is_below(file, _OURS) for file in files):
        return
    users = [number for number, file in enumerate(files) if _is_user_file(file)]
    last = users[-1] if users else -1
    called = max([last, *(number for number, step in enumerate(steps) if _calls_a_target(step))])
    refusal = _is_refusal(excinfo.value, steps[-1])
    for number, (step, file) in enumerate(zip(steps, files, strict=True)):
        code = step.tb_frame.f_code
        if is_below(file, _OURS):
            hidden = refusal or number <= called
        else:
            hidden = refusal and bool(users) and number > last
        # Only of a function are the locals a copy; those of a module are its globals.
        if hidden and code.co_flags & inspect.CO_OPTIMIZED:
            step.tb_frame.f_locals["__tracebackhide__"] = True


def _steps(step: TracebackType | None) -> Iterator[TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _calls_a_target(step: TracebackType) -> bool:
    if "pytest_torchgraph.mechanisms.step.invocation" not in sys.modules:
        return False
    from ..mechanisms.step.invocation import Invocation

    return step.tb_frame.f_code is Invocation.call.__code__


def _is_refusal(error: BaseException, raised: TracebackType) -> bool:
    """Whether this package raised an error by a `raise` of its own."""
    code = raised.tb_frame.f_code
    if not is_below(code.co_filename, _OURS):
        return False
    if isinstance(error, TorchGraphError):
        return True
    return isinstance(error, _OF_WRONG_ARGUMENTS) and code.co_code[raised.tb_lasti] == _RAISE


def _is_user_file(file: str) -> bool:
    """Whether a file is the user's; without torch imported none is torch's."""
    if not hasattr(sys.modules.get("torch"), "__file__"):
        return not is_below(file, _OURS)
    from ..convert.source_lines import is_user_file

    return is_user_file(file)
