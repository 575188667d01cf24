"""The text of a graph is read as the same graph, for every subject and level."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from convert.printed.compare import differences
from convert.printed.live_and_printed import Seen, compiled, post_grad, read_all, run, watching
from convert.printed.subjects import SUBJECTS, in_place, nested_cond, several_outputs
from convert.printed.texts import parse_printed
from torch_releases import skip_before

from pytest_torchgraph import Graph, Node, Source, TensorMeta
from pytest_torchgraph.graph import Ref, Symbol


@pytest.fixture(autouse=True)
def torchs_own_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def assert_agreement(seen: Seen) -> None:
    for pair, graph in read_all(seen):
        assert len(pair.live.nodes) > 1
        assert differences(pair.live, graph, pair.artifact) == []


@pytest.mark.slow(
    "long models; short ones are in every run",
    unless=[
        "devices_dtypes_layouts",
        "hostile_strings",
        "index_put_and_checks",
        "local_function_in_graph",
        "mutating_custom_op",
        "output_aliases_input",
        "randomness",
        "tensor_constants",
    ],
)
@pytest.mark.parametrize("name", SUBJECTS)
def test_graphs_of_dynamo_and_aot_agree(name: str) -> None:
    seen = compiled(SUBJECTS[name](), "aot_eager")
    assert seen.of("dynamo_output_graph")
    assert seen.of("aot_inference_graph") or (
        seen.of("aot_joint_graph")
        and seen.of("aot_forward_graph")
        and seen.of("aot_backward_graph")
    )
    assert_agreement(seen)


QUICK = ("hostile_strings", "local_function_in_graph", "output_aliases_input")


@pytest.mark.slow("bodies and ops are printed alike at every level", unless=QUICK)
@pytest.mark.parametrize("name", dict.fromkeys([*QUICK, *[*SUBJECTS][::3]]))
def test_graphs_of_inductor_agree(name: str) -> None:
    skip_before("2.10", "torch does not log post-grad graphs")
    seen = compiled(SUBJECTS[name](), post_grad)
    assert seen.of("inductor_post_grad_graph")
    assert_agreement(seen)


@pytest.mark.slow("long models; short ones are in every run", unless=["tensor_constants"])
@pytest.mark.parametrize(
    "name",
    [
        "bert",
        "checkpoint",
        "nested_compile_region",
        "autograd_function",
        "in_place",
        "tensor_constants",
        "several_outputs",
        "views",
        "dynamic_sizes",
        "hooks",
    ],
)
def test_graphs_of_compiled_autograd_agree(name: str) -> None:
    seen = compiled(SUBJECTS[name](), "aot_eager", autograd=True)
    assert seen.of("compiled_autograd_graph")
    assert_agreement(seen)


@pytest.mark.slow("runs pytest in a new process")
def test_text_of_a_warm_cache_is_read_like_that_of_a_cold_one() -> None:
    graphs: list[list[Graph]] = []
    subject = SUBJECTS["batch_norm"]
    with torch._inductor.utils.fresh_cache():
        for _ in range(2):
            with watching() as seen:
                run(subject(), "inductor")
            texts = [(p.artifact, p.text) for p in seen.pairs] + seen.unknown
            chosen = sorted(text for text in texts if text[0].startswith(("aot_f", "aot_b")))
            graphs.append([parse_printed(t, level="aot", kind="forward") for _, t in chosen])
    assert len(seen.unknown) > 0, "the second compile was not warm"
    cold, warm = graphs
    assert cold == warm
    assert [g.to_text("full") for g in cold] == [g.to_text("full") for g in warm]


# -- the comparison itself -------------------------------------------------------------------------


def edited(graph: Graph, pick: Callable[[Node], bool], **changes: Any) -> Graph:
    """Change the first node that matches."""
    index = next(i for i, node in enumerate(graph.nodes) if pick(node))
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


MUTATIONS: dict[str, Callable[[Graph], Graph]] = {
    "op": lambda g: edited(g, lambda n: n.is_call, op="aten.other.default"),
    "args": lambda g: edited(g, lambda n: len(n.refs) > 0, args=()),
    "result": lambda g: edited(g, lambda n: isinstance(n.result, TensorMeta), result=None),
    "effects": lambda g: edited(g, lambda n: bool(n.effects), effects=()),
    "source": lambda g: edited(g, lambda n: n.source is not None, source=Source("x.py", 1)),
    "order": lambda g: replace(g, nodes=(g.nodes[1], g.nodes[0], *g.nodes[2:])),
    "saved": lambda g: replace(g, saved=(Ref(g.nodes[0].name),)),
}


def test_differences_detect_a_dropped_or_changed_field() -> None:
    pair, graph = read_all(compiled(in_place(), "aot_eager"))[0]
    assert pair.artifact == "dynamo_output_graph"
    assert differences(pair.live, graph) == []
    for field, mutated in MUTATIONS.items():
        assert differences(pair.live, mutated(graph)) != [], field


@pytest.mark.slow("compiles bodies; statements of bodies are examples in text")
def test_differences_enter_bodies() -> None:
    pair, graph = read_all(compiled(nested_cond(), "aot_eager"))[0]
    body = graph.subgraphs[0]
    changed = edited(body, lambda n: n.is_call, op="aten.other.default")
    assert differences(pair.live, replace(graph, subgraphs=(changed, *graph.subgraphs[1:])))


# -- details of particular subjects ----------------------------------------------------------------


@pytest.mark.slow("compiles for a second")
def test_printed_saved_values_are_separate_from_outputs() -> None:
    skip_before("2.10", "torch does not log post-grad graphs")
    seen = compiled(several_outputs(), post_grad)
    graph_of = {pair.artifact: graph for pair, graph in read_all(seen)[::-1]}
    forward = graph_of["aot_forward_graph"]
    assert len(forward.saved) > 0
    stages = [forward, graph_of["before_post_grad_graph"], graph_of["inductor_post_grad_graph"]]
    assert [len(stage.saved) for stage in stages] == [len(forward.saved)] * 3
    assert graph_of["aot_joint_graph"].saved == ()


def test_symbols_of_a_dynamic_shape_are_numbered_by_the_inputs() -> None:
    seen = compiled(SUBJECTS["dynamic_sizes"](), "aot_eager")
    graph = read_all(seen)[0][1]
    shapes = [n.result.shape for n in graph.inputs if isinstance(n.result, TensorMeta)]
    assert shapes[0] == (Symbol("s0"), Symbol("s1"))
    assert "s1 + 1" in graph.to_text()


def test_in_place_statements_are_effects_on_the_storage_that_they_write() -> None:
    seen = compiled(in_place(), "aot_eager")
    graph = read_all(seen)[0][1]
    setitems = graph.find("operator.setitem")
    assert len(setitems) == 4
    assert {effect.kind for node in setitems for effect in node.effects} == {"mutates"}
    targets = {node.effects[0].target for node in setitems}
    assert len(targets) == 1
    assert graph.find("Tensor.clamp_")[0].effects[0].target in targets
