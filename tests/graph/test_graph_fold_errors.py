"""A malformed folded text raises a GraphFormatError with its position in this text."""

from __future__ import annotations

import random
import re

import pytest
from graph.build import document
from graph.repeated import repeated_text
from graph.strategies import checked
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph import GraphFormatError
from pytest_torchgraph.graph import parse_document
from pytest_torchgraph.graph.text import expand as expanding
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold

MARK = "¦"
BLOCK = """each m.* {
  %.a/f = f($1)
  %/g = g(%.a/f, %x)
}"""


def folded(lines: str) -> str:
    """Return a text of version 2 with one graph that has one input and these lines."""
    text = document(f"%x = input\n{lines}\nreturn %x")
    return text.replace("torchgraph 1", "torchgraph 2")


def called(lines: str) -> str:
    """Like `folded`, with a block before the lines."""
    return folded(f"{BLOCK}\n{lines}")


def body(line: str) -> str:
    """Like `folded`, with a block of this line, and one instance of the block."""
    return folded(f"each m.* {{\n  {line}\n}}\nm.0")


BROKEN = {
    "no path": (
        folded(f"each {MARK}m {{\n}}"),
        "expected a path that ends in '*', such as 'encoder.la",
    ),
    "bad path": (folded(f"each {MARK}m/*{{\n}}"), "expected a path that ends in '*'"),
    "no brace": (folded(f"each m.*{MARK}\n  %/f = f()\n}}"), "expected ' {', found the end of the"),
    "bad letter": (folded(f"each m.*{MARK} B {{\n  %/f = f()\n}}"), "expected ' {', found ' B {'"),
    "three stars": (folded(f"each m.*.*{MARK}.* {{\n}}"), "expected ' {', found '.* {'"),
    "empty": (folded(f"{MARK}each m.* {{\n}}"), "the block has no lines: remove it"),
    "no line": (folded(f"each m.* {{\n  {MARK}hello\n}}"), "expected a line of a block or '}'"),
    "a graph": (folded(f"each m.* {{\n  {MARK}body: forward {{\n}}"), "expected a line of a block"),
    "a return": (
        folded(f"each m.* {{\n  {MARK}return %x\n}}"),
        "expected a line of a block or '}'",
    ),
    "indentation": (
        folded("each m.* {\n%/f = f()\n}").replace("  %/f", f"{MARK}  %/f"),
        "expected '    ', found '  %/f = f()'",
    ),
    "no block": (called(f"{MARK}n.0"), "missing block 'each n.* {' before this line"),
    "no letter": (called(f"{MARK}m.0 b: $1 = %x"), "missing block 'each m.* b {' before this line"),
    "too late": (
        called(f"return [\n]\n{MARK}m.0: $1 = %x"),
        "missing block 'each m.* {' before this line",
    ),
    "no end of the range": (called(f"m.0 .. {MARK}x"), "expected a number of at most 9 digits"),
    "large number": (called(f"m.0 .. {MARK}9999999999"), "expected a number of at most 9 digits"),
    "leading zero": (called(f"m.0 .. {MARK}01: $1 = %x"), "expected a number"),
    "more after it": (
        called(f"m.0{MARK} and more"),
        "expected the end of the line, found ' and mor",
    ),
    "part of a number": (
        folded(f"each m.* {{\n  %/f = f(1$1)\n}}\nm.0: {MARK}$1 = 0"),
        "the block does not use $1: remove it",
    ),
    "no value": (called(f"m.0 .. 3{MARK}"), "$1 has no value"),
    "no formal": (called(f"m.0: {MARK}x = %x"), "expected a value of the block, such as '$1'"),
    "unknown formal": (
        called(f"m.0: $1 = %x, {MARK}$2 = %x"),
        "the block does not use $2: remove it",
    ),
    "formal of another depth": (
        called(f"m.0: {MARK}$$1 = %x"),
        "the block does not use $$1: remove it",
    ),
    "formal twice": (called(f"m.0: $1 = %x, {MARK}$1 = %x"), "$1 is given twice"),
    "no name": (called(f"m.0: $1 = {MARK}seven"), "expected a name or a size, found 'seven'"),
    "bad number": (called(f"m.0: $1 = %m.{MARK}[n*2]"), "expected"),
    "odd number": (
        called(f"m.0: $1 = %m.{MARK}[n-]/g"),
        "expected an index computed from n, the index of the instance, such as '[n]'",
    ),
    "many numbers": (
        called(f"m.0: $1 = {MARK}%m.{'[n].' * 21}g"),
        "expected at most 20 instance numbers in a name",
    ),
    "negative": (called(f"m.0 .. 1: $1 = %m.{MARK}[n-1]/g"), "[n-1] is -1 for n = 0"),
    "but without an instance": (
        called(f"{MARK}but m.0 {{\n}}"),
        "'but' must follow a line with an instance",
    ),
    "but of another": (
        called(f"m.0 .. 1: $1 = %x\nbut {MARK}n.0 {{\n}}"),
        "expected 'm.', found 'n.0 {'",
    ),
    "but outside": (
        called(f"m.0 .. 3: $1 = %x\nbut m.1, {MARK}4 {{\n}}"),
        "m.4 is not in the line above, which has m.0 .. 3",
    ),
    "but twice": (
        called(f"m.0 .. 3: $1 = %x\nbut m.1, 2, {MARK}1 .. 2 {{\n}}"),
        "m.1 is in a 'but' line already",
    ),
    "bad change": (
        called(f"m.0: $1 = %x\nbut m.0 {{\n  {MARK}* %/g\n}}"),
        "expected '-', '@', '~', '+' or '}', found '* %/g'",
    ),
    "unknown line": (
        called(f"m.0: $1 = %x\nbut m.0 {{\n  - {MARK}%/h\n}}"),
        "no such line in the rest of the block: keep its order",
    ),
    "wrong order": (
        called(f"m.0: $1 = %x\nbut m.0 {{\n  - %/g\n  @ {MARK}%.a/f\n}}"),
        "no such line in the rest of the block: keep its order",
    ),
    "no line to add": (
        called(f"m.0: $1 = %x\nbut m.0 {{\n  + {MARK}return %x\n}}"),
        "expected a node, an input or 'save', found 'return %x'",
    ),
    # Errors within the lines, as the reader of graphs reports them.
    "undefined": (
        called("m.0: $1 = %x\nm.1: $1 = %m.2/g").replace("  %.a", f"  {MARK}%.a"),
        "%m.2/g is used before it is defined (in m.1)",
    ),
    "an instance twice": (
        called("m.0 .. 2: $1 = %x\nm.2: $1 = %x").replace("  %.a", f"  {MARK}%.a"),
        "%m.2.a/f is defined twice (in m.2)",
    ),
    "bad argument": (
        body(f"%/g = g(%x, %x, {MARK}?)"),
        "expected a value, found '?)' (in m.0)",
    ),
    "bad end": (body(f"%/g = g(%x) : {MARK}?"), "expected a value, found '?'"),
    "in an exception": (
        called(f"m.0: $1 = %x\nbut m.0 {{\n  + %/h = h(%/g, {MARK}?)\n}}"),
        "expected a value, found '?)' (in m.0)",
    ),
    "after a range": (called(f"m.0 .. 9: $1 = %x\n{MARK}%y = f(%z)"), "%z is used before it is"),
    "a formal of no block": (folded(f"%y = f({MARK}$1)"), "expected a value, found '$1)'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_format_error_names_the_problem_and_its_place(name: str) -> None:
    marked, problem = BROKEN[name]
    before, mark, after = marked.partition(MARK)
    assert mark
    with pytest.raises(GraphFormatError) as error:
        parse_document(before + after)
    assert problem in error.value.problem
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert (error.value.line, error.value.column) == place


TRUNCATED = {
    "the block has no closing '}': the file is truncated": called("").partition("  }\n")[0],
    "the '{' after the keyword 'but' is never closed: the file is truncated": called(
        "m.0: $1 = %x\nbut m.0 {\n  - %/g\n"
    ).rpartition("\n  return")[0],
}


@pytest.mark.parametrize("problem", TRUNCATED)
def test_truncated_folded_text_is_a_format_error(problem: str) -> None:
    with pytest.raises(GraphFormatError) as error:
        parse_document(TRUNCATED[problem])
    assert error.value.problem == problem


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "||||||| 1a2b3c4", "=======", ">>>>>>> theirs"])
def test_merge_conflict_is_a_format_error(marker: str) -> None:
    lines = called("m.0 .. 9: $1 = %x").split("\n")
    for row in range(1, len(lines) - 1):
        text = "\n".join([*lines[:row], marker, *lines[row:]])
        for variant in (text, text.replace("\n", "\r\n")):
            with pytest.raises(GraphFormatError) as error:
                parse_document(variant)
            assert error.value.problem.startswith(f"merge conflict at {marker!r}: ")
            assert (error.value.line, error.value.column) == (row + 1, 1)


