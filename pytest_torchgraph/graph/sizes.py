"""Values for the symbols of graphs, to compute figures that depend on symbolic sizes."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from .model import Arg, Graph, Node, Result, Symbol, TensorMeta, map_arg

Number: TypeAlias = Any
"""Value of an expression or of a part of it: an int, a float, a bool or a `Fraction`."""
MAX_BITS = 4096
"""Maximum size in bits of a computed power or shift."""


class UnknownExpression(Exception):
    """Raised for an expression with an unknown part, such as a symbol without a value."""


def value_of(expr: str, values: Mapping[str, int]) -> Number:
    """Return the value of an expression. A fraction that is a whole number becomes an int.

    Args:
        expr: the expression.
        values: values of the symbols, by name.

    Raises:
        UnknownExpression: for a symbol that is not in `values`, an unknown form or function, or an
            undefined value such as a division by zero.
    """
    try:
        value = _evaluate(_parse(expr), values)
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError) as e:
        reason = e.msg if isinstance(e, SyntaxError) else e
        raise UnknownExpression(f"cannot compute the size {expr!r}: {reason}") from e
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value


@lru_cache(maxsize=4096)
def _parse(expr: str) -> ast.expr:
    return ast.parse(expr.strip(), mode="eval").body


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> Number:
    """Return the value of a parsed expression. `value_of` converts what this raises."""
    match node:
        case ast.Constant(int() | float() as number):
            return number
        case ast.Name(name):
            if name in values:
                return values[name]
            raise ValueError(f"unknown symbol {name!r} (known: {', '.join(values) or 'none'})")
        case ast.UnaryOp(op, operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_evaluate(operand, values))
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]) if type(op) in _BINARY:
            return _BINARY[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_evaluate(argument, values) for argument in arguments))
    raise ValueError(
        f"{ast.unparse(node)!r} is not supported: use numbers, symbols, arithmetic and single "
        "comparisons"
    )


def _divide(left: Number, right: Number) -> Number:
    """Return a quotient, exact unless an operand is a float: `(s0/2)*2` stays an int."""
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    return Fraction(left) / Fraction(right)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) or isinstance(exponent, float):
        return float(base) ** float(exponent)
    if Fraction(exponent).denominator != 1 or abs(exponent) * _bits(base) > MAX_BITS:
        raise ValueError(f"{base}**{exponent} is too large, or not a rational number")
    return Fraction(base) ** int(exponent)


def _shift_left(left: Number, right: Number) -> Number:
    if right > MAX_BITS:
        raise ValueError(f"{left} << {right} is too large")
    return int(left) << int(right)


def _bits(value: Number) -> int:
    fraction = Fraction(value)
    return max(fraction.numerator.bit_length(), fraction.denominator.bit_length())


def _modulo(left: Number, right: Number) -> Number:
    """Return the remainder with the sign of the divisor, as Python and sympy define it."""
    return left - right * (left // right)


_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.not_,  # sympy prints "not" as `~`
}
BINARY: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
}
"""The functions of Python's binary operators and comparisons."""
_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    **{op: function for op, function in BINARY.items() if op not in (ast.BitXor, ast.MatMult)},
    ast.Div: _divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.LShift: _shift_left,
    ast.RShift: lambda left, right: int(left) >> int(right),
    ast.BitAnd: lambda left, right: bool(left) and bool(right),  # sympy prints "and" as `&`
    ast.BitOr: lambda left, right: bool(left) or bool(right),
}
"""Functions of the operators in an expression. As in sympy, quotients of ints are exact."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda left, right: -(-left // right),
    "Mod": _modulo,
    "PythonMod": _modulo,
    "ModularIndexing": lambda base, divisor, modulus: _modulo(base // divisor, modulus),
    "IntTrueDiv": _divide,
    "FloatTrueDiv": _divide,
    "PowByNatural": _power,
    "FloatPow": _power,
    "LShift": _shift_left,
    "RShift": _BINARY[ast.RShift],
    "Max": max,
    "Min": min,
    "Abs": abs,
    "ceiling": math.ceil,
    "floor": math.floor,
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "RoundToInt": round,
    "ToFloat": float,
    "Identity": lambda value: value,
    "Where": lambda condition, then, other: then if condition else other,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Lt": operator.lt,
    "Le": operator.le,
    "Gt": operator.gt,
    "Ge": operator.ge,
    "And": lambda *parts: all(parts),
    "Or": lambda *parts: any(parts),
    "Not": operator.not_,
}
"""Functions of sympy and of torch (`torch.utils._sympy.functions`), by name."""


SYMBOL = re.compile(r"\b(?:s|u|zuf|zf|j)\d+\b")
"""A name that torch gives to a symbol.

