"""Parses torch's text of a failed guard, and reads variables without running the user's code.

Dynamo's guards read values in C, without calling properties or `__getattr__`. So do the functions
here: they read attributes with `inspect.getattr_static`, slots, and items of built-in containers.

torch's text has this form; every part except the check is optional:

    0/0: self.calls == 0   # self.calls += 1  # net.py:50 in forward (HINT: make it a tensor)
    User stack trace:
      File "/home/me/net.py", line 50, in forward
        self.calls += 1
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Mapping
from functools import partial
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any, NamedTuple

import torch

from ... import torch_private
from ...convert.source_lines import frames_in

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()
"""Result of a read that would run the user's code, or that fails."""

_OF_MODULES = ("_parameters", "_buffers", "_modules")
"""Dicts of a `torch.nn.Module` whose items look like attributes."""


class _Fields(NamedTuple):
    first: int


_STORED = (MemberDescriptorType, GetSetDescriptorType, type(vars(_Fields)["first"]))
"""Descriptors written in C: of `__slots__`, of built-in types, of the fields of a named tuple."""
_TENSORS = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors whose methods are torch's own."""
_SEQUENCES: Any = (list, tuple)
_WITH_LENGTH = (dict, list, tuple, str, set, frozenset, bytes, range)
_LONGEST = 100_000
"""Number of keys above which `list(dict.keys(...))` is not read."""


