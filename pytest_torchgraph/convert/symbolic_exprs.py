"""The canonical form of symbolic expressions.

Torch prints the same size as `4*s0` and `4 * s0`, or as `s0//2` and `FloorDiv(s0, 2)`, and sympy
orders sums and products by the names of the symbols, whose numbers depend on the process. Here an
expression is parsed, as a sum of products, and written again with its terms and factors sorted. An
expression of an unknown form is left as it is.
"""

from __future__ import annotations

import ast
import functools
from fractions import Fraction
from typing import NamedTuple

_COMMUTATIVE = frozenset({"Max", "Min", "And", "Or"})
_FLOOR_DIVISIONS = frozenset({"FloorDiv", "CleanDiv"})
_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitXor: "^",
}


class _Term(NamedTuple):
    """A product.

    Attributes:
        number: its constant factor.
        factors: the texts of the others.
    """

    number: Fraction | float
    factors: tuple[str, ...] = ()


class _UnknownForm(Exception):
    """The expression has a part that is not read here."""


@functools.lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """The canonical form of an expression."""
    if text.isidentifier() or text.isdigit():
        return text
    try:
        return _written(_terms(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError, _UnknownForm):
        return text


def _terms(node: ast.expr) -> list[_Term]:
    """The terms of an expression that is taken as a sum."""
    if isinstance(node, ast.Constant) and not isinstance(node.value, bool):
        if isinstance(node.value, int):
            return [_Term(Fraction(node.value))]
        if isinstance(node.value, float):
            return [_Term(node.value)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return [_Term(-term.number, term.factors) for term in _terms(node.operand)]
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Add):
            return _terms(node.left) + _terms(node.right)
        if isinstance(node.op, ast.Sub):
            right = [_Term(-term.number, term.factors) for term in _terms(node.right)]
            return _terms(node.left) + right
        if isinstance(node.op, ast.Mult):
            left, right_ = _product(node.left), _product(node.right)
            return [_Term(left.number * right_.number, left.factors + right_.factors)]
        if isinstance(node.op, ast.Div):
            left, right_ = _product(node.left), _product(node.right)
            if not right_.factors and isinstance(right_.number, Fraction) and right_.number:
                return [_Term(left.number / right_.number, left.factors)]
    return [_Term(Fraction(1), (_atom(node),))]


def _product(node: ast.expr) -> _Term:
    """An expression that is taken as a product; a sum of several terms is one factor of it."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        term = _product(node.operand)
        return _Term(-term.number, term.factors)
    terms = _terms(node)
    if len(terms) == 1:
        return terms[0]
    return _Term(Fraction(1), (f"({_written(terms)})",))


def _atom(node: ast.expr) -> str:
    """The text of an expression that is neither a sum nor a product."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(node.value)
    if isinstance(node, ast.BinOp):
        return _operation(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _RELATIONS:
        sign = _RELATIONS[type(node.ops[0])]
        return f"{_inner(node.left)} {sign} {_inner(node.comparators[0])}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return f"~{_inner(node.operand)}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        arguments = [_written(_terms(arg)) for arg in node.args]
        if node.func.id in _FLOOR_DIVISIONS and len(node.args) == 2:
            return f"({_inner(node.args[0])}//{_inner(node.args[1])})"
        if node.func.id in _COMMUTATIVE:
            arguments.sort()
        return f"{node.func.id}({', '.join(arguments)})"
    raise _UnknownForm


def _operation(node: ast.BinOp) -> str:
    if isinstance(node.op, ast.FloorDiv):
        return f"({_inner(node.left)}//{_inner(node.right)})"
    if isinstance(node.op, ast.Div):
        return f"{_inner(node.left)}/{_inner(node.right)}"
    if isinstance(node.op, ast.Pow):
        return f"{_inner(node.left)}**{_inner(node.right)}"
    if isinstance(node.op, ast.BitAnd | ast.BitOr):
        sign = " & " if isinstance(node.op, ast.BitAnd) else " | "
        return f"({sign.join(sorted(_chain(node, type(node.op))))})"
    if type(node.op) in _OPERATORS:
        return f"({_inner(node.left)} {_OPERATORS[type(node.op)]} {_inner(node.right)})"
    raise _UnknownForm


def _chain(node: ast.expr, op: type[ast.operator]) -> list[str]:
    """The operands of a chain of one operator, as `a & b & c`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        return _chain(node.left, op) + _chain(node.right, op)
    return [_inner(node)]


def _inner(node: ast.expr) -> str:
    """The text of an operand, in parentheses where it is more than a word or a call."""
    text = _written(_terms(node))
    closed = text.startswith("(") and text.endswith(")") and isinstance(node, ast.BinOp)
    simple = text.isidentifier() or text.isdigit() or isinstance(node, ast.Call)
    return text if simple or (closed and text.count("(") == 1) else f"({text})"


def _written(terms: list[_Term]) -> str:
    """The text of a sum, its terms sorted: positive ones first, of each sign the constant last."""
    ordered = sorted(
        (_Term(term.number, tuple(sorted(term.factors))) for term in terms),
        key=lambda term: (term.number < 0, not term.factors, term.factors, term.number),
    )
    text = ""
    for term in ordered:
        word = _word(_Term(-term.number if term.number < 0 else term.number, term.factors))
        if not text:
            text = f"-{word}" if term.number < 0 else word
        else:
            text += f" - {word}" if term.number < 0 else f" + {word}"
    return text


def _word(term: _Term) -> str:
    """The text of a product, without its sign."""
    number = term.number
    if isinstance(number, float):
        return "*".join([repr(number), *term.factors])
    factors = list(term.factors)
    if number.numerator != 1 or not factors:
        factors.insert(0, str(number.numerator))
    text = "*".join(factors)
    return text if number.denominator == 1 else f"{text}/{number.denominator}"
