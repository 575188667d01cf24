"""`Inductor(passes=...)`, `capture.passes` and `assert_pass`: which pass did what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch_releases import skip_before

from pytest_torchgraph import Capture, CaptureError, Inductor, capture

aten = torch.ops.aten


class ReluToSigmoid:
    """Replaces relu by sigmoid."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.relu.default):
            node.target = aten.sigmoid.default

    def uuid(self) -> None:
        return None


def do_nothing(graph: fx.Graph) -> None:
    pass


def patterns(name: str = "neg_neg") -> Any:
    """Return patterns that remove `-(-x)`."""
    from torch._inductor.pattern_matcher import (
        PatternMatcherPass,
        fwd_only,
        register_replacement,
    )

    matcher = PatternMatcherPass(pass_name=name)

    def pattern(x: Tensor) -> Tensor:
        return aten.neg.default(aten.neg.default(x))

    def replacement(x: Tensor) -> Tensor:
        return aten.clone.default(x)

    register_replacement(pattern, replacement, [torch.empty(3)], fwd_only, [matcher])
    return matcher


def model(x: Tensor) -> Tensor:
    y = x.neg().neg().sin()
    return torch.relu(y.neg().neg() * 2) @ x


def captured(passes: Any, grad: bool = False, **options: Any) -> Capture:
    x = torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_(grad)
    return capture(model, x, via=Inductor(codegen=False, passes=passes, options=options or None))


@pytest.mark.slow("inductor runs all passes of torch")
def test_passes_of_torch_are_recorded_with_their_changes() -> None:
    result = captured(True, grad=True)
    names = [run.name for run in result.passes]
    assert {"remove_noop_ops", "stable_sort", "group_batch_fusion_passes"} <= {*names}
    assert not any("custom" in name for name in names)
    assert {run.graph for run in result.passes} >= {"joint", "forward", "backward"}
    assert all(run.hook == "" for run in result.passes)
    for run in result.passes:
        assert run.changed or run.before == run.after
    unchanged = next(run for run in result.passes if not run.changed)
    assert not unchanged.diff


def test_disabled_pass_did_not_run() -> None:
    skip_before("2.11", "inductor has no option `disabled_passes`")
    result = captured(True, disabled_passes="stable_sort")
    assert "stable_sort" not in {run.name for run in result.passes}
    with pytest.raises(AssertionError, match="stable_sort"):
        result.assert_pass("stable_sort", times=0)


@pytest.mark.slow("inductor generates code", unless=["pre_grad-*", "post_grad-*"])
@pytest.mark.parametrize(
    ("place", "grad"),
    [
        ("pre_grad", False),
        ("joint_pre", True),
        ("joint_post", False),
        ("post_grad_pre", True),
        ("post_grad_post", False),
        ("post_grad", True),
    ],
)
def test_own_pass_has_its_own_name(place: str, grad: bool) -> None:
    if place == "pre_grad":
        skip_before("2.11", "no pass of inductor's own is recorded before the gradient")

        def sin_to_cos(graph: fx.Graph) -> None:
            for node in graph.nodes:
                if node.target in ("sin", torch.sin):
                    node.target = "cos" if node.op == "call_method" else torch.cos

        result = captured({place: [do_nothing, sin_to_cos]}, grad)
        name, op = "sin_to_cos", "cos"
    else:
        result = captured({place: [do_nothing, ReluToSigmoid()]}, grad)
        name, op = "ReluToSigmoid", "sigmoid"
    result.assert_pass(name, times=1)
    (run,) = [run for run in result.passes if run.name == name and run.changed]
    assert run.hook.startswith(place.removesuffix("_pre").removesuffix("_post"))
    assert run.subsystem in {other.subsystem for other in result.passes if not other.hook}
    assert run.graph == {"pre": "dynamo", "joi": "joint"}.get(place[:3], run.graph)
    assert op in str(run.after.op_counts)
    assert op not in str(run.before.op_counts)
    assert len(run.diff.findings) == 1, run.diff
    result.assert_pass("do_nothing", times=0)
    with pytest.raises(AssertionError, match="'do_nothing': 0 changed graphs, expected at least"):
        result.assert_pass("do_nothing")


def test_matches_of_patterns_are_counted() -> None:
    result = captured({"post_grad_pre": [patterns()]})
    result.assert_pass("neg_neg", times=2)
    with pytest.raises(AssertionError) as error:
        result.assert_pass("neg_neg", times=3)
    message = str(error.value)
    assert "the pass 'neg_neg': 2 matches, expected 3" in message
    assert "neg_neg on inference: " in message


