"""Budgets, and costs of modules."""

from __future__ import annotations

import re

import pytest
import torch

from pytest_torchgraph import Capture, CaptureError, Cost, capture, watch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.GELU())
        self.second = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


FIRST, SECOND = 2 * 2 * 4 * 32, 2 * 2 * 32 * 4
"""One product of 2 rows each. The backward has one per weight, and one for the second input."""


@pytest.fixture(scope="module")
def step() -> Capture:
    return capture(Net(), torch.ones(2, 4))


def test_budget_costs_by_module(step: Capture) -> None:
    value = 2 * 32 * 4
    assert step.by_module() == {
        "first.0": Cost(2 * FIRST, value),
        "first.1": Cost(0, value),
        "second": Cost(3 * SECOND, 0),
    }
    assert step.by_module(depth=1) == {
        "first": Cost(2 * FIRST, 2 * value),
        "second": Cost(3 * SECOND, 0),
    }
    assert step.by_module(depth=0) == {"": Cost(step.flops, step.saved_bytes)}
    with pytest.raises(ValueError, match="depth=-1 is not a valid module depth"):
        step.by_module(depth=-1)


def test_budget_within_limits_passes(step: Capture) -> None:
    step.assert_budget(flops=step.flops, saved_bytes=512, peak_bytes={"cpu": 10**6})
    step.assert_budget(flops=(step.flops, None))
    step.assert_budget(saved_bytes=(512, 512))


def test_exceeded_budget_names_the_modules(step: Capture) -> None:
    made_by = step.forward.find("aten.gelu")[0].source
    assert made_by is not None
    line = f"{'':>20}{made_by}: return self.second(self.first(x))"
    with pytest.raises(AssertionError) as error:
        step.assert_budget(flops=10, saved_bytes=(None, 300), peak_bytes=10**6)
    assert str(error.value) == (
        "budget exceeded:\n"
        f"  flops: expected at most 10, found {2 * FIRST + 3 * SECOND}\n"
        f"      {3 * SECOND:>12}  second\n"
        f"      {2 * FIRST:>12}  first.0\n"
        "  saved_bytes: expected at most 300, found 512\n"
        f"               256 saved  first.0: aten.addmm.default\n{line}\n"
        f"               256 saved  first.1: aten.gelu.default\n{line}\n"
        "  to see every module: print(capture.cost_table()). To see only the outer modules: "
        "print(capture.cost_table(depth=1))"
    )
    with pytest.raises(AssertionError, match="peak_bytes: expected at most 10, found") as peak:
        step.assert_budget(peak_bytes=10)
    assert "of these, saved for the backward (512 bytes in total):\n" in str(peak.value)
    assert "the rest: gradients and intermediate results that are live at the peak\n" in str(
        peak.value
    )
    with pytest.raises(AssertionError, match="flops: expected at least"):
        step.assert_budget(flops=(step.flops + 1, None))


@pytest.mark.slow("compiles for a second")
def test_the_figures_of_a_failure_add_up_to_the_total() -> None:
    nn = torch.nn
    acts = nn.Tanh, nn.Sigmoid, nn.ReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus
    layers = [layer for k, act in enumerate(acts, 8) for layer in (nn.Linear(k, k + 1), act())]
    step = capture(torch.nn.Sequential(*layers), torch.ones(2, 8))
    with pytest.raises(AssertionError) as error:
        step.assert_budget(flops=1)
    flops = re.findall(r"^ {6} *(\d+)  (.+)", str(error.value), re.MULTILINE)
    assert sum(int(count) for count, _ in flops) == step.flops
    assert flops[-1][1] == "in 2 more modules"
    with pytest.raises(AssertionError) as error:
        step.assert_budget(saved_bytes=1)
    saved = re.findall(r"^ {6} *(\d+) saved  (.+)", str(error.value), re.MULTILINE)
    assert sum(int(size) for size, _ in saved) == step.saved_bytes
    assert re.fullmatch("by [1-9] more ops?", saved[-1][1])


