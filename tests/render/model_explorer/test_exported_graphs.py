"""Graphs as JSON for model-explorer, checked in the fields that its pages read."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from graph.edits import graph, layers
from graph.strategies import checked, graphs, plain_graphs, renamed, shuffled
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph.graph import Graph, canonical
from pytest_torchgraph.render.model_explorer.collection import graph_collection
from pytest_torchgraph.render.model_explorer.comparison import ExportedComparison, compare

Json = dict[str, Any]
SEEDS = st.integers(0, 2**32 - 1)

FORWARD = """torchgraph 1

forward @ aot {
  %x = input : f32[2, 4]
  %layers.0.weight = parameter : f32[4, 4]
  %layers.0/mm = aten.mm.default(%x, %layers.0.weight) : f32[2, 4]
  %layers.0.act/relu = aten.relu.default(%layers.0/mm) : f32[2, 4]
  %add_ = aten.add_.Tensor(%x, %layers.0.act/relu) : f32[2, 4] !mutates %x
  return %layers.0.act/relu
  save %layers.0/mm
}
"""
COND = """torchgraph 1

main: forward @ export {
  yes: forward @ export {
    %x = input : f32[4]
    %y = aten.relu.default(%x) : f32[4]
    return [%y]
  }
  no: forward @ export {
    %x = input : f32[4]
    %y = aten.neg.default(%x) : f32[4]
    return [%y]
  }
  %p = input : b8[]
  %x = input : f32[4]
  %c = higher_order.cond(%p, @yes, @no, [%x])
  %out = operator.getitem(%c, 0) : f32[4]
  return %out
}
"""


def nodes(exported: Json) -> dict[str, Json]:
    return {node["id"]: node for node in exported["nodes"]}


def attributes(node: Json) -> dict[str, str]:
    return {line["key"]: line["value"] for line in node["attrs"]}


def test_exported_node_has_a_namespace_and_a_label() -> None:
    (graph,) = graph_collection([Graph.from_text(FORWARD)], "f")["subgraphs"]
    shown = {name: (node["namespace"], node["label"]) for name, node in nodes(graph).items()}
    assert shown["layers.0/mm"] == ("layers/0", "aten.mm")
    assert shown["layers.0.act/relu"] == ("layers/0/act", "aten.relu")
    assert shown["layers.0.weight"] == ("layers/0", "weight")
    assert shown["x"] == ("", "x")
    assert shown["output"] == ("", "return")


def test_exported_edges_come_from_the_operands_in_order() -> None:
    (graph,) = graph_collection([Graph.from_text(FORWARD)], "f")["subgraphs"]
    edges = nodes(graph)["layers.0/mm"]["incomingEdges"]
    assert [(e["sourceNodeId"], e["targetNodeInputId"]) for e in edges] == [
        ("x", "0"),
        ("layers.0.weight", "1"),
    ]
    assert nodes(graph)["layers.0/mm"]["outputsMetadata"] == [
        {
            "id": "0",
            "attrs": [{"key": "dtype", "value": "float32"}, {"key": "shape", "value": "2x4"}],
        }
    ]


def test_exported_nodes_have_saved_values_and_effects() -> None:
    (graph,) = graph_collection([Graph.from_text(FORWARD)], "f")["subgraphs"]
    exported = nodes(graph)
    assert attributes(exported["layers.0/mm"])["saved for the backward"] == "yes"
    assert "saved for the backward" not in attributes(exported["layers.0.act/relu"])
    names = ("layers.0/mm", "layers.0.act/relu")
    borders = {exported[name]["style"]["borderColor"] for name in names}
    assert len(borders) == 2
    assert attributes(exported["add_"])["effects"] == "mutates x"


def test_exported_higher_order_op_has_its_bodies() -> None:
    exported = graph_collection([Graph.from_text(COND)], "f")["subgraphs"]
    assert [exported_graph["id"] for exported_graph in exported] == ["main", "main/yes", "main/no"]
    assert nodes(exported[0])["c"]["subgraphIds"] == ["main/yes", "main/no"]
    assert "subgraphIds" not in nodes(exported[0])["out"]


@pytest.mark.slow("many random graphs")
@checked
@given(st.lists(graphs(), min_size=1, max_size=3))
def test_any_export_has_unique_ids_and_edges_inside_its_graphs(drawn_graphs: list[Graph]) -> None:
    named = [graph.renamed(f"g{k}") for k, graph in enumerate(drawn_graphs)]
    exported = graph_collection(named, "f")["subgraphs"]
    ids = {exported_graph["id"] for exported_graph in exported}
    assert len(ids) == len(exported) == sum(1 for graph in named for _ in graph.walk())
    for exported_graph in exported:
        check_nodes(exported_graph, ids)


def check_nodes(exported: Json, graph_ids: set[str]) -> None:
    own = nodes(exported)
    assert len(own) == len(exported["nodes"])
    for node in exported["nodes"]:
        assert {edge["sourceNodeId"] for edge in node["incomingEdges"]} <= own.keys()
        assert set(node.get("subgraphIds", ())) <= graph_ids
        for attribute in node["attrs"]:
            assert attribute["value"].isprintable()


# -- two files -------------------------------------------------------------------------------------


def compared(old: str, new: str) -> ExportedComparison:
    return compare([Graph.from_text(old)], [Graph.from_text(new)], ("old", "new"))


def sides(comparison: ExportedComparison) -> tuple[dict[str, Json], dict[str, Json]]:
    old, new = (nodes(collection["subgraphs"][0]) for collection in comparison.collections)
    return old, new


def test_exported_matching_nodes_have_the_same_id_and_are_mapped() -> None:
    diff = compared(FORWARD, FORWARD.replace("relu", "tanh").replace("%x", "%y"))
    old, new = sides(diff)
    assert old.keys() == new.keys()
    assert diff.mapping["mapping"].items() >= {name: name for name in old}.items()
    assert attributes(new["x"])["name"] == "y"
    assert "name" not in attributes(new["layers.0/mm"])


def test_exported_changed_node_has_old_and_new_attributes() -> None:
    old, new = sides(compared(FORWARD, FORWARD.replace("relu", "tanh")))
    was, now = old["layers.0.act/relu"], new["layers.0.act/relu"]
    assert (was["label"], now["label"]) == ("~ aten.relu", "~ aten.tanh")
    assert "aten.tanh.default" in attributes(was)["now"]
    assert "aten.relu.default" in attributes(now)["before"]
    assert attributes(now)["difference"] == (
        "changed: 1 edit: aten.relu -> aten.tanh in layers.0.act"
    )
    assert was["style"] == now["style"]
    assert "style" not in new["add_"]


CLONED = FORWARD.replace(
    "  %add_", "  %clone = aten.clone.default(%layers.0.act/relu) : f32[2, 4]\n  %add_"
).replace("return %layers.0.act/relu", "return %clone")


@pytest.mark.parametrize(("texts", "side"), [((FORWARD, CLONED), 1), ((CLONED, FORWARD), 0)])
def test_exported_added_or_removed_nodes_have_no_partner(texts: tuple[str, str], side: int) -> None:
    diff = compared(*texts)
    one, other = sides(diff)[side], sides(diff)[1 - side]
    assert "clone" in one
    assert "clone" not in other
    assert "clone" not in diff.mapping["mapping"]
    assert one["clone"]["label"] == ("+ aten.clone" if side else "- aten.clone")
    assert diff.mapping["disableMappingFallback"]
    assert diff.mapping["showDiffHighlights"]


def test_exported_new_node_has_an_unused_id() -> None:
    """In matching by id, model-explorer treats nodes with the same id as the same node."""
    old = FORWARD.replace("%layers.0.act/relu", "%clone")
    diff = compared(old, CLONED)
    left, right = sides(diff)
    assert [name for name in right if name not in left] == ["clone (new)"]
    assert attributes(right["clone (new)"])["name"] == "clone"
    assert diff.mapping["mapping"]["clone"] == "clone"


def test_exported_modules_around_a_change_are_coloured() -> None:
    old, new = compared(FORWARD, FORWARD.replace("relu", "tanh")).collections
    for collection in (old, new):
        (config,) = collection["subgraphs"][0]["groupNodeConfigs"]
        assert config["namespaceRegex"] == "^(?:layers/0/act|layers/0|layers)$"


def test_exported_layers_with_different_paths_are_mapped() -> None:
    diff = compared(FORWARD, FORWARD.replace("layers.0", "blocks.3"))
    groups = {k: v for k, v in diff.mapping["mapping"].items() if k.endswith("___group___")}
    assert groups == {
        "layers___group___": "blocks___group___",
        "layers/0___group___": "blocks/3___group___",
        "layers/0/act___group___": "blocks/3/act___group___",
    }


@pytest.mark.parametrize("new", [COND, COND.replace("aten.neg", "aten.abs")])
def test_bodies_are_matched_too(new: str) -> None:
    diff = compared(COND, new)
    old, after = (
        {subgraph["id"].partition("/")[2]: nodes(subgraph) for subgraph in side["subgraphs"]}
        for side in diff.collections
    )
    assert old.keys() == after.keys() == {"main", "main/yes", "main/no"}
    assert {name: [*each] for name, each in old.items()} == {
        name: [*each] for name, each in after.items()
    }
    assert old["main/no"]["y"]["label"] == ("aten.neg" if new == COND else "~ aten.neg")


def test_the_first_edit_is_opened() -> None:
    diff = compared(FORWARD, FORWARD.replace("relu", "tanh"))
    assert [(pane.graph, pane.node, pane.layer) for pane in diff.panes] == [
        ("old/forward", "layers.0.act/relu", "layers/0/act___group___"),
        ("new/forward", "layers.0.act/relu", "layers/0/act___group___"),
    ]
    assert [pane.node for pane in compared(FORWARD, FORWARD).panes] == ["", ""]
    old, new = compared(FORWARD, CLONED).panes
    assert (old.node, new.node) == ("", "clone")


def test_exported_added_graph_is_entirely_new() -> None:
    forward = Graph.from_text(FORWARD)
    comparison = compare([forward], [forward, forward.renamed("more")], ("old", "new"))
    labels = [
        node["label"]
        for body in comparison.collections[1]["subgraphs"][1:]
        for node in body["nodes"]
    ]
    assert len(labels) == len(forward.nodes)
    assert all(label.startswith("+ ") for label in labels)


@checked
@given(plain_graphs(), plain_graphs())
def test_each_unchanged_node_is_mapped_exactly_once(a: Graph, b: Graph) -> None:
    comparison = compare([a], [b], ("old", "new"))
    left, right = sides(comparison)
    mapping = {k: v for k, v in comparison.mapping["mapping"].items() if "___group___" not in k}
    assert mapping.keys() == left.keys() & right.keys()
    assert all(key == value for key, value in mapping.items())
    for side in (left, right):
        for name, node in side.items():
            kind = attributes(node).get("difference", "").partition(":")[0]
            assert (name not in mapping) == (kind in ("added", "removed"))
    for collection, given_graph in zip(comparison.collections, (a, b), strict=True):
        (exported,) = collection["subgraphs"]
        assert len(exported["nodes"]) == len(canonical([given_graph])[0].nodes)
        check_nodes(exported, set())


@checked
@given(plain_graphs(), SEEDS)
def test_equal_graphs_are_mapped_as_a_whole(a: Graph, seed: int) -> None:
    rng = random.Random(seed)
    comparison = compare([a], [shuffled(renamed(a, rng), rng)], ("old", "new"))
    left, right = sides(comparison)
    assert (
        left.keys()
        == right.keys()
        == comparison.mapping["mapping"].keys()
        - {key for key in comparison.mapping["mapping"] if "___group___" in key}
    )
    assert not any("difference" in attributes(node) for node in right.values())


@pytest.mark.slow("via dispatch each case is in every run")
@checked
@given(graphs(), graphs())
def test_any_two_graphs_can_be_written(a: Graph, b: Graph) -> None:
    comparison = compare([a], [b], ("old", "new"))
    ids = [subgraph["id"] for side in comparison.collections for subgraph in side["subgraphs"]]
    assert len(ids) == len(set(ids))
    for side in comparison.collections:
        for subgraph in side["subgraphs"]:
            check_nodes(subgraph, set(ids))


def test_removed_layer_does_not_shift_later_layers() -> None:
    before, after = layers(4, scoped=True, size=6), layers(3, scoped=True, size=6)
    marked = [replace(n, op="aten.exotic.default") if n.module == "layers.1" else n for n in before]
    comparison = compare([graph(marked)], [graph(after)], ("old", "new"))
    mapping = comparison.mapping["mapping"]
    assert mapping["layers/0___group___"] == "layers/0___group___"
    assert "layers/1___group___" not in mapping
    assert mapping["layers/2___group___"] == "layers/1___group___"
    assert mapping["layers/3___group___"] == "layers/2___group___"


def test_no_two_layers_are_mapped_to_one() -> None:
    old = FORWARD.replace("layers.0.act", "other")
    groups = compared(old, FORWARD.replace("layers.0.act", "layers.0")).mapping["mapping"]
    assert groups["layers/0___group___"] == "layers/0___group___"
    assert "other___group___" not in groups


def test_slash_in_a_module_path_is_not_a_layer() -> None:
    parsed = Graph.from_text(FORWARD)
    paths = [replace(n, module="a/b.c") if n.name == "layers.0/mm" else n for n in parsed.nodes]
    (exported,) = graph_collection([replace(parsed, nodes=tuple(paths))], "f")["subgraphs"]
    assert nodes(exported)["layers.0/mm"]["namespace"] == r"a\/b/c"


def test_nodes_of_bodies_have_the_ids_of_their_partners() -> None:
    diff = compared(COND, COND.replace("%y", "%z"))
    bodies = [nodes(body) for body in diff.collections[1]["subgraphs"][1:]]
    assert [[*body] for body in bodies] == [["x", "y", "output"]] * 2


SHARED = COND.replace("@yes, @no", "@yes, @yes")
SHARED = SHARED[: SHARED.index("  no: ")] + SHARED[SHARED.index("  %p = ") :]


def test_exported_split_body_is_matched_with_its_first_part() -> None:
    two = COND.replace("aten.neg", "aten.relu").replace("%y", "%z").replace("%z", "%y", 2)
    diff = compared(two, SHARED)
    names = [[*nodes(body)] for body in diff.collections[0]["subgraphs"][1:]]
    assert names == [["x", "y", "output"], ["x", "z", "output"]]
    assert [*nodes(diff.collections[1]["subgraphs"][1])] == names[0]


def test_exported_backward_consequence_names_its_edit() -> None:
    backward = Graph.from_text(
        "torchgraph 1\n\nbackward @ aot {\n  %tangent = tangent : f32[2, 4]\n"
        "  %relu_backward = aten.relu_backward.default(%tangent) : f32[2, 4]\n"
        "  return %relu_backward\n}\n"
    )
    edited = Graph.from_text(backward.to_text().replace("relu", "tanh"))
    new = Graph.from_text(FORWARD.replace("relu", "tanh"))
    comparison = compare([Graph.from_text(FORWARD), backward], [new, edited], ("old", "new"))
    node = nodes(comparison.collections[1]["subgraphs"][1])["relu_backward"]
    assert attributes(node)["difference"] == (
        "changed: follows from 1 edit: aten.relu -> aten.tanh in layers.0.act"
    )
    assert attributes(node)["name"] == "tanh_backward"


def test_exported_graphs_keep_the_file_order() -> None:
    forward = Graph.from_text(FORWARD)
    captured = [replace(forward, kind="inference", name="inference"), forward]
    comparison = compare(captured, captured, ("old", "new"))
    for side, prefix in zip(comparison.collections, ("old/", "new/"), strict=True):
        assert [subgraph["id"] for subgraph in side["subgraphs"]] == [
            f"{prefix}inference",
            f"{prefix}forward",
        ]
