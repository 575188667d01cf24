"""A residual CNN with BatchNorm in train mode: shared inputs, buffers, a projection shortcut."""

import pytest
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResidualCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ResidualCnn().train()


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16)


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_graphs(via, model, images, graph_capture, graph_snapshot):
    assert graph_capture(model, images, via=via) == graph_snapshot


def test_loss_function(model, images, graph_capture, graph_snapshot):
    labels = torch.tensor([1, 2])
    capture = graph_capture(
        model, images, loss_fn=lambda logits: nn.functional.cross_entropy(logits, labels)
    )
    capture.assert_no_ops("aten._log_softmax")  # the loss is in no graph
    assert capture.backward == graph_snapshot(name="backward")


def test_train_and_eval_differ_in_the_norms_alone(model, images, graph_capture):
    train = graph_capture(model, images, via="dispatch")
    evaluated = graph_capture(model.eval(), images, via="dispatch")
    train.forward.assert_op_counts({"aten.native_batch_norm": 4, "aten.add_": 4})
    evaluated.forward.assert_op_counts({"aten.native_batch_norm": 4, "aten.add_": 0})


def test_the_model_is_left_as_it_was(model, images, graph_capture):
    graph_capture(model, images)
    assert model.blocks[0].norm1.num_batches_tracked == 0
    assert model.head.weight.grad is None
