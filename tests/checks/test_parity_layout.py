"""Parity of strides, and of what the outputs of a step share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives

from pytest_torchgraph import capture, steady


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


Function = Callable[[torch.Tensor], object]


def in_compiled_code(eager: Function, compiled: Function) -> Function:
    """Return a function that computes otherwise in compiled code."""

    def step(x: torch.Tensor) -> object:
        return compiled(x) if torch.compiler.is_compiling() else eager(x)

    return step


def same_twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    return y, y


def view_of_first(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    return y, y.view(-1).view(x.shape)


transposed = in_compiled_code(lambda x: (x + 1).t(), lambda x: (x + 1).t().contiguous())
FAULTS: dict[str, tuple[Function, str]] = {
    "strides": (transposed, r"output: strides \(1, 3\) in eager, \(2, 1\) captured"),
    "copy of the input": (
        in_compiled_code(lambda x: x.view(-1), lambda x: x.view(-1).clone()),
        r"output: shares memory with argument 'x' in eager, nothing captured",
    ),
    "one object, two objects": (
        in_compiled_code(same_twice, lambda x: (x + 1, x.clone() + 1)),
        r"output\[1\]: the same tensor as output\[0\] in eager, nothing captured",
    ),
    "two objects, one object": (
        in_compiled_code(lambda x: (x + 1, x + 1), same_twice),
        r"output\[1\]: the same tensor as nothing in eager, output\[0\] captured",
    ),
    "one memory, two memories": (
        in_compiled_code(view_of_first, lambda x: (x + 1, x.clone() + 1)),
        r"output\[1\]: shares memory with output\[0\] in eager, nothing captured",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_difference_in_layout_fails(fault: str) -> None:
    step, message = FAULTS[fault]
    with pytest.raises(AssertionError, match=message):
        capture(step, torch.rand(2, 3)).assert_matches_eager()


def test_difference_in_layout_fails_in_steady() -> None:
    step, message = FAULTS["one memory, two memories"]
    compiled = torch.compile(step, backend="aot_eager")
    seen = steady(compiled, (torch.rand(2, 3),), (torch.rand(2, 3),))
    with pytest.raises(AssertionError, match=f"call 1 of 2: {message}"):
        seen.assert_matches_eager()


def test_strides_can_be_left_out_but_sharing_cannot() -> None:
    capture(transposed, torch.rand(2, 3)).assert_matches_eager(strides=False)
    compiled = torch.compile(transposed, backend="aot_eager")
    steady(compiled, (torch.rand(2, 3),), (torch.rand(2, 3),)).assert_matches_eager(strides=False)
    seen = capture(FAULTS["copy of the input"][0], torch.rand(2, 3))
    with pytest.raises(AssertionError, match="shares memory with argument 'x'"):
        seen.assert_matches_eager(strides=False)


def test_difference_in_strides_names_the_op_that_returns_the_output() -> None:
    with pytest.raises(AssertionError) as error:
        capture(transposed, torch.rand(2, 3)).assert_matches_eager()
    assert "The op that returns it: aten.clone (" in str(error.value)
    assert "test_parity_layout.py:" in str(error.value)


def test_strides_of_sizes_of_one_and_of_empty_tensors_do_not_matter() -> None:
    step = in_compiled_code(
        lambda x: (x.new_ones(2, 1).as_strided((2, 1), (1, 7)), x.new_ones(0, 3), x),
        lambda x: (x.new_ones(2, 1), x.new_ones(3, 0).t(), x),
    )
    capture(step, torch.rand(2, 3)).assert_matches_eager()


def test_pending_result_of_a_collective_shares_no_memory_that_is_known() -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        group = dist.group.WORLD
        assert group is not None
        seen = capture(lambda x: collectives.all_reduce(x * 2, "sum", group), torch.rand(2))
        seen.assert_matches_eager()
    finally:
        dist.destroy_process_group()


def test_layout_is_no_first_difference() -> None:
    assert capture(transposed, torch.rand(2, 3)).first_difference() is None


def test_layout_is_not_compared_via_other_mechanisms() -> None:
    capture(transposed, torch.rand(2, 3), via="export").assert_matches_eager()


def test_fake_implementation_with_other_strides_is_named() -> None:
    with torch.library._scoped_library("parity_layout", "FRAGMENT"):

        @torch.library.custom_op("parity_layout::turn", mutates_args=())
        def turn(x: torch.Tensor) -> torch.Tensor:
            return x.t().clone(memory_format=torch.preserve_format)

        @turn.register_fake
        def _(x: torch.Tensor) -> torch.Tensor:
            return x.new_empty(x.shape[::-1])

        def step(x: torch.Tensor) -> torch.Tensor:
            return turn(x).contiguous() * 2

        seen = capture(step, torch.rand(2, 3), backward=False)
        with pytest.raises(AssertionError, match=r"strides \(2, 1\) in eager") as error:
            seen.assert_matches_eager()
    assert "fake implementation of custom op parity_layout.turn" in str(error.value)