`s` and `u` are sizes, backed and unbacked, `zf` and `zuf` floats, and `j` is the ragged size of a
nested tensor.
"""


def with_sizes(graphs: Sequence[Graph], sizes: Mapping[str, int]) -> tuple[Graph, ...]:
    """Return the graphs of a step with values for symbols; see `Capture.with_sizes`."""
    places = _place_by_symbol(graphs)
    symbol_list = ", ".join(f"{symbol} ({place})" for symbol, place in places.items())
    choices = "every size in the graphs is static, so leave out with_sizes()"
    if places:
        choices = f"pass a size for a symbol, such as with_sizes({min(places)}=8): {symbol_list}"
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r} is not a size: pass an int")
        if value < 0:
            raise ValueError(f"{name}={value} is not a valid size: pass an int of at least 0")
        if name not in places:
            raise ValueError(f"unknown symbol {name!r}: {choices}")
    if not sizes:
        raise TypeError(f"with_sizes() changes nothing: {choices}")
    return tuple(graph.map_nodes(_SymbolReplacer(sizes).node) for graph in graphs)


def advice(size: Symbol) -> str:
    """Return the advice for a figure that depends on a symbolic size."""
    names = ", ".join(f"{name}=8" for name in dict.fromkeys(SYMBOL.findall(size.expr))) or "s0=8"
    return (
        f"set it with capture.with_sizes({names}) (with_sizes() lists all symbols), or capture "
        "with static sizes, for example with via=Aot(dynamic=False)"
    )


def _place_by_symbol(graphs: Sequence[Graph]) -> dict[str, str]:
    """Return the symbols in order, each with the place of its first occurrence."""
    place_by_expr: dict[str, str] = {}
    for graph in graphs:
        for part in graph.walk():
            for node in part.nodes:
                for place, symbol in _iter_symbols(node):
                    place_by_expr.setdefault(symbol.expr, place)
    place_by_name: dict[str, str] = {}
    for expr, place in place_by_expr.items():
        for name in SYMBOL.findall(expr):
            place_by_name.setdefault(name, place)
    # By prefix, then by number: `s2` before `s10`.
    return dict(sorted(place_by_name.items(), key=lambda item: (item[0][0], len(item[0]), item[0])))


def _iter_symbols(node: Node) -> Iterator[tuple[str, Symbol]]:
    """Yield the symbols of a node, each with a description of its place.

    The sizes of the result come first, because their place says most about a symbol. They are
    repeated among all symbols of the node.
    """
    if isinstance(node.result, TensorMeta):
        for dim, size in enumerate(node.result.shape):
            if isinstance(size, Symbol):
                yield f"dim {dim} of {node.name}", size
    todo: list[Any] = [node.result, node.args, node.kwargs]
    while todo:
        value = todo.pop()
        match value:
            case Symbol():
                yield f"in {node.name}", value
            case TensorMeta():
                todo += [*value.shape, *(value.stride or ())]
            case tuple():
                todo += value
            case Mapping():
                todo += value.values()
            case slice():
                todo += [value.start, value.stop, value.step]


class _SymbolReplacer:
    """Replaces symbols by values. An expression is kept if one of its symbols has no value.

    Use `node`, which replaces all symbols of a node. The instance keeps the value of each
    expression, of which a graph has few.
    """

    def __init__(self, values: Mapping[str, int]):
        self.values = values
        self._value_by_expr: dict[str, int | float | bool | None] = {}

    def node(self, node: Node) -> Node:
        return replace(
            node,
            args=map_arg(node.args, self.arg),
            kwargs=map_arg(node.kwargs, self.arg),
            result=self.result(node, node.result),
        )

    def arg(self, value: Arg) -> Arg:
        number = self.value(value) if isinstance(value, Symbol) else None
        return value if number is None else number

    def result(self, node: Node, result: Result) -> Result:
        if isinstance(result, TensorMeta):
            shape = tuple(self.size(node, size) for size in result.shape)
            stride = result.stride
            if stride is not None:
                stride = tuple(self.size(node, item) for item in stride)
            return replace(result, shape=shape, stride=stride)
        if isinstance(result, tuple):
            return tuple(self.result(node, item) for item in result)
        if isinstance(result, Symbol):
            number = self.value(result)
            # The result of a node that computes a number stays symbolic: a `Result` is no number.
            return result if number is None else Symbol(str(number))
        return result

    def size(self, node: Node, size: int | Symbol) -> int | Symbol:
        if not isinstance(size, Symbol):
            return size
        number = self.value(size)
        if number is None:
            return size
        if not isinstance(number, int) or number < 0:
            values = ", ".join(f"{name}={value}" for name, value in self.values.items())
            raise ValueError(
                f"invalid size {number} of %{node.name}, computed as {size.expr} with {values}: "
                "pass sizes that give an int of at least 0"
            )
        return number

    def value(self, symbol: Symbol) -> int | float | bool | None:
        """Return the value of an expression; `None` if unknown."""
        if symbol.expr not in self._value_by_expr:
            try:
                number = value_of(symbol.expr, self.values)
            except UnknownExpression:
                number = None
            self._value_by_expr[symbol.expr] = (
                float(number) if isinstance(number, Fraction) else number
            )
        return self._value_by_expr[symbol.expr]
