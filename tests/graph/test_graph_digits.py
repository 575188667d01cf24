"""Float constants with fewer digits or none: `to_text(digits=)`, and comparison at these digits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph import Graph, GraphFormatError, diff

from .strategies import checked, graphs


def scaled(scale: object, n: object = 8) -> Graph:
    return Graph.from_text(
        f"""torchgraph 4

main: forward @ fx {{
  %x = input : f32[2, 4]
  %y = aten.mul.Scalar(%x, {scale}) : f32[2, 4]
  %z = aten.view.default(%y, [{n}], [{scale}, nan], low={scale}) : f32[8]
  return %z
}}
"""
    )


SCALE = "0.007615143433213234"


def test_digits_round_and_zero_writes_a_tilde():
    lines = [scaled(SCALE).to_text(digits=digits).split("\n") for digits in (None, 3, 0)]
    assert [line[-5] for line in lines] == [
        "  %y = aten.mul.Scalar(%x, 0.007615143433213234) : f32[2, 4]",
        "  %y = aten.mul.Scalar(%x, 0.00762) : f32[2, 4]",
        "  %y = aten.mul.Scalar(%x, ~) : f32[2, 4]",
    ]
    assert lines[2][-4] == "  %z = aten.view.default(%y, [8], [~, ~], low=~) : f32[8]"
    assert [line[:2] for line in lines[1:]] == [
        ["torchgraph 4", "digits 3"],
        ["torchgraph 4", "digits 0"],
    ]


def test_parsed_graph_keeps_its_digits_in_comparisons():
    stored = Graph.from_text(scaled(SCALE).to_text(digits=3))
    assert stored.to_text() == scaled(SCALE).to_text(digits=3)
    assert stored == scaled("0.0076199")
    assert hash(stored) == hash(scaled("0.0076199"))
    assert stored != scaled("0.0077")
    assert scaled(SCALE) != scaled("0.0076199")
    assert not diff(stored, scaled("0.0076199"))
    assert diff(scaled("0.0077"), stored)


def test_tilde_equals_any_float_but_no_int():
    stored = Graph.from_text(scaled(SCALE).to_text(digits=0))
    assert stored == scaled("-3.5")
    assert stored == scaled("inf")
    assert stored != scaled("1")
    assert stored != scaled("0.5", n=4)


def test_exact_graph_is_rounded_like_stored_graphs():
    exact = scaled("0.12497")
    four, two = (Graph.from_text(exact.to_text(digits=digits)) for digits in (4, 2))
    assert exact == four
    assert exact == two


def test_rounded_largest_float_is_finite():
    text = scaled("1.7976931348623157e+308").to_text(digits=2)
    assert "inf" not in text
    assert Graph.from_text(text) == scaled("1.7976931348623157e+308")


@settings(checked, max_examples=10)
@given(graphs(), st.sampled_from([0, 1, 3, 17]))
def test_any_graph_equals_its_text_with_digits(graph: Graph, digits: int):
    text = graph.to_text(digits=digits)
    assert Graph.from_text(text) == graph
    assert Graph.from_text(text).to_text() == text


@pytest.mark.parametrize("digits", [-1, 18, True, "3", 2.0])
def test_invalid_digits_are_refused(digits):
    with pytest.raises(
        ValueError, match=r"digits=.* is invalid: pass None .*, or an int from 0 to 17"
    ):
        scaled(SCALE).to_text(digits=digits)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("digits 0", "digits 3", "expected a value, found '~"),
        ("digits 0", "digits 18", "'digits' must be a number from 0 to 17, not '18'"),
        ("torchgraph 4", "torchgraph 2", "expected 'via', 'torch' or 'detail', found 'digits'"),
    ],
)
def test_digits_refuse_malformed_numbers(old, new, problem):
    text = scaled(SCALE).to_text(digits=0).replace(old, new)
    with pytest.raises(GraphFormatError, match=problem):
        Graph.from_text(text)
