"""GPT-2 in training, from the loss that the model itself returns.

The backward starts at `output.loss`, the convention of transformers.
"""

import functools

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    return GPT2LMHeadModel(config).train()


@pytest.fixture(scope="module")
def captured(gpt2, graph_capture):
    """A training step, captured once by each mechanism for all tests of the module."""
    ids = torch.arange(16).reshape(2, 8)
    batch = {"input_ids": ids, "labels": ids, "use_cache": False}
    return functools.cache(lambda via: graph_capture(gpt2, **batch, via=via))


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_training_step(via, captured, graph_snapshot):
    assert captured(via) == graph_snapshot


def test_the_loss_is_part_of_the_model(captured):
    capture = captured("aot")
    assert capture.output.loss.ndim == 0
    capture.assert_op_counts({"aten.nll_loss_forward": 1, "aten.nll_loss_backward": 1})


def test_the_tied_embedding_is_one_parameter(captured):
    forward = captured("dispatch").forward
    names = [node.name for node in forward.inputs if node.op == "parameter"]
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names


def test_without_labels_nothing_of_a_loss_is_computed(gpt2, graph_capture, graph_snapshot):
    with torch.no_grad():
        capture = graph_capture(gpt2, torch.arange(8).reshape(1, 8), use_cache=False)
    capture.assert_graph_count(forward=1, backward=0)
    capture.assert_no_ops("aten.nll_loss_forward")
    assert capture == graph_snapshot(name="inference", detail="ops")
