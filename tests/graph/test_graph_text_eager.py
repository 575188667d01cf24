"""Eager graphs in a text: the version, titles with run counts, and names from other graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from graph.build import graph

from pytest_torchgraph.graph import Graph, Header, format_document, parse_document

TEXT = """\
torchgraph 4
via aot, torch 2.13.0

forward_0: forward {
  %x = input : f32[2, 4]
  %fc/relu = aten.relu.default(%x) : f32[2, 4]
  return %fc/relu
}

eager_0 × 3 {
  %"forward_0:fc/relu" = saved : f32[2, 4]
  %sin = aten.sin.default(%"forward_0:fc/relu") : f32[2, 4]
  return %sin
}

eager_1: backward × 2 {
  %x = input : f32[2, 4]
  return %x
}

eager_2: inference {
  return None
}
"""


def eager(body: str = "return %x", **changes: Any) -> Graph:
    """Return an eager graph with these lines after its inputs, and with changed attributes."""
    given = graph(body, "eager_0: forward @ dispatch")
    return replace(given, eager=True, **changes)


def test_a_document_with_eager_graphs_reads_back() -> None:
    document = parse_document(TEXT)

    assert format_document(document.graphs, document.header) == TEXT
    ran = [
        (graph.name, graph.kind, graph.level, graph.eager, graph.runs) for graph in document.graphs
    ]
    assert ran == [
        ("forward_0", "forward", "aot", False, 1),
        ("eager_0", "forward", "dispatch", True, 3),
        ("eager_1", "backward", "dispatch", True, 2),
        ("eager_2", "inference", "dispatch", True, 1),
    ]
    assert document.runs == {"forward_0": 1, "eager_0": 3, "eager_1": 2, "eager_2": 1}
    assert parse_document(TEXT.replace("torchgraph 4", "torchgraph 2")).graphs == document.graphs


def test_eager_input_from_another_graph_has_the_producers_module() -> None:
    given = parse_document(TEXT).graphs[1]

    assert given["forward_0:fc/relu"].module == "fc"
    assert '"forward_0:fc/relu" = saved : f32[2, 4]\n' in given.to_text("full"), "`in` after it"


def test_counts_of_ops_have_the_same_titles() -> None:
    document = parse_document(TEXT)
    text = format_document(document.graphs, document.header, "ops")

    assert text == (
        "torchgraph 4\nvia aot, torch 2.13.0, detail ops\n\n"
        "forward_0: forward {\n  1 aten.relu.default\n}\n\n"
        "eager_0 × 3 {\n  1 aten.sin.default\n}\n\n"
        "eager_1: backward × 2 {\n}\n\n"
        "eager_2: inference {\n}\n"
    )
    assert parse_document(text).runs == document.runs


def test_compiled_graph_with_an_eager_name_states_its_level() -> None:
    given = graph("return %x", "eager_0: forward @ aot")

    text = format_document([given, eager()], Header("aot"))

    assert "\neager_0: forward @ aot {" in text
    assert [graph.eager for graph in parse_document(text).graphs] == [False, True]


def test_body_with_an_eager_name_is_not_an_eager_graph() -> None:
    body = graph("return %x", "eager_1: forward @ dispatch")
    around = eager(subgraphs=(body,))

    assert "\n  eager_1: forward {" in around.to_text()
    assert not Graph.from_text(around.to_text()).subgraphs[0].eager


def test_version_2_without_eager_graphs_is_read() -> None:
    given = graph("return %x")

    assert Graph.from_text(given.to_text().replace("torchgraph 4", "torchgraph 2")) == given


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            eager(name="forward"),
            "'forward' is not the name of an eager graph: use eager_0, eager_1",
        ),
        (
            eager(level="aot"),
            "eager_0 with level='aot', .* is not a valid eager graph: use level='dispatch'",
        ),
        (eager(kind="joint"), "kind='joint', .*: use .* kind forward, backward, inference"),
        (eager(runs=0), "runs=0 is not .*: use .* runs of at least 1"),
        (
            Graph(eager().nodes, subgraphs=(eager(),)),
            "subgraph eager_0 of main is eager: set eager=False",
        ),
    ],
)
def test_eager_graph_without_a_text_form_is_a_value_error(wrong: Graph, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong.to_text()
