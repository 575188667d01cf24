"""Ops of a dialect of ExecuTorch, which wrap an overload, are ops like others."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx

from pytest_torchgraph import check_pass, from_fx, to_fx

aten = torch.ops.aten


class EdgeOpOverload:
    """A stand-in for ExecuTorch's class, which is not a dependency of the tests."""

    __module__ = "executorch.exir.dialects.edge._ops"

    def __init__(self, op: Any) -> None:
        self._op = op

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)


TEXT = """
    torchgraph 1

    inference @ fx {
      %x = input : f32[2, 4]
      %clone = edge.aten.clone.default(%x) : f32[2, 4]
      %add_ = edge.aten.add_.Tensor(%clone, 1) : f32[2, 4]
      %sum = edge.aten.sum.dim_IntList(%add_, [0]) : f32[4]
      return [%sum]
    }
"""


@pytest.fixture(autouse=True)
def edge(monkeypatch: pytest.MonkeyPatch) -> Any:
    wrapped = {
        name: SimpleNamespace(**{overload: EdgeOpOverload(getattr(getattr(aten, name), overload))})
        for name, overload in {"clone": "default", "add_": "Tensor", "sum": "dim_IntList"}.items()
    }
    module = ModuleType("executorch.exir.dialects._ops")
    module.ops = SimpleNamespace(edge=SimpleNamespace(aten=SimpleNamespace(**wrapped)))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.ops.edge.aten  # type: ignore[attr-defined]


def test_text_of_edge_ops_runs_and_converts_back() -> None:
    module = to_fx(TEXT)
    assert torch.equal(module(torch.ones(2, 4))[0], torch.full((4,), 4.0))
    graph = from_fx(module)
    assert [node.name for node in graph.nodes[1:4]] == ["clone", "add_", "sum"]
    assert from_fx(to_fx(graph)) == graph
    assert any(node.effects for node in graph.nodes)  # the schema of add_ says that it writes


def test_pass_over_edge_ops_is_checked(edge: Any) -> None:
    def remove_clone(module: fx.GraphModule) -> None:
        for node in module.graph.find_nodes(op="call_function", target=edge.clone.default):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)

    with pytest.raises(AssertionError) as error:
        check_pass(remove_clone, TEXT, changes={"edge.aten.clone": -1, edge.sum.dim_IntList: 0})
    assert "inputs written: a run writes input x, only after the pass" in str(error.value)
    check_pass(remove_clone, TEXT, allow="inputs written")


def test_misspelled_edge_op_is_refused() -> None:
    graph = from_fx(to_fx(TEXT))
    graph.assert_no_ops("edge.aten.mm")
    with pytest.raises(ValueError, match="names no op that can occur"):
        graph.assert_no_ops("edge.aten.mmm")
    with pytest.raises(AssertionError, match=r"edge\.aten\.clone"):
        graph.assert_no_ops("edge.aten.clone")
