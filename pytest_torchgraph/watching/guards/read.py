"""Parses torch's text of a failed guard, and reads variables without running the user's code.

Dynamo's guards read values in C, without calling properties or `__getattr__`. So do the functions
here. They read attributes of the object itself, class attributes that are not descriptors, and
items of built-in containers.

torch's text has this form; every part except the check is optional:

    0/0: self.calls == 0   # self.calls += 1  # net.py:50 in forward (HINT: make it a tensor)
    User stack trace:
      File "/home/me/net.py", line 50, in forward
        self.calls += 1
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping
from functools import partial
from types import CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from ...convert.source_lines import frames_in

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()
"""Result of a read that would run the user's code, or that fails."""

_OF_FUNCTIONS = frozenset({"__code__", "__closure__", "__defaults__", "__kwdefaults__", "__dict__"})
_OF_METHODS = frozenset({"__func__", "__self__"})
_OF_MODULES = ("_parameters", "_buffers", "_modules")
"""Dicts of a `torch.nn.Module` whose items look like attributes."""


class _Fields(NamedTuple):
    first: int


_STORED = (MemberDescriptorType, type(vars(_Fields)["first"]))
"""Descriptors of `__slots__`, and of the fields of a named tuple."""
_KEYS = (str, int, float, bool, bytes, type(None))
_WITH_LENGTH = (dict, list, tuple, str, set, frozenset, bytes, range)
_LONGEST = 100_000
"""Number of keys above which `list(dict.keys(...))` is not read."""


def read(expression: str, local: Mapping[str, Any], global_values: Mapping[str, Any]) -> Any:
    """Return the value of an expression in a guard's text; `UNKNOWN` if reading it is unsafe.

    Args:
        expression: the expression, such as `self.parts[0].scale`, or `G['SCALE']` for a global.
        local: the local variables, by name.
        global_values: the global variables, by name.
    """
    try:
        return _evaluate(ast.parse(expression.strip(), mode="eval").body, local, global_values)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return UNKNOWN


def _evaluate(node: ast.expr, local: Mapping[str, Any], global_values: Mapping[str, Any]) -> Any:
    match node:
        # torch's reasons strip `L[...]` but not `G[...]`, so a local variable may be called G too.
        case ast.Subscript(ast.Name("G"), ast.Constant(str() as name)) if "G" not in local:
            return global_values.get(name, UNKNOWN)
        case ast.Name(name):
            return local.get(name, UNKNOWN)
        case ast.Attribute(owner, name):
            return attribute(_evaluate(owner, local, global_values), name)
        case ast.Subscript(owner, ast.Constant(key)):
            return _read_item(_evaluate(owner, local, global_values), key)
        case ast.Subscript(owner, ast.UnaryOp(ast.USub(), ast.Constant(int() as key))):
            return _read_item(_evaluate(owner, local, global_values), -key)
        case ast.Call(
            ast.Name("list"), [ast.Call(ast.Attribute(ast.Name("dict"), "keys"), [owner], [])], []
        ):
            return _read_keys(_evaluate(owner, local, global_values))
        case ast.Call(ast.Name("type"), [owner], []):
            value = _evaluate(owner, local, global_values)
            return UNKNOWN if value is UNKNOWN else type(value)
    return UNKNOWN


def attribute(value: Any, name: str) -> Any:
    """Return an attribute, `UNKNOWN` if none is stored under this name."""
    if value is UNKNOWN:
        return UNKNOWN
    if name == "__class__":
        return type(value)
    # To avoid running `__getattr__` and properties, read each kind of object where Python stores
    # its attributes.
    if isinstance(value, CellType):
        return value.cell_contents if name == "cell_contents" else UNKNOWN  # ValueError if empty
    if isinstance(value, FunctionType) and name in _OF_FUNCTIONS:
        return getattr(value, name)
    if isinstance(value, MethodType):
        return getattr(value, name) if name in _OF_METHODS else attribute(value.__func__, name)
    if isinstance(value, ModuleType):
        return vars(value).get(name, UNKNOWN)
    if isinstance(value, type):
        return _read_class_attribute(value, name)
    own_dict = own_attributes(value)
    if name == "__dict__":
        return own_dict
    of_class = _read_class_attribute(type(value), name)
    if type(of_class) in _STORED:
        return _read_slot(value, of_class)
    # A property or another data descriptor takes precedence over `__dict__`, but must not be run.
    if of_class is not UNKNOWN and hasattr(type(of_class), "__set__"):
        return UNKNOWN
    if name in own_dict:
        return own_dict[name]
    for container in _OF_MODULES:
        parts = own_dict.get(container)
        if isinstance(parts, dict) and dict.__contains__(parts, name):
            return dict.get(parts, name)
    is_value = isinstance(of_class, FunctionType) or not hasattr(type(of_class), "__get__")
    return of_class if is_value else UNKNOWN


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