def read(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression in a guard's text; `UNKNOWN` if reading it is unsafe.

    Args:
        expression: the expression, such as `self.parts[0].scale`, or `G['SCALE']` for a global.
        names: the local variables, by name, and the global variables as `G`.
    """
    try:
        return _evaluate(ast.parse(expression.strip(), mode="eval").body, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return UNKNOWN


def read_parts(expression: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each part of an expression that can be read, by its text."""
    parts = {}
    with contextlib.suppress(SyntaxError, ValueError):
        nodes: list[Any] = [ast.parse(expression, mode="eval")]
        for node in nodes:
            value = _evaluate(node, names)
            if value is UNKNOWN:
                nodes += ast.iter_child_nodes(node)
            else:
                parts[ast.unparse(node)] = value
    return parts


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(name):
            return names.get(name, UNKNOWN)
        case ast.Attribute(owner, name):
            return attribute(_evaluate(owner, names), name)
        case ast.Subscript(owner, key):
            return _read_item(_evaluate(owner, names), ast.literal_eval(key))
        case ast.Call(ast.Attribute(owner, ("size" | "stride") as kind), []):
            tensor = _evaluate(owner, names)
            return torch_private.shape_of(tensor, kind) if type(tensor) in _TENSORS else UNKNOWN
        case ast.Call(ast.Name(("type" | "len" | "list") as function), [owner]):
            # list(dict.keys(owner))
            value = _evaluate(owner.args[0] if isinstance(owner, ast.Call) else owner, names)
            return UNKNOWN if value is UNKNOWN else _FUNCTIONS[function](value)
    return UNKNOWN


def attribute(value: Any, name: str) -> Any:
    """Return an attribute, `UNKNOWN` if none is stored under this name."""
    if value is UNKNOWN:
        return UNKNOWN
    found = inspect.getattr_static(value, name, UNKNOWN)
    if type(found) in _STORED:
        # A subclass of Tensor may override the descriptors of torch.
        if isinstance(value, torch.Tensor):
            return UNKNOWN
        try:
            return found.__get__(value, type(value))
        except (AttributeError, ValueError):  # an empty slot, or an empty cell
            return UNKNOWN
    if found is UNKNOWN and isinstance(value, MethodType):
        return attribute(value.__func__, name)
    if found is UNKNOWN:
        for container in _OF_MODULES:
            parts = inspect.getattr_static(value, container, None)
            if isinstance(parts, dict) and dict.__contains__(parts, name):
                return dict.get(parts, name)
    is_value = isinstance(found, FunctionType | MethodType | partial)
    # Any other object with `__get__`, such as a property, would run code.
    return found if is_value or not hasattr(type(found), "__get__") else UNKNOWN


def user_function(call: Any) -> Any:
    """Return the function inside decorators, `torch.compiler.disable` and `functools.partial`."""
    for _ in range(20):  # `__wrapped__` may lead back to the function
        if isinstance(call, FunctionType):
            wrapped = vars(call).get("__wrapped__")
            inner = vars(call).get("_torchdynamo_orig_callable", wrapped)
        elif isinstance(call, MethodType | partial):
            inner = call.__func__ if isinstance(call, MethodType) else call.func
        else:
            inner = type(call).__call__ if callable(call) else None
        if inner is None:
            break
        call = inner
    return call


def length(value: Any) -> Any:
    """Return the length of a built-in container, or of an instance of a subclass."""
    kind: Any = next((kind for kind in _WITH_LENGTH if isinstance(value, kind)), None)
    return UNKNOWN if kind is None else kind.__len__(value)


def _keys(value: Any) -> Any:
    is_short = isinstance(value, dict) and dict.__len__(value) <= _LONGEST
    return list(dict.keys(value)) if is_short else UNKNOWN


_FUNCTIONS: dict[str, Any] = {"type": type, "len": length, "list": _keys}


def _read_item(owner: Any, key: Any) -> Any:
    with contextlib.suppress(LookupError, TypeError):
        if isinstance(owner, dict):
            return dict.get(owner, key, UNKNOWN)  # owner[key] would call __missing__
        for kind in _SEQUENCES:
            if isinstance(owner, kind):
                return kind.__getitem__(owner, key)
    return UNKNOWN


_WITH_ID = re.compile(r"\s*(!?\d+(?:/\d+)*):[ ]?(.*)", re.DOTALL)
_STACK = "\nUser stack trace:"
_CHECK = re.compile(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?! # ).)*""", re.DOTALL)
"""Text before a comment. A `#` between spaces, outside a string, begins the comment."""
_NOTE = r" \(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
"""A remark in parentheses, which may contain parentheses."""
_PLACE = re.compile(
    r"(?:(?P<code>.*?)  # )?(?P<file>\S(?:(?!  # ).)*?):(?P<line>\d+) in (?P<function>[^\s;]+)"
    rf"(?P<notes>(?:{_NOTE})*)(?: and )?",
    re.DOTALL,
)
_TORCHS_LINE = re.compile(r"\(([^\s():]+:\d+ in \w+)\)(?!  # )\s*")
"""A line of torch's code, in parentheses."""
_HINT = "(HINT: "
IN_TORCH = "in torch: "
"""Prefix of a hint that is not advice but a line of torch's code."""
_LOCAL = re.compile(r"L\[\s*['\"](.*?)['\"]\s*\]")


class GuardLine(NamedTuple):
    """A line that torch names for a guard.

    Attributes:
        file: path as torch writes it: complete, or only its end.
        line, function: line number, and the enclosing function.
        code: text of the line, "" if torch does not report it.
    """

    file: str
    line: int
    function: str
    code: str


class GuardText(NamedTuple):
    """A guard as torch writes it.

    Attributes:
        compile_id: compilation that the guard belongs to, "" if the text has none.
        check: the condition that has to hold, or that failed.
        lines: lines of the user's code or torch's that created the guard.
        hints: torch's advice and remarks on the lines.
        stack: the user's stack at the line that created it, outermost first.
    """

    compile_id: str
    check: str
    lines: tuple[GuardLine, ...] = ()
    hints: tuple[str, ...] = ()
    stack: tuple[GuardLine, ...] = ()


def parse(text: str) -> GuardText:
    """Parse a guard.

    Args:
        text: torch's text, with or without a leading compile id.
    """
    with_id = _WITH_ID.match(text)
    compile_id, guard_text = (with_id[1], with_id[2]) if with_id else ("", text)
    guard_text, _, stack = guard_text.partition(_STACK)
    before = _CHECK.match(guard_text)
    assert before is not None
    check, is_hint, hint = before[0].partition(_HINT)
    lines, hints = parse_comment(guard_text[before.end() :].removeprefix(" # "))
    if is_hint:
        hints.insert(0, hint.rstrip().removesuffix(")"))
    frames = tuple(GuardLine(*frame) for frame in frames_in(stack))
    return GuardText(compile_id, check.strip(), tuple(lines), tuple(hints), frames)


def without_scope(text: str) -> str:
    """Strip the scope of local variables, as torch's reasons do: `x` for `L['x']`."""
    return _LOCAL.sub(r"\1", text)


def parse_comment(comment: str) -> tuple[list[GuardLine], list[str]]:
    """Return the lines and the hints in the comment of a guard."""
    lines: dict[GuardLine, None] = {}
    hints: list[str] = []
    while comment:
        # Without a line of the user's, torch's line comes first.
        if part := _TORCHS_LINE.match(comment):
            hints.append(f"{IN_TORCH}{part[1]}")
        elif comment[0] != ";" and (part := _PLACE.match(comment)):
            code = (part["code"] or "").strip()
            lines[GuardLine(part["file"], int(part["line"]), part["function"], code)] = None
            for note in re.findall(_NOTE, part["notes"]):
                is_line = _TORCHS_LINE.match(f"({note})")
                hints.append(f"{IN_TORCH}{note}" if is_line else note.removeprefix("HINT: "))
        else:  # ";" separates several guards in one text
            hints += filter(None, [comment.strip("; ")])
            break
        comment = comment[part.end() :]
    return [*lines], hints
