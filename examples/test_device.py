"""One test for every device: each has its own stored graph, an absent device is skipped visibly."""

import torch
from torch import nn


def make_attention():
    torch.manual_seed(0)
    return nn.MultiheadAttention(16, 2, batch_first=True)


def test_attention(graph_device, graph_capture, graph_snapshot):
    x = torch.randn(2, 4, 16)
    capture = graph_capture(make_attention(), x, x, x, device=graph_device)
    capture.assert_op_counts({"aten.addmm": {"cpu": (1, 3), "cuda": (1, 3)}})
    assert capture == graph_snapshot


class TestPerDevice:
    """The fixture has class scope, so that a class can share what is expensive."""

    def test_the_model_stays_where_it_is(self, graph_device, graph_capture):
        model = make_attention()
        x = torch.randn(2, 4, 16)
        graph_capture(model, x, x, x, device=graph_device)
        assert model.in_proj_weight.device.type == "cpu"
