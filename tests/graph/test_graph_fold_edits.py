"""An edit of one layer changes few lines of the folded text, whatever the other layers are like."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

import pytest
from graph.build import written

from pytest_torchgraph import Graph
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold

Layer = tuple[int, Sequence[str]]
"""Width and ops of a layer."""


def network(layers: Sequence[Layer], name: str = "net.{}") -> str:
    """Return the flat text of layers in a row. `name` is the path of a layer, given its number."""
    lines, before = ["%x = input : f32[2]"], "%x"
    for number, (width, ops) in enumerate(layers):
        for k, op in enumerate(ops):
            result = f"%{name.format(number)}.{'abc'[k % 3]}/{op}.{k}"
            lines.append(f"{result} = aten.{op}.default({before}) : f32[{width}]")
            before = result
    return written("\n".join([*lines, f"return {before}"]))


def count_changed(before: str, after: str) -> int:
    """Return the number of removed and added lines."""
    lines = [*unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm="")]
    return sum(line[0] in "+-" for line in lines[2:])


OPS = [f"op{k}" for k in range(16)]


def edited(layers: Sequence[Layer], number: int) -> list[Layer]:
    """Return the layers with another op in the middle of one."""
    width, ops = layers[number]
    middle = len(ops) // 2
    new = [*layers]
    new[number] = width, [*ops[:middle], "new", *ops[middle + 1 :]]
    return new


LISTS: dict[str, list[Layer]] = {
    "equal": [(8, OPS)] * 5,
    "two equal": [(8, OPS)] * 2,
    "in turn": [(8, OPS), (8, OPS[::-1])] * 3,
    "two pairs": [(8, OPS)] * 2 + [(16, OPS)] * 2,
    "stages": [(width, OPS) for width in (8, 8, 16, 16, 16, 32)],
    "of other sizes": [(8 + n, OPS) for n in range(6)],
    "one longer": [(8, OPS + OPS[:5]), *[(8, OPS)] * 4],
    "short": [(8, OPS[:8])] * 3,
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_edit_of_one_layer_changes_few_lines(name: str, number: int) -> None:
    sides = [network(LISTS[name]), network(edited(LISTS[name], number))]
    flat, folded = count_changed(*sides), count_changed(*map(fold, sides))
    assert 0 < folded <= 2 * flat + 10
    assert [expand(fold(side)) for side in sides] == sides


@pytest.mark.parametrize("name", sorted({*LISTS} - {"of other sizes"}))
def test_equal_layers_are_written_once(name: str) -> None:
    assert "  each net.* {\n" in fold(network(LISTS[name]))


def test_sizes_are_part_of_a_line() -> None:
    """Folded with formals for sizes, such layers were short, and one edit changed all of them."""
    text = network(LISTS["of other sizes"])
    assert fold(text) == text


def test_a_layer_of_another_size_in_a_few_lines_is_written_as_these_lines() -> None:
    text = network([(8, OPS)] * 4).replace(
        "op9.default(%net.2.c/op8.8) : f32[8]", "op9.default(%net.2.c/op8.8) : f32[9]"
    )
    assert ("  but net.2 {\n    ~ %.a/op9.9 = aten.op9.default(%.c/op8.8) : f32[9]\n  }\n") in fold(
        text
    )


def test_an_instance_that_leaves_its_group_leaves_the_text_of_the_others() -> None:
    layers = LISTS["in turn"]
    other: list[Layer] = [*layers[:3], (64, ["other", *OPS[:9]]), *layers[4:]]
    folded = [fold(network(each)) for each in (layers, other)]
    blocks = [text.split("  net.0: ")[0] for text in folded]
    assert blocks[0] == blocks[1]
    # The ten lines of the instance instead of its line, and the line of the next one twice.
    assert count_changed(*folded) == 10 + 1 + 2


@pytest.mark.parametrize(
    "name",
    ["denselayer{}", "features.denseblock.layer{}", "encoder.layer_{}", "stage_{}.unit", "a.b2c{}"],
)
def test_a_number_inside_a_name_is_that_of_an_instance(name: str) -> None:
    text = network([(8, OPS)] * 5, name)
    folded = fold(text)
    start = name.partition("{")[0]
    assert f"  each {start}* {{\n" in folded
    assert f"  {start}2: $1 = %{name.format(1)}.a/op15.15\n" in folded
    assert expand(folded) == text
    assert Graph.from_text(folded) == Graph.from_text(text)


@pytest.mark.parametrize("name", ["equal", "in turn", "stages", "one longer"])
def test_git_merges_edits_of_different_layers(name: str, tmp_path: Path) -> None:
    layers = LISTS[name]
    first, second = edited(layers, 1), edited(layers, 4)
    files = []
    for number, side in enumerate((first, layers, second)):
        files.append(tmp_path / str(number))
        files[-1].write_text(fold(network(side)))
    merged = subprocess.run(["git", "merge-file", "-p", *files], stdout=subprocess.PIPE, check=True)
    assert merged.stdout.decode() == fold(network(edited(first, 4)))


@pytest.mark.slow("many random lists; the cases above are in every run")
def test_edits_of_random_layers_change_few_lines() -> None:
    """At most twice the lines of the flat text and ten in 95% of cases, and never four times."""
    figures = []
    for seed in range(300):
        r = random.Random(seed)
        kinds: list[Layer] = [
            (r.choice((8, 16)), [r.choice(OPS) for _ in range(r.randint(3, 30))])
            for _ in range(r.randint(1, 3))
        ]
        layers = [r.choice(kinds) for _ in range(r.randint(2, 8))]
        sides = [network(layers), network(edited(layers, r.randrange(len(layers))))]
        figures.append((count_changed(*map(fold, sides)), count_changed(*sides)))
    assert sum(folded <= 2 * flat + 10 for folded, flat in figures) >= 285
    assert all(folded <= 4 * flat + 10 for folded, flat in figures)
