"""Tracebacks as a user needs them: a refusal without our frames, an error of theirs too."""

from __future__ import annotations

import inspect
import opcode
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

from ..errors import TorchGraphError
from ..settings.paths import is_below

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
