"""What is kept for the backward, against `saved_tensors_hooks` in an eager run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.utils._pytree as pytree
from subjects.models import SUBJECTS, Subject

from pytest_torchgraph import Aot, CaptureError, capture
from pytest_torchgraph.graph.cost.saved import saved_storages


def kept(call: Callable[[], object], *own: torch.Tensor) -> int:
    """The bytes of the storages that eager autograd keeps, but for those of `own`."""
    left_out = {tensor.untyped_storage().data_ptr() for tensor in own}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages.setdefault(storage.data_ptr(), storage)  # alive, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = call()
    del output
    return sum(each.nbytes() for at, each in storages.items() if at not in left_out)


def kept_by(subject: Subject) -> int:
    tensors = [
        leaf
        for leaf in pytree.tree_leaves((subject.args, subject.kwargs))
        if isinstance(leaf, torch.Tensor)
    ]
    own = [*subject.model.parameters(), *subject.model.buffers(), *tensors]
    return kept(lambda: subject.model(*subject.args, **subject.kwargs), *own)


@pytest.mark.parametrize(
    "name", ["transformer_block", "residual_cnn", "mlp_checkpointed", "mlp", "lstm_between_blocks"]
)
def test_by_dispatch_it_is_what_eager_autograd_keeps(name: str) -> None:
    subject = SUBJECTS[name]()
    made = capture(subject.model, *subject.args, via="dispatch", **subject.kwargs)
    assert made.saved_bytes == kept_by(subject) > 0


class Net(torch.nn.Module):
    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 32)
        self.down = torch.nn.Linear(32, 4)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x)))


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_weights_and_inputs_do_not_count_and_views_count_their_base_once(via: str) -> None:
    relu = capture(Net(torch.relu), torch.ones(2, 3, 4), via=via)
    values = 2 * 3 * 32 * 4
    assert relu.saved_bytes == values  # the result of relu, once, though two views of it are kept
    naive = sum(
        torch.tensor(node.result.shape).prod().item() * 4
        for node in (relu.forward[ref.name] for ref in relu.forward.saved)
    )
    assert naive > relu.saved_bytes


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_an_op_that_saves_its_result_is_named_with_its_line(via: str) -> None:
    before = capture(Net(torch.relu), torch.ones(2, 3, 4), via=via)
    after = capture(Net(lambda x: torch.relu(x.exp())), torch.ones(2, 3, 4), via=via)
    assert after.saved_bytes - before.saved_bytes == 2 * 3 * 32 * 4
    made_by = {each.node.op: each for each in saved_storages(after.forward)}
    assert made_by.keys() == {"aten.exp.default", "aten.relu.default"}
    source = made_by["aten.exp.default"].node.source
    assert source is not None
    assert "torch.relu(x.exp())" in source.code


def test_a_split_keeps_the_whole_and_a_write_its_target() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        a, b = (x * 2).split(2, -1)
        return a * b

    def written(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.exp_()
        return y * y

    x = torch.ones(3, 4, requires_grad=True)
    for function in (halves, written):
        made = capture(function, x, via="dispatch")
        assert made.saved_bytes == kept(lambda function=function: function(x), x) == 3 * 4 * 4


def test_a_capture_that_does_not_know_is_an_error() -> None:
    x = torch.ones(2, 4)
    for via in ("fx", "dynamo", "export"):
        with pytest.raises(CaptureError, match="do not say what is saved for the backward"):
            _ = capture(torch.nn.Linear(4, 4), x, via=via).saved_bytes
    symbolic = capture(Net(torch.relu), torch.ones(2, 3, 4), via=Aot(dynamic=True))
    with pytest.raises(CaptureError, match="depend on the size s"):
        _ = symbolic.saved_bytes
