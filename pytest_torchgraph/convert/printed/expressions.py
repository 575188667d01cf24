"""Read printed expressions: results (`"f32[4, 1]cpu"`), calls of fx nodes, and their arguments."""

from __future__ import annotations

import ast
import builtins
import enum
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import torch
from torch import fx

from ...graph.model import Atom
from ...graph.sizes import BINARY
from ...ops.dtypes import DTYPE_NAMES
from ...ops.qualified import dotted
from ..canonical_names import PrintedSymbol, PrintedTensor
from . import callables
from .syntax import REPR, PrintedText

_TENSOR = re.compile(r"(\w+)\[([^\[\]]*)\](?:\[([^\[\]]*)\])?([a-z]\w*(?::\d+)?)?")
_SUBCLASS = re.compile(r"[A-Za-z_][\w.]*\((\w+\[.*)\)\Z", re.DOTALL)
_SIZE = re.compile(r"[\w\s+\-*/%(),.<>=&|~!^]+\Z")

_MORE_DTYPES = {
    "b1x8": "bits1x8",
    "b2x4": "bits2x4",
    "b4x2": "bits4x2",
    "b8x1": "bits8",
    "b16x1": "bits16",
}
"""Abbreviations that torch prints for dtypes without an abbreviation in the text form."""


PrintedResult: TypeAlias = "PrintedTensor | PrintedSymbol | tuple[PrintedResult, ...] | None"


def read_result(annotation: str) -> PrintedResult:
    """Return the result described by an annotation.

    Raises:
        ValueError: if the annotation describes no result.
    """
    if annotation.startswith("Sym(") and annotation.endswith(")"):
        return PrintedSymbol(annotation[4:-1])
    wrapped = _SUBCLASS.match(annotation)
    # The fields of a tensor subclass follow the inner tensor, so match only the start.
    match = _TENSOR.match(wrapped[1]) if wrapped else _TENSOR.fullmatch(annotation)
    if match is None:
        raise ValueError(f"{annotation!r} is not a tensor annotation such as 'f32[2, 4]'")
    short, shape, stride, device = match.groups()
    dtype = DTYPE_NAMES.get(short) or _MORE_DTYPES.get(short)
    if dtype is None:
        raise ValueError(f"{short!r} is not a dtype")
    try:
        device_name = None if device is None else str(torch.device(device))
    except RuntimeError:
        raise ValueError(f"{device!r} is not a device") from None
    return PrintedTensor(
        dtype, _sizes(shape), None if stride is None else _sizes(stride), device_name
    )


def _sizes(text: str) -> tuple[str, ...]:
    """Return the sizes in a text, split at commas outside parentheses: `s77, Max(1, s27)`."""
    if not text.strip():
        return ()
    sizes = [""]
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            sizes.append("")
        else:
            sizes[-1] += letter
    stripped = tuple(size.strip() for size in sizes)
    if depth or not all(_SIZE.match(size) for size in stripped):
        raise ValueError(f"[{text}] is not a shape")
    return stripped


_NUMBERS: dict[str, float | complex] = {
    "inf": math.inf,
    "nan": math.nan,
    "infj": complex(0.0, math.inf),
    "nanj": complex(0.0, math.nan),
}
"""Numbers printed as words, which Python parses as names."""
_SYMBOLIC = re.compile(r"(?:s|u|zuf|zf|f|i|b)\d+\Z")
"""Names of symbols."""
_FUNCTIONS_OF_SYMBOLS = frozenset(
    "Max Min Mod PythonMod FloorDiv CeilDiv CleanDiv ModularIndexing Pow PowByNatural Abs Eq Ne "
    "floor ceiling ceil Piecewise Where ToFloat TruncToInt FloorToInt CeilToInt RoundToInt "
    "RoundDecimal IntTrueDiv FloatTrueDiv FloatPow Identity LShift RShift And Or Not sqrt "
    "OpaqueUnaryFn_sqrt OpaqueUnaryFn_log2 TruncToFloat IsNonOverlappingAndDenseIndicator".split()
)
"""Functions of sympy and torch in symbolic expressions."""
_PLACEMENTS = "torch.distributed.tensor.placement_types."
"""Module of `Replicate()`, `Shard(0)` and `Partial()`, which Dynamo prints for a `DTensor`."""
_OBJECT = re.compile(r"<([A-Za-z_][\w.]*) object at 0x[0-9a-f]+>\Z")
_TYPE = re.compile(r"<(?:class|enum) '([\w.]+)'>\Z")
_MEMBER = re.compile(r"<(\w+)\.(\w+): .*>\Z", re.DOTALL)


