"""Eager graphs as users read and check them."""

from __future__ import annotations

import pathlib
import re
import threading
from typing import Any

import pytest
import torch
from mechanisms.islands.cases import CASES, Looped, disabled
from mechanisms.models import Head, example, mlp
from torch import Tensor, nn
from torch_releases import skip_before

import pytest_torchgraph
from pytest_torchgraph import Aot, Capture, CaptureError, CompiledAutograd, capture, load


def captured(name: str, **options: Any) -> Capture:
    torch.manual_seed(0)
    target, args = CASES[name]()
    return capture(target, *args, **options)


class Model(nn.Module):
    """A compiled part, a disabled function, and another compiled part."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.between = Between()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.between(self.fc(x).relu())
        return self.head(x).sigmoid()


class Between(nn.Module):
    @torch.compiler.disable
    def forward(self, x: Tensor) -> Tensor:
        return x.atan() * 2


@pytest.fixture(scope="module")
def model() -> Capture:
    torch.manual_seed(0)
    return capture(Model(), example(2, 4))


def test_an_eager_graph_has_names_modules_lines_and_the_break(model: Capture) -> None:
    forward, backward = model.eager
    assert (forward.name, forward.kind, forward.level) == ("eager_0", "forward", "dispatch")
    assert (backward.name, backward.kind, backward.level) == ("eager_1", "backward", "dispatch")
    assert [node.op for node in forward.nodes if node.is_call] == [
        "aten.atan.default",
        "aten.mul.Tensor",
    ]
    assert [node.name for node in forward.inputs] == ["forward_0:relu"]
    calls = [node for graph in model.eager for node in graph.nodes if node.is_call]
    assert {node.module for node in calls} == {"between"}
    # Names stay absolute below the break.
    assert "head.weight" in {node.name for node in model.graphs[1].inputs}
    assert model.graphs[1].find("aten.addmm")[0].module == "head"
    assert {node.source.code for node in calls if node.source} == {"return x.atan() * 2"}
    cause = forward.cause
    assert cause is not None
    assert cause in model.breaks
    assert cause.code == "x = self.between(self.fc(x).relu())"
    assert backward.cause == cause
    assert all(graph.cause is None for graph in model.graphs)


def test_inputs_of_an_eager_backward_are_named_by_origin(model: Capture) -> None:
    backward = model.eager[1]
    roles = {node.name: node.op for node in backward.inputs}
    assert roles == {"forward_0:relu": "saved", "backward_0:head/mm": "tangent"}


def test_graphs_are_the_compiled_ones_and_program_has_all(model: Capture) -> None:
    assert [graph.name for graph in model.graphs] == [
        "forward_0",
        "forward_1",
        "backward_0",
        "backward_1",
    ]
    assert [graph.name for graph in model.program] == [
        "forward_0",
        "eager_0",
        "forward_1",
        "backward_0",
        "eager_1",
        "backward_1",
    ]
    model.assert_graph_count(forward=2, backward=2, total=4)
    assert len(model.forwards) == len(model.backwards) == 2
    assert model.at("aot").eager == model.eager
    with pytest.raises(CaptureError, match=r"expected one forward graph, found 2 .*forward_0 \("):
        _ = model.forward


def test_op_counts_and_find_cover_compiled_and_eager_graphs(model: Capture) -> None:
    assert model.op_counts["aten.atan"] == 1
    model.assert_op_counts({"aten.atan": 1, "aten.addmm": 2})
    with pytest.raises(AssertionError, match=r"aten\.atan: found 1"):
        model.assert_no_ops("aten.atan")
    with pytest.raises(ValueError, match="level 'aot', which is functional"):
        model.assert_no_ops("aten.relu_")


@pytest.mark.slow("compiles many times")
def test_equal_eager_graphs_are_merged_with_their_runs() -> None:
    looped = captured("sizes_that_change", backward=False)
    assert [graph.runs for graph in looped.eager] == [1, 1, 1]

    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList(Head() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for head in self.heads:
                x = disabled(head(x))
            return x

    again = capture(Repeated(), example(2, 4, grad=True))
    assert [(graph.name, graph.runs) for graph in again.eager] == [
        ("eager_0", 3),
        ("eager_1", 3),
    ]
    assert [node.name for node in again.eager[0].inputs] == ["forward:relu"]
    assert len(again.eager_ops) == 9 + again.eager[1].op_counts.total() * 3
    text = again.to_text()
    assert text.startswith("torchgraph 4\n")
    assert "\nforward × 3 {\n" in text
    assert "\neager_0 × 3 {\n" in text


def test_compiled_share_of_ops(model: Capture) -> None:
    compiled = sum(graph.op_counts.total() * graph.runs for graph in model.graphs)
    eager = sum(graph.op_counts.total() * graph.runs for graph in model.eager)
    assert model.compiled_share == pytest.approx(compiled / (compiled + eager))
    assert 0.5 < model.compiled_share < 1
    whole = capture(mlp(), example(2, 8))
    assert whole.eager == ()
    assert whole.compiled_share == 1.0
    whole.assert_no_eager_ops()
    assert "eager_" not in whole.to_text()


def test_assert_no_eager_ops_failure_has_line_module_and_break(model: Capture) -> None:
    with pytest.raises(AssertionError) as caught:
        model.assert_no_eager_ops()
    message = str(caught.value)
    assert message.startswith("6 ops ran eagerly, outside compiled graphs:\n")
    assert "  eager_0 (forward)\n" in message
    assert "because of: Skip inlining `torch.compiler.disable()`d function" in message
    assert "in forward: return x.atan() * 2 [between]\n" in message
    assert "aten.atan.default, aten.mul.Tensor" in message
    (allowed,) = re.findall(r"pass allow=\['(.+)'\]", message)
    assert re.search(rf"\n    {re.escape(allowed)} in forward: return x\.atan\(\) \* 2", message)
    model.assert_no_eager_ops(allow=[allowed])


@pytest.mark.parametrize("allow", ["test_eager_graphs.py", ["aten.atan", "aten.mul.Tensor"]])
def test_allow_includes_the_consequences_of_an_allowed_op(model: Capture, allow: Any) -> None:
    model.assert_no_eager_ops(allow=allow)


def test_allow_of_a_line_excludes_other_lines(model: Capture) -> None:
    source = next(node.source for node in model.eager[0].nodes if node.is_call)
    assert source is not None
    model.assert_no_eager_ops(allow=[f"islands/{str(source).rpartition('/')[2]}"])
    for other in (f"test_eager_graphs.py:{source.line + 1}", "graphs.py", torch.ops.aten.atan):
        with pytest.raises(AssertionError, match="ran eagerly, outside compiled graphs"):
            model.assert_no_eager_ops(allow=[other])
    with pytest.raises(ValueError, match=r"did you mean aten\.atan"):
        model.assert_no_eager_ops(allow=["aten.atann"])


@pytest.mark.parametrize("allow", ["*", ["aten.atan", "*.*"], "**"])
def test_allow_of_every_op_is_an_error(model: Capture, allow: Any) -> None:
    with pytest.raises(ValueError, match=r"allow='.*' allows every op, so nothing is checked"):
        model.assert_no_eager_ops(allow=allow)


@pytest.mark.parametrize("name", ["views_of_inputs_and_outputs", "an_output_that_nothing_uses"])
def test_ops_of_the_engine_between_graphs_are_not_eager_ops(name: str) -> None:
    subject_capture = captured(name)
    assert subject_capture.eager
    subject_capture.assert_no_eager_ops()


@pytest.mark.parametrize("via", ["dispatch", "fx", "export"])
def test_eager_graphs_of_other_mechanisms_are_unknown(via: str) -> None:
    captured = capture(mlp(), example(2, 8), via=via, backward=None if via != "export" else False)
    _refuses(captured, f"via '{via}'")


def test_an_eager_forward_before_compiled_autograd_is_not_recorded() -> None:
    """Under a dispatch mode, `reshape` creates a different autograd node."""

    def transposed(x: Tensor) -> Tensor:
        return x.mT.reshape(2, 8).sin()

    captured = capture(transposed, example(4, 4, grad=True), via=CompiledAutograd(forward="eager"))
    _refuses(captured, "a dispatch mode would change the autograd nodes")


def test_eager_graphs_of_a_watch_are_unknown() -> None:
    with pytest_torchgraph.watch() as seen:
        torch.compile(mlp(), backend="aot_eager")(example(2, 8))
    _refuses(seen, "a watch does not record ops that run eagerly")


def _refuses(captured: Capture, words: str) -> None:
    for read in (
        lambda: captured.eager,
        lambda: captured.compiled_share,
        lambda: captured.eager_ops,
        captured.assert_no_eager_ops,
    ):
        with pytest.raises(CaptureError, match=words):
            read()
    assert captured.program == captured.graphs


def test_file_has_eager_graphs_without_runs_of_compiled_ones(
    model: Capture, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "model.tgraph"
    path.write_text(model.to_text(), encoding="utf-8")
    stored = load(path)
    assert stored == model
    assert [graph.name for graph in stored.program] == [graph.name for graph in model.program]
    with pytest.raises(AssertionError, match="6 ops ran eagerly"):
        stored.assert_no_eager_ops()
    with pytest.raises(CaptureError, match="does not store the run counts of compiled graphs"):
        _ = stored.compiled_share
    path.write_text(capture(mlp(), example(2, 8)).to_text(), encoding="utf-8")
    with pytest.raises(CaptureError, match="does not say whether eager ops were recorded"):
        load(path).assert_no_eager_ops()
    assert load(path).eager == ()


# -- ways to capture -------------------------------------------------------------------------------


def test_eager_graphs_on_fake_tensors_are_equal(model: Capture) -> None:
    skip_before("2.11", "AOTAutograd refuses fake tensors that Dynamo got as inputs")
    torch.manual_seed(0)
    fake = capture(Model(), example(2, 4), fake=True, via=Aot(dynamic=False))
    assert fake == model
    assert [graph.to_text() for graph in fake.eager] == [graph.to_text() for graph in model.eager]


@pytest.mark.slow("compiles many times")
def test_precompiled_part_is_compiled_like_the_rest() -> None:
    torch.manual_seed(0)
    plain = Looped()
    expected = capture(plain, example(2, 4))
    compiled = Looped()
    compiled.load_state_dict(plain.state_dict())
    compiled.blocks[1] = torch.compile(compiled.blocks[1], backend="eager")
    whole = torch.compile(plain, backend="eager")
    inner = Looped()
    inner.blocks[0].compile(backend="eager")
    for target in (compiled, whole, inner):
        assert capture(target, example(2, 4)) == expected


def test_eager_graphs_without_gradients_are_inference_graphs() -> None:
    with torch.inference_mode():
        captured = capture(Model(), example(2, 4))
    assert [graph.kind for graph in captured.program] == ["inference"] * 3
    assert "eager_0: inference {" in captured.to_text()


def test_thread_hook_is_restored() -> None:
    calls: list[str] = []

    def mine(_frame: Any, event: str, _argument: Any) -> None:
        calls.append(event)

    def target(x: Tensor) -> Tensor:
        thread = threading.Thread(target=len, args=("",))
        thread.start()
        thread.join()
        return x.sin()

    threading.setprofile(mine)
    try:
        capture(target, example(2, 4, grad=True))
        assert threading.getprofile() is mine
    finally:
        threading.setprofile(None)
    assert "call" in calls


def test_profiler_marks_are_not_eager_ops() -> None:
    @torch.compiler.disable
    def marked(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("eager part"):
            return x.sin()

    def step(x: torch.Tensor) -> torch.Tensor:
        return marked(x * 2).exp()

    captured = capture(step, torch.ones(3))
    assert [str(eager_op.op) for eager_op in captured.eager_ops] == ["aten.sin.default"]


class BrokenInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e4:
            return x
        return x * 2


def test_code_around_a_compiled_call_does_not_run_eagerly_because_of_its_break() -> None:
    compiled = torch.compile(BrokenInside(), backend="aot_eager")
    optimizer = torch.optim.SGD([weight := nn.Parameter(torch.ones(2))], foreach=True)

    def step(x: Tensor) -> None:
        loss = compiled(x.sin() * weight).sum()
        loss.backward()
        optimizer.step()

    captured = capture(step, example(2), updates=optimizer)
    causes = {op.op: op.cause and op.cause.function for op in captured.eager_ops}
    assert causes["aten._local_scalar_dense.default"] == "forward"
    others = ("aten.sin.default", "aten.expand.default", "aten._foreach_add_.List")
    assert [causes[op] for op in others] == [None, None, None]