def own_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes stored on the object itself."""
    if any(isinstance(vars(kind).get("__dict__"), property) for kind in _read_mro(type(value))):
        return {}
    try:
        # Not `value.__dict__`: a class may define `__getattribute__`.
        own_dict = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own_dict if type(own_dict) is dict else {}


def length(value: Any) -> Any:
    """Return the length of a built-in container, or of an instance of a subclass."""
    kind: Any = next((kind for kind in _WITH_LENGTH if isinstance(value, kind)), None)
    return UNKNOWN if kind is None else kind.__len__(value)


def _read_mro(kind: type) -> tuple[type, ...]:
    order: tuple[type, ...] = type.__getattribute__(kind, "__mro__")
    return order


def _read_class_attribute(kind: type, name: str) -> Any:
    return next((vars(base)[name] for base in _read_mro(kind) if name in vars(base)), UNKNOWN)


def _read_slot(value: Any, slot: Any) -> Any:
    try:
        return slot.__get__(value, type(value))
    except AttributeError:
        return UNKNOWN


def _read_item(owner: Any, key: Any) -> Any:
    if type(key) not in _KEYS:
        return UNKNOWN
    with contextlib.suppress(LookupError):
        if isinstance(owner, dict):
            return dict.get(owner, key, UNKNOWN)  # owner[key] would call __missing__
        if isinstance(owner, list) and type(key) is int:
            return list.__getitem__(owner, key)
        if isinstance(owner, tuple) and type(key) is int:
            return tuple.__getitem__(owner, key)
    return UNKNOWN


def _read_keys(owner: Any) -> Any:
    if not isinstance(owner, dict) or dict.__len__(owner) > _LONGEST:
        return UNKNOWN
    return list(dict.keys(owner))


_WITH_ID = re.compile(r"\s*(!?\d+(?:/\d+)*):[ ]?(.*)", re.DOTALL)
_STACK = "\nUser stack trace:"
_PLACE = re.compile(r"(?:(.*?)  # )?(\S(?:(?!  # ).)*?):(\d+) in ([^\s;]+)", re.DOTALL)
_BARE_PLACE = re.compile(r"(\S+):(\d+) in (\S+)\Z")
_TORCHS_LINE = re.compile(r"\([^\s():]+:\d+ in \w+\)(?!  # )")
"""A line of torch's code, in parentheses."""
_HINT = "HINT: "
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
    check, comment = _split_comment(guard_text)
    check, *trailing = _split_hint(check)
    lines, hints = parse_comment(comment)
    frames = tuple(
        GuardLine(file, line, function, code) for file, line, function, code in frames_in(stack)
    )
    return GuardText(compile_id, check.strip(), tuple(lines), (*trailing, *hints), frames)


def without_scope(text: str) -> str:
    """Strip the scope of local variables, as torch's reasons do: `x` for `L['x']`."""
    return _LOCAL.sub(r"\1", text)


def _split_comment(text: str) -> tuple[str, str]:
    """Split check and comment. A `#` between spaces, outside a string, begins the comment."""
    quote = ""
    for number, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[number - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif text.startswith(" # ", number):
            return text[:number], text[number + 3 :]
    return text, ""


def _split_hint(check: str) -> list[str]:
    """Split off the hint that follows a check without a comment."""
    before, separator, hint = check.partition(f"({_HINT}")
    return [before, hint.rstrip().removesuffix(")")] if separator else [check]


def parse_comment(comment: str) -> tuple[list[GuardLine], list[str]]:
    """Return the lines and the hints in the comment of a guard."""
    lines: list[GuardLine] = []
    hints: list[str] = []
    while comment:
        if _TORCHS_LINE.match(comment):  # not preceded by a line of the user's
            group, comment = _split_group(comment)
            hints.append(_read_note(group))
            comment = comment.lstrip()
            continue
        location = _PLACE.match(comment)
        if location is None or comment.startswith(";"):  # ";" separates several guards in one text
            hints += [comment.strip("; ")] if comment.strip("; ") else []
            break
        line = GuardLine(location[2], int(location[3]), location[4], (location[1] or "").strip())
        lines += [line] if line not in lines else []
        comment = comment[location.end() :]
        while comment.startswith(" ("):
            group, comment = _split_group(comment[1:])
            hints.append(_read_note(group))
        comment = comment.removeprefix(" and ")
    return lines, hints


def _read_note(group: str) -> str:
    """Return the note in parentheses after a line: a hint, a remark, or a line of torch's."""
    if _BARE_PLACE.match(group):
        return f"{IN_TORCH}{group}"
    return group.removeprefix(_HINT)


def _split_group(text: str) -> tuple[str, str]:
    """Split text that begins with "(" into the content of the parentheses and the rest."""
    depth = 0
    for number, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[1:number], text[number + 1 :]
    return text[1:], ""