def test_pass_that_applies_patterns_is_their_parent() -> None:
    matcher = patterns("inner")

    class Fusion:
        def __call__(self, graph: fx.Graph) -> None:
            self.count = matcher.apply(graph)

    result = captured({"post_grad_pre": [Fusion()]})
    result.assert_pass("Fusion", times=2)
    result.assert_pass("inner", times=2)
    (inner,) = [run for run in result.passes if run.name == "inner"]
    assert (inner.parent, inner.matches, inner.graph) == ("Fusion", 2, "inference")


def test_pass_that_never_ran_is_an_error_with_the_passes_that_ran() -> None:
    result = captured({"post_grad": [do_nothing]})
    for times in (None, 0, 2):
        with pytest.raises(AssertionError, match=r"'Fusion' never ran; passes that ran: .*do_n"):
            result.assert_pass("Fusion", times=times)


@pytest.mark.slow("inductor generates code")
def test_own_hooks_stay_and_run_first() -> None:
    order: list[str] = []

    def noted(name: str) -> Callable[[fx.Graph], None]:
        def run(graph: fx.Graph) -> None:
            order.append(name)

        run.__name__ = name
        return run

    with torch._inductor.config.patch(post_grad_custom_post_pass=noted("mine")):
        result = captured({"post_grad": [noted("added")], "post_grad_post": [noted("third")]})
        assert order == ["mine", "added", "third"]
        assert torch._inductor.config.post_grad_custom_post_pass.__name__ == "mine"  # type: ignore[attr-defined]
        names = [run.name for run in result.passes if run.hook]
        assert names == order
        order.clear()
        captured(True)
        assert order == ["mine"]
    order.clear()
    captured({"post_grad": [noted("added")]}, post_grad_custom_post_pass=noted("option"))
    assert order == ["option", "added"]


def test_an_empty_mapping_adds_nothing_and_records() -> None:
    assert "remove_noop_ops" in [run.name for run in captured({}).passes]


def test_passes_are_off_by_default() -> None:
    for passes in (None, False):
        result = captured(passes)
        with pytest.raises(CaptureError, match=r"use graph_capture\(.*Inductor\(passes=True\)\)"):
            _ = result.passes
        with pytest.raises(CaptureError, match="passes are not available"):
            result.assert_pass("anything")
    with pytest.raises(CaptureError, match="passes are not available"):
        _ = capture(model, torch.ones(3, 3)).passes


@pytest.mark.parametrize(
    ("passes", "kind", "message"),
    [
        ({"post": []}, ValueError, "unknown place 'post'.* post_grad_post"),
        ({"post_grad": do_nothing}, TypeError, "must be a list of passes"),
        ({"post_grad": [3]}, TypeError, "must be a list of passes"),
        (3, TypeError, "passes must be "),
    ],
)
def test_wrong_passes_are_refused(passes: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        captured(passes)


def test_wrong_times_are_refused() -> None:
    result = captured({"post_grad": [do_nothing]})
    wrong: list[Any] = [True, "2", -1]
    for times in wrong:
        with pytest.raises(ValueError if times == -1 else TypeError, match="times="):
            result.assert_pass("do_nothing", times=times)
    with pytest.raises(TypeError, match=r"is not the name of a pass: capture\.passes lists"):
        result.assert_pass(do_nothing)  # type: ignore[arg-type]


def test_observing_changes_nothing() -> None:
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver as Observer

    before = [vars(Observer)[name] for name in ("__enter__", "__exit__", "apply_graph_pass")]
    plain, observed = captured(None, grad=True), captured(True, grad=True)
    assert plain == observed
    assert before == [vars(Observer)[n] for n in ("__enter__", "__exit__", "apply_graph_pass")]


def test_graph_that_a_pass_leaves_unsorted_is_recorded() -> None:
    def unsort(graph: fx.Graph) -> None:  # torch sorts the graph later
        for node in graph.find_nodes(op="call_function", target=aten.relu.default):
            graph.output_node().prepend(node)

    result = captured({"post_grad_pre": [unsort, ReluToSigmoid()]})
    result.assert_pass("ReluToSigmoid", times=1)
    (run,) = [run for run in result.passes if run.name == "ReluToSigmoid"]
    assert run.diff.heading().startswith("1 edit: aten.relu -> aten.sigmoid")


def test_exception_of_a_pass_is_passed_on() -> None:
    def raises(graph: fx.Graph) -> None:
        raise ValueError("mine")

    with pytest.raises(Exception, match="mine"):
        captured({"post_grad": [raises]})
    captured(True).assert_pass("remove_noop_ops", times=0)
