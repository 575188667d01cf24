"""Stored graphs match by dataflow, at the detail that the test requests."""

from __future__ import annotations

from typing import Any

import pytest
from projects import GRAPHS

from pytest_torchgraph.errors import GraphFormatError
from pytest_torchgraph.graph import Detail, Graph, parse_document
from pytest_torchgraph.snapshot import program_of
from pytest_torchgraph.snapshot.compare import compare, parse_stored, same_text

graphs: dict[str, Any] = {}
exec(GRAPHS, graphs)
graph, text, Capture = graphs["graph"], graphs["text"], graphs["Capture"]

STRIDED = ' stride [16, 1] on "cuda"'


def against(stored: str, *now: Any, detail: Detail = "dataflow") -> str | None:
    """Return None for a match, else the problem and the details as one text."""
    mismatch = compare(parse_document(stored), program_of(Capture(*now)), detail)
    return None if mismatch is None else "\n".join([mismatch.problem, *mismatch.details])


def document(*of: Any, detail: Detail = "dataflow") -> str:
    return program_of(Capture(*of)).to_text(detail)


def test_compare_ignores_the_origin() -> None:
    assert same_text(text("relu", torch="2.7.0"), text("relu", torch="2.13.0"))
    assert same_text(text("relu").replace("via aot, torch 2.13.0\n", ""), text("relu"))
    assert not same_text(text("relu"), text("gelu"))
    assert not same_text(text("relu"), text("relu", tail=", detail full"))


@pytest.mark.parametrize(
    "origin", ["via aot, torch\n", "<<<<<<< ours\nvia aot\n", "aot, torch 2\n", ", torch 2\n"]
)
def test_compare_refuses_a_broken_origin(origin: str) -> None:
    broken = text("relu").replace("via aot, torch 2.13.0\n", origin)
    assert not same_text(broken, text("relu"))
    with pytest.raises(GraphFormatError, match=r"^some/path:2:\d+: .*--torchgraph-update"):
        parse_stored(broken, "some/path")


def test_compare_refuses_a_newer_version() -> None:
    newer = text("relu").replace("torchgraph 1", "torchgraph 5")
    assert not same_text(newer, text("relu"))
    with pytest.raises(GraphFormatError, match=r"^path:1:\d+: version 5.*upgrade.*--torchgraph-up"):
        parse_stored(newer, "path")


def test_undecodable_bytes_are_an_error_with_a_position() -> None:
    stored = (text("relu").encode() + b"  \xff\n").decode("utf-8", "surrogateescape")
    with pytest.raises(GraphFormatError, match="path:9:3: a byte that is not UTF-8: restore"):
        parse_stored(stored, "path")


def test_renamed_nodes_match_and_other_ops_do_not() -> None:
    renamed = text("relu").replace("layer.0/relu", "act")
    assert not same_text(renamed, text("relu"))
    assert against(renamed, graph("relu")) is None
    assert against(renamed, graph("gelu")) == ""


def test_number_names_and_order_of_graphs_are_compared() -> None:
    one, two = graph("relu"), graph("gelu", name="backward")
    assert against(document(one, two), one, two) is None
    for other in ([one], [two, one], [one, two, one], [one.renamed("x"), two]):
        problem = against(document(one, two), *other)
        assert problem is not None
        assert problem.startswith("captured graphs differ from the stored graphs\nstored:")
        assert "forward, backward" in problem


def test_strides_and_devices_count_only_at_full_detail() -> None:
    plain = graph("relu", stride=' stride [1, 2] on "cpu"')
    strided = graph("relu", stride=STRIDED)
    stored = document(strided, detail="full")
    assert 'stride [16, 1] on "cuda"' in stored
    assert against(stored, strided, detail="full") is None
    assert against(stored, plain, detail="dataflow") is None
    problem = against(stored, plain, detail="full")
    assert problem is not None
    assert problem.startswith("only strides or devices differ")
    assert '-  %x = input : f32[2, 16] stride [16, 1] on "cuda"' in problem
    assert '+  %x = input : f32[2, 16] stride [1, 2] on "cpu"' in problem


def test_node_names_are_ignored_at_full_detail() -> None:
    stored = document(graph("relu", stride=STRIDED), detail="full").replace("layer.0/relu", "act")
    assert against(stored, graph("relu", stride=STRIDED), detail="full") is None


