"""A malformed text raises a GraphFormatError with line and column, and no other error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from graph.build import document
from graph.strategies import HOSTILE, checked, graphs
from hypothesis import given
from hypothesis import strategies as st

import pytest_torchgraph
from pytest_torchgraph import GraphFormatError, TorchGraphError
from pytest_torchgraph.graph import Graph

MARK = "¦"
OK = document("%x = input : f32[2]\n%y = aten.sin(%x) : f32[2]\nreturn %y\nsave %x")


def line(body: str) -> str:
    """Return a document with one malformed line, at the mark."""
    return document(f"%x = input : f32[2]\n{body}\nreturn %x")


BROKEN = {
    "empty": (MARK, "not a graph: the first line must be 'torchgraph 4'"),
    "another file": (f"{MARK}import torch\n", "not a graph"),
    "a picture": (f"{MARK}\x89PNG\r\n\x1a\n", "not a graph"),
    "leading blank": (f"{MARK}\n{OK}", "not a graph"),
    "merge conflict": (
        OK.replace("  %y", f"{MARK}<<<<<<< HEAD\n  %y", 1),
        "merge conflict at '<<<<<<< HEAD': take the file of one side (`git checkout --ours FILE` "
        "or `--theirs`), or store the graph again with --torchgraph-update",
    ),
    "merge conflict in the first line": (
        f"{MARK}<<<<<<< HEAD\n{OK}=======\n{OK}>>>>>>> theirs\n",
        "merge conflict at '<<<<<<< HEAD'",
    ),
    "what is left of a conflict": (f"{OK}{MARK}>>>>>>> theirs\n", "merge conflict at '>>>>>>"),
    "no version": (f"torchgraph {MARK}\n", "expected a version"),
    "newer": (
        f"torchgraph 5{MARK}\n" + OK.partition("\n")[2],
        "version 5 is not supported, only 1 to 4: upgrade pytest-torchgraph, or store the graph "
        "again with --torchgraph-update",
    ),
    "version and more": (f"torchgraph 1{MARK} or 2\n", "expected the end of the line"),
    "unknown header": ("torchgraph 1\n" + MARK + "who me\n", "'via', 'torch' or 'detail'"),
    "header twice": (f"torchgraph 1\nvia aot, {MARK}via fx\n", "'via' occurs twice in this line"),
    "unknown detail": (
        f"torchgraph 1\ndetail most\n{MARK}",
        "unknown detail 'most': use ops, dataflow, full",
    ),
    "no graph": (
        "torchgraph 1\nvia aot\n" + MARK,
        "the file contains no graph: it is empty or trunc",
    ),
    "unknown kind": (f"torchgraph 1\n\nmain{MARK} @ fx {{\n}}\n", "unknown kind of graph"),
    "unknown level": (f"torchgraph 1\n\nforward @ top{MARK} {{\n}}\n", "unknown level 'top'"),
    "no level": (f"torchgraph 1\n\nforward{MARK} {{\n}}\n", "unknown level ''"),
    "no brace": (f"torchgraph 1\n\nforward @ fx{MARK}\n", "expected ' {', found the end of"),
    "no return": (
        document("%x = input").rstrip("\n") + MARK,
        "graph 'forward' has no 'return'",
    ),
    "unknown ref": (line(f"{MARK}%y = aten.sin(%z)"), "%z is used before it is defined"),
    "own ref": (line(f"{MARK}%y = aten.sin(%y)"), "%y is used before it is defined"),
    "unknown order": (line(f"{MARK}%y = f(%x) after %z"), "%z is used before it is defined"),
    "unknown target": (line(f"{MARK}%y = f(%x) !mutates %z"), "%z is used before it is defined"),
    "unknown saved": (
        document(f"%x = input\nreturn %x\n{MARK}save %z"),
        "%z is used before it is defined",
    ),
    "defined twice": (line(f"{MARK}%x = aten.sin(%x)"), "%x is defined twice"),
    "saved output": (
        document(f"%x = input\nreturn %x\n{MARK}save %output"),
        "'save' of the output",
    ),
    "save before return": (document(f"%x = input\n{MARK}save %x\nreturn %x"), "'save' before"),
    "node after return": (
        document(f"%x = input\nreturn %x\n{MARK}%y = f(%x)"),
        "expected 'save' or '}' after 'return'",
    ),
    "two returns": (document(f"%x = input\nreturn %x\n{MARK}return %x"), "after 'return'"),
    "no node": (line(f"{MARK}hello"), "expected a node, 'return' or '}', found 'hello'"),
    "indentation": (
        OK.replace("  %y", f" {MARK}%y").replace(" " + MARK, MARK + " "),
        "expected '  ', found ' %y = aten.sin(%x) :'",
    ),
    "no equals": (line(f"%y{MARK} aten.sin(%x)"), "expected ' = ', found ' aten.sin(%x)'"),
    "no arguments": (line(f"%y = aten.sin{MARK}"), "expected '(' after 'aten.sin'"),
    "open": (line(f"%y = aten.sin(%x{MARK}"), "expected ')', found the end of the line"),
    "no comma": (line(f"%y = f(%x{MARK} %x)"), "expected ')', found ' %x)'"),
    "keyword first": (
        line(f"%y = f(a=1, {MARK}%x)"),
        "positional argument follows keyword argument",
    ),
    "keyword twice": (line(f"%y = f(a=1, {MARK}a=2)"), "argument 'a' is given twice"),
    "bad value": (line(f"%y = f({MARK}?)"), "expected a value, found '?)'"),
    "open string": (line(f'%y = f({MARK}"abc)'), "expected a string"),
    "bad escape": (
        line(f'%y = f("\\q"{MARK})').replace(MARK, "").replace('("', f'({MARK}"'),
        "JSON",
    ),
    "unknown call": (
        line(f"%y = f({MARK}print(1))"),
        "print(...) with these arguments is not a value",
    ),
    "short slice": (
        line(f"%y = f({MARK}slice(1, 2))"),
        "slice(...) with these arguments is not a value",
    ),
    "odd bytes": (
        line(f'%y = f({MARK}bytes("0g"))'),
        'expected hexadecimal digits, such as bytes("0aff")',
    ),
    "unhashable key": (line(f"%y = f({{{MARK}{{}}: 1}})"), "this value cannot be a key of a dict"),
    "key twice": (line(f"%y = f({{1: 1, {MARK}True: 2}})"), "a key is given twice"),
    "long number": (line(f"%y = f({MARK}{'9' * 401})"), "expected a number of at most 400 digits"),
    "unknown body": (line(f"%y = f(@{MARK}b)"), "this graph has no subgraph @b"),
    "bad result": (line(f"%y = f(%x) : {MARK}1"), "expected the result of the node"),
    "bad size": (line(f"%y = f(%x) : f32[{MARK}1.5]"), "expected a size"),
    "bad effect": (line(f"%y = f(%x) !fails{MARK}"), "unknown effect 'fails': use mutates, random"),
    "no target": (line(f"%y = get_attr{MARK}"), "'get_attr' needs a target in brackets"),
    "input with target": (line(f'%y = input["a"]{MARK}'), "'input' takes no target in brackets"),
    "end of line": (line(f"%y = f(%x) : f32[2]{MARK} # remark"), "expected the end of the line"),
    "unclosed return": (
        document("%x = input\nreturn [\n  %x,").rpartition("    %x,\n}")[0] + f"{MARK}    %x,",
        "the return has no closing ']': the file is truncated",
    ),
    "eager in version 1": (
        f"torchgraph 1\nvia aot\n\n{MARK}eager_0: backward {{\n  return None\n}}\n",
        "'eager_0' is the name of an eager graph, which version 1 does not have: write "
        "'torchgraph 4' in the first line, or a level after the name, such as "
        "'eager_0: forward @ aot'",
    ),
    "runs of a compiled graph": (
        f"torchgraph 2\nvia aot\n\nforward {MARK}× 2 {{\n",
        "'forward' cannot have a run count (version 2 allows it only for eager graphs): remove '×' "
        "and the number",
    ),
    "runs of a graph with a level": (
        f"torchgraph 2\n\neager_0: forward @ aot {MARK}× 2 {{\n",
        "'eager_0' cannot have a run count (version 2 allows it only for eager graphs)",
    ),
    "runs of a body": (
        f"torchgraph 4\n\neager_0 {{\n  eager_1: forward {MARK}× 2 {{\n",
        "'eager_1' cannot have a run count (it is the body of a higher-order op): remove '×' and "
        "the number",
    ),
    "one run of a compiled graph": (
        f"torchgraph 4\n\nforward @ aot {MARK}× 1 {{\n",
        "the run count must be at least 2, not 1: remove the number, because 1 is the default",
    ),
    "output of an older version": (
        document("%x = input\nreturn %x")[:-2] + f"  {MARK}output a = %x\n}}\n",
        "expected 'save' or '}' after 'return'",
    ),
    "output before the return": (
        f"torchgraph 4\n\nforward @ aot {{\n  %x = input\n  {MARK}output a = %x\n}}\n",
        "an 'output' line must be after 'return' and before 'save'",
    ),
    "output twice": (
        "torchgraph 4\n\nforward @ aot {\n  %x = input\n  return %x\n  output a = %x\n"
        f"  {MARK}output a = 3\n}}\n",
        "output 'a' is given twice",
    ),
    "output of no value": (
        f"torchgraph 4\n\nforward @ aot {{\n  %x = input\n  return %x\n  {MARK}output a = %y\n}}\n",
        "%y is used before it is defined",
    ),
    "ranks where one capture is wanted": (
        f"torchgraph 4{MARK}\nmesh tp=2\n\nrank 0\n",
        "the file contains the graphs of several ranks, not of a single capture",
    ),
    "no run": (
        f"torchgraph 2\n\neager_0 {MARK}× 0 {{\n",
        "the run count must be at least 2, not 0: remove the graph",
    ),
    "one run": (
        f"torchgraph 2\n\neager_0: backward {MARK}× 1 {{\n",
        "the run count must be at least 2, not 1: remove the number, because 1 is the default",
    ),
    "no number of runs": (
        f"torchgraph 2\n\neager_0 × {MARK}many {{\n",
        "expected a number of runs, found 'many {'",
    ),
    "joint eager graph": (
        f"torchgraph 2\n\neager_0: joint{MARK} {{\n",
        "unknown kind of eager graph 'joint' (known: forward, backward, inference, update)",
    ),
    "deep value": (line(f"%y = f({'[' * 60}{MARK}[])"), "values are nested more than 60 deep"),
}


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=[
        "a picture",
        "another file",
        "leading blank",
        "merge conflict",
        "no version",
        "what is left of a conflict",
    ],
)
@pytest.mark.parametrize("name", BROKEN)
def test_format_error_names_the_problem_and_its_place(name: str) -> None:
    marked, problem = BROKEN[name]
    before, mark, _ = marked.partition(MARK)
    text = marked.replace(MARK, "")
    assert mark
    with pytest.raises(GraphFormatError, match=re.escape(problem)) as caught:
        Graph.from_text(text)
    assert (caught.value.line, caught.value.column) == position(before)
    assert str(caught.value).startswith(f"<text>:{caught.value.line}:{caught.value.column}: ")


def position(before: str) -> tuple[int, int]:
    """Return the line and column of the character after a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def rejected(text: str) -> GraphFormatError | None:
    """Return the error of a malformed text. For a graph, check that it reads back, return None."""
    try:
        graph = Graph.from_text(text)
    except GraphFormatError as caught:
        error = caught
    else:
        printed = graph.to_text("full")
        assert Graph.from_text(printed).to_text("full") == printed
        return None
    lines = text.replace("\r\n", "\n").split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    return error


