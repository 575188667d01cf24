"""Operands of eager ops, across views, writes and tensor subclasses."""

from __future__ import annotations

import functools

import pytest
import torch
from mechanisms.islands.cases import Block, disabled
from mechanisms.models import example
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from torch_releases import RELEASE

from pytest_torchgraph import Capture, CaptureError, capture


def inputs(captured: Capture) -> list[list[str]]:
    return [[node.name for node in graph.inputs] for graph in captured.eager]


@torch.compiler.disable
def read(x: Tensor) -> Tensor:
    return x * 3


def test_view_returned_by_a_graph_is_not_its_base() -> None:
    def target(x: Tensor) -> Tensor:
        b, a = x.cos(), x.t()
        print(end="")
        return disabled(a) + b

    captured = capture(target, example(4, 4))
    assert inputs(captured) == [["inference_0:t"]]


def test_another_dtype_of_the_same_bits_is_another_value() -> None:
    def target(x: Tensor) -> Tensor:
        b, a = x.cos(), x.view(torch.int32)
        print(end="")
        return read(a) + b

    (graph,) = capture(target, example(4, 4)).eager
    assert str(graph.inputs[0].result).startswith("TensorMeta(dtype='int32'")


@pytest.mark.slow("compiles several models")
def test_view_of_a_written_tensor_is_a_new_value_after_the_write() -> None:
    def target(x: Tensor, memory: Tensor) -> Tensor:
        kept = memory[0]
        before = read(kept)
        memory.add_(x)
        print(end="")
        return read(kept).sin() + before

    captured = capture(target, example(2, 4), torch.ones(2, 4), backward=False)
    assert [graph.runs for graph in captured.eager] == [2]
    again = capture(lambda x, m: read(m.add_(x)) + disabled(m[0]), example(2, 4), torch.ones(2, 4))
    assert all("m" not in names for names in inputs(again))


def test_write_to_an_argument_changes_both_handles() -> None:
    a = torch.ones(16)

    def target(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return disabled(b)

    captured = capture(target, a, a.view(4, 4))
    assert inputs(captured) == [["inference:mul"]] or inputs(captured) == [["forward:mul"]]


def test_a_tensor_subclass_is_known_on_both_sides_of_a_graph() -> None:
    def target(x: Tensor) -> Tensor:
        return disabled(x * 2).exp()

    x = TwoTensor(example(2, 4), example(2, 4))
    captured = capture(target, x, backward=False)
    assert captured.op_counts["aten.exp"] == 2
    assert sum(graph.count("aten.sin") for graph in captured.eager) == 1
    ((name,),) = inputs(captured)
    assert name.startswith(("forward_0:mul", "inference_0:mul"))
    assert len(captured.eager[0].outputs) == 1
    x = TwoTensor(example(2, 4), example(2, 4)).requires_grad_()
    assert inputs(capture(target, x, backward=False)) == [[name.replace("inference", "forward")]]


# -- the engine's ops, and their consequences ------------------------------------------------------


@pytest.mark.parametrize("on", ["parameter", "output of a graph"])
def test_a_hook_without_code_of_its_own_is_not_the_engine(on: str) -> None:
    model, hook = nn.Linear(4, 4), functools.partial(torch.clamp, min=-1, max=1)
    if on == "parameter":
        model.weight.register_hook(hook)

    @torch.compiler.disable
    def hooked(x: Tensor) -> None:
        if on != "parameter":
            x.register_hook(hook)

    def target(x: Tensor) -> Tensor:
        y = model(x).relu()
        hooked(y)
        return y.exp()

    with pytest.raises(AssertionError, match="ran eagerly, outside compiled graphs"):
        capture(target, example(4, 4)).assert_no_eager_ops()


def test_recomputed_ops_are_not_the_engines() -> None:
    layers = nn.Sequential(nn.Linear(4, 4), Block())

    @torch.compiler.disable(recursive=False)
    def inner(x: Tensor) -> Tensor:
        return checkpoint(layers, x, use_reentrant=False)  # type: ignore[no-any-return]

    def target(x: Tensor) -> Tensor:
        return inner(x.sin()).cos()

    captured = capture(target, example(2, 4, grad=True))
    again = [op for op in captured.eager_ops if op.op == "aten.addmm.default"]
    assert again
    assert not any(op.by_engine for op in again)


def test_hook_is_not_a_consequence_of_its_gradients_op() -> None:
    linear = nn.Linear(4, 4)

    @torch.compiler.disable
    def hooked(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda grad: linear(grad).atan())
        return y

    def target(x: Tensor) -> Tensor:
        return hooked(x.exp()).tanh()

    captured = capture(target, example(2, 4, grad=True))
    with pytest.raises(AssertionError) as caught:
        captured.assert_no_eager_ops(allow="aten.sin")
    assert "aten.atan.default" in str(caught.value)
    assert "aten.cos.default" not in str(caught.value)


def test_equal_graphs_of_two_places_keep_their_causes() -> None:
    @torch.compiler.disable
    def first(x: Tensor) -> Tensor:
        return x.sin()

    @torch.compiler.disable
    def second(x: Tensor) -> Tensor:
        return x.sin()

    def target(x: Tensor) -> Tensor:
        x = first(x.exp())
        return second(x.tanh()).tanh()

    captured = capture(target, example(2, 4), backward=False)
    assert [graph.runs for graph in captured.eager] == [2]
    line = captured.eager_ops[0].source
    with pytest.raises(AssertionError) as caught:
        captured.assert_no_eager_ops(allow=str(line))
    message = str(caught.value)
    assert "locals>.second" in message
    assert "locals>.first" not in message


# -- scripts ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated")
def test_torchscript_inside_of_a_target_is_refused() -> None:
    script = torch.jit.script(nn.Linear(4, 4))
    with pytest.raises(CaptureError, match="TorchScript"):
        capture(lambda x: script(x.cos()).tanh(), example(2, 4))


def test_ops_of_saved_tensor_hooks_around_a_graph_are_recorded() -> None:
    hooks = (lambda x: x.double(), lambda x: x.float())

    def inner(x: Tensor) -> Tensor:
        return x.exp().cos() * x

    @torch.compiler.disable(recursive=False)
    def packed(x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            return inner(x)

    captured = capture(lambda x: packed(x.sin()).tanh(), example(2, 4, grad=True))
    copies = [op for op in captured.eager_ops if op.op == "aten._to_copy.default"]
    saved = 3 if RELEASE < (2, 10) else 4  # also a detached tensor
    assert len(copies) == 2 * saved
    with pytest.raises(AssertionError, match="ran eagerly"):
        captured.assert_no_eager_ops()
