"""The first difference from the eager run, as a value and in the message of a failed check."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_torchgraph import Aot, Capture, CaptureError, Divergence, capture
from pytest_torchgraph.context import CONTEXT
from pytest_torchgraph.divergence import valued
from pytest_torchgraph.divergence import values as budget
from pytest_torchgraph.graph import Node, Ref, UnexpectedOps, headline, nodes_to_show, shown_by

from .faults import Fault, constant, removed, saving_another, scaled, swapped
from .measure import Answer, answer


class Gelu(nn.Module):
    """Uses a different formula if compiled."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return F.gelu(x, approximate="tanh")
        return F.gelu(x)


class Scaled(torch.autograd.Function):
    """Uses a different backward if compiled."""

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


def first_of(found: Capture | Answer) -> Divergence:
    first = found.first if isinstance(found, Answer) else found.first_difference()
    assert first is not None
    return first


@pytest.fixture(scope="module")
def gelu() -> Capture:
    return captured(Gelu())


@pytest.fixture(scope="module")
def first(gelu: Capture) -> Divergence:
    return first_of(gelu)


def test_first_difference_of_a_formula(first: Divergence) -> None:
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


def test_failed_check_appends_the_first_difference_and_shows_it(
    gelu: Capture, first: Divergence
) -> None:
    with pytest.raises(AssertionError) as failed:
        gelu.assert_matches_eager()
    words = str(first)
    assert str(failed.value).endswith(words)
    assert "First difference: in the graph that Dynamo traced, middle, " in words
    assert "a different formula, not rounding" in words
    assert "The inputs agree: %up/addmm." in words
    assert "\n  eager: aten.gelu(%up/addmm)\n" in words
    assert '\n  captured: aten.gelu(%up/addmm, approximate="tanh")\n' in words
    assert "  If %middle/gelu, %middle/gelu_backward had eager's values, the rest" in words
    shown = shown_by(failed.value)
    assert isinstance(shown, UnexpectedOps)
    assert [node.name for node in shown.nodes] == ["middle/gelu"]
    assert shown.nodes[0] in shown.graphs[0].nodes


def test_first_difference_is_none_within_the_tolerance(gelu: Capture) -> None:
    assert gelu.first_difference(atol=0.1) is None
    assert captured(nn.GELU()).first_difference() is None


def test_first_difference_in_the_backward() -> None:
    first = first_of(captured(OfFunction()))
    assert (first.stage, first.graph, first.kind) == ("dynamo", "backward", "formula")
    assert first.nodes[-1].op == "aten.mul.Tensor"
    assert first.more == ()
    assert "in the graph that Dynamo traced, backward of middle, " in str(first)
    assert "traced, backward, " in str(replace(first, module=""))
    assert "\n  Also: backward of middle, " in str(replace(first, more=(first,)))


def test_first_difference_refuses_other_mechanisms() -> None:
    other = captured(nn.GELU(), via="dispatch")
    with pytest.raises(CaptureError, match=r"not available via 'dispatch': capture .* via 'aot'"):
        other.first_difference()


def test_first_difference_is_found_via_dynamo() -> None:
    first = first_of(captured(Gelu(), via="dynamo"))
    assert (first.stage, first.module, first.sure) == ("dynamo", "middle", True)


def test_thread_in_the_eager_run_ends_the_search_with_its_reason() -> None:
    class Threaded(Gelu):
        def forward(self, x: Tensor) -> Tensor:
            results = [x]
            if not torch.compiler.is_compiling():
                thread = threading.Thread(target=lambda: results.append(x.detach() * 2))
                thread.start()
                thread.join()
            return super().forward(x) + results[-1]

    first = first_of(captured(Threaded()))
    assert (first.stage, first.nodes, first.sure) == ("eager", (), False)
    assert str(first).startswith(
        "First difference: not found, because the eager run cannot be recorded op by op: something "
        "ran unrecorded"
    )


