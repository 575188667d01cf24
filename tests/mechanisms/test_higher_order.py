"""Bodies of higher-order ops are subgraphs, which counts, finds, diffs and pictures enter.

In a body, an op counts once per call of the body, in `map` and `scan` once per row, and in a loop
once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch_releases import skip_before

from pytest_torchgraph import Capture, CaptureError, Graph, capture, diff
from pytest_torchgraph.ops import Level
from pytest_torchgraph.render import diff_to_dot

Edit = Literal["", "changed", "inserted"]
SINE: dict[Level, str] = {
    **dict.fromkeys(("dispatch", "aot", "post_grad", "export"), "aten.sin"),
    "dynamo": "Tensor.sin",
    "fx": "Tensor.sin",
}


def body(x: Tensor, edit: Edit) -> Tensor:
    """A body in which an edit replaces an op or adds one."""
    x = x.exp() if edit == "inserted" else x
    return (x.tanh() if edit == "changed" else x.sin()) * 2


def numbers(*shape: int, grad: bool = False) -> Tensor:
    count = int(torch.tensor(shape).prod())
    return torch.linspace(-1, 1, count).reshape(shape).requires_grad_(grad)


@dataclass(frozen=True)
class Subject:
    """A target with a higher-order op, and facts about it.

    Attributes:
        make: makes the target, with an edit in a body.
        args: makes its arguments.
        op: the higher-order op's name in Dynamo and export.
        bodies: the number of bodies in the forward.
        backward: True if it has a backward.
        inlined: the mechanisms that inline the op, without a body.
        repeated: those of them that inline it twice.
        refused: the mechanisms that cannot capture it.
        runs: how many times the forward runs the body, if there is one.
    """

    make: Callable[[Edit], Callable[..., Any]]
    args: Callable[[], tuple[Tensor, ...]]
    op: str
    bodies: int = 1
    backward: bool = True
    inlined: frozenset[str] = frozenset()
    repeated: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    runs: int = 1


def cond(edit: Edit) -> Callable[..., Any]:
    def target(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: body(x, edit), lambda x: x.cos() - 1, (x,)) + 1

    return target


def checkpoint(edit: Edit) -> Callable[..., Any]:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def block(self, x: Tensor) -> Tensor:
            return body(self.first(x), edit)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False))

    return Checkpointed()


def region(edit: Edit) -> Callable[..., Any]:
    @torch.compiler.nested_compile_region
    def once(x: Tensor, y: Tensor) -> Tensor:
        return body(x, edit) + y

    def target(x: Tensor, y: Tensor) -> Tensor:
        return once(once(x, y), y)

    return target


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def masked(edit: Edit) -> Callable[..., Any]:
    mask = create_block_mask(causal, None, None, 128, 128, device="cpu")

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return body(score, edit)

    def target(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=score_mod, block_mask=mask)

    return target


def scanned(edit: Edit) -> Callable[..., Any]:
    def target(start: Tensor, x: Tensor) -> Tensor:
        return scan(lambda carry, x: (carry + body(x, edit), carry * x), start, x)[1]

    return target


def attention() -> tuple[Tensor, ...]:
    return numbers(1, 1, 128, 16), numbers(1, 1, 128, 16), numbers(1, 1, 128, 16)


AFTER_AOT = frozenset({"aot", "compiled_autograd", "inductor"})
EAGER = frozenset({"dispatch", "fx"})

SUBJECTS = {
    "cond": Subject(cond, lambda: (numbers(3, 4, grad=True),), "cond", 2, refused=EAGER),
    "checkpoint": Subject(
        checkpoint,
        lambda: (numbers(3, 4),),
        "tag_activation_checkpoint",
        inlined=AFTER_AOT | EAGER | {"export"},
    ),
    "invoke_subgraph": Subject(
        region,
        lambda: (numbers(4, grad=True), numbers(4)),
        "invoke_subgraph",
        inlined=EAGER | {"export"},
        repeated=EAGER | {"export"},
        runs=2,
    ),
    "flex_attention with a mask": Subject(
        masked,
        attention,
        "flex_attention",
        2,
        backward=False,
        refused=EAGER | {"compiled_autograd"},
    ),
    # torch 2.13's inductor fails on the backward of this one.
    "scan": Subject(
        scanned,
        lambda: (numbers(4), numbers(3, 4, grad=True)),
        "scan",
        refused=EAGER | {"inductor"},
        runs=3,
    ),
}
MECHANISMS = ("dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export", "inductor")
CASES = [
    (name, via) for via in MECHANISMS for name in SUBJECTS if via not in SUBJECTS[name].refused
]
FAST = [(name, via) for name, via in CASES if via != "inductor"] + [
    ("cond", "inductor"),
    ("invoke_subgraph", "inductor"),
]


@functools.cache
def captured(name: str, via: str, edit: Edit = "") -> Capture:
    subject = SUBJECTS[name]
    return capture(subject.make(edit), *subject.args(), via=via)


# -- queries enter the bodies ----------------------------------------------------------------------

QUICK = [
    "*fx",
    "*dispatch",
    "checkpoint-aot",
    "cond-dynamo",
    "invoke_subgraph-dynamo",
]


@pytest.mark.slow("further models and backends", unless=QUICK)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # warns once
@pytest.mark.parametrize(("name", "via"), CASES, scope="module")
def test_a_capture_has_the_bodies_of_its_higher_order_op(name: str, via: str) -> None:
    subject, seen = SUBJECTS[name], captured(name, via)
    forward = seen.forward
    bodies = [body for graph in forward.walk() for body in graph.subgraphs]
    calls = forward.find(f"higher_order.{subject.op}")
    if via in subject.inlined:
        assert not bodies
        assert not calls
        assert not any(op.startswith("higher_order.") for op in forward.op_counts)
    else:
        assert len(bodies) == subject.bodies
        assert forward.count(f"higher_order.{subject.op}") == len(calls) > 0
        assert forward.op_counts[f"higher_order.{subject.op}"] == len(calls)
    times = 2 if via in subject.repeated else 1 if via in subject.inlined else subject.runs
    found = forward.find(sine := SINE[forward.level])
    assert len(found) == (2 if via in subject.repeated else 1)
    assert forward.count(sine) == forward.op_counts[sine] == times
    assert (found[0] not in forward.nodes) == (via not in subject.inlined)
    forward.assert_op_counts({sine: times})
    seen.assert_op_counts({sine: (times, None)})
    with pytest.raises(AssertionError, match="sin"):
        seen.assert_op_counts({sine: 0})
    with pytest.raises(AssertionError, match="sin"):
        forward.assert_no_ops(sine)
    forward.assert_no_ops(sine.replace("sin", "tan"))
    drawing = forward.to_dot().source
    assert "sin" in drawing
    assert all(f"@{body.name} of higher_order." in drawing for body in bodies)
    for graph in seen.graphs:
        for detail in ("dataflow", "full"):
            again = Graph.from_text(graph.to_text(detail))
            assert again == graph
            assert again.to_text(detail) == graph.to_text(detail)
            assert again.op_counts == graph.op_counts
    seen.assert_matches_eager()
    if (name, via) in FAST:
        second = capture(subject.make(""), *subject.args(), via=via)
        assert second == seen
        assert second.to_text("full") == seen.to_text("full")


@pytest.mark.slow(
    "a few ops and edits are in every run",
    unless=[
        "changed-cond-dynamo",
        "inserted-checkpoint-dispatch",
        "inserted-checkpoint-fx",
        "inserted-invoke_subgraph-dispatch",
        "inserted-invoke_subgraph-dynamo",
        "inserted-invoke_subgraph-fx",
    ],
)
@pytest.mark.parametrize(
    ("edit", "name", "via"),
    [
        *(("inserted", *case) for case in FAST),
        *(("changed", *case) for case in FAST if case[1] == "dynamo" or case[0] == "checkpoint"),
    ],
)
def test_an_edit_in_a_body_is_one_finding_and_drawn(name: str, via: str, edit: Edit) -> None:
    subject = SUBJECTS[name]
    before, after = captured(name, via), captured(name, via, edit)
    assert before != after
    assert before.forward != after.forward
    new = "tanh" if edit == "changed" else "exp"
    graph_diff = diff(before, after)
    (finding, *_) = graph_diff.findings
    places = [place for finding in graph_diff.findings for place in finding.places]
    assert len(places) == (2 if via in subject.repeated else 1), graph_diff
    assert finding.kind == ("changed" if edit == "changed" else "added")
    assert finding.after is not None
    assert new in finding.after.op
    assert (finding.graph != before.forward.name) == (via not in subject.inlined)
    assert new in finding.to_text()
    drawing = diff_to_dot(graph_diff).source
    assert re.search(rf'label="[~+] [^"]*{new}', drawing)


# -- bodies that several calls share ---------------------------------------------------------------


@pytest.mark.parametrize("via", ["dynamo", "aot"])
def test_a_body_that_two_calls_share_is_one_subgraph_and_counts_twice(via: str) -> None:
    for graph in captured("invoke_subgraph", via).graphs:
        assert graph.op_counts["higher_order.invoke_subgraph"] == 2
        assert len(graph.subgraphs) == 1
        (body,) = graph.subgraphs
        for op, count in body.op_counts.items():
            assert graph.count(op) == 2 * count
            assert len(graph.find(op)) == len(body.find(op))


@pytest.mark.slow("compiles many times")
def test_bodies_of_compiled_autograd_have_the_names_of_the_aot_backward() -> None:
    for name in ("cond", "invoke_subgraph", "scan"):
        capture_ = captured(name, "compiled_autograd")
        taken_over = capture_.at("aot").backward
        assert [body.name for body in capture_.backward.subgraphs] == [
            body.name for body in taken_over.subgraphs
        ]
        assert list(capture_.backward.subgraphs) == list(taken_over.subgraphs)


@pytest.mark.slow("inductor lowers a body")
def test_joint_graph_of_a_body_is_not_a_backward() -> None:
    captured("scan", "compiled_autograd").assert_graph_count(forward=1, backward=1)


# -- added and removed higher-order ops ------------------------------------------------------------


def test_a_call_with_other_bodies_that_comes_or_goes_is_one_finding() -> None:
    def first(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,))

    def second(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.exp() * 3, lambda x: x.tanh() - 4, (x,))

    without, *longer = (
        capture(each, numbers(3, 4), via="dynamo").forward
        for each in (
            lambda x: first(first(x)) + 1,
            lambda x: first(first(second(x))) + 1,
            lambda x: second(first(first(x))) + 1,
        )
    )
    for graph in longer:
        assert [finding.kind for finding in diff(without, graph).findings] == ["added"]
        assert [finding.kind for finding in diff(graph, without).findings] == ["removed"]


def test_a_value_that_a_body_saves_belongs_to_the_edit_that_needs_it() -> None:
    skip_before("2.10", "the forward saves the results of the bodies")
    before, after = (
        captured("invoke_subgraph", "aot"),
        captured("invoke_subgraph", "aot", "inserted"),
    )
    assert len(after.forward.saved) > len(before.forward.saved)
    (finding,) = diff(before.forward, after.forward).findings
    assert finding.after is not None
    assert finding.after.op == "aten.exp.default"
    projections = [c for c in finding.changes if c.node.op == "operator.getitem"]
    assert len(projections) == 2


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # once a process
@pytest.mark.parametrize("name", ["cond", "flex_attention with a mask", "scan"])
def test_dispatch_says_that_the_op_compiles_itself(name: str) -> None:
    op = SUBJECTS[name].op.removesuffix("_impl")
    reason = rf"torch's {op} compiles itself .*via='aot'"
    with pytest.raises(CaptureError, match=reason):
        capture(SUBJECTS[name].make(""), *SUBJECTS[name].args(), via="dispatch")


@pytest.mark.parametrize("name", ["cond", "scan"])
def test_fx_gives_the_reason_of_torch(name: str) -> None:
    # torch 2.15 traces a scan as nothing and returns an empty list.
    why = r"torch\.fx cannot trace the target|the target returned no tensor"
    with pytest.raises(CaptureError, match=why):
        capture(SUBJECTS[name].make(""), *SUBJECTS[name].args(), via="fx")
