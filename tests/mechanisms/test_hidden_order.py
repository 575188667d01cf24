"""Order that no operand shows, in graphs of functions without a schema: writes and grad mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from pytest_torchgraph import GraphCapture, diff, load

aten = torch.ops.aten

WRITES: dict[str, Callable[[Tensor], Any]] = {
    "function": torch.relu_,
    "positional inplace": lambda y: functional.relu(y, True),
    "packet": lambda y: aten.add_(y, 1),
    "list": lambda y: torch._foreach_add_([y], 1),
    "in-place operator method": lambda y: y.__iadd__(1),
    "checkpoint": lambda y: checkpoint(lambda t: t.add_(1), y, use_reentrant=False),
    "view in a checkpoint": lambda y: checkpoint(
        lambda t: t.view(-1).add_(1) * 2, y, use_reentrant=False
    ),
    "checkpoint in a checkpoint": lambda y: checkpoint(
        lambda t: checkpoint(torch.relu_, t, use_reentrant=False) * 2, y, use_reentrant=False
    ),
}


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "unfold": lambda y: y.unfold(0, 2, 2),
    "data": lambda y: y.data,
    "contiguous": lambda y: y.contiguous(),
    "reshape": lambda y: y.reshape(2, 8),
    "index": lambda y: y[1:],
    "cast to the same dtype": lambda y: y.float(),
    "to": lambda y: y.to(torch.float32),
    "complex": lambda y: torch.view_as_real(torch.view_as_complex(y.view(4, 2, 2))),
}


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "cast": lambda y: y.double(),
    "contiguous": lambda y: y.t().contiguous(),
    "reshape": lambda y: y.t().reshape(-1),
    "index": lambda y: y[[0, 1]],
}


def itself(y: Tensor) -> Tensor:
    return y


def add(y: Tensor) -> None:
    y.add_(1)


ORDERS = [
    *((itself, write, True) for write in WRITES.values()),
    *((view, add, True) for view in VIEWS.values()),
    *((copied, add, False) for copied in COPIES.values()),
]


@pytest.mark.parametrize(
    ("part_of", "write", "differs"),
    ORDERS,
    ids=[*WRITES, *VIEWS, *(f"copy by {c}" for c in COPIES)],
)
def test_a_read_before_a_write_differs_from_a_read_after_it(
    graph_capture: GraphCapture, part_of: Any, write: Any, differs: bool
) -> None:
    def before(x: Tensor) -> Any:
        y = x * 2
        part = part_of(y)
        z = y.sin()
        write(part)
        return z, part

    def after(x: Tensor) -> Any:
        y = x * 2
        part = part_of(y)
        write(part)
        return y.sin(), part

    x = torch.ones(4, 4)
    first, second = (graph_capture(target, x, via="dynamo") for target in (before, after))
    assert (first != second) is differs
    assert bool(diff(first, second)) is differs


@pytest.mark.parametrize(
    ("via", "norm"),
    [
        ("aot", functional.batch_norm),
        ("export", functional.batch_norm),
        ("dynamo", functional.batch_norm),
        ("dynamo", functional.instance_norm),
        ("dynamo", lambda *args: checkpoint(functional.batch_norm, *args, use_reentrant=False)),
    ],
)
def test_running_statistics_are_written(graph_capture: GraphCapture, norm: Any, via: str) -> None:
    def before(x: Tensor, mean: Tensor, variance: Tensor) -> Any:
        mean, variance = mean * 1, variance * 1
        scaled = mean * 2
        return norm(x, mean, variance, None, None, True), scaled

    def after(x: Tensor, mean: Tensor, variance: Tensor) -> Any:
        mean, variance = mean * 1, variance * 1
        y = norm(x, mean, variance, None, None, True)
        return y, mean * 2

    tensors = torch.ones(2, 4, 3), torch.zeros(4), torch.ones(4)
    first, second = (graph_capture(target, *tensors, via=via) for target in (before, after))
    assert first != second


DROPOUTS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "function": lambda x, train: functional.dropout(x, 0.5, train),
    "keyword": lambda x, train: torch.dropout(x, p=0.5, train=train),
    "overload": lambda x, train: aten.dropout.default(x, 0.5, train),
    "attention": lambda x, train: functional.scaled_dot_product_attention(x, x, x, None, train / 2),
    "heads": lambda x, train: attend(x, train),
    "checkpoint": lambda x, train: checkpoint(
        lambda y: functional.dropout(y, 0.5, train), x, use_reentrant=False
    ),
}


def attend(x: Tensor, train: bool) -> Tensor:
    w, b = torch.ones(9, 3), torch.ones(9)
    return functional.multi_head_attention_forward(
        *(x, x, x, 3, 1, w, b, None, None, False, 0.5, w[:3], b[:3], train)
    )[0]


@pytest.mark.slow(
    "further functions", unless=["function-export", "attention-*", "heads-*", "checkpoint-*"]
)
@pytest.mark.parametrize(
    ("name", "via"), [("function", "export"), *((name, "dynamo") for name in DROPOUTS)]
)
def test_dropout_draws_only_in_training(
    graph_capture: GraphCapture, tmp_path: Path, name: str, via: str
) -> None:
    dropout = DROPOUTS[name]

    def step(x: Tensor, train: bool, is_swapped: bool) -> Any:
        a, b = x.sin(), x.cos()
        if is_swapped:
            b = dropout(b, train)
            return dropout(a, train), b
        a = dropout(a, train)
        return a, dropout(b, train)

    for train in (False, True):
        first, second = (
            graph_capture(step, torch.ones(2, 3), train, is_swapped, via=via)
            for is_swapped in (False, True)
        )
        assert first.to_text().count("!random") == 2 * train
        assert (first == second) is not train
        stored = tmp_path / "stored.tgraph"
        stored.write_text(re.sub(r"(\.\w*dropout.* : .*)", r"\1 !random", first.to_text()))
        assert train or load(stored) == first  # written by an older release


REGIONS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference_mode": torch.inference_mode,
    "sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
}


@pytest.mark.parametrize("name", REGIONS)
def test_an_op_in_a_region_differs_from_an_op_outside(
    graph_capture: GraphCapture, tmp_path: Path, name: str
) -> None:
    region = REGIONS[name]

    def op(x: Tensor) -> Tensor:
        is_attention = name == "sdpa_kernel"
        return functional.scaled_dot_product_attention(x, x, x) if is_attention else x.sin()

    def inside(x: Tensor, y: Tensor) -> Tensor:
        with region():
            first = op(x)
            second = op(y)
        return first + second

    def outside(x: Tensor, y: Tensor) -> Tensor:
        with region():
            first = op(x)
        second = op(y)
        return first + second

    x, y = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 4, 4, requires_grad=True)
    first, second = (
        graph_capture(f, x, y, via="dynamo", backward=False) for f in (inside, outside)
    )
    assert first != second
    assert diff(first, second)
    file = tmp_path / "step.tgraph"
    file.write_text(first.to_text())
    assert first == load(file) != second


def test_an_op_before_a_region_equals_an_op_after_it(graph_capture: GraphCapture) -> None:
    def before(x: Tensor) -> Tensor:
        y = x.cos()
        with torch.no_grad():
            z = x.sin()
        return y + z

    def after(x: Tensor) -> Tensor:
        with torch.no_grad():
            z = x.sin()
        return x.cos() + z

    x = torch.ones(4, requires_grad=True)
    assert graph_capture(before, x, via="dynamo") == graph_capture(after, x, via="dynamo")


@pytest.mark.slow("compiles a vmap")
def test_a_random_op_in_a_vmap_differs_from_one_before_it(graph_capture: GraphCapture) -> None:
    def inside(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: row + torch.rand(4), randomness="different")(x)

    def before(x: Tensor) -> Tensor:
        noise = torch.rand(4)
        return torch.vmap(lambda row: row + noise, randomness="different")(x)

    captures = [graph_capture(f, torch.ones(4, 4), via="dynamo") for f in (inside, inside, before)]
    assert captures[0] == captures[1]
    assert captures[0] != captures[2]
    assert diff(captures[0], captures[2])


@pytest.mark.slow("another mechanism", only=["aot"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_draws_from_one_generator_differ_from_draws_from_two(
    graph_capture: GraphCapture, via: Any
) -> None:
    first, second = torch.Generator(), torch.Generator()

    def draw(*generators: torch.Generator) -> Callable[[Tensor], Tensor]:
        a, b = generators
        return lambda x: (x + torch.rand(4, generator=a)) * torch.rand(4, generator=b)

    one, two, swapped = (
        graph_capture(draw(*generators), torch.ones(4), via=via)
        for generators in ((first, first), (first, second), (second, first))
    )
    assert one != two
    assert diff(one, two)
    assert two == swapped
