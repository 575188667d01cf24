"""The layout of a tensor that is not strided, in the text and in comparisons."""

from __future__ import annotations

import pytest

from pytest_torchgraph.errors import GraphFormatError
from pytest_torchgraph.graph import Graph, TensorMeta, diff_graphs
from pytest_torchgraph.graph.text.format import LAYOUTS

TEXT = """\
torchgraph 4

forward @ dispatch {{
  %a = input : f32[4, 4]{layout}
  %x = input : f32[4, 2]
  %mm = aten.mm.default(%a, %x) : f32[4, 2]
  return %mm
}}
"""


def product(layout: str = "") -> Graph:
    return Graph.from_text(TEXT.format(layout=layout))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_round_trip(layout: str) -> None:
    graph = product(f" {layout}")
    assert graph["a"].result == TensorMeta("float32", (4, 4), layout=layout)
    assert graph.to_text() == TEXT.format(layout=f" {layout}")


def test_strided_layout_is_not_written() -> None:
    assert product()["a"].result == TensorMeta("float32", (4, 4), layout="strided")
    assert product().to_text() == TEXT.format(layout="")


def test_layout_is_written_beside_strides_and_device() -> None:
    meta = TensorMeta("float32", (4, 4), None, "cuda:1", "sparse_coo")
    graph = product(' sparse_coo on "cuda:1"')
    assert graph["a"].result == meta
    assert ' : f32[4, 4] sparse_coo on "cuda:1"\n' in graph.to_text(detail="full")
    assert " : f32[4, 4] sparse_coo\n" in graph.to_text()


def test_layouts_are_compared() -> None:
    dense, csr, coo = product(), product(" sparse_csr"), product(" sparse_coo")
    assert dense != csr
    assert csr != coo
    assert csr == product(" sparse_csr")


def test_layout_difference_has_both_layouts() -> None:
    found = diff_graphs([product()], [product(" sparse_csr")]).to_text()
    assert "f32[4, 4] sparse_csr" in found
    assert "%a" in found


@pytest.mark.parametrize(
    "layout", [" strided", " sparse", " sparse_csrx", " sparse_csr sparse_csr", " SPARSE_CSR"]
)
def test_invalid_layout_is_refused(layout: str) -> None:
    with pytest.raises(GraphFormatError, match=r":4:.*expected the end of the line"):
        product(layout)


def test_layout_without_a_text_form_is_refused() -> None:
    graph = product()
    node = graph["a"]
    object.__setattr__(node, "result", TensorMeta("float32", (4, 4), layout="curled"))
    with pytest.raises(TypeError, match="curled"):
        graph.to_text()