@pytest.mark.slow("many random graphs")
@checked
@given(graphs(), st.data())
def test_a_text_cut_at_any_line_or_character_is_rejected(graph: Graph, data: st.DataObject) -> None:
    text = graph.to_text("full")
    lines = text.splitlines(keepends=True)
    for count in range(len(lines)):
        error = rejected("".join(lines[:count]))
        assert error is not None, f"{count} of {len(lines)} lines were a graph"
        assert error.line >= count, f"the end of {count} lines is reported in line {error.line}"
    assert rejected(text[: data.draw(st.integers(0, len(text) - 2))]) is not None


PIECES = st.sampled_from(
    [
        *HOSTILE,
        *("f32[", "stride [", 'on "cpu"', 'device("cpu")', "complex(1.0, 2.0)", 'bytes("00")'),
        *("`s0`", "@b", "[]", "{}", "()", "slice(1, 2, 3)", "9" * 401, "9" * 5000, "1e999"),
        *("[" * 70, "{1: " * 70, "(" * 70, "slice(" * 70, "\ud800", "\\ud800", "\u0660"),
        *("%output", "Tensor.x", "get_attr", "input", "!mutates %x", "!random", "after %x"),
    ]
)


@checked
@given(st.lists(PIECES, max_size=10).map("".join) | st.text())
def test_any_text_is_a_graph_or_a_format_error(text: str) -> None:
    rejected(text)
    rejected(f"torchgraph 1\n{text}")
    rejected(line(text))
    rejected(line(f"%y = f({text})"))