def test_a_file_of_version_1_has_no_blocks() -> None:
    with pytest.raises(GraphFormatError, match="expected a node, 'return' or '}', found 'each"):
        parse_document(called("m.0: $1 = %x").replace("torchgraph 2", "torchgraph 1"))


# -- bounds ----------------------------------------------------------------------------------------

LONG = "x" * 200_000
BOMBS = {
    "a long range": called("m.0 .. 999999999: $1 = %x"),
    "a long range of a nested block": folded(
        "each a.* {\n  each .b.* {\n    each .c.* {\n      %/f = f()\n    }\n    .c.0 .. 999\n  }\n"
        "  .b.0 .. 999\n}\na.0 .. 999"
    ),
    "many ranges": called("\n".join(["m.0 .. 99999: $1 = %x"] * 9)),
    "a long range and its exceptions": called(
        "m.0 .. 999999999: $1 = %x\nbut m.0 .. 999999999 {\n  - %.a/f\n  - %/g\n}"
    ),
    "ranges of nothing": folded(
        "each m.* {\n  %/g = f()\n}\nm.0 .. 499999\nbut m.0 .. 499999 {\n  - %/g\n}\nm.0 .. 9"
    ),
    "a long name": called(f"m.0 .. 99999: $1 = %{LONG}"),
    "a long name used often": folded(
        f"each m.* {{\n  %/f = f({'$1, ' * 100_000}$1)\n}}\nm.0: $1 = %{LONG}"
    ),
    "a long path": folded(
        f"each {LONG}.* {{\n  %/f = f({'%/f, ' * 100_000}%/f)\n}}\n{LONG}.0 .. 99999"
    ),
    "deep blocks": folded("\n".join("  " * k + "each m.* {" for k in range(100))),
}
BOUNDS = ("the text expands to more than ", "blocks are nested more than 60 deep")


