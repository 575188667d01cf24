"""Symbolic expressions have one spelling, independent of the printer."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_torchgraph.convert import CanonicalNames
from pytest_torchgraph.convert.canonical_names import canonical

SAME = [
    ("4*s0", "4 * s0", "s0*4"),
    ("s0 + 1", "1 + s0", "s0+1"),
    ("s0*s1", "s1 * s0"),
    ("s0 - 1", "-1 + s0"),
    ("3 - s0", "3 + -1 * s0", "-s0 + 3"),
    ("(s0//2)", "FloorDiv(s0, 2)", "CleanDiv(s0, 2)", "s0 // 2", "((s0//2))"),
    ("s0/2", "1/2 * s0", "s0*1/2"),
    ("2*(s0//2) + 1", "1 + 2 * FloorDiv(s0, 2)", "1 + 2*((s0//2))"),
    ("2*(s0 + 1)", "2 * (1 + s0)"),
    ("Max(1, s0)", "Max(s0, 1)"),
    ("Mod(s0, 2)", "Mod( s0,2 )"),
    ("s0**2", "s0 ** 2"),
    ("1e-05", "0.0000100000000000000", "1.00000000000000e-5"),
    ("s0 < 3", "s0<3"),
    ("(s0//(s1 + 1))", "FloorDiv(s0, 1 + s1)", "((s0//(1 + s1)))"),
]


@pytest.mark.parametrize("spellings", SAME)
def test_equal_expressions_have_one_canonical_form(spellings: tuple[str, ...]) -> None:
    assert {canonical(spelling) for spelling in spellings} == {spellings[0]}


DIFFERENT = [
    ("s0 - s1", "s1 - s0"),
    ("s0//2*2", "s0*2//2"),
    ("(s0 + 1)*2", "s0 + 1*2"),
    ("s0**2", "2**s0"),
    ("Mod(s0, 2)", "Mod(2, s0)"),
    ("s0 < 3", "s0 > 3"),
    ("s0 < s1", "s1 < s0"),
    ("1", "1.0"),
    ("s0/2", "2*s0"),
    ("(s0//2)//3", "s0//(2//3)"),
    ("Max(1, s0)", "Min(1, s0)"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_expressions_stay_different(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("text", ["s0.x", "[s0]", "s0 if s1 else 2", "s0 +", "'a'", "f(s0)(1)"])
def test_symbolic_expression_of_unknown_form_is_unchanged(text: str) -> None:
    assert canonical(text) == text


SYMBOLS = sympy.symbols("s0 s1 s2", integer=True, positive=True)
EXPRESSIONS = st.recursive(
    st.sampled_from(SYMBOLS) | st.integers(-4, 4).map(sympy.Integer),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
        st.tuples(inner, inner).map(lambda pair: sympy.Max(*pair)),
    ),
    max_leaves=8,
)


@pytest.mark.slow("many random graphs")
@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS)
@example(-SYMBOLS[0] * (SYMBOLS[0] + SYMBOLS[1]))
def test_symbolic_spelling_keeps_the_value(expression: sympy.Expr) -> None:
    spelled = canonical(str(expression))
    assert canonical(spelled) == spelled
    assert sympy.simplify(sympy.sympify(spelled) - sympy.sympify(str(expression))) == 0


def test_symbol_numbers_do_not_depend_on_the_printed_order() -> None:
    assert CanonicalNames().expression("s27 + 2*s77") == CanonicalNames().expression(
        "2 * s77 + s27"
    )
