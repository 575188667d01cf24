"""Ends of the paths from a node to the loss, and the page's search for paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report.page.pages import written

from pytest_torchgraph import Graph
from pytest_torchgraph.report.page.nodes import graph_data, path_ends

FIND = """([edges, start, ends]) => {
  const found = ways(start, (key) => edges[key] || [], (key) => ends.includes(key));
  return found && [found.shortest, [...found.on].sort()];
}"""
EDGES = {"a": ["b", "c", "dead"], "b": ["d"], "c": ["e"], "d": ["e"], "e": ["loss"], "dead": ["x"]}


@pytest.fixture
def find(opened: Any, tmp_path: Path) -> Any:
    page = opened.open(written(tmp_path))
    return lambda *what: page.evaluate(FIND, what)


def test_paths_to_the_ends_are_found(find: Any) -> None:
    assert find(EDGES, "a", ["loss"]) == [
        ["a", "c", "e", "loss"],
        ["a", "b", "c", "d", "e", "loss"],
    ]
    assert find(EDGES, "loss", ["loss"]) == [["loss"], ["loss"]]
    assert find(EDGES, "dead", ["loss"]) is None
    assert find(EDGES, "nowhere", ["loss"]) is None
    # A path continues after an end and around a cycle.
    circle = {**EDGES, "loss": ["c", "f"], "e": ["loss", "c"]}
    shortest, every = find(circle, "c", ["loss", "f"])
    assert shortest == ["c", "e", "loss"]
    assert every == ["c", "e", "f", "loss"]


def graph(kind: str, *lines: str, inputs: str = "%x = input : f32[2, 8]") -> Graph:
    body = "\n".join(f"  {line}" for line in (inputs, *lines))
    return Graph.from_text(f"torchgraph 1\n\n{kind} @ aot {{\n{body}\n}}\n")


SUM = ("%y = aten.neg.default(%x) : f32[2, 8]", "%sum = aten.sum.default(%y) : f32[]")


@pytest.mark.parametrize(
    ("found", "kind", "names"),
    [
        (graph("forward", *SUM, "return %sum"), "loss", {"sum"}),
        (graph("forward", *SUM, "return [%sum, %y]"), "output", {"sum", "y"}),
        (graph("joint", *SUM, "return [%sum, %y]"), "loss", {"sum"}),
        (graph("forward", *SUM, "return %y"), "output", {"y"}),
        (
            graph(
                "backward",
                "%y = aten.mul.Tensor(%x, %t) : f32[2, 8]",
                "return %y",
                inputs="%x = saved : f32[2, 8]\n  %t = tangent : f32[2, 8]",
            ),
            "tangent",
            {"t"},
        ),
    ],
)
def test_ends_of_a_graph(found: Graph, kind: str, names: set[str]) -> None:
    assert path_ends(found) == (kind, names)
    data = graph_data(found)
    assert data["end"] == kind
    assert {data["names"][number] for number in data["ends"]} == names


def test_reads_of_a_storage_after_a_write_are_on_its_paths() -> None:
    """No argument connects `neg` to `add_`; only the order of effects does."""
    written = graph(
        "forward",
        "%y = aten.relu.default(%x) : f32[2, 8]",
        "%add_ = aten.add_.Scalar(%y, 1) : f32[2, 8] !mutates %y",
        "%neg = aten.neg.default(%y) : f32[2, 8] after %add_",
        "return %neg",
    )
    data = graph_data(written)
    write, neg = map(data["names"].index, ("add_", "neg"))
    assert not any(write in refs for refs in data["refs"])
    assert data["after"][neg] == [write]


def test_saved_values_are_unknown_without_a_record() -> None:
    lines = "  %x = input : f32[2, 8]\n  %y = aten.relu.default(%x) : f32[2, 8]\n  return %y\n"
    for level, kept in (("aot", [0, 0]), ("dynamo", [0, None])):
        parsed = Graph.from_text(f"torchgraph 1\n\nforward @ {level} {{\n{lines}}}\n")
        assert graph_data(parsed)["saved"] == [*kept, 0]