Call: TypeAlias = tuple[str, Any, tuple[Any, ...], dict[str, Any]]
"""`op`, `target`, `args` and `kwargs` of an fx node."""

UNARY: dict[type[ast.AST], Callable[..., Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
INPLACE: dict[type[ast.AST], Callable[..., Any]] = {
    op: getattr(operator, f"i{function.__name__.rstrip('_')}")  # iadd, iand, ...
    for op, function in BINARY.items()
    if issubclass(op, ast.operator)
}

_CALL_NUMBER = re.compile(r"_\d+\Z")


@dataclass(eq=False)
class ExpressionReader:
    """Reader of the calls in one printed module, and of their arguments.

    Attributes:
        text: the printed text.
        nodes: nodes before the current statement, by printed name.
        functions: functions seen so far, by printed name.
    """

    text: PrintedText
    nodes: Mapping[str, fx.Node]
    functions: dict[str, Any] = field(default_factory=dict)

    def fail(self, node: ast.AST, problem: str) -> NoReturn:
        """Raise the error for the line of a syntax node."""
        raise self.text.error(problem, getattr(node, "lineno", 1))

    # -- calls -----------------------------------------------------------------------------------

    def call_of(self, value: ast.expr) -> Call:
        """Return the call denoted by an expression.

        Raises:
            PrintedGraphError: if fx never prints this form of expression for a node.
        """
        match value:
            case ast.Subscript(owner, key):
                return self.operation(operator.getitem, owner, key)
            case ast.Compare(left, [op], [right]) | ast.BinOp(left, op, right):
                return self.operation(self.operator(BINARY, op, value), left, right)
            case ast.UnaryOp():
                return self.unary(value)
        path = _path_from_self(value)
        if path is not None:
            return "get_attr", path, (), {}
        match value:
            case ast.Attribute(owner, name):
                return "call_function", builtins.getattr, (self.value(owner), name), {}
            case ast.Call():
                return self.call(value)
        self.fail(value, f"expected a call, found {self.text.segment(value)}")

    def operator(
        self, table: dict[type[ast.AST], Callable[..., Any]], op: ast.AST, where: ast.AST
    ) -> Callable[..., Any]:
        """Return the function of the module `operator` for a Python operator.

        Args:
            table: BINARY, UNARY or INPLACE.
            op: the operator.
            where: the expression, which the error names.
        """
        if type(op) not in table:
            self.fail(where, f"unsupported operator: {type(op).__name__}")
        return table[type(op)]

    def operation(self, target: Callable[..., Any], *operands: ast.expr) -> Call:
        """Return the call of an operator."""
        return "call_function", target, tuple([self.value(arg) for arg in operands]), {}

    def unary(self, value: ast.UnaryOp) -> Call:
        """Read `-x`, and `-2 ** x`."""
        # fx prints (-2) ** x as -2 ** x, which Python parses as -(2 ** x).
        inner = value.operand
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Pow):
            base = ast.copy_location(ast.UnaryOp(value.op, inner.left), value)
            base.end_col_offset = inner.left.end_col_offset
            return self.operation(operator.pow, base, inner.right)
        return self.operation(self.operator(UNARY, value.op, value), inner)

    def call(self, call: ast.Call) -> Call:
        """Read a call_function, call_method or call_module."""
        path = _path_from_self(call.func)
        if path is not None:
            return ("call_module", path, *self.arguments(call))
        name = dotted(call.func)
        root = name.partition(".")[0]
        # `x.add(y)` calls a method if x is a node. A name without dots is always a function's.
        if name and (root not in self.nodes or "." not in name):
            return ("call_function", self.function(call, name), *self.arguments(call))
        if isinstance(call.func, ast.Attribute):
            args, kwargs = self.arguments(call)
            owner = self.value(call.func.value)
            return "call_method", call.func.attr, (owner, *args), kwargs
        self.fail(call, f"unsupported call: {self.text.segment(call.func)}")

    def function(self, call: ast.Call, name: str) -> Any:
        """Return the function with a printed name."""
        if name not in self.functions:
            try:
                find = callables.qualified if "." in name else callables.identifier
                function = find(name)
            except LookupError:
                function = self.elsewhere(call, name)
            if not callable(function):
                self.fail(call, f"{name} is not callable")
            first = self.functions.get(_CALL_NUMBER.sub("", name))
            if isinstance(function, callables.Unresolved) and isinstance(
                first, callables.Unresolved
            ):
                function = first  # fx appends a number to each further use of a local function
            self.functions[name] = function
        return self.functions[name]

    # -- arguments -------------------------------------------------------------------------------

    def arguments(self, call: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of a call."""
        kwargs: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                self.fail(keyword.value, "** in a call is not supported")
            kwargs[keyword.arg] = self.value(keyword.value)
        return tuple([self.value(arg) for arg in call.args]), kwargs

    def value(self, node: ast.expr) -> Any:
        """Return the node or constant denoted by an expression."""
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant(value):
                return value
            case ast.Tuple(items):
                return tuple([self.value(item) for item in items])
            case ast.List(items):
                return [self.value(item) for item in items]
            case ast.Dict():
                return self._dict(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.Set():
                self.fail(node, "a set is not supported as an argument")
        number = self._number(node)
        if number is not None:
            return number
        if self._is_symbolic(node):
            return PrintedSymbol(self.text.segment(node))
        self.fail(node, f"unsupported argument: {self.text.segment(node)}")

    def _name(self, node: ast.Name) -> Any:
        """Return what a name denotes. A node hides everything else of its name."""
        if node.id in self.nodes:
            return self.nodes[node.id]
        if node.id in _NUMBERS:
            return _NUMBERS[node.id]
        if node.id == "NoneType":
            return type(None)
        if _SYMBOLIC.match(node.id):
            return PrintedSymbol(node.id)
        try:
            return callables.identifier(node.id)
        except LookupError:
            self.fail(node, f"{node.id} is neither an earlier node nor a known function")

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        items = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                self.fail(node, "** in a dict is not supported")
            name = self.value(key)
            if isinstance(name, list | dict | slice | fx.Node):
                self.fail(key, "a key of a dict is not a constant")
            items[name] = self.value(item)
        return items

    def _attribute(self, node: ast.Attribute) -> Any:
        """Return an object of torch, a member of a loaded enum, or the substitute of an object."""
        path = dotted(node)
        if not path:
            self.fail(node, f"unsupported argument: {self.text.segment(node)}")
        try:
            return callables.qualified(path)
        except LookupError:
            pass
        class_name, name = path.split(".")[-2:]  # an enum's repr has no module
        member = _enum_member(class_name, name)
        return self.elsewhere(node, path) if member is None else member

    def elsewhere(self, node: ast.expr, path: str) -> Any:
        """Return the substitute for an object that only the process that printed the text has."""
        if not path.replace(".", "").isidentifier():
            self.fail(node, f"{path} does not exist in this process")
        return callables.named(path)

    def _call(self, node: ast.Call) -> Any:
        """Return the constant or symbolic expression that a call among the arguments denotes."""
        path = dotted(node.func)
        if path == REPR and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            return self._repr(node, str(node.args[0].value))
        if path in _FUNCTIONS_OF_SYMBOLS and self._is_symbolic(node):
            return PrintedSymbol(self.text.segment(node))
        # So torch prints a tensor among the arguments, without its values.
        if path == "torch.Tensor" and {key.arg for key in node.keywords} == {"size", "dtype"}:
            return Atom("torch.Tensor")
        args, kwargs = self.arguments(node)
        return self._constant_of_call(node, path, args, kwargs)

    def _constant_of_call(
        self, node: ast.Call, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the constant that a call of its type constructs; a collection becomes a tuple."""
        try:
            if path == "slice" and not kwargs:
                return slice(*args)
            if path == "range" and not kwargs:
                return range(*args)
            if path == "complex" and not kwargs:  # torch before 2.15 prints (0.0-1.5j)
                return complex(*args)
            if path in ("device", "torch.device"):
                return torch.device(*args, **kwargs)
        except (TypeError, RuntimeError) as error:
            self.fail(node, f"{path}(...): {error}")
        if path in ("torch.Size", "frozenset", "set") and len(args) == 1:
            return tuple(args[0])
        if self._is_named_tuple(path) and not kwargs:
            return args
        if path.startswith(_PLACEMENTS):
            return Atom(path)
        self.fail(node, f"unsupported argument: a call of {path or 'an expression'}")

    def _is_named_tuple(self, path: str) -> bool:
        """Return True for a named tuple, and for a class that this process does not have.

        A graph keeps the items of a named tuple only, so the class need not be known.
        """
        try:
            cls = callables.qualified(path) if "." in path else callables.identifier(path)
        except LookupError:
            return False
        return hasattr(cls, "_fields") or isinstance(cls, callables.Unresolved)

    def _repr(self, node: ast.AST, text: str) -> Any:
        """Return the constant of a repr that is not valid Python: `<class 'torch.Tensor'>`."""
        typed = _TYPE.match(text)
        if typed:
            printed_class = callables.class_named(typed[1])
            return printed_class if callable(printed_class) else Atom(typed[1])
        instance = _OBJECT.match(text)
        if instance:
            return Atom(instance[1])
        match = _MEMBER.match(text)
        member = _enum_member(match[1], match[2]) if match else None
        if member is None:
            self.fail(node, f"unsupported argument: {text}")
        return member

    # -- numbers and symbols ---------------------------------------------------------------------

    def _number(self, node: ast.expr) -> int | float | complex | None:
        """Return a signed or complex number: `-1.5`, `(1+2j)`, `(-0-infj)`; otherwise `None`."""
        match node:
            case ast.Constant(int() | float() | complex() as number):
                return None if isinstance(number, bool) else number
            case ast.Name(name) if name not in self.nodes:
                return _NUMBERS.get(name)
            case ast.UnaryOp(ast.USub() | ast.UAdd() as op, operand):
                value, sign = self._number(operand), -1 if isinstance(op, ast.USub) else 1
                if isinstance(value, complex):  # -2j is complex(0.0, -2.0)
                    return complex(0.0, sign * value.imag)
                return None if value is None else sign * value
            case ast.BinOp(left, ast.Add() | ast.Sub() as op, right):
                real, imaginary = _signed(left, self._number), self._number(right)
                sign = -1 if isinstance(op, ast.Sub) else 1
                if real is not None and isinstance(imaginary, complex):
                    return complex(real, sign * imaginary.imag)
        return None

    def _is_symbolic(self, node: ast.expr) -> bool:
        """Return True if an expression consists of symbols and numbers, without nodes."""
        symbols = 0
        functions = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and id(part) in functions:
                if part.id not in _FUNCTIONS_OF_SYMBOLS:
                    return False
            elif isinstance(part, ast.Name):
                if part.id in self.nodes or not _SYMBOLIC.match(part.id):
                    return False
                symbols += 1
            elif isinstance(part, ast.Attribute | ast.Subscript | ast.List | ast.Dict):
                return False
        return symbols > 0


def _path_from_self(node: ast.expr) -> str | None:
    """Return `layers.0.weight` for `getattr(self.layers, "0").weight`, `None` without `self`."""
    parts: list[str] = []
    while True:
        match node:
            case ast.Attribute(owner, name):
                pass
            case ast.Call(ast.Name("getattr"), [owner, ast.Constant(str(name))]):
                pass
            case ast.Name("self") if parts:
                return ".".join(reversed(parts))
            case _:
                return None
        parts.append(name)
        node = owner


def _signed(node: ast.expr, number: Callable[[ast.expr], Any]) -> float | None:
    """Return the real part of a complex number with its sign: -0.0 for `(-0-2j)`."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    value = number(node.operand if isinstance(node, ast.UnaryOp) else node)
    if value is None or isinstance(value, complex):
        return None
    return -float(value) if negative else float(value)


def _enum_member(
    class_name: str, member: str, base: type[enum.Enum] = enum.Enum
) -> enum.Enum | None:
    """Return the member of a loaded enum with this bare class name, or `None`."""
    for subclass in base.__subclasses__():
        if subclass.__name__ == class_name and member in subclass.__members__:
            return subclass[member]
        if (nested := _enum_member(class_name, member, subclass)) is not None:
            return nested
    return None