def test_deeply_nested_graph_is_a_format_error() -> None:
    nested = "\n".join(f"{'  ' * depth}forward @ fx {{" for depth in range(5000))
    with pytest.raises(GraphFormatError, match="graphs are nested more than 60 deep") as caught:
        Graph.from_text(f"torchgraph 1\n\n{nested}\n")
    assert 50 < caught.value.line < 100


@pytest.mark.parametrize("opening", ["[", "{1: ", "slice(", "complex("])
def test_deeply_nested_value_is_a_format_error(opening: str) -> None:
    with pytest.raises(GraphFormatError, match="values are nested more than 60 deep"):
        Graph.from_text(line(f"%y = f({opening * 100_000}"))


def test_from_text_refuses_two_graphs() -> None:
    two = OK + "\n" + OK.split("\n\n")[1]
    with pytest.raises(GraphFormatError, match=r"expected one graph, found 2: use .*load"):
        Graph.from_text(two)


def test_two_bodies_with_the_same_name_are_rejected() -> None:
    body = "b: forward {\n  return None\n}\n"
    with pytest.raises(GraphFormatError, match="two subgraphs are named 'b'"):
        Graph.from_text(document(body + body + "return None"))


def test_format_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "step.tgraph"
    path.write_text(OK.replace("aten.sin(%x)", "aten.sin(%z)"), encoding="utf-8")
    with pytest.raises(GraphFormatError, match=re.escape(f"{path}:5:3: %z is used")) as caught:
        pytest_torchgraph.load(path)
    assert caught.value.path == str(path)