@pytest.mark.slow("a model of many layers")
def test_budget_failure_lists_layers_of_equal_cost_once() -> None:
    step = capture(Planted(), torch.ones(2, 64))
    with pytest.raises(AssertionError) as error:
        step.assert_budget(flops=1)
    first, other = 2 * 2 * 2 * 64 * 64, 3 * 2 * 2 * 64 * 64  # the input requires no gradient
    assert str(error.value).splitlines()[2:4] == [
        f"            {11 * other}  blocks.{{1 … 11}}  ({other} each)",
        f"             {first}  blocks.0",
    ]
    assert "more module" not in str(error.value)


class Planted(torch.nn.Module):
    """Blocks that save an unnecessary `exp`."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.relu(block(x).exp())  # planted
        return x


def test_saved_op_is_named_with_its_line() -> None:
    step = capture(Planted(), torch.ones(2, 64), via="dispatch")
    one = 2 * 64 * 4
    with pytest.raises(AssertionError) as error:
        step.assert_budget(saved_bytes=12 * one)
    largest = str(error.value).splitlines()[2:-1]
    assert [" ".join(line.split()[:5]) for line in largest[::2]] == [
        f"{12 * one} saved aten.exp.default",
        f"{12 * one} saved aten.relu.default",
    ]
    assert all(line.endswith("torch.relu(block(x).exp())  # planted") for line in largest[1::2])


def test_budget_failure_lists_equal_layers_once() -> None:
    layers = torch.nn.Sequential(*(Net() for _ in range(12)))
    with pytest.raises(AssertionError, match=r"3072 saved  \{0 … 11\}.first.1: aten.gelu.default"):
        capture(layers, torch.ones(2, 4), via="dispatch").assert_budget(saved_bytes=10)


def test_budget_of_an_empty_watch_fails() -> None:
    with watch() as seen:
        Net()(torch.ones(2, 4))
    for figure in ("flops", "saved_bytes", "peak_bytes"):
        with pytest.raises(CaptureError, match="no graph was compiled"):
            getattr(seen, figure)
    with pytest.raises(CaptureError, match="no graph was compiled"):
        seen.by_module()


@torch.compiler.disable
def squared(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def broken(x: torch.Tensor) -> torch.Tensor:
    return squared(x + 1) * 2


@pytest.mark.filterwarnings("ignore:::torch")
def test_budget_of_a_watch_with_a_graph_break_is_refused() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    with watch() as seen:
        torch.compile(broken, backend="aot_eager")(x)
    why = r"the cost is unknown: .*first graph break: .*test_budget.py:\d+.*Use graph_capture"
    captured = capture(broken, x)
    for figure in ("flops", "saved_bytes", "peak_bytes"):
        with pytest.raises(CaptureError, match=why):
            seen.assert_budget(**{figure: 10**9})
        with pytest.raises(CaptureError, match=why):
            getattr(seen, figure)
        with pytest.raises(AssertionError, match=rf"{figure}: expected at most 1, found"):
            captured.assert_budget(**{figure: 1})
    for ask in (seen.by_module, lambda: seen.with_sizes(s0=4)):
        with pytest.raises(CaptureError, match=why):
            ask()


def test_budget_of_eager_ops_via_compiled_autograd_is_refused() -> None:
    """Also if a compiled forward saves another value."""

    def saving(x: torch.Tensor) -> torch.Tensor:
        return squared(x.sin()).cos()

    captured = capture(saving, torch.ones(4, 4, requires_grad=True), via="compiled_autograd")
    for figure in ("saved_bytes", "peak_bytes"):
        with pytest.raises(CaptureError, match="saved bytes are unknown"):
            captured.assert_budget(**{figure: 10**9})


def test_budget_failure_names_lines_without_modules() -> None:
    net = Net()
    with watch() as seen:
        torch.compile(net, backend="aot_eager")(torch.ones(2, 4)).sum().backward()
    with pytest.raises(AssertionError) as raised:
        seen.assert_budget(flops=10)
    message = str(raised.value)
    assert "(no module)" not in message
    assert "cost_table" not in message
    listed = [int(line.split()[0]) for line in message.splitlines() if line.strip()[:1].isdigit()]
    assert sum(listed) == seen.flops
    assert f"{'':>20}tests/checks/test_budget.py:" in message


def test_budget_that_checks_nothing_is_an_error(step: Capture) -> None:
    with pytest.raises(TypeError, match=r"assert_budget\(\) checks nothing"):
        step.assert_budget()
    for limit in ((None, None), (0, None), {"cpu": (None, None)}):
        with pytest.raises(TypeError, match=r"saved_bytes=.* checks nothing"):
            step.assert_budget(saved_bytes=limit)
    with pytest.raises(ValueError, match="missing count for device 'cpu'"):
        step.assert_budget(flops={"cuda": 10})
    with pytest.raises(ValueError, match="unknown='no' is neither"):
        step.assert_budget(flops=10, unknown="no")
    step.assert_budget(flops=1e9, saved_bytes=(0.0, 1e9), peak_bytes={"cpu": 1e9})
    for limit in (10.5, float("inf"), float("nan")):
        with pytest.raises(TypeError, match="is not a valid count"):
            step.assert_budget(flops=limit)
    with pytest.raises(TypeError, match="'10' is not a valid count"):
        step.assert_budget(flops="10")
    with watch() as seen:
        pass
    with pytest.raises(AssertionError, match="no graph was compiled"):
        seen.assert_budget(flops=10)


def test_saved_bytes_budget_without_a_backward_is_refused() -> None:
    with torch.no_grad():
        step = capture(Net(), torch.ones(2, 4))
    with pytest.raises(AssertionError, match=r"no graph has a backward: check that .*is not set$"):
        step.assert_budget(saved_bytes=10**9)
    step.assert_budget(saved_bytes=0)


def test_op_without_a_flop_formula_fails_unless_ignored() -> None:
    step = capture(lambda x: torch.linalg.inv(x) @ x, torch.eye(4), via="dispatch")
    with pytest.raises(CaptureError, match=r"torch has no formula for aten.linalg_inv_ex"):
        step.assert_budget(flops=10**9)
    step.assert_budget(flops=2 * 4 * 4 * 4, unknown="ignore")


def test_unknown_figure_does_not_hide_another_exceeded_limit() -> None:
    x = torch.eye(4, requires_grad=True)
    step = capture(lambda x: torch.linalg.inv(x) @ x, x, via="dispatch")
    with pytest.raises(CaptureError, match=r"^the FLOPs are unknown, because torch"):
        step.assert_budget(flops=10**9, saved_bytes=10**9)
    with pytest.raises(AssertionError) as error:
        step.assert_budget(flops=10**9, saved_bytes=1)
    text = str(error.value)
    assert "  flops: the FLOPs are unknown, because torch has no formula for aten." in text
    assert "  saved_bytes: expected at most 1, found " in text


def test_flops_budget_without_counted_flops_fails() -> None:
    step = capture(torch.linalg.inv, torch.eye(4), via="dispatch")
    with pytest.raises(AssertionError) as error:
        step.assert_budget(flops=10**9, unknown="ignore")
    assert (
        "flops: no FLOPs were counted, because torch has no formula for aten.linalg_inv_ex.default"
        in str(error.value)
    )


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_saved_bytes_without_a_backward_are_refused(via: str) -> None:
    model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    captured = capture(model, x, via=via, backward=False)
    for read in (lambda: captured.saved_bytes, lambda: captured.assert_budget(saved_bytes=0)):
        with pytest.raises(CaptureError, match="no backward ran although an output requires"):
            read()
    assert {cost.saved_bytes for cost in captured.by_module().values()} == {None}
    captured.assert_budget(flops=2 * 2 * 4 * 4)
    with torch.no_grad():
        capture(model, x, via=via).assert_budget(saved_bytes=0)
