"""Limits of the format (sizes, dimensions, levels, lines) are errors with a place."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from graph.build import document

from pytest_torchgraph import CaptureError, GraphFormatError, load
from pytest_torchgraph.graph import Graph, Node, Ref, TensorMeta, parse_document, parse_text

MESH = "torchgraph 4\nmesh dp=9\n\n"


def refused(body: str) -> GraphFormatError:
    with pytest.raises(GraphFormatError) as caught:
        parse_document(document(body))
    assert caught.value.line == 5
    return caught.value


@pytest.mark.parametrize("size", ["-1", str(2**63), "9" * 400])
def test_size_beyond_64_bits_is_refused(size: str) -> None:
    error = refused(f"%x = input\n%y = f(%x) : f32[2, {size}]\nreturn %y")
    assert error.problem == "expected a size from 0 to 2**63 - 1"
    assert error.column == len("  %y = f(%x) : f32[2, ") + 1
    assert (
        "dimensions" in refused(f"%x = input\n%y = f(%x) : f32[{'2, ' * 64}2]\nreturn %y").problem
    )


def test_largest_sizes_are_read() -> None:
    meta = TensorMeta("float32", (0, 2**63 - 1) * 32, (-(2**63) + 1, 0) * 32)
    node = Node("x", "placeholder", "input", result=meta)
    graph = Graph((node, Node("output", "output", "output", (Ref("x"),))))
    again = Graph.from_text(graph.to_text("full"))
    assert again["x"].result == meta
    huge = replace(node, result=replace(meta, stride=(2**63,)))
    with pytest.raises(GraphFormatError, match=r"from -9223372036854775807 to 2\*\*63 - 1"):
        Graph.from_text(Graph((huge, graph.nodes[1])).to_text("full"))


LEVELS = ".".join("m" * 201)


@pytest.mark.parametrize(
    "line",
    [
        f'%y = f(%x) in "{LEVELS}"',
        f"%{LEVELS}/y = f(%x)",
        f'%"{LEVELS} /y" = f(%x)',
        f'%y = get_attr["{LEVELS}"]',
        '%y = f(%x) in "' + LEVELS.replace(".", "\\u002e") + '"',
        f"%y = f(%x, %{LEVELS}: f32[2])",
    ],
)
def test_module_path_of_too_many_levels_is_refused(line: str) -> None:
    body = f"%x = input\n{line}\nreturn %x"
    with pytest.raises(GraphFormatError, match="a module path of at most 200 levels") as caught:
        parse_document(document(body).replace("torchgraph 1", "torchgraph 4"))
    assert caught.value.line == 5
    body = body.replace("\\u002e", ".")
    shorter = body.replace(LEVELS, LEVELS[2:]).replace(f", %{LEVELS[2:]}: f32[2]", "")
    assert parse_document(document(shorter).replace("torchgraph 1", "torchgraph 4"))


def folded(instances: str) -> str:
    return (
        "forward @ aot {\n  %x = input\n  each m.* {\n    %/f = f(%x)\n    %/g = f(%/f)\n  }\n"
        f"  {instances}\n  return %x\n}}\n"
    )


def test_text_of_too_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphFormatError, match="expands to more than 200,000 lines") as caught:
        parse_document("torchgraph 4\n\n" + folded("m.0 .. 100000"))
    assert caught.value.line == 9
    with pytest.raises(GraphFormatError, match="has more than 200,000 lines") as caught:
        parse_document("torchgraph 4\n" + "\n" * 200_000)
    assert caught.value.line == 200_001
    monkeypatch.setattr("pytest_torchgraph.graph.text.nodes.MAX_CHARACTERS", 100)
    with pytest.raises(GraphFormatError, match="has more than 100 characters"):
        parse_document("x" * 101)


def test_ranks_share_one_limit_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_torchgraph.graph.text.ranks.MAX_LINES", 200)
    sections = [f"rank {rank}\n\n{folded('m.0 .. 29')}" for rank in range(4)]
    assert len(parse_text(MESH + "\n".join(sections[:1])).graphs) == 1
    with pytest.raises(GraphFormatError, match="expands to more than 200,000 lines") as caught:
        parse_text(MESH + "\n".join(sections))
    assert caught.value.line == 36


def test_load_names_the_file_of_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.tgraph"
    path.write_text(document("%x = input : f32[-1]\nreturn %x"))
    with pytest.raises(GraphFormatError, match=r"a\.tgraph:4:20: expected a size from 0"):
        load(path)


@pytest.mark.slow("60,000 nodes; test_ranks_share_one_limit_of_lines reads fewer")
def test_model_of_200_layers_and_60000_nodes_is_read() -> None:
    block = "".join(f"    %/n{k} = f(%/n{k - 1})\n" for k in range(1, 300))
    text = (
        "torchgraph 4\n\nforward @ aot {\n  %x = input\n  each layers.* {\n    %/n0 = f($1)\n"
        f"{block}  }}\n  layers.0: $1 = %x\n  layers.1 .. 199: $1 = %layers.[n-1]/n299\n"
        "  return %layers.199/n299\n}\n"
    )
    (graph,) = parse_document(text).graphs
    assert len(graph.nodes) == 60_002


DIVIDED = """torchgraph 4
via aot, torch 2.13.0

