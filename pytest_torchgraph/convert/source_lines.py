"""Source lines of nodes in the user's code, without machine paths."""

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

from ..context import CONTEXT
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
"""Directories of installed packages, including those of a virtual environment's base Python."""

Line = tuple[str, int, str] | tuple[str, int, str, bool]
"""File, number and function of a line that ran, and `Source.direct` if known.

Never store a code object instead: code objects made by Dynamo keep the compiled results alive, and
the garbage collector cannot traverse them.
"""


@functools.lru_cache(maxsize=8192)
def is_user_file(file: str) -> bool:
    """Return True unless a file belongs to torch, the standard library or this package.

    Other installed packages count as user code.
    """
    if file.startswith("<") or is_torch_file(file) or is_own_file(file):
        return False
    return is_below(file, *_INSTALLED) or not is_below(file, *_STDLIB)


def is_own_file(file: str) -> bool:
    """Return True if a file belongs to this package."""
    return is_below(file, _OURS)


def is_torch_file(file: str, *parts: str) -> bool:
    """Return True for files of torch, or of one part of torch: `is_torch_file(file, "nn")`."""
    return is_below(file, str(Path(_TORCH, *parts)))


@functools.lru_cache(maxsize=8192)
def is_torch_module(file: str) -> bool:
    """Return True for files of torch's modules, whose `forward` calls ops."""
    return is_torch_file(file, "nn", "modules")


def torch_file(rest: str) -> str:
    """Return the path of a torch file: `torch_file("nn/modules/dropout.py")`."""
    return str(Path(_TORCH, rest))


def relative(file: str) -> str:
    """Return `file` relative to a known directory, or its bare name.

    Directories are tried in this order: installed packages, the root, the working directory, the
    import path. Separators are `/` on Windows too: baselines are read on other systems.
    """
    here = (CONTEXT.root, str(Path.cwd()), *sorted(sys.path, key=len)[::-1])
    for base in (*_SITE, *filter(None, here)):
        if rest := below(file, base):
            return rest.replace(os.sep, "/")
    return Path(file).name


@functools.lru_cache(maxsize=8192)
def from_stack_trace(text: str, call: str = "") -> Source | None:
    """Return the line of the innermost user frame in a printed stack, `None` if there is none.

    Args:
        text: the stack.
        call: see `Source`.
    """
    called_by_module = False
    for file, line, function, code in reversed(frames_in(text)):
        if is_user_file(file):
            # Dynamo omits the frames of torch's modules from stacks, so check the file as well.
            direct = not called_by_module and is_in_plain_function(file, line)
            return Source(relative(file), line, code, function, call, direct)
        called_by_module = called_by_module or is_torch_module(file)
    return None


@functools.lru_cache(maxsize=8192)
def is_in_plain_function(file: str, line: int) -> bool:
    """Return True if a line is in a function that is not defined in a class body."""
    # Such a forward was patched into a torch class: its module is the instance it is called on.
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
    """Return file, line, function and code of each frame of a printed stack, outermost first."""
    return [
        (file, int(line), function, code.strip())
        for file, line, function, code in _FRAME.findall(text)
    ]


def resumed(function: str) -> tuple[str, int | None]:
    """Return the user's function, and the line where Dynamo resumes it.

    The line is `None` if `function` is not a resume function.

    Args:
        function: a name, e.g. `torch_dynamo_resume_in_forward_at_12`.
    """
    match = _RESUMED.fullmatch(function)
    return (function, None) if match is None else (match[1], int(match[2]))


def innermost(error: BaseException) -> str:
    """Format the innermost line of user code in a traceback, as a line of a message.

    Without user code, use the innermost line in torch.nn; without either, return "".
    """
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    for ours in (is_user_file, lambda file: is_torch_file(file, "nn")):
        for frame in frames:
            if ours(frame.filename):
                return f"\n  at {relative(frame.filename)}:{frame.lineno}: {frame.line}"
    return ""


def current() -> Line | None:
    """Return the innermost running line of user code, or `None`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return line_of(frame)
        frame = frame.f_back
    return None


def line_of(frame: FrameType) -> Line:
    """Return the current line of a frame."""
    code = frame.f_code
    return code.co_filename, frame.f_lineno, code.co_name


@functools.lru_cache(maxsize=8192)
def from_line(file: str, line: int, function: str, direct: bool = False) -> Source:
    """Return the source of a line, with its code; a resume function gets its original name."""
    code = linecache.getline(file, line).strip()
    return Source(relative(file), line, code, original_name(function), direct=direct)


def described(line: Line) -> str:
    """Format a line for messages: file, number, function and code."""
    source = from_line(*line)
    return f"{source} in {source.function} ({source.code})"


def original_name(function: str) -> str:
    """Return the name of the user's function, also for a resume function made by Dynamo."""
    return resumed(function)[0]
