"""A whole training step of many ranks: FSDP with its optimizer."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


def build(mesh, *, each_time):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step(x, y):
        optimizer.zero_grad()
        for part in range(2):
            model.set_requires_gradient_sync(each_time or part == 1)
            F.mse_loss(model(x), y).backward()  # THE LINE
        optimizer.step()

    return step, (torch.ones(4, 8), torch.ones(4, 2)), {"updates": (model, optimizer)}


def test_accumulation_reduces_once(graph_ranks):
    ranks = graph_ranks(lambda mesh: build(mesh, each_time=False), dp=2, via="dispatch")
    ranks.assert_same_graphs()
    for capture in ranks:
        capture.assert_collectives({"reduce_scatter": 1}, phase="backward")
        capture.assert_collectives({}, phase="update")
        capture.assert_updated()


def test_accumulation_reduces_each_time(graph_ranks):
    ranks = graph_ranks(lambda mesh: build(mesh, each_time=True), dp=2, via="dispatch")
    with pytest.raises(AssertionError, match=r"expected 1, found 2(.|\n)*THE LINE"):
        ranks[0].assert_collectives({"reduce_scatter": 1}, exact=False)
