"""The estimate of a peak, against the storages of an eager run."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from subjects.counting import backward, forward
from subjects.models import SUBJECTS
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_torchgraph import CaptureError, capture

TOLERANCE = 0.1
"""The share by which the estimate may be wrong: that of issue and documentation. The gradients that
flow into the outputs, and local variables of the model, are in the truth alone."""


class Storages(TorchDispatchMode):
    """The most bytes of storages that ops made, and that lived, at one time."""

    def __init__(self, own: set[int]) -> None:
        super().__init__()
        self.own = own
        self.alive: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                key = storage._cdata
                if key not in self.own and key not in self.alive:
                    self.alive[key] = storage.nbytes()
                    self.peak = max(self.peak, sum(self.alive.values()))
                    weakref.finalize(storage, self.alive.pop, key, None)
        return out


@pytest.mark.parametrize("name", ["transformer_block", "mlp", "mlp_checkpointed", "vit"])
def test_by_dispatch_it_is_near_the_peak_of_an_eager_run(name: str) -> None:
    subject = SUBJECTS[name]()
    given = pytree.tree_leaves((subject.args, subject.kwargs))
    tensors = [*subject.model.parameters(), *subject.model.buffers(), *given]
    own = {each.untyped_storage()._cdata for each in tensors if isinstance(each, torch.Tensor)}
    with Storages(own) as seen:
        backward(forward(subject))
    made = capture(subject.model, *subject.args, via="dispatch", **subject.kwargs)
    assert made.peak_bytes == pytest.approx(seen.peak, rel=TOLERANCE)


def test_a_chain_holds_two_values_at_a_time() -> None:
    with torch.no_grad():
        made = capture(lambda x: x.sin().cos().exp().tanh(), torch.ones(256))
    assert made.peak_bytes == 2 * 256 * 4


def test_what_is_saved_lives_until_the_backward_has_read_it() -> None:
    x = torch.ones(256, requires_grad=True)
    made = capture(lambda x: x.exp().exp().exp(), x)
    assert made.saved_bytes == 3 * 256 * 4
    assert made.peak_bytes >= 4 * 256 * 4  # and the first gradient


def test_a_capture_that_does_not_know_is_an_error() -> None:
    with pytest.raises(CaptureError, match="do not say what is saved for the backward"):
        _ = capture(torch.nn.Linear(4, 4), torch.ones(2, 4), via="dynamo").peak_bytes
