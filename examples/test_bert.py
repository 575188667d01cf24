"""A 12-layer BERT: one stored file for forward and backward, and a few facts beside it.

The model is made from a small config with random weights; nothing is downloaded.
"""

import pytest
import torch
from transformers import BertConfig, BertModel


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=12,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
    )
    return BertModel(config).eval()


@pytest.fixture(scope="module")
def capture(bert, graph_capture):
    """One capture for all tests of the module: `graph_capture` is session-scoped."""
    return graph_capture(bert, input_ids=torch.arange(32).reshape(2, 16))


def test_graphs(capture, graph_snapshot):
    assert capture == graph_snapshot


def test_each_layer_has_its_matmuls_and_one_attention(capture):
    layers = 12
    # query, key, value, attention output, intermediate, output; and the pooler
    capture.forward.assert_op_counts({"aten.addmm": 6 * layers + 1, "aten.gelu": layers})
    capture.forward.assert_op_counts({"aten._scaled_dot_product_*": layers})
    capture.assert_graph_count(forward=1, backward=1)


def test_nothing_is_cast_or_read_back(capture):
    capture.assert_no_ops("aten._to_copy", "aten._local_scalar_dense", "aten.nonzero")


def test_every_op_knows_its_layer(capture):
    modules = {node.module for node in capture.backward.find("aten.gelu_backward")}
    assert modules == {f"encoder.layer.{i}.intermediate.intermediate_act_fn" for i in range(12)}
