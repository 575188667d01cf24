"""A whole training step: scaler, clipping, accumulation and schedule."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A layer of a small transformer."""

    def __init__(self, size):
        super().__init__()
        self.attention = nn.MultiheadAttention(size, 2, batch_first=True)
        self.norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.mlp(self.norm(x))


class Trainer:
    """What a training loop keeps between its steps."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Embedding(50, 16), Block(16), Block(16), nn.Linear(16, 50))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.scaler = torch.amp.GradScaler("cpu")
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer)

    def step(self, ids):
        """Accumulate the gradients of all batches, clip them, and update the model."""
        self.optimizer.zero_grad()
        for batch in ids:
            logits = self.model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) / len(ids)
            self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()


@pytest.fixture
def capture(graph_capture):
    """One step, after a first one that made the optimizer's state."""
    trainer = Trainer()
    updates = (trainer.model, trainer.optimizer, trainer.scaler, trainer.scheduler)
    ids = torch.randint(50, (2, 3, 9))
    return graph_capture(trainer.step, ids, via="dispatch", updates=updates)


def test_step_has_three_phases(capture):
    capture.assert_graph_count(forward=2, backward=2, update=1)


def test_step_waits_for_the_device_only_in_the_scaler(capture):
    capture.assert_no_syncs(allow="self.scaler.step")


def test_update_is_one_kernel(capture):
    capture.assert_op_counts({"aten._fused_adamw_": 1}, phase="update")


def test_each_parameter_is_updated_once(capture):
    capture.assert_updated()