def test_bytes_instead_of_a_text_are_refused() -> None:
    with pytest.raises(TypeError, match="expected the text of a graph as str, not bytes"):
        Graph.from_text(OK.encode())  # type: ignore[arg-type]


def test_binary_file_is_a_format_error(tmp_path: Path) -> None:
    path = tmp_path / "step.tgraph"
    path.write_bytes(b"torchgraph 1\n\xff\xfe\x00")
    with pytest.raises(GraphFormatError, match="not UTF-8"):
        pytest_torchgraph.load(path)


def test_op_counts_that_repeat_or_end_early_are_rejected() -> None:
    head = "torchgraph 1\ndetail ops\n\nforward @ aot {\n"
    for body, problem in {
        "  2 aten.mm\n  3 aten.mm\n}\n": "aten.mm is counted twice",
        "  2 aten.mm\n": "the graph has no closing '}': the file is truncated",
        "  x aten.mm\n}\n": "expected a count",
    }.items():
        with pytest.raises(GraphFormatError, match=problem) as caught:
            Graph.from_text(head + body)
        assert caught.value.line >= 5


def test_format_error_is_a_value_error_and_a_torchgraph_error() -> None:
    assert issubclass(GraphFormatError, ValueError)
    assert issubclass(GraphFormatError, TorchGraphError)
