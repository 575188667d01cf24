"""Values read, computed or written below the dispatcher are recorded, or the step is refused."""

from __future__ import annotations

import ctypes
import linecache
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mechanisms.models import example
from torch import Tensor

from pytest_torchgraph import CaptureError, Graph, capture

HERE = "test_below_dispatcher.py"


def by_numpy(x: Tensor) -> Tensor:
    values = x.detach().numpy()
    return torch.from_numpy(np.matmul(values, values)) + x


def by_asarray(x: Tensor) -> Tensor:
    return torch.as_tensor(np.asarray(x.detach()) + 1) * x


def by_copy(x: Tensor) -> Tensor:
    return torch.tensor(np.exp(x.detach().numpy())) * x


def by_dlpack(x: Tensor) -> Tensor:
    return torch.from_dlpack(np.exp(np.from_dlpack(x.detach()))) * x


def returned(x: Tensor) -> Tensor:
    return torch.from_numpy(np.exp(x.detach().numpy()))


def one_number(x: Tensor) -> Tensor:
    return torch.tensor(float(x.detach().numpy().sum())) * x


OUTSIDE = [by_numpy, by_asarray, by_copy, by_dlpack, returned, one_number]


def eager(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a target that calls a function eagerly between two compiled graphs."""
    disabled = torch.compiler.disable(function)
    return lambda x: disabled(x.sin()) + 1


@pytest.mark.parametrize(
    ("via", "function"),
    [("aot", by_numpy), ("aot", one_number), *(("dispatch", function) for function in OUTSIDE)],
)
def test_values_of_another_library_are_refused_with_both_lines(
    via: str, function: Callable[[Tensor], Tensor]
) -> None:
    target = function if via == "dispatch" else eager(function)
    with pytest.raises(CaptureError) as caught:
        capture(target, example(4, 4), via=via)
    said = str(caught.value)
    assert said.startswith(
        "something ran unrecorded, so the graphs would be incomplete: another library"
    )
    assert "another library may have computed a tensor" in said
    assert "The library got a tensor by ." in said
    assert f"() handed over at mechanisms/{HERE}:" in said or f"{HERE}:" in said
    assert said.count(f"{HERE}:") == 1 or "at the same line" not in said
    assert "Compute the result with torch, or compute it before the capture" in said


GLOBAL = torch.from_numpy(np.ones(4, dtype=np.float32))


class KeepsAnArray(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.from_numpy(np.ones(4, dtype=np.float32))

    def forward(self, x: Tensor) -> Tensor:
        x.sum().numpy()
        return x * self.table


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_an_array_that_is_kept_is_a_constant(via: str) -> None:
    closure = torch.from_numpy(np.ones(4, dtype=np.float32))

    def reads(x: Tensor) -> Tensor:
        x.sum().numpy()
        return x * GLOBAL * closure

    target = reads if via == "dispatch" else eager(reads)
    assert capture(target, example(4), via=via).count("aten.mul") == 2
    assert capture(KeepsAnArray(), example(4), via=via).count("aten.mul") == 1


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("tolist", lambda x: x.sum().tolist()),
        ("numpy", lambda x: x.sum().numpy()),
        ("__array__", lambda x: np.asarray(x.sum())),
    ],
)
def test_a_method_that_reads_is_a_node_and_a_sync(method: str, call: Callable[..., Any]) -> None:
    captured = capture(lambda x: (call(x), x.sin())[1], example(4), via="dispatch")
    assert dict(captured.op_counts) == {
        "aten.sum.default": 1,
        f"Tensor.{method}": 1,
        "aten.sin.default": 1,
    }
    with pytest.raises(AssertionError, match=rf"reads a value back: Tensor\.{method}"):
        captured.assert_no_syncs()
    with pytest.raises(AssertionError, match="found 1"):
        captured.assert_no_ops(f"Tensor.{method}")
    assert captured.flops == 0
    text = captured.forward.to_text()
    assert f"= Tensor.{method}(%sum) !syncs" in text
    assert Graph.from_text(text) == captured.forward
    other = capture(lambda x: (call(x.cos()), x.sin())[1], example(4), via="dispatch")
    assert other != captured


def test_uncalled_method_is_a_valid_pattern() -> None:
    captured = capture(torch.sin, example(4), via="dispatch")
    captured.assert_no_ops("Tensor.tolist", "Tensor.numpy")


def in_nested_lists(x: Tensor) -> Tensor:
    return torch.tensor([[x.sum().detach(), 1.0], [2.0, x.mean().detach()]]).sum() * x


def in_a_new_tensor(x: Tensor) -> Tensor:
    total, mean = x.detach().sum(), x.detach().mean()
    return x.new_tensor((total, mean)).sum() * x


@pytest.mark.parametrize(
    ("via", "function"),
    [("aot", in_nested_lists), ("dispatch", in_nested_lists), ("dispatch", in_a_new_tensor)],
)
def test_each_tensor_in_a_list_is_read(via: str, function: Callable[[Tensor], Tensor]) -> None:
    target = function if via == "dispatch" else eager(function)
    captured = capture(target, example(4), via=via)
    assert captured.count("aten._local_scalar_dense") == 2
    assert captured.count("aten.mean") == 1
    with pytest.raises(AssertionError, match=r"reads a value back: aten\._local_scalar_dense"):
        captured.assert_no_syncs()


def test_a_list_beside_a_cycle_is_not_followed() -> None:
    def target(x: Tensor) -> Tensor:
        total = x.sum().detach()
        history: dict[str, Any] = {"total": total}
        history["all"] = [total, history]
        return torch.tensor([total.item(), 1.0]).sum() * x

    assert capture(target, example(4), via="dispatch").count("aten._local_scalar_dense") == 1


def by_pointer(x: Tensor) -> Tensor:
    filled = torch.empty_like(x)
    ctypes.memmove(filled.data_ptr(), x.data_ptr(), x.numel() * x.element_size())
    return filled


def by_pointer_and_used(x: Tensor) -> Tensor:
    filled = x.new_empty(x.shape)
    ctypes.memmove(filled.data_ptr(), x.data_ptr(), x.numel() * x.element_size())
    return filled.view(-1).cos()


@pytest.mark.parametrize("function", [by_pointer, by_pointer_and_used])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_memory_that_no_recorded_op_fills_is_refused(
    via: str, function: Callable[[Tensor], Tensor]
) -> None:
    target = function if via == "dispatch" else eager(function)
    said = r"the tensor of aten\.\w*empty\w*\.default at .*test_below_dispatcher.py:\d+ in by_point"
    with pytest.raises(CaptureError, match=said):
        capture(target, example(4), via=via)


@torch.library.custom_op("below_dispatcher::fill", mutates_args=("out",))
def fill(x: Tensor, out: Tensor) -> None:
    out.copy_(x)


@torch.library.custom_op("below_dispatcher::fill_scaled", mutates_args=("out",))
def fill_scaled(out: Tensor, x: Tensor, *, beta: int) -> None:
    out.copy_(x)


def by_an_op(x: Tensor) -> Tensor:
    filled = torch.empty_like(x)
    filled[:1].copy_(x[:1])
    another = torch.empty(x.shape)
    fill(x, another)
    third = torch.empty(0)
    torch.sin(x, out=third.resize_(4))
    fourth = torch.empty(4)
    fill_scaled(fourth, x, beta=0)  # `beta` is no factor of the first argument here
    return (
        torch.cat([filled, another, third, fourth, torch.empty(0)])
        + torch.zeros_like(torch.empty(20))[:16]
    )


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_memory_filled_by_an_op_is_not_refused(via: str) -> None:
    target = by_an_op if via == "dispatch" else eager(by_an_op)
    with torch.no_grad():
        assert capture(target, example(4), via=via).count("aten.cat") == 1


def scores(x: Tensor) -> Tensor:
    """As the attention of diffusers: with `beta=0`, the op does not read its first argument."""
    query = x.reshape(1, 2, 2)
    unread = torch.empty(1, 2, 2)
    return torch.baddbmm(unread, query, query.transpose(1, 2), beta=0, alpha=0.5)


def padded(x: Tensor) -> Tensor:
    """torch computes the lengths in C++, and writes them through a pointer."""
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x.reshape(2, 2, 1), torch.tensor([1, 2]), batch_first=True, enforce_sorted=False
    )
    values, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    return values.sum((1, 2)) / lengths


def with_lengths(x: Tensor) -> Tensor:
    """torch makes the tensor of the lengths in C++."""
    logits = x.reshape(2, 1, 2).log_softmax(-1)
    return torch.nn.functional.ctc_loss(logits, torch.ones(1, 1, dtype=torch.long), (2,), (1,))


@pytest.mark.parametrize("function", [scores, padded, with_lengths])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_memory_that_is_not_read_or_that_torch_fills_is_not_refused(
    via: str, function: Callable[[Tensor], Tensor]
) -> None:
    target = function if via == "dispatch" else eager(function)
    assert capture(target, example(4, grad=True), via=via).op_counts


@pytest.mark.parametrize("grad", [False, True])
def test_memory_filled_by_a_compiled_graph_is_not_refused(grad: bool) -> None:
    make = torch.compiler.disable(torch.empty_like)

    def target(x: Tensor) -> Tensor:
        out = make(x.detach())
        out.copy_(x.detach().sin())
        return out * x

    assert capture(target, example(4, grad=grad)).count("aten.sin") >= 1


# -- refused only for values that another library computed ----------------------------------------


PLAIN = [
    "2.0",
    "[1.0, -2.0]",
    "scale",
    "float(3)",
    "options.scale",
    "x.item()",
    "x.T.sum(-1)[0].item() + 1",
    "torch.sum(x).tolist()",
    "x.shape[0] / math.sqrt(x.ndim)",
    "[\n        2.0,\n    ]",
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no columns")
@pytest.mark.parametrize("number", PLAIN)
def test_plain_number_after_a_call_of_numpy_is_recorded(number: str) -> None:
    names = {
        "torch": torch,
        "math": math,
        "scale": 2.0,
        "options": types.SimpleNamespace(scale=2.0),
    }
    source = f"def target(x):\n    x.numpy()\n    return x * torch.tensor({number}).sum()\n"
    graph = capture(function(source, names), torch.ones(1, 1), via="dispatch").forward
    assert graph.count("aten.mul") == 1


OF_NUMPY = [
    "x.numpy().mean()",
    "x.numpy().round()",
    "y",
    "np.float64(2)",
    "float(y)",
    "math.sqrt(y)",
    "[max(y, 1)]",
    "y.item()",
    "x.numpy().mean().item()",
    "np.sin(x.numpy()).tolist()",
    "torch.from_numpy(np.sin(x.numpy())).sum().item()",
]


@pytest.mark.parametrize("number", OF_NUMPY)
def test_number_of_numpy_is_refused_with_its_line(number: str) -> None:
    source = f"def target(x):\n    y = x.numpy().mean()\n    return x * torch.tensor({number})\n"
    target = function(source, {"torch": torch, "np": np, "math": math})
    with pytest.raises(CaptureError, match=r"another library .* first used at .*target.py:3"):
        capture(target, torch.ones(2, 4), via="dispatch")


def function(source: str, names: dict[str, Any]) -> Any:
    """Return the function `target` of a source whose lines Python can read."""
    file = f"{abs(hash(source))}_target.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), names)
    return names["target"]


def test_array_that_comes_back_unchanged_is_the_tensor() -> None:
    def target(x: Tensor) -> Tensor:
        y = x.sin()
        return torch.from_numpy(y.numpy()) * x

    graph = capture(target, example(2, 4), via="dispatch").forward
    assert graph.find("aten.lift_fresh")[0].refs == ("sin",)


def test_array_that_numpy_has_written_is_refused() -> None:
    def target(x: Tensor) -> Tensor:
        array = x.sin().numpy()
        array += 1
        return torch.from_numpy(array) * x

    with pytest.raises(CaptureError, match="another library may have computed"):
        capture(target, example(2, 4), via="dispatch")


def test_numpy_that_dynamo_compiles_is_no_other_library() -> None:
    """As in the masks of transformers' audio models: no tensor of the model gets to numpy."""
    weight = torch.ones(4, requires_grad=True)

    def target(x: Tensor) -> Tensor:
        count = int(2.5 + np.random.rand(1).item() / 4)
        chosen = np.random.choice(np.arange(4), count, replace=False)
        mask = np.zeros(4, dtype=bool)
        mask[chosen] = True
        return x * weight * torch.tensor(mask)

    captured = capture(target, torch.ones(4), via="aot")
    assert captured.forwards[-1].op_counts["aten.mul.Tensor"] == 2


def test_numpy_between_graphs_that_gets_a_result_is_another_library() -> None:
    def target(x: Tensor) -> Tensor:
        values = x.sin().detach().numpy()
        mask = np.random.choice(values, 2)  # Dynamo does not compile this function
        return x * torch.tensor(mask)

    with pytest.raises(CaptureError, match="another library may have computed"):
        capture(target, torch.ones(2), via="aot")
