"""Source lines of nodes in the user's code, without machine paths."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import torch

from ..context import CONTEXT
from ..graph.model import Source
from ..settings.paths import below, is_below

_FRAME = re.compile(
    r'^[ \t]*File "([^"]+)", line (\d+), in ([^\n]+)'
    r'(?:\n(?![ \t]*File ")[ \t]*([^\n]*)(?:\n {4}( *[~^]+) *$)?)?',
    re.MULTILINE,
)
"""A frame of a printed stack: file, line, function, and if printed, code and carets."""
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(str(sys.modules[__name__.partition(".")[0]].__file__)).parent)
# The first has the modules: "platstdlib" is empty in a virtual environment.
_STDLIB = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_SITE = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_INSTALLED = (
    *_SITE,
    *(str(Path(home, f"{kind}-packages")) for home in _STDLIB for kind in ("site", "dist")),
)
"""Directories of installed packages, including those of a virtual environment's base Python."""

Line = tuple[str, int, str] | tuple[str, int, str, bool, tuple[int, ...]]
"""A line that ran: its file, number and function and, if known, `Source.direct` and columns.

`columns` returns the columns; they count from the start of the line in the file.

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
    """Return True if a file belongs to torch, or to a part of it: `is_torch_file(file, "nn")`."""
    return is_below(file, str(Path(_TORCH, *parts)))


@functools.lru_cache(maxsize=8192)
def is_torch_module(file: str) -> bool:
    """Return True if a file defines modules of torch."""
    return is_torch_file(file, "nn", "modules")


def torch_file(path: str) -> str:
    """Return the path of a torch file: `torch_file("nn/modules/dropout.py")`."""
    return str(Path(_TORCH, path))


def relative(file: str) -> str:
    """Return `file` relative to a known directory, or its bare name.

    Directories are tried in this order: installed packages, the root, the working directory, the
    import path. Separators are `/` on Windows too, because other systems read the baselines.
    """
    # Of nested directories on the import path, the innermost.
    import_roots = (CONTEXT.root, str(Path.cwd()), *sorted(sys.path, key=len)[::-1])
    for base in (*_SITE, *filter(None, import_roots)):
        if relative_path := below(file, base):
            return relative_path.replace(os.sep, "/")
    return Path(file).name


# A path may contain spaces. It begins a text, or follows a quote or `File: `. The bounds keep
# the search linear in texts of strangers.
_TORCH_FILE = re.compile(r'(?:\A|")([^"\n]{1,500})/torch/(?:_dynamo|nn/modules|fx)/')
_STDLIB_FILE = re.compile(
    r'(?:\A|(?<=")|(?<=File: ))/[^"\n]{0,500}?/lib/python3\.\d+/(?!(?:site|dist)-packages/)'
)


def localizer(text: str, default: Callable[[str], str] = str) -> Callable[[str], str]:
    """Return a function that replaces paths of another machine's torch and Python by ours.

    These directories decide whether a line is the user's.

    Args:
        text: a text that may name files of that torch.
        default: the result if it names none.
    """
    match = _TORCH_FILE.search(text)
    if match is None:
        return default
    replaced = {f"{match[1]}/torch/": f"{_TORCH}/"}
    if match[1].endswith("-packages"):
        replaced[f"{match[1]}/"] = f"{_SITE[0]}/"

    def local(text: str) -> str:
        for theirs, ours in replaced.items():
            text = text.replace(theirs, ours)
        return _STDLIB_FILE.sub(lambda _: f"{_STDLIB[0]}/", text)

    return local


@functools.lru_cache(maxsize=8192)
def from_stack_trace(text: str, call: str = "") -> Source | None:
    """Return the line of the innermost user frame in a printed stack, or `None`.

    Args:
        text: the stack.
        call: see `Source`.
    """
    called_by_module = False
    frames = _FRAME.findall(text)
    for file, number, function, code, carets in reversed(frames):
        if is_user_file(file):
            # Dynamo omits the frames of torch's modules from stacks, so also check the function.
            line = int(number)
            direct = not called_by_module and is_in_plain_function(file, line)
            # Dynamo's carets always extend to the end of the line, so use only their start.
            columns = (len(carets) - len(carets.lstrip()),) if carets else ()
            # The called function is not printed, so any line with this word counts.
            calls = [f"{relative(f)}:{n}" for f, n, _, c, _ in frames if "checkpoint" in c]
            code, checkpoint = code.strip(), "".join(calls[-1:])
            return Source(relative(file), line, code, function, call, direct, columns, checkpoint)
        called_by_module = called_by_module or is_torch_module(file)
    return None


@functools.lru_cache(maxsize=8192)
def is_in_plain_function(file: str, line: int) -> bool:
    """Return True if a line is in a function that is not defined in a class body."""
    # A `forward` outside a class was patched into a torch class. Its ops belong to the instance on
    # which it is called.
    lines = linecache.getlines(file)[:line]
    if not lines:
        return False
    indent = _indent(lines.pop())
    in_function = False
    # Outwards: a line with less indentation encloses the line, unless it ends a header of several
    # lines. The first `def` decides, by the line that encloses it.
    for line_text in reversed(lines):
        text = line_text.lstrip()
        if not text or text.startswith(("#", ")", "]", "}")) or _indent(line_text) >= indent:
            continue
        indent = _indent(line_text)
        if in_function or text.startswith("class "):
            return in_function and not text.startswith("class ")
        in_function = text.startswith(("def ", "async def "))
        if in_function and not indent:
            return True
    return False


def definition_at(file: str, line: int) -> tuple[str, int]:
    """Return name and first line of the innermost function around a line; ("", 0) if none."""
    found = "", 0
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return found
    for node in ast.walk(tree):  # outermost first, so the innermost function wins
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= line <= (node.end_lineno or line):
                found = node.name, first
    return found


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


@functools.lru_cache(maxsize=8192)
def expressions(code: str, start: int, call: str) -> tuple[tuple[int, int], ...]:
    """Return (start, end) columns of the expressions that start in a column and make a call.

    There may be several, sorted by end: all calls in a chain of methods start in the same column.

    Args:
        code: a line of code.
        start: the column.
        call: name of the call in Dynamo's graph, without its number.
    """
    try:
        # The head of a statement, such as `if f(x):`, is no Python without a body.
        tree = ast.parse(f"{code} pass" if code.endswith(":") else code)
    except (SyntaxError, ValueError):  # a line of a longer statement
        return ()
    starting_here = [
        (node, (start, int(node.end_col_offset or 0)))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp | ast.Subscript | ast.Compare)
        and (node.lineno, node.col_offset) == (1, start)
    ]
    named = [columns for node, columns in starting_here if call in _call_names(node)]
    if not named and len(starting_here) == 1:
        return (starting_here[0][1],)
    return tuple(sorted(named))


def _call_names(node: ast.AST) -> tuple[str, ...]:
    """Return the names that Dynamo may give to the call of an expression."""
    if isinstance(node, ast.Call):
        return (getattr(node.func, "attr", getattr(node.func, "id", "")),)
    operator = type(getattr(node, "op", None)).__name__.lower()
    return operator, operator.removesuffix("t"), f"true{operator}"  # mult is mul, div is truediv


def frames_in(text: str) -> list[tuple[str, int, str, str]]:
    """Return file, line, function and code of each frame of a printed stack, outermost first."""
    return [
        (file, int(line), function, code.strip())
        for file, line, function, code, _ in _FRAME.findall(text)
    ]


def innermost(error: BaseException) -> str:
    """Format the innermost line of user code in a traceback, as a line of a message.

    Without user code, format the innermost line in torch.nn. Without either, return "".
    """
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    for is_wanted in (is_user_file, lambda file: is_torch_file(file, "nn")):
        for frame in frames:
            if is_wanted(frame.filename):
                return f"\n  at {relative(frame.filename)}:{frame.lineno}: {frame.line}"
    return ""


def callers(frame: FrameType | None, end: CodeType | None = None) -> Iterator[FrameType]:
    """Yield a frame and its callers, innermost first, up to a frame of the code `end`."""
    # By identity, because Dynamo's code can have slices among its constants, which have no hash.
    while frame is not None and frame.f_code is not end:
        yield frame
        frame = frame.f_back


def user_frames(frame: FrameType | None, end: CodeType | None = None) -> Iterator[FrameType]:
    """Yield the frames of `callers` that run user code."""
    return (caller for caller in callers(frame, end) if is_user_file(caller.f_code.co_filename))


def current_line(inside: CodeType | None = None) -> Line | None:
    """Return the innermost running line of user code, or `None`.

    Args:
        inside: the code of a function. Lines of its callers are ignored, and all lines if it is not
            running.
    """
    line: Line | None = None
    direct = True
    # Not by `callers`: this runs for each recorded op, and a generator took 4% of a capture.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is inside:
            return line
        if line is None:
            file = code.co_filename
            if is_user_file(file):
                line = *line_of(frame), direct, columns(code, frame.f_lasti)
                if inside is None:
                    return line
            direct = direct and not is_torch_module(file)
        frame = frame.f_back
    return None


def line_of(frame: FrameType) -> tuple[str, int, str]:
    """Return the current line of a frame."""
    code, line = frame.f_code, frame.f_lineno
    if line == code.co_firstlineno:
        # Dynamo's own instructions have the line of the `def`: take the next line of the function.
        ends = ((end, following) for _, end, following in code.co_lines() if following != line)
        line = next((n for end, n in ends if n is not None and end > frame.f_lasti), line)
    return code.co_filename, line, code.co_name


def columns(code: CodeType, instruction: int) -> tuple[int, ...]:
    """Return the start and end column of an instruction's expression; `()` if unknown.

    Args:
        code: the code of a frame.
        instruction: the frame's `f_lasti`.
    """
    try:
        return _columns(code, instruction)
    except TypeError:  # Dynamo's code can have slices and dicts among its constants
        return ()


# `co_positions` reads from the start of the code, which takes 29 us at the end of BERT's forward.
# A lookup in the cache takes 0.3 us.
@functools.lru_cache(maxsize=8192)
def _columns(code: CodeType, instruction: int) -> tuple[int, ...]:
    return tuple(column for column in position(code, instruction)[2:] if column is not None)


def position(code: CodeType, instruction: int) -> tuple[int | None, ...]:
    """Return first line, last line, start and end column of an instruction; `()` if unknown."""
    if not hasattr(code, "co_positions"):  # Python 3.10
        return ()
    return next(itertools.islice(code.co_positions(), instruction // 2, None), ())


@functools.lru_cache(maxsize=8192)
def from_line(
    file: str, line: int, function: str, direct: bool = False, columns: tuple[int, ...] = ()
) -> Source:
    """Return the source of a line, with its code and, for a resume function, the original name.

    Args:
        file, line, function, direct, columns: see `Line`.
    """
    text = linecache.getline(file, line)
    code, indent = text.strip(), _indent(text)
    columns = tuple(column - indent for column in columns)
    # Python prints no carets below an expression that is the whole line.
    columns = () if columns == (0, len(code)) else columns
    name = original_name(function)
    return Source(relative(file), line, code, name, direct=direct, columns=columns)


def source_of(line: Line | None) -> Source | None:
    """Return the source of a line, `None` without a line."""
    return None if line is None else from_line(*line)


def format_line(line: Line) -> str:
    """Format a line for messages: file, number, function and code."""
    source = from_line(*line)
    return f"{source} in {source.function} ({source.code})"


def at_line(line: Line | None, word: str = "at") -> str:
    """Format a line as the end of a clause, "" without a line."""
    return "" if line is None else f" {word} {format_line(line)}"


def original_name(function: str) -> str:
    """Return the name of a function; for a resume function, the name of the user's function."""
    match = _RESUMED.fullmatch(function)
    return function if match is None else match[1]
