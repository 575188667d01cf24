"""Edits beside a graph break, and long steps: texts that a stranger may have written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from graph.build import calls

from pytest_torchgraph import GraphFormatError
from pytest_torchgraph.graph import GraphDiff, diff_graphs, equal_programs, parse_text

BREAK = '  break in forward: "k"\n'


def graph(name: str, inputs: Sequence[str], ops: Sequence[str], returned: str) -> str:
    lines = [f"  %{value} = input : f32[2]" for value in inputs]
    lines += [f"  {op} : f32[2]" for op in ops]
    body = "\n".join([*lines, f"  return {returned}"])
    return f"{name} {{\n{body}\n}}\n\n"


def text(*parts: str, via: str = "aot") -> str:
    return f"torchgraph 4\nvia {via}, torch 2.13.0\n\n" + "".join(parts)


def difference(before: str, after: str) -> GraphDiff:
    return diff_graphs(parse_text(before).graphs, parse_text(after).graphs)


def chain(runs: int, kinds: Sequence[str], bodies: int = 0) -> str:
    """Return a step of equal runs, with a break of one of these kinds between any two."""
    nested = "".join(
        f"  b{n}: inference {{\n    %x = input : f32[2]\n    return %x\n  }}\n"
        for n in range(bodies)
    )
    title = f"inference_0: inference × {runs}"
    one = graph(title, ["x"], ["%r = aten.relu.default(%x)"], "%r")
    one = one.replace("{\n", f"{{\n{nested}", 1)
    lines = ["links", "  run inference_0"]
    for number in range(1, runs):
        before = f"[{number}]" if number > 1 else ""
        lines.append(f'  break in forward: "{kinds[number % len(kinds)]}"')
        lines.append(f"  run inference_0[{number + 1}]: %x = inference_0{before} %r")
    return text(one, "\n".join(lines), "\n")


def whole(ops: int) -> str:
    nodes = ["%a0 = aten.relu.default(%x)"]
    nodes += [f"%a{n} = aten.relu.default(%a{n - 1})" for n in range(1, ops)]
    return text(graph("inference: inference", ["x"], nodes, f"%a{ops - 1}"))


def gathered(runs: int, *, exchanged: bool) -> str:
    """Return a step whose last run takes the results of all runs before it."""
    one = graph(f"inference_0: inference × {runs}", ["x"], ["%r = aten.relu.default(%x)"], "%r")
    names = [f"h{n}" for n in range(runs)]
    cat = f"%s = aten.cat.default([{', '.join(f'%{name}' for name in names)}])"
    last = graph("inference_1: inference", names, [cat], "%s")
    order = [*range(runs)]
    if exchanged:
        order[:2] = 1, 0
    labels = [f"inference_0[{n + 1}]" if n else "inference_0" for n in range(runs)]
    lines = [f"  run {label}" for label in labels]
    taken = ", ".join(f"%h{n} = {labels[k]} %r" for n, k in enumerate(order))
    return text(one, last, "links\n", "\n".join(lines), f"\n  run inference_1: {taken}\n")


def work(before: str, after: str) -> int:
    """Return the number of function calls that a comparison takes."""
    sides = [parse_text(side).graphs for side in (before, after)]
    return calls(lambda: (equal_programs(*sides), diff_graphs(*sides)))


def test_work_grows_with_the_number_of_breaks_and_runs_not_with_their_product() -> None:
    few, many = 60, 240
    kinds = [f"k{n}" for n in range(many)]
    for pair in (
        lambda n: (whole(n), chain(n, kinds)),
        lambda n: (gathered(n, exchanged=False), gathered(n, exchanged=True)),
    ):
        assert work(*pair(many)) < 8 * work(*pair(few))  # 16 times if it were quadratic


def test_bodies_of_all_runs_are_counted() -> None:
    with pytest.raises(GraphFormatError, match="the runs have more than 1,000,000 nodes"):
        parse_text(chain(1100, ["k"], bodies=500))


def test_breaks_that_are_not_listed_belong_to_the_form() -> None:
    def divided(*after: int) -> str:
        ops = [f"%a{n} = aten.relu.default(%a{n - 1})" for n in range(1, 60)]
        parts, lines, start = [], ["links"], 0
        for number, end in enumerate((*after, len(ops))):
            name = f"inference_{number}"
            parts.append(graph(f"{name}: inference", [f"a{start}"], ops[start:end], f"%a{end}"))
            source = f"inference_{number - 1} %a{start}" if number else "input %a0"
            lines += [BREAK.rstrip()] * bool(number) + [f"  run {name}: %a{start} = {source}"]
            start = end
        return text(*parts, "\n".join(lines), "\n")

    before = text(
        graph(
            "inference: inference",
            ["a0"],
            [f"%a{n} = aten.relu.default(%a{n - 1})" for n in range(1, 60)],
            "%a59",
        )
    )
    places = [*range(2, 26)], [*range(2, 25), 50], [*range(2, 27)]
    details = {difference(before, divided(*after)).findings[0].details for after in places}
    assert len(details) == 3
