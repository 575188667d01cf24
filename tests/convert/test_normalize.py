"""Settings, wrappers and spellings that vary between torch releases are in no graph."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.fx
from torch import Tensor, nn

from pytest_torchgraph import capture, from_fx
from pytest_torchgraph.ops.qualified import builtin_name
from pytest_torchgraph.snapshot import program_of


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LayerNorm(4)
        self.group = nn.GroupNorm(2, 4)
        self.batch = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.batch(self.group(self.layer(x)))  # type: ignore[no-any-return]


def test_cudnn_setting_is_in_no_graph() -> None:
    graphs = []
    for enabled in (True, False):
        with torch.backends.cudnn.flags(enabled=enabled):
            graphs.append(capture(Normed(), torch.ones(2, 4), via="export").forward)
    assert graphs[0].to_text() == graphs[1].to_text()
    layer_norm = graphs[0].find("aten.layer_norm")[0]
    assert len(layer_norm.args) == 4  # without cudnn_enable and the default eps
    batch_norm = graphs[0].find("aten.batch_norm")[0]
    assert batch_norm.args[-1] == 1e-5


def test_custom_epsilon_is_kept() -> None:
    graph = capture(nn.LayerNorm(4, eps=1e-3), torch.ones(2, 4), via="export").forward
    assert graph.find("aten.layer_norm")[0].args[-1] == 1e-3


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparison_functions_are_read_as_operators(name: str) -> None:
    graphs = []
    for by_method in (True, False):
        graph = torch.fx.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        if by_method:
            result = graph.call_method(f"__{name}__", (x, y))
        else:
            result = graph.call_function(getattr(operator, name), (x, y))
        graph.output(result)
        graphs.append(from_fx(graph))
    assert graphs[0] == graphs[1]
    assert graphs[0].to_text() == graphs[1].to_text()
    assert graphs[0].count(f"operator.{name}") == 1


def test_names_omit_pybind11_prefixes() -> None:
    record = "pybind11_detail_function_record_v1_system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1"
    assert builtin_name(f"torch._C.{record}._log_api") == "torch._C._log_api"
    assert builtin_name("torch._C._log_api") == "torch._C._log_api"


def test_stored_capture_omits_autograds_detaches() -> None:
    captured = capture(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.ones(2, 4))
    assert captured.op_counts["aten.detach"] >= 1  # otherwise nothing is tested
    text = program_of(captured).to_text("dataflow")
    assert "detach" not in text
    assert "  save %1/tanh\n" in text
    assert "  %1/tanh = saved : f32[2, 4]\n" in text


def test_saved_values_are_in_the_order_in_which_the_forward_computes_them() -> None:
    captured = capture(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.ones(2, 3, 8)
    )
    forward, backward = (graph for graph in program_of(captured).graphs)
    order = [node.name for node in forward.nodes]
    saved = [ref.name for ref in forward.saved]
    computed = [name for name in saved if forward[name].kind != "placeholder"]
    assert len(computed) > 5
    assert computed == sorted(computed, key=order.index)
    assert [node.name for node in backward.inputs if node.op == "saved"] == computed