@pytest.mark.slow(
    "further cases; a few are in every run",
    only=["a long name used often", "a long path", "many ranges"],
)
@pytest.mark.parametrize("name", BOMBS)
def test_expansion_of_a_short_text_is_limited(name: str) -> None:
    with pytest.raises(GraphFormatError) as error:
        expand(BOMBS[name])
    assert error.value.problem.startswith(BOUNDS)


DEEP = {
    "deep instances": document(
        "\n".join(["%x = input", *(f"%{'0.' * 5000}{k}/f = f(%x)" for k in range(9)), "return %x"])
    ),
    "a long path": document(
        "\n".join(
            ["%x = input", *(f"%{'a.' * 9999}{k}.b/f = f(%x)" for k in range(9)), "return %x"]
        )
    ),
    "many numbers": document(
        "\n".join(
            [
                *("%x = input", "%y = f(%x)"),
                *(f"%h.{n}/{k} = f(%o{f'.{n}' * 30}/o)" for n in range(4) for k in range(9)),
                "return %x",
            ]
        )
    ),
}


@pytest.mark.parametrize("name", DEEP)
def test_fold_accepts_names_of_any_depth(name: str) -> None:
    assert expand(fold(DEEP[name])) == DEEP[name]


def test_fold_leaves_a_text_that_exceeds_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    text = expand(called("m.0 .. 99: $1 = %x").replace("torchgraph 2", "torchgraph 4"))
    assert fold(text) != text
    monkeypatch.setattr(expanding, "MAX_LINES", 150)
    assert fold(text) == text
    monkeypatch.undo()
    monkeypatch.setattr(expanding, "MAX_CHARACTERS", 2000)
    assert fold(text) == text


# -- random texts ----------------------------------------------------------------------------------


@pytest.mark.slow("many random graphs")
@given(st.integers(0, 2**32), st.integers(0, 2**32))
@checked
def test_error_in_a_line_has_its_position_in_the_folded_text(seed: int, other: int) -> None:
    r = random.Random(other)
    text = fold(repeated_text(seed))
    places = [match.end() for match in re.finditer(r" = (?=aten)|, (?=-0\.5|1\))", text)]
    if not places:
        return
    at = r.choice(places)
    with pytest.raises(GraphFormatError) as error:
        parse_document(f"{text[:at]}?{text[at:]}")
    place = (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
    assert (error.value.line, error.value.column) == place
