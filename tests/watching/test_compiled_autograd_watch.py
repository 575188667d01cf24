"""The cases of torch's tutorial on compiled autograd, watched, with the assertion's message."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.compiled_autograd import _enable
from watching import hook_cases
from watching.hook_cases import Model, add_ten, branch, say, summed, three_parts, train

from pytest_torchgraph import Capture, CaptureError, capture, watch

# With -W error, warnings of torch about itself end a compilation.
pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore:The .grad attribute")

SINGLE = "no single backward graph:\n"


def traced(seen: Capture, number: int = 0) -> str:
    """Return the id of the compilation of a captured backward.

    Releases of torch compile different numbers of their own frames before it.
    """
    (found,) = (each for each in seen.executions if each.startswith(f"!{number}/"))
    assert re.fullmatch(r"!\d/\d+/0", found)
    return found


@pytest.fixture
def switched_on() -> Iterator[None]:
    with torch._dynamo.config.patch(compiled_autograd=True):
        yield


def compiler(backend: str = "eager", **options: Any) -> Any:
    return torch.compile(backend=backend, **options)


def leaf(*size: int) -> Tensor:
    return torch.ones(*(size or (3,)), requires_grad=True)


def hooked_leaf(hook: Callable[[Tensor], Any]) -> Tensor:
    x = leaf()
    x.register_hook(hook)
    return x


def backward(loss: Tensor, **options: Any) -> None:
    torch.compile(lambda: loss.backward(), backend="eager", **options)()


def backwards(*losses: Callable[[], Tensor]) -> Capture:
    """Watch the backward of each loss, run by compiled autograd."""
    with contextlib.redirect_stdout(io.StringIO()), watch() as seen:
        for loss in losses:
            with _enable(compiler()):
                loss().backward()
    return seen


# -- basic usage -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("switched_on")
def test_three_steps_are_one_capture() -> None:
    model = Model()
    step = torch.compile(train, backend="aot_eager")
    with watch() as seen:
        for _ in range(3):
            step(model, torch.ones(10))
            model.zero_grad()
    seen.assert_single_backward_graph()
    seen.assert_no_recompiles()
    seen.assert_no_graph_breaks()
    seen.assert_graph_count(forward=1, backward=1)
    assert [graph.level for graph in seen.graphs] == ["aot", "compiled_autograd"]
    seen.backward.assert_op_counts({"torch._dynamo.external_utils.call_accumulate_grad": 2})
    assert seen.executions == {"!0": 3, "0/0": 3, traced(seen): 3}
    assert seen.counters["compiled_autograd"] == {"captures": 1}


@pytest.mark.slow("compiles several models")
@pytest.mark.usefixtures("switched_on")
def test_a_gradient_that_becomes_a_tensor_is_named() -> None:
    model = Model()
    step = torch.compile(train, backend="aot_eager")
    with watch() as seen:
        for _ in range(3):
            step(model, torch.ones(10))
            model.zero_grad(set_to_none=False)
    assert seen.executions == {
        "!0": 1,
        "0/0": 3,
        traced(seen): 1,
        "!1": 2,
        traced(seen, 1): 2,
    }
    (recompile,) = seen.recompiles
    assert (recompile.compile_id, recompile.function, recompile.file) == ("!1", "backward", "")
    message = (
        "compiled autograd captured the backward 2 times instead of once. The later captures, by "
        "compile id, and their causes:\n  !1 backward: new autograd node: "
        "torch::autograd::AccumulateGrad "
    )
    with pytest.raises(AssertionError, match=re.escape(SINGLE + message)):
        seen.assert_single_backward_graph()
    with pytest.raises(AssertionError, match=r"a \.grad went from None to a tensor"):
        seen.assert_no_recompiles()
    seen.assert_recompiles(1)


# -- graph breaks in the forward -------------------------------------------------------------------


@pytest.mark.slow("another watch", only=["False"])
@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.usefixtures("unaudited", "switched_on")
def test_backward_captured_before_the_watch_is_reported(is_watched: bool) -> None:
    """The capture itself, in C++, is counted only if a watch was open during it."""
    model = Model()
    step = torch.compile(train, backend="aot_eager")
    with watch() if is_watched else contextlib.nullcontext():
        step(model, torch.ones(10))
    model.zero_grad()
    with watch() as seen:
        step(model, torch.ones(10))
    seen.assert_no_recompiles()
    if is_watched:
        assert seen.executions == {"!0": 1, "0/0": 1, traced(seen): 1}
        return
    assert seen.executions == {"0/0": 1, traced(seen): 1}
    with pytest.raises(
        AssertionError, match=r"before the watch \(compile id !0/\d+/0\)\. Open the watch before"
    ):
        seen.assert_single_backward_graph()


@pytest.mark.slow("compiles for a second")
def test_three_forward_graphs_have_three_backwards_or_one() -> None:
    forward = torch.compile(three_parts, backend="aot_eager")
    with watch() as plain:
        loss = forward(leaf(10, 10))
        loss.backward(retain_graph=True)
    with watch() as whole, _enable(compiler("aot_eager")):
        loss.backward()
    plain.assert_graph_count(forward=3, backward=3)
    whole.assert_graph_count(forward=0, backward=1)
    whole.assert_single_backward_graph()
    whole.assert_no_graph_breaks()
    assert [graph_break.compile_id for graph_break in plain.breaks] == ["0/0", "1/0"]
    with pytest.raises(
        AssertionError, match=f"{SINGLE}compiled autograd captured no backward: set"
    ):
        plain.assert_single_backward_graph()


def test_the_backward_is_counted_at_one_level_only() -> None:
    forward = torch.compile(summed, backend="aot_eager")
    with watch() as seen, _enable(compiler("aot_eager")):
        forward(leaf()).backward()
    assert [(g.kind, g.level) for g in seen.graphs] == [
        ("forward", "aot"),
        ("backward", "compiled_autograd"),
    ]
    assert len(seen.at("dynamo").graphs) == 2
    assert len(seen.at("aot").graphs) == 2
    assert seen.at("compiled_autograd").backward == seen.backward


# -- hooks -----------------------------------------------------------------------------------------


def test_backward_hook_is_captured() -> None:
    seen = backwards(lambda: summed(hooked_leaf(add_ten)))
    seen.assert_single_backward_graph()
    seen.backward.assert_op_counts({"torch._dynamo.external_utils.call_hook": 1})
    assert sum(op.endswith("add") for op in seen.at("dynamo").op_counts) == 1


@pytest.mark.slow("further cases; a few are in every run", unless=["branch-Data-dep"])
@pytest.mark.parametrize(("hook", "kind"), [(say, "Failed to trace builtin"), (branch, "Data-dep")])
def test_a_hook_that_breaks_is_named_with_its_line(hook: Any, kind: str) -> None:
    seen = backwards(lambda: (hooked_leaf(hook) * 2).sum())
    (found,) = seen.breaks
    assert found.kind.startswith(kind)
    assert found.file.endswith("watching/hook_cases.py")
    assert found.line == hook_cases.line_of(hook.__name__)
    assert found.compile_id.startswith("!0/")
    with pytest.raises(AssertionError) as failure:
        seen.assert_single_backward_graph()
    message = str(failure.value)
    assert re.search(r"Dynamo compiled the captured backward as \d graphs", message)
    assert (
        f"graph break in the backward:\n  1. {found.file}:{found.line} in {hook.__name__}"
        in message
    )
    with pytest.raises(AssertionError, match="expected 0, found 1"):
        seen.assert_no_graph_breaks()


def test_added_hook_is_a_recapture_reason() -> None:
    seen = backwards(lambda: (leaf() * 2).sum(), lambda: (hooked_leaf(add_ten) * 2).sum())
    with pytest.raises(
        AssertionError, match=r"2 times instead of once.*:\n.*a hook was added or removed"
    ):
        seen.assert_single_backward_graph()


def test_another_hook_compiles_the_captured_graph_again() -> None:
    seen = backwards(*(lambda hook=h: (hooked_leaf(hook) * 2).sum() for h in (add_ten, halve)))
    (recompile,) = seen.recompiles
    assert recompile.compile_id == "!0/0/1"
    (words,) = recompile.reasons
    function = r"another object: (was add_ten .*, )?is halve"  # torch 2.11 names both
    assert re.fullmatch(rf"hooks\[0\]: {function} \(\S+_watch\.py:\d+\)", words)
    with pytest.raises(AssertionError, match="Dynamo compiled the captured backward as 2 graphs"):
        seen.assert_single_backward_graph()


def halve(grad: Tensor) -> Tensor:
    return grad / 2


def test_code_of_the_user_that_is_compiled_at_the_hand_over_is_seen() -> None:
    def compiles_more(backward: Any) -> Any:
        torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(2))
        return torch.compile(backward, backend="eager")

    with watch() as seen, _enable(compiles_more):
        (leaf() * 2).sum().backward()
    assert sum(graph.level == "dynamo" for graph in seen.graphs) == 1


# -- captured again --------------------------------------------------------------------------------


@pytest.mark.slow("compiles several models")
def test_changed_shapes_are_named_once() -> None:
    sizes = (10, 100, 10)
    with torch._dynamo.config.patch(compiled_autograd=True), watch() as seen:
        for size in sizes:
            backward(leaf(size, size).sum())
    assert seen.executions["!0"] == 1
    assert seen.executions["!1"] == 2
    first, *later = seen.recompiles
    assert first.compile_id == "!1"
    (reason,) = first.reasons
    assert re.fullmatch(r"(\d) changed tensor shapes \(total of \1\): sizes\[0\], .*", reason)
    assert all(each.compile_id.startswith("!1/") for each in later)
    with pytest.raises(AssertionError, match=r"\n  !1 backward: \d changed tensor shapes "):
        seen.assert_single_backward_graph()


def test_recapture_reasons_include_captures_before_the_watch() -> None:
    backwards(lambda: (leaf() * 2).sum())
    seen = backwards(lambda: (leaf() / 2).sum())
    assert "DivBackward0" in str(seen.recompiles[0])
    seen.assert_single_backward_graph()


def test_recapture_reasons_after_a_reset_in_the_watch() -> None:
    with watch() as seen:
        for loss in ((leaf() * 2).sum(), (leaf() / 2).sum()):
            torch._dynamo.reset()
            with _enable(compiler()):
                loss.backward()
        with _enable(compiler()):
            (leaf() + 2).sum().backward()
    assert "AddBackward0" in str(seen.recompiles[-1])


# -- no backward -----------------------------------------------------------------------------------


def test_single_backward_without_a_compiled_graph_fails() -> None:
    with watch() as seen, _enable(lambda module: module):
        (leaf() * 2).sum().backward()
    with pytest.raises(AssertionError, match=f"{SINGLE}Dynamo compiled no graph for the captured"):
        seen.assert_single_backward_graph()


def test_backward_of_a_failed_backend_is_not_counted() -> None:
    def bad(module: Any, inputs: Any) -> Any:
        raise ValueError("not today")

    with (
        watch() as seen,
        torch._dynamo.config.patch(suppress_errors=True),
        _enable(torch.compile(backend=bad)),
    ):
        (leaf() * 2).sum().backward()
    with pytest.raises(AssertionError, match="compiling the backward failed: backend='bad' rais"):
        seen.assert_single_backward_graph()
    with pytest.raises(AssertionError, match=r"CompiledAutograd0: .*'bad' raised ValueError: not"):
        seen.assert_graph_count(backward=1)


def test_assertion_on_a_capture_without_this_record_is_refused() -> None:
    with pytest.raises(CaptureError, match="compiled-autograd graphs are not available on a"):
        capture(summed, leaf(), via="fx", backward=False).assert_single_backward_graph()


def test_capture_via_compiled_autograd_has_the_backward_count() -> None:
    capture(three_parts, leaf(), via="compiled_autograd").assert_single_backward_graph()
    with pytest.raises(AssertionError, match="captured no backward"):
        capture(summed, leaf(), via="aot").assert_single_backward_graph()
