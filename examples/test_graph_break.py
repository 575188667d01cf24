"""Graph breaks that change no result: each layer looks for an optional package in its forward.

TabPFN's attention did this until its pull request 1165. This is the same cause in four layers.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def optional_kernel():
    """Return the attention of an optional package, or `None` if it is not installed."""
    try:
        from attention_for_another_gpu import attention
    except ImportError:
        return None
    return attention


class Layer(nn.Module):
    def __init__(self, looks_up_each_time):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.looks_up_each_time = looks_up_each_time
        self.kernel = optional_kernel()

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).movedim(-3, 0).transpose(-2, -3)
        kernel = optional_kernel() if self.looks_up_each_time else self.kernel
        attention = kernel or F.scaled_dot_product_attention
        return x + self.out(attention(q, k, v).transpose(1, 2).flatten(2))


def make(looks_up_each_time):
    torch.manual_seed(0)
    layers = nn.Sequential(*(Layer(looks_up_each_time) for _ in range(4)))
    return torch.compile(layers, backend="aot_eager"), torch.randn(2, 6, 32)


@torch.no_grad()
@pytest.mark.parametrize("looks_up_each_time", [True, False])
def test_compiled_results_are_right(looks_up_each_time):
    """Passes with and without the breaks, as all tests of TabPFN did."""
    model, x = make(looks_up_each_time)
    torch.testing.assert_close(model(x), model._orig_mod(x))


@torch.no_grad()
@pytest.mark.torchgraph(max_graphs=1)
def test_model_is_one_graph():
    model, x = make(looks_up_each_time=False)
    model(x)


@torch.no_grad()
def test_a_lookup_in_each_forward_breaks_each_layer(graph_capture):
    model, x = make(looks_up_each_time=True)
    with graph_capture.watch() as seen:
        model(x)
    with pytest.raises(AssertionError, match="from attention_for_another_gpu import attention"):
        seen.assert_no_graph_breaks()
    assert sum(seen.executions.values()) == 8  # two pieces of each layer, instead of one graph
