"""Repeated modules are written once and read back unchanged."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from graph.build import shown, written
from graph.examples import Example, examples
from graph.repeated import repeated_text
from graph.strategies import checked, graphs
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pytest_torchgraph
from pytest_torchgraph.graph import (
    Graph,
    Header,
    Program,
    canonical,
    format_document,
    parse_document,
)
from pytest_torchgraph.graph.text.block_writer import _exceptions
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold, folded_unchecked
from pytest_torchgraph.snapshot.compare import compare

ROOT = Path(__file__).parents[2]
OLD = sorted((Path(__file__).parent / "stored").glob("*.tgraph"))
"""Files stored before folding existed."""
STORED = [
    file
    for file in sorted((ROOT / "examples").rglob("*.tgraph"))
    if "detail ops" not in file.read_text(encoding="utf-8")
]


def layers(count: int) -> str:
    """Return layers of four ops each."""
    lines = ["%x = input : f32[2]"]
    before = "%x"
    for n in range(count):
        lines += [
            f"%net.{n}.fc/t = aten.t.default({before}) : f32[2]",
            f"%net.{n}.fc/mm = aten.mm.default({before}, %net.{n}.fc/t) : f32[2]",
        ]
        lines += [
            f"%net.{n}.act/relu = aten.relu.default(%net.{n}.fc/mm) : f32[2]",
            f"%net.{n}/add = aten.add.Tensor(%net.{n}.act/relu, {before}) : f32[2]",
        ]
        before = f"%net.{n}/add"
    lines += [f"return {before}", *(f"save %net.{n}.fc/mm" for n in range(count))]
    return written("\n".join(lines))


def body(text: str) -> str:
    """Return the lines of the only graph of a text."""
    return text.partition("{\n")[2].rpartition("\n}")[0]


@examples(Path(__file__).parent / "folded")
def test_modules_are_folded_as_in_the_example(example: Example) -> None:
    folded = example.texts()[0]
    flat = expand(folded)
    assert fold(flat) == folded
    assert Graph.from_text(folded) == Graph.from_text(flat)
    example.check({"flat": flat.removeprefix("torchgraph 4\n\n").rstrip("\n")})


UNFOLDED = {
    "two instances": layers(2),
    "different lines": written(
        "\n".join(["%x = input", *(f"%m.{n}/a = op{n}(%x)" for n in range(9)), "return %x"])
    ),
    "control characters": layers(9).replace("aten.t.default(", "aten.t.default(\x00"),
    "line ends of Windows": layers(9).replace("\n", "\r\n"),
    "no graph": "what\n",
    "nothing": "",
    "counts": "torchgraph 4\ndetail ops\n\nforward @ aot {\n  3 b\n  4 each\n}\n",
}


@pytest.mark.parametrize("name", UNFOLDED)
def test_fold_returns_an_unfoldable_text_unchanged(name: str) -> None:
    assert fold(UNFOLDED[name]) == UNFOLDED[name]
    assert expand(UNFOLDED[name]) == UNFOLDED[name]


def test_fold_is_idempotent() -> None:
    folded = fold(layers(12))
    assert fold(folded) == folded
    assert expand(expand(folded)) == layers(12)


def test_expand_reads_windows_line_ends() -> None:
    assert expand(fold(layers(12)).replace("\n", "\r\n")) == layers(12)


@pytest.mark.slow(
    "further cases; a few are in every run",
    only=[
        "test_graphs",
        "test_graphs[dispatch]1",
        "test_training_step[aot]",
        "test_training_step[dispatch]",
    ],
)
@pytest.mark.parametrize("file", STORED, ids=[file.stem for file in STORED])
def test_stored_graphs_fold(file: Path) -> None:
    text = file.read_bytes().decode()
    document = parse_document(text)
    folded = re.sub(r"\Atorchgraph [12]\n", "torchgraph 4\n", text)
    flat = format_document(document.graphs, document.header, document.header.detail, fold=False)
    assert format_document(document.graphs, document.header, document.header.detail) == folded
    assert parse_document(expand(folded)).graphs == document.graphs
    assert parse_document(flat).graphs == document.graphs
    assert document.folded == (folded.split("\n")[1:] != flat.split("\n")[1:])
    loaded = pytest_torchgraph.load(file)
    assert loaded.to_text(document.header.detail) == folded
    assert loaded.to_text(document.header.detail, fold=False) == flat
    if file.parent.name == "test_bert":
        assert document.folded
        assert len(folded.encode()) <= 0.12 * len(flat.encode())


@pytest.mark.parametrize("file", OLD, ids=[file.stem for file in OLD])
def test_graphs_stored_before_folding_are_still_equal(file: Path) -> None:
    text = file.read_bytes().decode()
    document = parse_document(text)
    assert text.startswith(f"torchgraph {file.stem.split('_')[1]}\n")
    lines = format_document(document.graphs, document.header, fold=False).split("\n")
    assert not document.folded
    assert lines == ["torchgraph 4", *text.split("\n")[1:]]
    now = Program(document.header, canonical(document.graphs))
    assert parse_document(now.to_text("dataflow")).graphs == now.graphs
    assert compare(document, now, "dataflow") is None


def test_stored_snapshot_is_folded() -> None:
    graph = Graph.from_text(layers(12))
    assert graph.to_text() == Program(Header(), (graph,)).to_text("dataflow") == fold(layers(12))
    assert graph.to_text(fold=False) == layers(12)


# -- random texts ----------------------------------------------------------------------------------

SEEDS = st.integers(0, 2**32)


@pytest.mark.slow("many random graphs")
@given(SEEDS)
@settings(checked, max_examples=60)
def test_random_repeated_modules_are_read_back(seed: int) -> None:
    text = repeated_text(seed)
    graph = Graph.from_text(text)
    folded = folded_unchecked(text)
    if folded is not None:
        assert expand(folded) == text
    assert fold(text) == (folded or text)
    assert graph.to_text() == fold(graph.to_text(fold=False))
    for fold_it in (False, True):
        read = Graph.from_text(graph.to_text(fold=fold_it))
        assert read == graph
        assert shown(read, full=False) == shown(graph, full=False)


@pytest.mark.slow("many random graphs")
@given(graphs(), st.sampled_from(["dataflow", "full", "ops"]))
@checked
def test_random_graphs_are_read_back(graph: Graph, detail: str) -> None:
    flat, folded = (graph.to_text(detail, fold=fold_it) for fold_it in (False, True))
    assert expand(folded) == flat
    assert detail == "ops" or fold(flat) == folded, "the lines of a graph, and those of its text"


@pytest.mark.slow("many random graphs")
@given(SEEDS, st.integers(0, 2**32))
@settings(checked, max_examples=60)
def test_fold_of_any_lines_loses_nothing(seed: int, other: int) -> None:
    """Lines are missing, doubled or swapped, so the text may not be a graph."""
    r = random.Random(other)
    lines = repeated_text(seed).split("\n")
    for _ in range(r.randint(1, 8)):
        a, b = r.randrange(len(lines)), r.randrange(len(lines))
        kind = r.choice(("drop", "double", "swap"))
        if kind == "drop" and len(lines) > 1:
            del lines[a]
        elif kind == "double":
            lines.insert(a, lines[min(b, len(lines) - 1)])
        else:
            lines[a], lines[b] = lines[b], lines[a]
    text = "\n".join(lines)
    folded = fold(text)
    assert folded == text or expand(folded) == text


@st.composite
def blocks_and_instances(draw: st.DrawFn) -> tuple[list[str], list[str], dict[int, int]]:
    """Draw a block, an instance, and the indices of their shared lines. Keys may repeat."""
    line = st.sampled_from(["%a,", "%b,", "%c,"])
    block = draw(st.lists(line, min_size=1, max_size=6))
    instance = draw(st.lists(line, max_size=6))
    shared: dict[int, int] = {}
    start = 0
    for k, text in enumerate(block):
        if text in instance[start:] and draw(st.booleans()):
            shared[k] = instance.index(text, start)
            start = shared[k] + 1
    return block, instance, shared


@given(blocks_and_instances())
@example((["%b,", "%b,"], ["%b,", "%b,", "%b,", "%c,"], {0: 0}))  # two additions in one gap
@settings(checked, max_examples=100)
def test_exceptions_turn_a_block_into_the_instance(
    case: tuple[list[str], list[str], dict[int, int]],
) -> None:
    block, instance, shared = case
    changes = _exceptions(block, shared, len(instance), instance.__getitem__)
    lines = [
        *("torchgraph 2", "", "forward @ aot {", "  each m.* {"),
        *(f"    {line}" for line in block),
        *("  }", "  m.0", "  but m.0 {"),
        *(f"    {change}" for change in changes),
        *("  }", "}", ""),
    ]
    assert body(expand("\n".join(lines))).split() == instance
