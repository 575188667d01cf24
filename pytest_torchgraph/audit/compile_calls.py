"""Where a test calls `torch.compile`."""

from __future__ import annotations

from types import FrameType
from typing import NamedTuple

from ..convert.source_lines import is_torch_file, is_user_file

_WAYS_IN = ("__init__.py", "_compile.py", "_dynamo", "compiler", "nn/modules/module.py")
"""The files of torch that a call of the user's passes through."""
_RUNNERS = ("_pytest", "pluggy")


class CompileCall(NamedTuple):
    """A call of `torch.compile`.

    Attributes:
        file, function, line: the line of the user's code.
    """

    file: str
    function: str
    line: int


def compile_call(frame: FrameType | None) -> CompileCall | None:
    """The call that a frame of torch is inside of; None where it is no test's.

    That is a use of torch's own, and a decorator that runs while a module is imported.
    """
    call = None
    while frame is not None:
        file = frame.f_code.co_filename
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _RUNNERS:
            break
        if frame.f_code.co_name == "<module>":
            return None
        if call is None and is_torch_file(file):
            if not _is_way_in(file):
                return None
        elif call is None and is_user_file(file):
            call = CompileCall(file, frame.f_code.co_name, frame.f_lineno)
        frame = frame.f_back
    return call


def _is_way_in(file: str) -> bool:
    return any(is_torch_file(file, *way.split("/")) for way in _WAYS_IN)
