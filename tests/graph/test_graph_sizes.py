"""Values for symbolic sizes."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
import torch
from graph.build import graph
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph import Aot, CaptureError, Graph, capture
from pytest_torchgraph.convert.canonical_names import canonical
from pytest_torchgraph.graph import Symbol
from pytest_torchgraph.graph.sizes import UnknownExpression, value_of

VALUES = {"s0": 6, "s1": 4, "u0": 9}


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from([*VALUES, "1", "2", "3", "7"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
                lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
            ),
            st.tuples(inner, st.sampled_from(["//", "%"]), st.sampled_from("237")).map(
                lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
            ),
            st.tuples(st.sampled_from(["Max", "Min"]), inner, inner).map(
                lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
            ),
        ),
        max_leaves=8,
    )


@given(expressions())
@settings(max_examples=200, deadline=None)
def test_size_expression_has_the_value_of_python(expr: str) -> None:
    expected = eval(expr, {"Max": max, "Min": min, **VALUES})
    assert value_of(expr, VALUES) == expected
    assert value_of(canonical(expr), VALUES) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("s0**2/2", 18),
        ("s0/4", Fraction(3, 2)),
        ("FloorDiv(s0*s1, 5)", 4),
        ("CeilToInt(IntTrueDiv(s0, 4))", 2),
        ("TruncToInt(0.5*ToFloat(u0))", 4),
        ("ModularIndexing(s0*s1, 4, 4)", 2),
        ("Where(Eq(s0, s1), s0, s1 + 1)", 5),
        ("PythonMod(u0, s1)", 1),
        ("s0 > s1", True),
        ("((s0 > 2) & (s1 != 4))", False),
        ("-s0 + 2", -4),
    ],
)
def test_size_expression_evaluates_torchs_functions_and_relations(expr: str, expected: Any) -> None:
    assert value_of(expr, VALUES) == expected


@pytest.mark.parametrize(
    "expr",
    [
        *("s9", "s0.real", "s0[0]", "print(s0)", "__import__('os')", "lambda: 1", "s0 +", ""),
        *("s0//0", "9**9**9**9", "1 << 10**9", "'a'*s0", "(" * 300 + "s0" + ")" * 300, "s0 if 1"),
        *("max(s0)", "Max(s0, key=1)", "Max()", "1j", "10.0**400", "s0 < s1 < 3"),
        *("s0 ^ s1", "s0 @ s1"),
    ],
)
def test_size_expression_with_unknown_names_is_never_evaluated(expr: str) -> None:
    with pytest.raises(
        UnknownExpression, match=f"cannot compute the size {re.escape(repr(expr))}: ."
    ):
        value_of(expr, VALUES)


def test_unknown_symbol_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        UnknownExpression, match=r"'s9 \+ 1': unknown symbol 's9' \(known: s0, s1, u0"
    ):
        value_of("s9 + 1", VALUES)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 32), torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(x))
        return self.down(hidden).reshape(-1, 2)


@pytest.mark.slow("large graphs")
def test_dynamic_graph_with_sizes_has_the_costs_of_a_static_graph() -> None:
    dynamic = capture(Net(), torch.ones(6, 5, 4), via=Aot(dynamic=True))
    with pytest.raises(CaptureError, match=r"symbolic size .*: set it with capture\.with_sizes\("):
        _ = dynamic.flops
    for batch, length in ((6, 5), (2, 7)):
        static = capture(Net(), torch.ones(batch, length, 4), via=Aot(dynamic=False))
        sized = dynamic.with_sizes(s0=batch, s1=length)
        assert (sized.flops, sized.saved_bytes) == (static.flops, static.saved_bytes)
        assert sized.peak_bytes == static.peak_bytes
        assert sized.by_module() == static.by_module()
        sized.assert_budget(flops=static.flops)
        with pytest.raises(AssertionError, match="budget exceeded"):
            sized.assert_budget(flops=static.flops - 1)
    assert dynamic.forward.with_sizes(s0=6, s1=5).flops == 2 * 2 * 30 * 4 * 32


MADE = graph(
    """
    %a = aten.view.default(%x, [`s0*s1`, 2]) : f32[`s0*s1`, `4//2`]
    %b = aten.mm.default(%a, %a) : f32[`s0/2`, u0]
    return %b
    """,
    inputs="%x = input : f32[s0, s1, 4]\n%n = input : `s0 + 1`",
)


def test_with_sizes_keeps_symbols_without_a_value() -> None:
    sized = MADE.with_sizes(s0=6)
    assert sized["x"].result.shape == (6, Symbol("s1"), 4)  # type: ignore[union-attr]
    assert sized["a"].args[1] == (Symbol("s0*s1"), 2)
    assert sized["n"].result == Symbol("7")
    assert sized["b"].result.shape == (3, Symbol("u0"))  # type: ignore[union-attr]
    assert Graph.from_text(sized.to_text()) == sized
    assert "s0" in MADE.to_text()  # the original graph is unchanged


def test_with_sizes_refuses_impossible_sizes() -> None:
    there = r"'s2': .* such as with_sizes\(s0=8\): s0 \(dim 0 of x\), s1 \(dim 1 of x\), u0 \(dim"
    with pytest.raises(ValueError, match=there):
        MADE.with_sizes(s2=1)
    with pytest.raises(ValueError, match="unknown symbol 's0': every size in the graphs is static"):
        graph("return %x").with_sizes(s0=1)
    with pytest.raises(ValueError, match=r"invalid size 2\.5 of %b, computed as s0/2 with s0=5"):
        MADE.with_sizes(s0=5)
    with pytest.raises(ValueError, match="s0=-1 is not a valid size"):
        MADE.with_sizes(s0=-1)
    for size in (True, 2.0, "8"):
        with pytest.raises(TypeError, match="is not a size: pass an int"):
            MADE.with_sizes(s0=size)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"with_sizes\(\) changes nothing: pass .*: s\d+ \("):
        MADE.with_sizes()
