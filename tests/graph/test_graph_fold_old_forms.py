"""Forms of folded text that earlier releases wrote are read, and are not written any more.

One line had several instances (`net.1 .. 2`), with numbers computed from that of the instance
(`[n-1]`). A block had formals for the sizes in which its instances differ (`f32[1, $2, $3]`), and
layers of several stages shared a block (`each net.*.* {`).
"""

from __future__ import annotations

import pytest
from graph.build import written

from pytest_torchgraph import Graph, GraphFormatError
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold

SIZED = written(
    "%x = input : f32[1, 3, 64, 64]\n"
    "each net.* {\n"
    "  %.conv/conv2d = aten.conv2d.default($1, [2, 2]) : f32[1, $2, $3, $3]\n"
    "  %.act/view = aten.view.default(%.conv/conv2d, [-1, $2], 0.5) : f32[1, $2, $3, $3]\n"
    "}\n"
    "net.0: $1 = %x, $2 = 8, $3 = 32\n"
    "net.1 .. 2: $1 = %net.[n-1].act/view, $2 = 0, $3 = 16\n"
    "return %net.2.act/view"
)
STAGED = written(
    "%x = input : f32[2]\n"
    "each net.*.* {\n"
    "  %.act/view = aten.view.default($1, [$2]) : f32[$2]\n"
    "  %/new = aten.sin.default(%.act/view) : f32[$2]\n"
    "}\n"
    "net.0.0: $1 = %x, $2 = 32\n"
    "%net.1/op = aten.cos.default(%net.0.0/new) : f32[2]\n"
    "net.1.0: $1 = %net.1/op, $2 = 16\n"
    "net.1.1: $1 = %net.1.0/new, $2 = 16\n"
    "but net.1.1 {\n"
    "  @ %.act/view\n"
    "  + %/mid = aten.tan.default(%.act/view) : f32[16]\n"
    "  ~ %/new = aten.sin.default(%/mid) : f32[16]\n"
    "}\n"
    "return %net.1.1/new"
)


def test_each_instance_gives_its_sizes() -> None:
    lines = expand(SIZED).split("\n")[4:]
    assert lines[2:4] == [
        "  %net.1.conv/conv2d = aten.conv2d.default(%net.0.act/view, [2, 2]) : f32[1, 0, 16, 16]",
        "  %net.1.act/view = aten.view.default(%net.1.conv/conv2d, [-1, 0], 0.5) : "
        "f32[1, 0, 16, 16]",
    ]


def test_layers_of_several_stages_share_a_block() -> None:
    nodes = Graph.from_text(STAGED).nodes
    assert [(node.name, node.op.rpartition(".")[0][5:]) for node in nodes if node.op][1:] == [
        ("net.0.0.act/view", "view"),
        ("net.0.0/new", "sin"),
        ("net.1/op", "cos"),
        ("net.1.0.act/view", "view"),
        ("net.1.0/new", "sin"),
        ("net.1.1.act/view", "view"),
        ("net.1.1/mid", "tan"),
        ("net.1.1/new", "sin"),
        ("output", ""),
    ]
    assert "aten.view.default(%net.1.0/new, [16]) : f32[16]" in expand(STAGED)


@pytest.mark.parametrize("text", [SIZED, STAGED], ids=["sizes", "stages"])
def test_old_forms_are_not_written(text: str) -> None:
    graph = Graph.from_text(text)
    assert Graph.from_text(graph.to_text()) == graph
    assert [form for form in ("$2", ".*.*", " .. ", "[n") if form in graph.to_text()] == []
    assert fold(expand(text)) == expand(text), "two or three lines of other sizes"


def test_of_two_blocks_the_later_one_applies() -> None:
    lines = written(
        "%x = input : f32[2]\n"
        "each net.*.* {\n  %/a = aten.sin.default(%x) : f32[2]\n}\n"
        "net.0.1\n"
        "each net.1.* {\n  %/a = aten.cos.default(%x) : f32[2]\n}\n"
        "net.1.0\n"
        "net.2.0\n"
        "each net.*.* {\n  %/a = aten.exp.default(%x) : f32[2]\n}\n"
        "net.1.1\n"
        "return %x"
    )
    ops = [(node.name, node.op) for node in Graph.from_text(lines).nodes if node.op]
    assert ops[1:5] == [
        ("net.0.1/a", "aten.sin.default"),
        ("net.1.0/a", "aten.cos.default"),
        ("net.2.0/a", "aten.sin.default"),
        ("net.1.1/a", "aten.exp.default"),
    ]


def test_the_block_of_stages_does_not_apply_to_other_containers() -> None:
    wrong = STAGED.replace("  net.1.1: ", "  net.1.sub.1: ")
    with pytest.raises(GraphFormatError, match=r"missing block 'each net\.1\.sub\.\* \{'"):
        Graph.from_text(wrong)


def test_error_in_a_line_with_sizes_has_its_column() -> None:
    wrong = SIZED.replace(", 0.5) : f32[1, $2, $3, $3]", ", 0.5?) : f32[1, $2, $3, $3]", 1)
    line = next(line for line in wrong.split("\n") if "?" in line)
    row = wrong.split("\n").index(line) + 1
    with pytest.raises(GraphFormatError) as error:
        Graph.from_text(wrong)
    assert (error.value.line, error.value.column) == (row, line.index("0.5?") + 4)


def test_a_size_where_a_name_belongs_is_refused() -> None:
    wrong = SIZED.replace("$1 = %x,", "$1 = 7,").replace("%.conv/conv2d = ", "$1 = ", 1)
    with pytest.raises(GraphFormatError, match="expected a node"):
        Graph.from_text(wrong)
