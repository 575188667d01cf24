"""What is left of captures that nobody holds any more."""

import gc

import pytest
import torch

import pytest_torchgraph


class Block(torch.nn.Module):
    """One frame, compiled whole."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def alive() -> tuple[int, int]:
    """How many objects of this package's types there are, and how many modules of torch.fx."""
    gc.collect()
    types = [type(each) for each in gc.get_objects()]
    ours = sum(str(each.__module__).startswith("pytest_torchgraph.") for each in types)
    return ours, sum(issubclass(each, torch.fx.GraphModule) for each in types)


@pytest.mark.parametrize("via", ["aot", "inductor", "dynamo", "dispatch"])
def test_a_capture_that_is_gone_keeps_no_compilation_alive(via: str) -> None:
    """With a graph break, and in compiled autograd, torch alone does: not asked here."""
    model = Block()
    found = []
    for _ in range(4):
        pytest_torchgraph.capture(model, torch.ones(2, 4), via=via)
        found.append(alive())
    assert len(set(found[1:])) == 1, found
