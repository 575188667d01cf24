"""Which line of the user's code a node comes from, without machine paths."""

from __future__ import annotations

import functools
import linecache
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import CodeType, FrameType

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

_root: list[str] = []


def set_root(path: str | Path | None) -> None:
    """Set the directory that source files are shown relative to; None means the working one."""
    _root[:] = [] if path is None else [str(path)]


@functools.lru_cache(maxsize=8192)
def is_user_file(file: str) -> bool:
    """Whether a file belongs to neither torch, the standard library nor this package."""
    if file.startswith("<") or is_torch_file(file) or is_below(file, _OURS):
        return False
    return is_below(file, *_INSTALLED) or not is_below(file, *_STDLIB)


def is_torch_file(file: str, *parts: str) -> bool:
    """Whether a file is torch's, or in that part of torch: `is_torch_file(file, "nn")`."""
    return is_below(file, str(Path(_TORCH, *parts)))


def relative(file: str) -> str:
    """`file` relative to the root, or to the directory on the import path that it was found in."""
    for base in (*_SITE, *_root, str(Path.cwd()), *sorted(filter(None, sys.path), key=len)[::-1]):
        if rest := below(file, base):
            return rest
    return Path(file).name


@functools.lru_cache(maxsize=8192)
def from_stack_trace(text: str) -> Source | None:
    """The innermost frame outside torch and the standard library in a printed stack."""
    for file, line, function, code in reversed(frames_in(text)):
        if is_user_file(file):
            return Source(relative(file), line, code, function)
    return None


def frames_in(text: str) -> list[tuple[str, int, str, str]]:
    """File, line, function and code of each frame of a printed stack, outermost first."""
    return [
        (file, int(line), function, code.strip())
        for file, line, function, code in _FRAME.findall(text)
    ]


def resumed(function: str) -> tuple[str, int | None]:
    """The user's function, and where Dynamo continues it: None for the function from its start."""
    match = _RESUMED.fullmatch(function)
    return (function, None) if match is None else (match[1], int(match[2]))


def innermost(error: BaseException) -> str:
    """The innermost line of the user's code in a traceback, else of torch.nn's, to be shown."""
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    for ours in (is_user_file, lambda file: is_torch_file(file, "nn")):
        for frame in frames:
            if ours(frame.filename):
                return f"\n  at {relative(frame.filename)}:{frame.lineno}: {frame.line}"
    return ""


def current() -> tuple[CodeType, int] | None:
    """Code and line of the innermost frame outside torch and the standard library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=8192)
def from_line(file: str, line: int, function: str) -> Source:
    """The source of one line, with its code."""
    return Source(relative(file), line, linecache.getline(file, line).strip(), function)


def original_name(function: str) -> str:
    """The name of the user's function, also for the part of it that continues behind a break."""
    return resumed(function)[0]
