"""Read the right-hand side of a printed statement as the call of an fx node."""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from ...graph.sizes import BINARY
from ...ops.qualified import dotted
from . import callables
from .callables import Unresolved
from .values import PrintedValueReader

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

_NUMBER = re.compile(r"_\d+\Z")


class CallReader:
    """Reader of the calls in one printed module.

    Attributes:
        values: reader of their arguments.
        functions: functions seen so far, by printed name.
    """

    def __init__(self, values: PrintedValueReader):
        self.values = values
        self.functions: dict[str, Any] = {}

    def read(self, value: ast.expr) -> Call:
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
                return "call_function", builtins.getattr, (self.values.value(owner), name), {}
            case ast.Call():
                return self.call(value)
        self.values.fail(value, f"expected a call, found {self.values.text.segment(value)}")

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
            self.values.fail(where, f"unsupported operator: {type(op).__name__}")
        return table[type(op)]

    def operation(self, target: Callable[..., Any], *operands: ast.expr) -> Call:
        """Return the call of an operator."""
        return "call_function", target, tuple([self.values.value(arg) for arg in operands]), {}

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
            return ("call_module", path, *self.values.arguments(call))
        name = dotted(call.func)
        root = name.partition(".")[0]
        if name and (root not in self.values.nodes or "." not in name):
            return ("call_function", self.function(call, name), *self.values.arguments(call))
        if isinstance(call.func, ast.Attribute):
            args, kwargs = self.values.arguments(call)
            owner = self.values.value(call.func.value)
            return "call_method", call.func.attr, (owner, *args), kwargs
        self.values.fail(call, f"unsupported call: {self.values.text.segment(call.func)}")

    def function(self, call: ast.Call, name: str) -> Any:
        """Return the function with a printed name."""
        if name not in self.functions:
            try:
                find = callables.qualified if "." in name else callables.identifier
                function = find(name)
            except LookupError:
                function = self.values.elsewhere(call, name)
            if not callable(function):
                self.values.fail(call, f"{name} is not callable")
            first = self.functions.get(_NUMBER.sub("", name))
            if isinstance(function, Unresolved) and isinstance(first, Unresolved):
                function = first  # fx appends a number to each further use of a local function
            self.functions[name] = function
        return self.functions[name]


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
