"""The first difference from the eager run, as a value and in the message of a failed check."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_torchgraph import Aot, Capture, CaptureError, capture


class Gelu(nn.Module):
    """Another formula if it is compiled."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return F.gelu(x, approximate="tanh")
        return F.gelu(x)


class Scaled(torch.autograd.Function):
    """Another backward if it is compiled."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        factor = 1.02 if torch.compiler.is_compiling() else 1.0
        return grad * (1 - x.tanh() ** 2) * factor


class OfFunction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Scaled.apply(x)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, middle: nn.Module):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.middle(self.up(self.norm(x))))


def captured(middle: nn.Module, **options: object) -> Capture:
    torch.manual_seed(0)
    return capture(Block(middle), torch.randn(3, 8), **options)


@pytest.fixture(scope="module")
def gelu() -> Capture:
    return captured(Gelu())


def test_first_difference_of_a_formula(gelu: Capture) -> None:
    first = gelu.first_difference()
    assert first is not None
    assert (first.stage, first.kind, first.module, first.graph) == (
        "dynamo",
        "formula",
        "middle",
        "forward",
    )
    assert [node.op for node in first.nodes] == ["aten.gelu.default"]
    assert [node.op for node in first.eager_nodes] == ["aten.gelu.default"]
    assert first.sure
    assert first.source is not None
    assert first.source.code == 'return F.gelu(x, approximate="tanh")'
    assert first.size > 1000 * first.rounding


def test_failed_check_appends_the_first_difference(gelu: Capture) -> None:
    with pytest.raises(AssertionError) as failed:
        gelu.assert_matches_eager()
    message, first = str(failed.value), str(gelu.first_difference())
    assert message.endswith(first)
    assert "First difference: in the graph that Dynamo traced, middle, " in first
    assert "another formula, not rounding" in first
    assert "Inputs: %up/addmm agrees." in first
    assert "the step gives eager's results." in first


def test_first_difference_is_none_within_the_tolerance(gelu: Capture) -> None:
    assert gelu.first_difference(atol=0.1) is None
    assert captured(nn.GELU()).first_difference() is None


def test_first_difference_in_the_backward() -> None:
    first = captured(OfFunction()).first_difference()
    assert first is not None
    assert (first.stage, first.graph, first.kind) == ("dynamo", "backward", "formula")
    assert first.nodes[-1].op == "aten.mul.Tensor"
    assert first.more == ()


def test_first_difference_refuses_other_mechanisms() -> None:
    other = captured(nn.GELU(), via="dispatch")
    with pytest.raises(CaptureError, match=r"via aot, inductor, dynamo, not 'dispatch'"):
        other.first_difference()


def test_first_difference_is_found_via_dynamo() -> None:
    first = captured(Gelu(), via="dynamo").first_difference()
    assert first is not None
    assert (first.stage, first.module, first.sure) == ("dynamo", "middle", True)


def test_graph_break_ends_the_search_with_its_reason() -> None:
    class Broken(Gelu):
        def forward(self, x: Tensor) -> Tensor:
            torch._dynamo.graph_break()
            return super().forward(x)

    first = captured(Broken()).first_difference()
    assert first is not None
    assert not first.nodes
    assert not first.sure
    assert "could not be followed beyond" in str(first)
    assert "only one forward with its backward is compared" in first.reason


def wrong_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return 0.5 * x * (1 + torch.erf(x * 0.7078))


def test_first_difference_in_a_decomposition() -> None:
    table = {torch.ops.aten.gelu.default: wrong_gelu}
    first = captured(nn.GELU(), via=Aot(decompositions=table)).first_difference()
    assert first is not None
    assert (first.stage, first.module, first.kind) == ("decomposition", "middle", "formula")
    assert [node.op for node in first.eager_nodes] == ["aten.gelu.default"]
    assert "aten.erf.default" in [node.op for node in first.nodes]


@torch.library.custom_op("divergence::counting", mutates_args=())
def counting(x: Tensor) -> Tensor:
    COUNTS.append(1)
    return x * (1 + 0.01 * len(COUNTS))


COUNTS: list[int] = []
counting.register_fake(torch.empty_like)
counting.register_autograd(lambda ctx, grad: grad)


def test_hidden_state_comes_first_and_ends_the_search() -> None:
    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return counting(x)  # type: ignore[no-any-return]

    first = captured(Counting()).first_difference()
    assert first is not None
    assert (first.stage, first.kind, first.sure, first.module) == ("eager", "state", True, "middle")
    assert [node.op for node in first.nodes] == ["divergence.counting.default"]
    assert "First difference: in the eager run, middle, " in str(first)
    assert "divergence.counting has hidden state." in str(first)


def test_zero_seconds_switch_the_search_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch, torch.nn.functional as F

        def f(x):
            return F.gelu(x, approximate="tanh" if torch.compiler.is_compiling() else "none")

        def test_it(graph_capture):
            graph_capture(f, torch.linspace(-1, 1, 9)).assert_matches_eager()
        """
    )
    pytester.makeini("[pytest]\ntorchgraph_divergence = 0")
    result = pytester.runpytest("-p", "no:randomly")
    result.assert_outcomes(failed=1)
    assert "First difference" not in result.stdout.str()
    assert "differs from the eager run" in result.stdout.str()


def test_seconds_must_be_a_number(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntorchgraph_divergence = soon")
    result = pytester.runpytest()
    result.stderr.fnmatch_lines(["ERROR: torchgraph_divergence: 'soon' is no number of seconds"])
