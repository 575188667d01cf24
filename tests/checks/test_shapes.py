"""Sizes that must stay dynamic, and graphs that must be equal to each other."""

from __future__ import annotations

import pytest
import torch

from pytest_torchgraph import Aot, capture, watch


def double(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 + y.sum()


def test_assert_dynamic_passes_for_a_dynamic_size() -> None:
    captured = capture(double, torch.ones(3, 4), torch.ones(5), via=Aot(dynamic=True))
    captured.assert_dynamic("x", dim=0)
    captured.assert_dynamic("x", dim=(0, -1))
    with pytest.raises(AssertionError) as error:
        captured.assert_static("x", dim=1)
    assert str(error.value).startswith("sizes of x are not static:\n  inference: x is [s")
    assert ": dim 1 is not a number\n" in str(error.value)
    assert "torch._dynamo.mark_static(x, [1])" in str(error.value)
    fixed = torch.ones(3, 4)
    torch._dynamo.mark_static(fixed, [1])
    captured = capture(double, fixed, torch.ones(5), via=Aot(dynamic=True))
    captured.assert_static("x", dim=1)


def test_assert_dynamic_of_a_specialized_size_fails() -> None:
    captured = capture(double, torch.ones(3, 4), torch.ones(5))
    captured.assert_static("y", dim=0)
    with pytest.raises(AssertionError) as error:
        captured.assert_dynamic("x", dim=[0, 1])
    assert str(error.value) == (
        "sizes of x are not dynamic:\n"
        "  inference: x is [3, 4]: dim 0 is not a symbol\n"
        "  inference: x is [3, 4]: dim 1 is not a symbol\n"
        "call torch._dynamo.mark_dynamic(x, [0, 1]) before the model. If code needs a fixed "
        "size, torch raises an error with its line"
    )
    marked = torch.ones(3, 4)
    torch._dynamo.mark_dynamic(marked, [0, 1])
    capture(double, marked, torch.ones(5)).assert_dynamic("x", dim=[0, 1])
    captured = capture(double, torch.ones(3, 4), torch.ones(5), via="dispatch")
    with pytest.raises(AssertionError, match="sizes are static via 'dispatch': capture via 'aot'"):
        captured.assert_dynamic("x", dim=0)


def test_assert_dynamic_of_a_size_fixed_by_code_names_the_line() -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y if y.shape[0] == 5 else y

    captured = capture(scaled, torch.ones(3, 4), torch.ones(5), via=Aot(dynamic=True))
    captured.assert_dynamic("x", dim=0)
    with pytest.raises(AssertionError) as error:
        captured.assert_dynamic("y", dim=-1)
    line = scaled.__code__.co_firstlineno + 1
    assert str(error.value) == (
        "sizes of y are not dynamic:\n"
        "  inference: y is [5]: dim -1 was dynamic and was fixed to 5 at "
        f"tests/checks/test_shapes.py:{line} in scaled: "
        "return x.sum() + y if y.shape[0] == 5 else y\n"
        "change the code at these lines, so that it works for all sizes, or pass the sizes that "
        "occur: sizes=(2, 64)"
    )


def test_unknown_input_or_invalid_dimension_is_an_error() -> None:
    captured = capture(double, torch.ones(3, 4), torch.ones(5))
    with pytest.raises(ValueError, match="no forward graph has an input 'z'; inputs: x, y"):
        captured.assert_dynamic("z", dim=0)
    with pytest.raises(ValueError, match="dim=2 is out of range: input 'x' has 2 dimensions"):
        captured.assert_static("x", dim=2)
    for dim in (True, "0", [0, None]):
        with pytest.raises(TypeError, match="is not a dimension: pass an int"):
            captured.assert_static("x", dim=dim)  # type: ignore[arg-type]


def test_shape_check_without_a_dimension_is_an_error() -> None:
    captured = capture(double, torch.ones(3, 4), torch.ones(5))
    for check in (captured.assert_static, captured.assert_dynamic):
        with pytest.raises(TypeError, match=r"dim=\[\] checks nothing"):
            check("x", dim=[])


class Blocks(torch.nn.Module):
    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, size) for size in sizes)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.compile(block, backend="eager", dynamic=False)(x) for block in self.blocks]


def test_separately_compiled_blocks_have_one_distinct_graph() -> None:
    torch._dynamo.reset()
    x = torch.ones(2, 4)
    with watch() as seen:
        Blocks(4, 4, 4)(x)
    seen.assert_distinct_graphs(1)
    torch._dynamo.reset()
    with watch() as seen:
        Blocks(4, 5, 4)(x)
    with pytest.raises(AssertionError) as error:
        seen.assert_distinct_graphs(1)
    assert str(error.value).startswith("distinct graphs: expected 1, found 2\n  forward_0: ")
    assert "\n      differs from forward_0: " in str(error.value)
    with pytest.raises(TypeError, match="0 is not a valid number of graphs"):
        seen.assert_distinct_graphs(0)


def test_shape_check_without_a_graph_fails() -> None:
    with watch() as seen:
        pass
    for check in (
        lambda: seen.assert_distinct_graphs(1),
        lambda: seen.assert_dynamic("x", dim=0),
        lambda: seen.assert_pattern("aten.mm -> aten.relu"),
        lambda: seen.assert_no_pattern("aten.mm -> aten.relu"),
        lambda: seen.assert_order("aten.mm", "aten.relu"),
    ):
        with pytest.raises(AssertionError, match="no graph was compiled"):
            check()
