"""Sparse tensors are distinguished from dense ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import Graph, capture
from pytest_torchgraph.graph.text.format import LAYOUTS

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")

OF: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse_coo": lambda x: x.to_sparse(),
    "sparse_csr": lambda x: x.to_sparse_csr(),
    "sparse_csc": lambda x: x.to_sparse_csc(),
    "sparse_bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "sparse_bsc": lambda x: x.to_sparse_bsc((2, 2)),
}


class Product(nn.Module):
    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        return a @ x


def product(a: Tensor, via: str) -> Graph:
    return capture(Product(), a, torch.ones(4, 2), via=via).graphs[0]


def test_text_form_has_every_layout_of_torch() -> None:
    known = [value for value in vars(torch).values() if isinstance(value, torch.layout)]
    assert {str(layout)[6:] for layout in known} == {"strided", *LAYOUTS}


@pytest.mark.slow(
    "further cases; a few are in every run", unless=["*fx", "*dispatch", "sparse_bsr-export"]
)
@pytest.mark.parametrize("via", ["dispatch", "fx", "export"])
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr"])
def test_layout_of_an_input(via: str, layout: str) -> None:
    dense = product(torch.eye(4), via)
    sparse = product(OF[layout](torch.eye(4)), via)
    assert sparse["a"].result.layout == layout
    assert dense["a"].result.layout == "strided"
    assert sparse != dense
    assert f"%a = input : f32[4, 4] {layout}\n" in sparse.to_text()
    assert Graph.from_text(sparse.to_text()) == sparse


@pytest.mark.parametrize("layout", sorted(OF))
def test_layout_of_a_value(layout: str) -> None:
    def target(x: Tensor) -> Tensor:
        return OF[layout](x * 2)

    graph = capture(target, torch.eye(4), via="dispatch").graphs[0]
    assert graph.outputs[0].result.layout == layout
    assert graph["mul"].result.layout == "strided"