forward_0: forward{runs} {{
  %x = input : f32[2]
  %a = aten.neg.default(%x) : f32[2]
  return %a
}}

forward_1: forward {{
  %h = input : f32[2]
  %c = aten.exp.default(%h) : f32[2]
  return %c
}}

links
"""


def refused_link(line: str, *, runs: int = 1, read: str = "") -> GraphFormatError:
    """Return the error of the last of some lines after `links`; with `read` in its place, none."""
    title = DIVIDED.format(runs=f" × {runs}" if runs > 1 else "")
    if read:
        parse_document(f"{title}{read}\n")
    with pytest.raises(GraphFormatError) as caught:
        parse_document(f"{title}{line}\n")
    last = line.count("\n") + 1
    assert caught.value.line == title.count("\n") + last
    return caught.value


DEEP = ".".join("m" * 200)


@pytest.mark.parametrize(
    "line",
    [
        "  run forward_0 in {}\n  run forward_1: %h = forward_0 %a",
        "  run forward_0 with {} as b\n  run forward_1: %h = forward_0 %a",
        "  run forward_0 with b as {}\n  run forward_1: %h = forward_0 %a",
        "  run forward_0: %x = parameter %{}\n  run forward_1: %h = forward_0 %a",
    ],
)
def test_link_with_too_many_levels_is_refused(line: str) -> None:
    first = line.partition("\n")[0]
    error = refused_link(first.format(LEVELS), read=line.format(DEEP))
    assert error.problem == "expected a module path of at most 200 levels"
    assert error.column == first.index("{") + 1


LINKED = "  run forward_0\n  run forward_1: %h = forward_0 %a\n"


def test_result_that_is_given_twice_is_refused() -> None:
    line = '  result "output 0" = none'
    error = refused_link(f"{LINKED}{line}\n{line}", read=f"{LINKED}{line}")
    assert (error.problem, error.column) == ("'output 0' is given twice", 10)


def test_role_of_a_source_has_no_number_of_a_run() -> None:
    line = "  run forward_0\n  run forward_1: %h = input{} %x"
    error = refused_link(line.format("[5]"), read=line.format(""))
    problem = "no earlier run 5 of a graph 'input' has a value %x"
    assert (error.problem, error.column) == (problem, 23)


def test_runs_share_one_limit_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of `links` stands for all inputs of its graph, and for each under each path."""
    monkeypatch.setattr("pytest_torchgraph.graph.text.links.MOST_RUN_NODES", 12)
    others = "".join(f"  run forward_0[{n}]\n" for n in (2, 3))
    read = f"{LINKED}{others}".rstrip()
    assert parse_document(f"{DIVIDED.format(runs=' × 3')}{read}\n")
    error = refused_link(f"{read} with a as b", runs=3)
    assert error.problem == "the runs have more than 12 nodes"
    assert error.column == 7
    assert refused_link(f"{read}\n  run forward_0[4]", runs=4).problem == error.problem


def test_capture_error_names_the_limit() -> None:
    storable = import_module("pytest_torchgraph.snapshot.compare").storable
    text = document("%x = input : f32[-1]\nreturn %x")
    with pytest.raises(CaptureError, match="cannot be stored: expected a size from 0"):
        storable(text)
    assert storable(text.replace("-1", "1"))
