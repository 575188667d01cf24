"""The value of a symbolic expression, such as `(s0*s1)//2`, for given values of its symbols.

An expression is a text, as torch prints it. It is parsed and computed here, and never evaluated as
code; fractions are exact.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

Number: TypeAlias = Any
"""A value of an expression or of a part of it: an int, a float, a bool or a `Fraction`."""
MOST_BITS = 4096
"""A power or a shift that takes more than so many bits is not computed."""


class UnknownExpression(Exception):
    """The expression has a part that is not known here, a symbol without a value among them."""


def value_of(expr: str, values: Mapping[str, int]) -> Number:
    """The value of an expression; an int where it is a whole number.

    Args:
        expr: the expression.
        values: of its symbols, by name.

    Raises:
        UnknownExpression: where it has a symbol that is not in `values`, a form or a function that
            is not known, or no value, as a division by zero.
    """
    try:
        value = _value(_parsed(expr), values)
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError) as e:
        raise UnknownExpression(f"{expr}: {e}") from e
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value


@lru_cache(maxsize=4096)
def _parsed(expr: str) -> ast.expr:
    return ast.parse(expr.strip(), mode="eval").body


def _value(node: ast.expr, values: Mapping[str, int]) -> Number:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, values))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _RELATIONS:
        left, right = _value(node.left, values), _value(node.comparators[0], values)
        return _RELATIONS[type(node.ops[0])](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return function(*(_value(arg, values) for arg in node.args))
    raise UnknownExpression(ast.unparse(node))


def _divided(left: Number, right: Number) -> Number:
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    return Fraction(left) / Fraction(right)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) or isinstance(exponent, float):
        return float(base) ** float(exponent)
    if Fraction(exponent).denominator != 1 or abs(exponent) * _bits(base) > MOST_BITS:
        raise UnknownExpression(f"{base}**{exponent}")
    return Fraction(base) ** int(exponent)


def _shifted(left: Number, right: Number) -> Number:
    if right > MOST_BITS:
        raise UnknownExpression(f"{left} << {right}")
    return int(left) << int(right)


def _bits(value: Number) -> int:
    fraction = Fraction(value)
    return max(fraction.numerator.bit_length(), fraction.denominator.bit_length())


def _modulo(left: Number, right: Number) -> Number:
    return left - right * (left // right)


_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.not_,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.LShift: _shifted,
    ast.RShift: lambda left, right: int(left) >> int(right),
    ast.BitAnd: lambda left, right: bool(left) and bool(right),
    ast.BitOr: lambda left, right: bool(left) or bool(right),
}
_RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda left, right: -(-left // right),
    "Mod": _modulo,
    "PythonMod": _modulo,
    "ModularIndexing": lambda base, divisor, modulus: _modulo(base // divisor, modulus),
    "IntTrueDiv": _divided,
    "FloatTrueDiv": _divided,
    "PowByNatural": _power,
    "FloatPow": _power,
    "LShift": _shifted,
    "RShift": lambda left, right: int(left) >> int(right),
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
"""sympy's and torch's own functions (`torch.utils._sympy.functions`), by their names."""
