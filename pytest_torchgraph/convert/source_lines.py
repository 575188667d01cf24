"""Lines of the user's code that nodes come from, without machine paths."""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

import torch

from ..graph.model import Source
from ..settings.paths import below, is_below

_FRAME = re.compile(
    r'^[ \t]*File "([^"]+)", line (\d+), in ([^\n]+)(?:\n(?![ \t]*File ")[ \t]*([^\n]*))?',
    re.MULTILINE,
)
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(str(sys.modules[__name__.partition(".")[0]].__file__)).parent)
_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_SITE = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_INSTALLED = (
    *_SITE,
    *(str(Path(home, f"{kind}-packages")) for home in _STDLIB for kind in ("site", "dist")),
)
"""Where packages are installed, also those of the Python that a virtual environment was made of."""

Line = tuple[str, int, str] | tuple[str, int, str, bool]
"""File, number and function of a line that ran, and `Source.direct` where that is known.

A code object in its place would be a leak: one that Dynamo made keeps what was compiled with it
alive, and the collector cannot see through it.
"""

_root: list[str] = []
"""The directory that `set_root` was given, if any."""


def set_root(path: str | Path | None) -> None:
    """Set the directory that source files are shown relative to; None means the working one."""
    _root[:] = [] if path is None else [str(path)]


@functools.lru_cache(maxsize=8192)
def is_user_file(file: str) -> bool:
    """Whether a file is of neither torch, the standard library nor this package.

    Other installed packages count as the user's.
    """
    if file.startswith("<") or is_torch_file(file) or is_own_file(file):
        return False
    return is_below(file, *_INSTALLED) or not is_below(file, *_STDLIB)


def is_own_file(file: str) -> bool:
    """Whether a file is of this package."""
    return is_below(file, _OURS)


def is_torch_file(file: str, *parts: str) -> bool:
    """Whether a file is torch's, or in that part of torch: `is_torch_file(file, "nn")`."""
    return is_below(file, str(Path(_TORCH, *parts)))


@functools.lru_cache(maxsize=8192)
def is_torch_module(file: str) -> bool:
    """Whether a file has modules of torch's, whose `forward` calls ops."""
    return is_torch_file(file, "nn", "modules")


def torch_file(rest: str) -> str:
    """The path of a file of torch's: `torch_file("nn/modules/dropout.py")`."""
    return str(Path(_TORCH, rest))


def relative(file: str) -> str:
    """`file` relative to the directory that it is under; its bare name where it is under none.

    With `/` on Windows too: baselines are read on other systems.
    Directories are tried in this order: installed packages, the root, the working directory, the
    import path.
    """
    for base in (*_SITE, *_root, str(Path.cwd()), *sorted(filter(None, sys.path), key=len)[::-1]):
        if rest := below(file, base):
            return rest.replace(os.sep, "/")
    return Path(file).name


@functools.lru_cache(maxsize=8192)
def from_stack_trace(text: str, call: str = "") -> Source | None:
    """Return the line of the innermost user's frame in a printed stack, `None` if there is none.

    Args:
        text: the stack.
        call: see `Source`.
    """
    called_by_module = False
    for file, line, function, code in reversed(frames_in(text)):
        if is_user_file(file):
            # Dynamo leaves the frames of torch's modules out: the stack alone is not enough.
            direct = not called_by_module and is_in_plain_function(file, line)
            return Source(relative(file), line, code, function, call, direct)
        called_by_module = called_by_module or is_torch_module(file)
    return None


@functools.lru_cache(maxsize=8192)
def is_in_plain_function(file: str, line: int) -> bool:
    """Whether a line is in a function that is no method in the body of its class.

    Such a `forward` was put into a class of torch's: its module is the one that it is called on.
    """
    lines = linecache.getlines(file)[:line]
    if not lines:
        return False
    depth = _depth(lines.pop())
    in_function = False
    for text in reversed(lines):
        if not text.strip() or text.lstrip().startswith(("#", ")", "]", "}")):
            continue
        if _depth(text) >= depth:
            continue
        depth = _depth(text)
        if in_function or text.lstrip().startswith("class "):
            return in_function and not text.lstrip().startswith("class ")
        in_function = text.lstrip().startswith(("def ", "async def "))
        if in_function and not depth:
            return True
    return False


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip())


def frames_in(text: str) -> list[tuple[str, int, str, str]]:
    """File, line, function and code of each frame of a printed stack, outermost first."""
    return [
        (file, int(line), function, code.strip())
        for file, line, function, code in _FRAME.findall(text)
    ]


def resumed(function: str) -> tuple[str, int | None]:
    """The user's function, and the line where Dynamo resumes it.

    The line is None for a function that is no resume function.

    Args:
        function: a name, as `torch_dynamo_resume_in_forward_at_12`.
    """
    match = _RESUMED.fullmatch(function)
    return (function, None) if match is None else (match[1], int(match[2]))


def innermost(error: BaseException) -> str:
    """The innermost line of the user's code in a traceback, as a line of a message.

    Where there is none it is the innermost one of torch.nn, and else "".
    """
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    for ours in (is_user_file, lambda file: is_torch_file(file, "nn")):
        for frame in frames:
            if ours(frame.filename):
                return f"\n  at {relative(frame.filename)}:{frame.lineno}: {frame.line}"
    return ""


def current() -> Line | None:
    """The innermost user's line that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return line_of(frame)
        frame = frame.f_back
    return None


def line_of(frame: FrameType) -> Line:
    """The line that a frame is at."""
    code = frame.f_code
    return code.co_filename, frame.f_lineno, code.co_name


@functools.lru_cache(maxsize=8192)
def from_line(file: str, line: int, function: str, direct: bool = False) -> Source:
    """The source of one line, with its code; in a resume function that of the user's function."""
    code = linecache.getline(file, line).strip()
    return Source(relative(file), line, code, original_name(function), direct=direct)


def described(line: Line) -> str:
    """A line as messages name it: file, number, function and code."""
    source = from_line(*line)
    return f"{source} in {source.function} ({source.code})"


def original_name(function: str) -> str:
    """The name of the user's function, also for a resume function that Dynamo made of it."""
    return resumed(function)[0]
