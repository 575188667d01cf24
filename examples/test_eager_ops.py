"""A model that is not compiled whole: what runs eagerly beside its graphs is captured too."""

import pytest
import torch
from torch import nn


@torch.compiler.disable
def positions(x):
    """Stands for code that Dynamo cannot trace: a call of another library, for one."""
    return x * torch.arange(x.shape[-1]).cos()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = positions(self.embed(x))
        if x.abs().max() > 100:  # what comes next depends on the data
            x = self.norm(x)
        return self.head(x)


@pytest.fixture
def capture(graph_capture):
    torch.manual_seed(0)
    return graph_capture(Classifier(), torch.ones(2, 4))


def test_the_step_is_stored_with_what_runs_eagerly(capture, graph_snapshot):
    assert [graph.name for graph in capture.eager] == ["eager_0", "eager_1", "eager_2"]
    assert capture == graph_snapshot


def test_nothing_else_runs_eagerly(capture):
    # The condition, and the line in `positions`; its backward is allowed with it.
    capture.assert_no_eager_ops(allow=["aten._local_scalar_dense", "test_eager_ops.py:11"])
    assert capture.compiled_share > 0.8  # of all ops that ran


def test_what_is_not_allowed_is_named_with_its_line(capture):
    with pytest.raises(
        AssertionError, match=r"(?s)4 ops ran eagerly.*eager_ops.py:11 in positions"
    ):
        capture.assert_no_eager_ops(allow=["aten._local_scalar_dense"])
