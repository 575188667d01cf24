"""A unittest suite of twenty tests: a mixin of five, and a class for each of four models.

The suite is written as transformers and diffusers write theirs. Two things differ from a suite
without graphs: the base class is `GraphTestCase`, and two tests end with a stored graph or with a
text of one. The other tests capture nothing, so they run as they always did.
"""

import copy
from typing import ClassVar

import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    ViTConfig,
    ViTModel,
)

from pytest_torchgraph import GraphTestCase

TOKENS = {"input_ids": torch.arange(16).reshape(2, 8)}
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


class ModelTests:
    """The tests of a model. A class that runs them sets `model_class`, `config` and `inputs`."""

    inputs = TOKENS

    def setUp(self):
        torch.manual_seed(0)
        self.model = self.model_class(self.config).eval()

    def test_output_is_finite(self):
        assert self.model(**self.inputs).last_hidden_state.isfinite().all()

    def test_state_dict_is_loaded(self):
        other = copy.deepcopy(self.model)
        other.load_state_dict(self.model.state_dict())
        expected, actual = self.model(**self.inputs), other(**self.inputs)
        torch.testing.assert_close(actual.last_hidden_state, expected.last_hidden_state)

    def test_every_parameter_is_trained(self):
        self.model(**self.inputs).last_hidden_state.sum().backward()
        untrained = [
            name
            for name, parameter in self.model.named_parameters()
            if parameter.grad is None and "pooler" not in name
        ]
        assert untrained == []

    def test_graph(self):
        self.assertGraph(self.graph_capture(self.model, **self.inputs, via="dispatch"))

    def test_one_attention_for_each_layer(self):
        capture = self.graph_capture(self.model, **self.inputs, via="dispatch", backward=False)
        capture.assert_op_counts({"aten._scaled_dot_product_*": SMALL["num_hidden_layers"]})


class TestBert(ModelTests, GraphTestCase):
    model_class = BertModel
    config = BertConfig(**SMALL, vocab_size=50)


class TestGPT2(ModelTests, GraphTestCase):
    model_class = GPT2Model
    config = GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=50)


class TestLlama(ModelTests, GraphTestCase):
    model_class = LlamaModel
    config = LlamaConfig(**SMALL, vocab_size=50)


class TestViT(ModelTests, GraphTestCase):
    model_class = ViTModel
    config = ViTConfig(**SMALL, image_size=32, patch_size=8)
    inputs: ClassVar = {"pixel_values": torch.ones(2, 3, 32, 32)}