@pytest.mark.slow("compiles a model twice, and searches it")
def test_higher_order_op_ends_the_search_with_its_reason() -> None:
    class Branching(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
            return super().forward(x)

    with pytest.raises(AssertionError) as failed:
        capture(Branching(Gelu()), torch.randn(3, 8)).assert_matches_eager()
    assert (
        "First difference: not found, because the eager run cannot be recorded op by op: torch's "
        "cond compiles itself in eager code"
    ) in str(failed.value)


@torch.library.custom_op("divergence::without_fake", mutates_args=())
def without_fake(x: Tensor) -> Tensor:
    return x * 1.5


without_fake.register_autograd(lambda ctx, grad: grad * 1.5)


@pytest.mark.slow("compiles a model twice, and searches it")
def test_custom_op_without_a_fake_is_named_where_only_eager_calls_it() -> None:
    class Eager(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1.25 if torch.compiler.is_compiling() else without_fake(x)

    first = first_of(captured(Eager()))
    assert (first.stage, first.module) == ("dynamo", "middle")
    assert [node.op for node in first.eager_nodes] == ["divergence.without_fake.default"]
    assert [node.op for node in first.nodes] == ["aten.mul.Tensor"]


@pytest.mark.slow("compiles a model twice, and searches it")
def test_custom_op_without_a_fake_at_a_graph_break_ends_the_search_with_its_reason() -> None:
    class Outside(Gelu):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.compiler.disable(without_fake)(x))

    first = first_of(captured(Outside()))
    assert (first.nodes, first.sure) == ((), False)
    assert "First difference: not found, because" in str(first)
    assert "only a single forward with its backward can be compared" in first.reason


class Writing(torch.autograd.Function):
    """Writes to a saved value in the backward, and reads a view of it."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        y = x * 2
        ctx.save_for_backward(y, y.view(-1))
        return y.sin()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        y, flat = ctx.saved_tensors
        y.cos_()
        return grad * flat.view_as(grad) * 2


@pytest.mark.slow("compiles a model twice, and searches it")
def test_write_to_a_saved_value_reaches_its_views() -> None:
    class OfWriting(Gelu):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(Writing.apply(x))

    first = first_of(captured(OfWriting()))
    assert first.reason == ""
    assert first.nodes[-1].op == "aten.gelu.default"


@pytest.mark.slow("compiles a model twice, and searches it")
def test_missing_op_of_a_backward_is_named_by_its_eager_op() -> None:
    fault = Fault(
        "dropped", "aot", "removed", removed("aten.native_dropout_backward.default"), True
    )
    first = first_of(answer(fault))
    assert first.sure
    assert (first.module, [node.op for node in first.eager_nodes][:1]) == (
        "drop",
        ["aten.mul.Tensor"],
    )
    assert "drop, " in str(first)
    assert ": aten.mul.Tensor removed." in str(first)
    assert first.kind == "formula"


def calls_of(*arguments: tuple[object, ...]) -> list[Node]:
    return [
        Node(f"mul.{number}", "call_function", "aten.mul.Tensor", args)
        for number, args in enumerate(arguments)
    ]


def test_node_without_a_counterpart_is_the_one_with_other_constants() -> None:
    x, y, z = (Ref(name) for name in "xyz")
    eager, here = calls_of((x, y)), calls_of((x, 1.01), (z, y))
    assert headline(eager, here) == nodes_to_show(eager, here) == ([], here[:1])
    eager, here = calls_of((x, 3.0)), calls_of((x, 3.0), (y, 2.0))
    assert headline(eager, here) == nodes_to_show(eager, here) == ([], here[1:])


def test_node_without_a_counterpart_is_uncertain_among_equal_nodes() -> None:
    x, y, z = (Ref(name) for name in "xyz")
    eager, here = calls_of((x, y)), calls_of((x, z), (x, y))
    assert headline(eager, here) == ([], here[:1])
    assert nodes_to_show(eager, here) == ([], [])
    eager, here = calls_of((x, 1.0)), calls_of((x, 2.0), (x, 3.0))
    assert nodes_to_show(eager, here) == ([], [])


def test_all_nodes_are_shown_if_both_sides_have_the_same_ops() -> None:
    x = Ref("x")
    eager, here = calls_of((x, 1.0), (x, 2.0)), calls_of((x, 3.0), (x, 2.0))
    assert headline(eager, here) == (eager[1:], here[1:])
    assert nodes_to_show(eager, here) == (eager, here)


def test_added_op_is_shown_with_its_constant() -> None:
    first = first_of(answer(Fault("gated", "aot", "scaled", scaled("aten.silu.default"))))
    assert ": aten.mul.Tensor added." in str(first)
    assert first.calls == ((), ("aten.mul.Tensor(%silu, 1.01)",))
    assert "\n  captured: aten.mul.Tensor(%silu, 1.01)\n" in str(first)
    assert ", and eager has no op here.\n" in str(replace(first, rounding=0.0))


@pytest.mark.slow("searches all stages")
def test_exchanged_operands_are_other_operands() -> None:
    first = first_of(answer(Fault("gated", "aot", "swapped", swapped("aten.sub.Tensor"))))
    assert first.kind == "operand"
    assert "the same ops on other operands" in str(first)
    eager, here = (call.removeprefix("aten.sub.Tensor(").strip(")") for (call,) in first.calls)
    assert eager.split(", ") == here.split(", ")[::-1]


class OtherWeight(nn.Module):
    """Reads another parameter if compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = (nn.Parameter(torch.randn(16, 16)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.left, self.right
        if torch.compiler.is_compiling():
            one, two = two, one
        return (x @ one.t()).relu() @ two.t()


@pytest.mark.slow("compiles a model twice, and searches it")
def test_another_parameter_is_another_operand() -> None:
    first = first_of(captured(OtherWeight()))
    assert first.kind == "operand"
    (eager,), (here,) = first.calls
    assert [call.partition("(")[0] for call in (eager, here)] == ["aten.mm", "aten.mm"]
    assert eager.endswith(" is a view of %middle.left")
    assert here.endswith(" is a view of %middle.right")
    assert " agree with values of the eager run: " in str(first)


@pytest.mark.slow("searches all stages")
def test_other_constant_on_the_same_operands_is_a_formula() -> None:
    first = first_of(answer(Fault("gated", "aot", "constant", constant("aten.div.Tensor"))))
    assert first.kind == "formula"
    (eager,), (here,) = first.calls
    assert eager.endswith(", 2.5)")
    assert here.endswith(", 2.625)")


class OtherDirection(nn.Module):
    """Takes the index of the smallest value if compiled."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, (x.argmin(-1) if torch.compiler.is_compiling() else x.argmax(-1)).clone()


class OfIndex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.middle = OtherDirection()

    def forward(self, x: Tensor) -> Tensor:
        x, index = self.middle(x)
        return x.gather(-1, index[:, None])


def test_size_of_an_integer_is_the_largest_difference() -> None:
    torch.manual_seed(0)
    first = first_of(capture(OfIndex(), torch.tensor([[1.0, 0, 2, 9], [1, 0, 2, 7]])))
    assert [node.op for node in first.nodes] == ["aten.argmin.default"]
    assert first.size == pytest.approx(2 / 3)  # index 1 instead of 3


@pytest.mark.slow("compiles a model twice, and searches it")
def test_zero_value_of_eager_is_said_in_words() -> None:
    first = first_of(answer(Fault("recurrent", "partition", "saved", saving_another(), True)))
    assert (first.kind, first.size) == ("operand", math.inf)
    assert "Cause: the same ops on other operands.\n  Recomputed in float64 from" in str(first)
    assert "the results differ, and eager's is zero everywhere.\n" in str(first)


class Divided(nn.Module):
    """Divides by zero if compiled."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (0.0 if torch.compiler.is_compiling() else 2.0)


class Logarithm(nn.Module):
    """Is NaN in eager code."""

    def forward(self, x: Tensor) -> Tensor:
        return (x if torch.compiler.is_compiling() else -x).log()


@pytest.mark.parametrize("model", [Divided(), Logarithm()], ids=["compiled", "eager"])
def test_values_that_are_not_finite_are_said_in_words(model: nn.Module) -> None:
    first = first_of(capture(model, torch.ones(2, 3)))
    assert math.isnan(first.size)
    assert "Cause: a different formula, not rounding.\n" in str(first)
    assert "the results differ in numbers that are not finite.\n" in str(first)


@pytest.mark.slow("compiles a model twice, and searches it")
def test_search_ends_at_the_op_where_its_seconds_are_over(
    gelu: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the search reads the clock, it advances by a second."""
    ticks, ops, most = 0, 0, 0

    def monotonic() -> float:
        nonlocal ticks, ops
        ticks, ops = ticks + 1, 0
        return float(ticks)

    called = valued.ValuedStep._call_node

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal ops, most
        ops += 1
        most = max(most, ops)
        return called(*args, **kwargs)

    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(valued.ValuedStep, "_call_node", counted)
    monkeypatch.setattr(CONTEXT, "divergence", 1e9)
    with pytest.raises(AssertionError, match="First difference: in the graph"):
        gelu.assert_matches_eager()
    assert most == 1  # the clock is read before every op that runs
    for limit in (int(ticks * 0.4), int(ticks * 0.95)):
        ticks = 0
        monkeypatch.setattr(CONTEXT, "divergence", limit)
        with pytest.raises(AssertionError, match="because the time limit"):
            gelu.assert_matches_eager()
        assert ticks == limit + 2  # the first tick is the start


def test_search_ends_where_its_seconds_are_over(
    gelu: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CONTEXT, "divergence", 1e-9)
    with pytest.raises(
        AssertionError, match=r"because the time limit .torchgraph_divergence = 1e-09 seconds"
    ):
        gelu.assert_matches_eager()


def test_search_ends_where_values_take_too_much_memory(
    gelu: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MOST_BYTES", 1000)
    first = first_of(gelu)
    assert (first.stage, first.nodes, first.sure) == ("eager", (), False)
    assert first.reason.startswith("the values of the graphs need more than")


@pytest.mark.slow("compiles a model twice, and searches it")
def test_low_precision_ends_the_search_with_the_stage() -> None:
    torch.manual_seed(0)
    model = Block(Gelu()).bfloat16()
    first = capture(model, torch.randn(3, 8).bfloat16()).first_difference(rtol=0, atol=0)
    assert first is not None
    assert (first.stage, first.nodes) == ("dynamo", ())
    assert str(first) == (
        "First difference: not found, because rounding in bfloat16 is too large to tell it from a "
        "fault. Last stage compared: the graph that Dynamo traced."
    )


def _split_product() -> tuple[object, tuple[Tensor, ...]]:  # pytorch #168186
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.gate = (nn.Linear(128, 256, bias=False) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            left, right = torch.chunk(self.up(x) * self.gate(x), 2, dim=-1)
            return left + right

    torch.manual_seed(0)
    return Product().bfloat16(), (torch.randn(64, 128).bfloat16(),)


@pytest.mark.slow("compiles C++")
def test_public_issue_ends_with_the_stage_and_the_option() -> None:
    target, args = _split_product()
    captured = capture(target, *args, via="inductor", backward=False)
    first = captured.first_difference(rtol=1e-5, atol=1e-5)
    assert first is not None
    assert (first.stage, first.nodes, first.sure) == ("codegen", (), False)
    assert 'options={"emulate_precision_casts": True}' in first.reason


def wrong_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return 0.5 * x * (1 + torch.erf(x * 0.7078))


@pytest.mark.slow("compiles a model twice, and searches it")
def test_first_difference_in_a_decomposition() -> None:
    table = {torch.ops.aten.gelu.default: wrong_gelu}
    first = first_of(captured(nn.GELU(), via=Aot(decompositions=table)))
    assert (first.stage, first.module, first.kind) == ("decomposition", "middle", "formula")
    assert [node.op for node in first.eager_nodes] == ["aten.gelu.default"]
    assert "aten.erf.default" in [node.op for node in first.nodes]
    assert first.calls[0] == ("aten.gelu(%up/addmm)",)
    assert [call.rpartition(", ")[2] for call in first.calls[1]] == ["0.5)", "0.7078)", "1)"]


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

    first = first_of(captured(Counting()))
    assert (first.stage, first.kind, first.sure, first.module) == ("eager", "state", True, "middle")
    assert [node.op for node in first.nodes] == ["divergence.counting.default"]
    assert str(first).startswith("Cause: divergence.counting has hidden state (middle, ")


def test_zero_seconds_switch_the_search_off(gelu: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CONTEXT, "divergence", 0)
    with pytest.raises(AssertionError) as failed:
        gelu.assert_matches_eager()
    assert "First difference" not in str(failed.value)
    assert "To find the first op that differs, call first_difference()" in str(failed.value)


@pytest.mark.slow("a run of pytest; the test before sets the seconds itself")
def test_zero_seconds_in_the_ini_file_switch_the_search_off(pytester: pytest.Pytester) -> None:
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
    result.stderr.fnmatch_lines(
        ["ERROR: torchgraph_divergence: must be a number of seconds, *got 'soon'"]
    )


@dataclass
class Carrier:
    value: torch.Tensor


carrier = Carrier(torch.tensor(0.0))


@torch.compiler.nested_compile_region
def bump() -> torch.Tensor:
    return carrier.value + 1  # of the call before, in compiled code


@pytest.mark.parametrize("via", ["aot", "dynamo"])
def test_region_that_reads_the_operand_of_an_earlier_call_is_located(via: str) -> None:
    def chain(value: torch.Tensor) -> torch.Tensor:
        global carrier
        for _ in range(2):
            carrier = Carrier(value)
            value = bump()
        return value

    start = torch.rand(3)
    if torch.equal(torch.compile(chain, backend="aot_eager")(start), start + 2):
        pytest.skip("this torch reads the operand of each call")
    first = first_of(capture(chain, start, via=via))
    assert (first.stage, first.kind, first.sure) == ("dynamo", "operand", True)
    assert first.source is not None
    assert first.source.function == "bump"
    assert first.source.file.endswith("test_first_difference.py")
    assert first.calls == (("aten.add.Tensor(%add, 1)",), ("aten.add.Tensor(%value, 1)",))
    assert "Cause: the same ops on other operands." in str(first)
