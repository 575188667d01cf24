"""`OpCounts` beside plain counters."""

from __future__ import annotations

from collections import Counter

from pytest_torchgraph import OpCounts
from pytest_torchgraph.ops.names import base_name


def test_counts_with_different_ops_are_compared_without_an_error() -> None:
    ours = OpCounts({"aten.mm.default": 2})
    other = Counter({"aten.add.Tensor": 1})
    assert ours != other
    assert other != ours
    assert ours == Counter({"aten.mm.default": 2})
    assert ours == {"aten.mm.default": 2}
    assert other - ours == other
    assert ours - other == {"aten.mm.default": 2}


def test_the_word_that_names_an_op() -> None:
    names = {
        "aten.sum.dim_IntList": "sum",
        "mylib.twice.default": "twice",
        "package.module.function": "function",
        "torch.nn.functional.relu": "relu",
        "operator.add": "add",
    }
    assert {op: base_name(op) for op in names} == names