def test_device_arguments_count_only_at_full_detail() -> None:
    def moved(device: str) -> Any:
        call = f'aten._to_copy.default(%x, device=device("{device}"))'
        return graphs["Graph"].from_text(
            text("relu").replace("aten.relu.default(%x)", call).replace("/relu", "/copy")
        )

    stored = document(moved("cuda"), detail="full")
    assert against(stored, moved("cpu")) is None
    assert "devices differ" in (against(stored, moved("cpu"), detail="full") or "")


def test_op_counts_are_compared_with_counts_and_graphs() -> None:
    same, other = graph("relu", "gelu", "relu"), graph("relu", "gelu", "gelu", "mm")
    details: tuple[Detail, ...] = ("ops", "dataflow", "full")
    for stored in details:
        kept = document(same, detail=stored)
        assert against(kept, graph("gelu", "relu", "relu"), detail="ops") is None
        assert against(kept, other, detail="ops") == (
            "3 op counts differ\n"
            "forward: aten.gelu.default  1 -> 2\n"
            "forward: aten.mm.default  0 -> 1\n"
            "forward: aten.relu.default  2 -> 1"
        )
        assert "differ from the stored graphs" in (against(kept, same, same, detail="ops") or "")


@pytest.mark.parametrize(
    ("stored", "asked"), [("ops", "dataflow"), ("ops", "full"), ("dataflow", "full")]
)
def test_compare_refuses_a_file_with_less_detail(stored: Detail, asked: Detail) -> None:
    problem = against(document(graph("relu"), detail=stored), graph("relu"), detail=asked)
    assert problem == (
        f"the stored file has only detail '{stored}', but the comparison needs '{asked}'\n"
        f"compare with graph_snapshot(detail='{stored}'), or store the graph again"
    )


def test_captures_and_graphs_can_be_compared() -> None:
    assert program_of(graph("relu")).graphs == (graph("relu"),)
    subject = program_of(Capture(graph("relu"), graph("gelu"), torch="2.9.1"))
    assert len(subject.graphs) == 2
    assert subject.header.torch == "2.9.1"


@pytest.mark.parametrize(
    ("value", "name"),
    [({}, "a dict"), (Capture, "a type")],
)
def test_compare_with_another_type_is_a_type_error(value: object, name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"cannot compare {name}: pass a capture, as in `graph_cap"
    ):
        program_of(value)


def test_capture_without_graphs_fails() -> None:
    with pytest.raises(AssertionError, match="nothing to compare: the capture has no graph"):
        program_of(Capture())


WRAPPED = """torchgraph 1
via aot, torch 2.13.0

forward {
  %x = input : f32[2]
  %tanh = aten.tanh.default(%x) : f32[2]
  %detach = aten.detach.default(%tanh) : f32[2]
  return %tanh
  save %tanh
  save %detach
}

backward {
  %tanh = saved : f32[2]
  %detach = saved : f32[2]
  %tangent = tangent : f32[2]
  %mul = aten.mul.Tensor(%tanh, %detach) : f32[2]
  %mul.1 = aten.mul.Tensor(%mul, %tangent) : f32[2]
  return %mul.1
}
"""


def test_detaches_of_autograd_are_ignored() -> None:
    wrapped = parse_document(WRAPPED).graphs
    plain = document(*wrapped)
    assert "detach" not in plain
    assert against(WRAPPED, *wrapped) is None
    assert against(plain, *wrapped) is None
    assert against(WRAPPED, *parse_document(plain).graphs) is None
    assert against(WRAPPED, *wrapped, detail="ops") is None
    edited = parse_document(plain.replace("%mul, %tangent", "%mul, %tanh")).graphs
    assert against(WRAPPED, *edited) is not None


def test_folded_file_equals_its_flat_form() -> None:
    lines = [
        f"  %h.{n}/{op} = aten.{op}.default(%x) : f32[2]"
        for n in range(5)
        for op in ("relu", "tanh", "sin")
    ]
    values = ", ".join(f"%h.{n}/{op}" for n in range(5) for op in ("relu", "tanh", "sin"))
    body = "\n".join(["  %x = input : f32[2]", *lines, f"  return [[{values}]]"])
    now = Graph.from_text(f"torchgraph 1\n\nforward @ aot {{\n{body}\n}}\n")
    folded = now.to_text(fold=True)
    assert "  h.0\n  h.1\n" in folded
    assert compare(parse_document(folded), program_of(now), "dataflow") is None
    edited = folded.replace("  h.3\n", "  h.3\n  but h.3 {\n    ~ %/sin = aten.cos(%x)\n  }\n")
    assert compare(parse_document(edited), program_of(now), "dataflow") is not None
