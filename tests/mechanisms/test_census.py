"""Ops in bodies and wrappers, through the public API: counts, checks, patterns, order and costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mechanisms.higher_order_rows import by_hand, first, kernel, square
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.split_module import split_module
from torch.utils.flop_counter import register_flop_formula
from torch_releases import skip_before

from pytest_torchgraph import Aot, Capture, CaptureError, Graph, capture, diff, from_fx


@torch.library.custom_op("tg_census::double_", mutates_args=("x",))
def double_(x: Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("tg_census::product", mutates_args=("out",))
def product(x: Tensor, y: Tensor, out: Tensor) -> None:
    out.copy_(x @ y)


@register_flop_formula(torch.ops.tg_census.product)
def _(x: Any, y: Any, out: Any, **kwargs: Any) -> int:
    return 1000 * x[0]


def writes(x: Tensor) -> Tensor:
    y = x.clone()
    double_(y)
    return y + 1


@pytest.fixture(scope="module")
def written() -> Capture:
    return capture(writes, torch.ones(3), backward=False)


def test_a_custom_op_that_writes_its_argument_is_seen_by_each_check(written: Capture) -> None:
    op = "tg_census.double_"
    written.assert_op_counts({op: 1})
    written.assert_op_counts({op: 1, "aten.clone": 1, "aten.add": 1}, exact=True)
    for pattern in (op, "tg_census.*", double_._opoverload):
        with pytest.raises(AssertionError, match=r"tg_census\S+: found 1"):
            written.assert_no_ops(pattern)
    with pytest.raises(AssertionError, match=r"tg_census\.double_: expected 0, found 1"):
        written.assert_op_counts({op: 0})
    with pytest.raises(AssertionError, match="expected none, found 1"):
        written.assert_no_pattern(f"aten.clone ~> {op}")
    written.assert_order("aten.clone", op)
    assert written.graphs[0].find(op)[0].op == "higher_order.auto_functionalized_v2"


def test_custom_op_that_writes_is_not_reported_as_replaced() -> None:
    plain = capture(lambda x: x + 1, torch.ones(3), backward=False)
    plain.assert_no_ops("tg_census.double_")
    with pytest.raises(ValueError, match=r"functional .* did you mean aten\.sin"):
        plain.assert_no_ops("aten.sin_")
    with pytest.raises(ValueError, match=r"did you mean tg_census\.double_"):
        plain.assert_no_ops("tg_census.double")


def test_a_formula_of_an_op_that_writes_takes_the_arguments_that_it_declares() -> None:
    def whole(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        product(x, x, out)
        return out

    def part(x: Tensor) -> Tensor:
        out = torch.empty(5, 4)
        product(x, x, out[1:])
        return out

    assert capture(whole, square(), backward=False).flops == 4000
    with pytest.raises(
        CaptureError, match=r"no formula for the arguments of .* \(tg_census\.product"
    ):
        _ = capture(part, square(), backward=False).flops


# -- shared regions --------------------------------------------------------------------------------


class Layers(nn.Module):
    """Layers in one shared region, or in none."""

    def __init__(self, shared: bool, depth: int = 3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(depth))
        self.shared = shared

    def forward(self, x: Tensor) -> Tensor:
        def run(layer: nn.Module, x: Tensor) -> Tensor:
            return torch.relu(layer(x))

        called = torch.compiler.nested_compile_region(run) if self.shared else run
        for layer in self.layers:
            x = called(layer, x)
        return x


@pytest.fixture(scope="module")
def regions() -> tuple[Capture, Capture]:
    """Capture the same model without and with a region."""
    x = torch.ones(4, 64)
    return capture(Layers(False), x), capture(Layers(True), x)


@pytest.mark.slow("captures a region twice")
def test_a_region_costs_what_the_model_without_it_costs(regions: tuple[Capture, Capture]) -> None:
    skip_before("2.13", "a body of the backward that is called once is not inlined and ends later")
    plain, shared = regions
    assert shared.flops == plain.flops == 262_144
    assert shared.saved_bytes == plain.saved_bytes == 3072
    assert shared.peak_bytes == plain.peak_bytes
    for depth in (None, 1):
        flops = {path: cost.flops for path, cost in shared.by_module(depth).items()}
        assert flops == {path: cost.flops for path, cost in plain.by_module(depth).items()}
    for graph, other in zip(shared.graphs, plain.graphs, strict=True):
        assert {p: c.flops for p, c in graph.by_module().items() if c.flops} == {
            p: c.flops for p, c in other.by_module().items() if c.flops
        }
    assert "layers.2" in shared.cost_table()


def test_a_region_counts_once_per_call_and_for_the_layer_that_calls_it(
    regions: tuple[Capture, Capture],
) -> None:
    _, shared = regions
    shared.assert_op_counts({"aten.addmm": 3})
    with pytest.raises(AssertionError, match=r"aten\.addmm: expected 2, found 3"):
        shared.assert_op_counts({"aten.addmm": 2})
    assert shared.count("aten.addmm", module="layers.2") == 1
    assert shared.count("aten.addmm", module="layers.*") == 3
    assert shared.count("aten.mm", module="layers.2") == 2
    with pytest.raises(AssertionError, match=r"layers\.2"):
        shared.assert_no_ops("aten.addmm", module="layers.2")
    with pytest.raises(ValueError, match=r"layers\.3"):
        shared.assert_no_ops("aten.addmm", module="layers.3")
    assert len(shared.find("aten.addmm")) == 2  # one node in the graph, one in the body


@torch.compiler.nested_compile_region
def region(x: Tensor) -> Tensor:
    return x.relu() * 2


@torch.compiler.nested_compile_region
def outer(x: Tensor) -> Tensor:
    return region(region(x)).exp()


def test_calls_in_bodies_multiply() -> None:
    captured = capture(lambda x: outer(outer(outer(x))), torch.ones(3), backward=False)
    captured.assert_op_counts({"aten.relu": 6, "aten.exp": 3, "higher_order.invoke_subgraph": 9})
    assert len(captured.find("aten.relu")) == 1
    captured.assert_pattern("aten.relu -> aten.mul", 6)
    captured.assert_pattern("aten.exp -> aten.relu", 2)
    with pytest.raises(AssertionError, match="expected 1, found 6"):
        captured.assert_pattern("aten.relu -> aten.mul", 1)


def test_patterns_follow_each_call_of_a_region() -> None:
    captured = capture(lambda x: region(region(region(x.sin()))).tan(), square(), backward=False)
    for pattern in ("aten.mul -> aten.relu", "aten.mul -> aten.tan", "aten.sin ~> aten.tan"):
        with pytest.raises(AssertionError, match="expected none"):
            captured.assert_no_pattern(pattern)
    captured.assert_pattern("aten.sin -> aten.relu", 1)
    captured.assert_no_pattern("aten.sin -> aten.tan")
    captured.assert_no_pattern("aten.tan ~> aten.relu")


def test_pattern_does_not_pass_through_unused_body_inputs() -> None:
    captured = capture(_second_of, square(), backward=False)
    captured.assert_no_pattern("aten.sin ~> aten.tan")
    captured.assert_pattern("aten.neg ~> aten.tan")
    with pytest.raises(AssertionError, match=r"aten\.tan\.default uses .*aten\.cos"):
        captured.assert_pattern("aten.sin ~> aten.tan")


@torch.compiler.nested_compile_region
def apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), y.cos()


def _second_of(x: Tensor) -> Tensor:
    return apart(x.sin(), x.neg())[1].tan()


def test_order_counts_each_call_of_a_region() -> None:
    def mixed(x: Tensor) -> Tensor:
        return region(region(region(x).sin()).sin())

    with pytest.raises(AssertionError, match=r"aten\.relu after aten\.sin"):
        capture(mixed, square(), backward=False).assert_order("aten.relu", "aten.sin")


@pytest.mark.slow("torch lowers a loop")
def test_a_loop_runs_its_body_after_itself() -> None:
    def mapped(x: Tensor) -> Tensor:
        return map_over(lambda row: row.sin().exp(), x)

    def looped(x: Tensor) -> Tensor:
        start = (torch.zeros((), dtype=torch.int64), x)
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin().exp()), start)[1]

    for target in (mapped, looped):
        captured = capture(target, square(), backward=False)
        with pytest.raises(AssertionError, match=r"aten\.sin after aten\.exp"):
            captured.assert_order("aten.sin", "aten.exp")
    capture(mapped, torch.ones(1, 4), backward=False).assert_order("aten.sin", "aten.exp")


def test_a_symbolic_length_counts_once_and_has_no_flops() -> None:
    def mapped(x: Tensor) -> Tensor:
        return map_over(lambda row: (row @ row).sin(), x)

    captured = capture(mapped, torch.ones(5, 3, 3), via=Aot(dynamic=True), backward=False)
    captured.assert_op_counts({"aten.sin": 1})
    with pytest.raises(CaptureError, match=r"higher_order\.map_impl|symbol"):
        _ = captured.flops


# -- ops that the package does not know ------------------------------------------------------------


class Unheard(torch._ops.HigherOrderOperator):
    """A higher-order op of a third party."""

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


@pytest.fixture(scope="module")
def unheard() -> Any:
    name = "tg_census_unheard"
    yield Unheard(name)
    del torch._ops._higher_order_ops[name]


def test_an_unknown_op_counts_with_its_body_or_the_op_among_its_arguments(unheard: Any) -> None:
    def called(*before: Any) -> Graph:
        def build(graph: torch.fx.Graph, cos: torch.fx.Node, edit: bool) -> torch.fx.Node:
            args = [graph.get_attr(arg) if isinstance(arg, str) else arg for arg in before]
            return first(graph, graph.call_function(unheard, (*args, cos)))

        return by_hand(build)(False)

    found = called("one")
    found.assert_op_counts({"aten.mm": 1, "higher_order.tg_census_unheard": 1})
    for question in (lambda: found.flops, lambda: found.find_pattern("aten.mm -> aten.sin")):
        with pytest.raises(CaptureError, match=r"higher_order\.tg_census_unheard"):
            question()
    found = called(torch.ops.aten.mm.default)
    found.assert_op_counts({"aten.mm": 1})
    with pytest.raises(CaptureError, match=r"aten\.mm\.default, higher_order\.tg_census_unheard"):
        _ = found.flops
    with pytest.raises(CaptureError, match=r"the ops that higher_order\.tg_census_unheard runs"):
        called().assert_no_ops("aten.mm")


def test_a_kernel_that_this_process_does_not_know_is_refused() -> None:
    name = "triton_kernel_wrapper_functional"
    op = getattr(torch.ops.higher_order, name)
    kwargs = {"kernel_idx": 10**6, "constant_args_idx": 0, "grid": [], "kwargs": {}}
    found = by_hand(lambda graph, cos, edit: first(graph, graph.call_function(op, (), kwargs)))(
        False
    )
    with pytest.raises(CaptureError, match=name):
        found.assert_no_ops("aten.mm")


def test_a_kernel_is_named_by_its_function() -> None:
    make = kernel(torch.ops.higher_order.triton_kernel_wrapper_functional, functional=True)
    make(True)  # registers the second kernel in this process
    found = make(False)
    found.assert_op_counts({"triton.add_kernel": 1, "triton.*": 1})
    found.assert_no_ops("triton.mul_kernel")
    with pytest.raises(ValueError, match=r"triton\.ad_kernel"):
        found.assert_no_ops("triton.ad_kernel")


# -- modules that are graphs -----------------------------------------------------------------------


def split(edit: bool) -> torch.fx.GraphModule:
    def target(x: Tensor) -> Tensor:
        made = (x @ x).exp() if edit else (x @ x).sin()
        return made.cos()

    traced = make_fx(target)(square())
    parts = iter([0, 0, 1])
    return split_module(traced, torch.nn.Module(), lambda node: next(parts))


def test_a_module_that_is_a_graph_is_looked_into() -> None:
    graph = from_fx(split(False))
    graph.assert_op_counts({"aten.mm": 1, "aten.sin": 1, "aten.cos": 1})
    with pytest.raises(AssertionError, match="found 1"):
        graph.assert_no_ops("aten.sin")
    graph.assert_pattern("aten.sin -> aten.cos")
    assert graph.flops == 2 * 4**3
    (finding,) = diff(split(False), split(True)).findings
    assert finding.after is not None
    assert finding.after.op == "aten.exp.default"
    assert graph == from_fx(split(False))


def test_a_module_that_returns_several_values_is_looked_into() -> None:
    def target(x: Tensor) -> Tensor:
        return x.sin() + x.neg()

    parts = iter([0, 0, 1])
    graph = from_fx(
        split_module(make_fx(target)(square()), torch.nn.Module(), lambda node: next(parts))
    )
    assert "operator.getitem" not in graph.op_counts
    graph.assert_pattern("aten.sin -> aten.add")
    graph.assert_pattern("aten.neg -> aten.add")
