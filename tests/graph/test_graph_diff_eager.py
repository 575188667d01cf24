"""The difference of captures with eager graphs: how they are paired and reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graph.build import graph

from pytest_torchgraph.graph import Graph, GraphBreak, GraphDiff, diff_graphs


def ops(*names: str, title: str = "forward @ dispatch", **changes: Any) -> Graph:
    """Return a chain of these ops."""
    lines, last = [], "x"
    for number, name in enumerate(names):
        lines.append(f"%n{number} = aten.{name}.default(%{last}) : f32[2, 3]")
        last = f"n{number}"
    return replace(graph("\n".join([*lines, f"return %{last}"]), title), **changes)


def step(*parts: Graph | tuple[str, ...]) -> list[Graph]:
    """Return the graphs of a capture: compiled ones unchanged, eager ones from their op names."""
    program, number = [], 0
    for part in parts:
        if isinstance(part, tuple):
            part = ops(*part, eager=True)
        if part.eager:
            part = replace(part, name=f"eager_{number}")
            number += 1
        program.append(part)
    return program


def compiled(name: str, *names: str) -> Graph:
    return ops(*names, title=f"{name}: forward @ aot")


A, B, C, D = ("sin", "cos"), ("neg",), ("exp", "log", "abs"), ("tanh", "erf")


def said(diff: GraphDiff) -> list[str]:
    return [finding.to_text().splitlines()[0] for finding in diff.findings]


def paired(diff: GraphDiff) -> list[tuple[str | None, str | None]]:
    return [
        (pair.before and pair.before.name, pair.after and pair.after.name) for pair in diff.graphs
    ]


def test_inserted_eager_graph_is_the_only_finding() -> None:
    first = compiled("forward", "relu")
    for at, name in enumerate(["eager_0", "eager_1", "eager_2", "eager_3"]):
        parts = [A, B, C]
        many = [*parts[:at], D, *parts[at:]]
        diff = diff_graphs(step(first, *parts), step(first, *many))

        assert said(diff) == [f"+ eager graph '{name}' added (2 ops)"]
        assert paired(diff) == [(None, name)]
        assert diff.heading() == "1 graph added"
        gone = diff_graphs(step(first, *many), step(first, *parts))
        assert said(gone) == [f"- eager graph '{name}' removed (2 ops)"]


def test_removed_and_added_eager_graphs_leave_others_paired() -> None:
    diff = diff_graphs(step(D, A, B, C), step(A, B, C, ("sqrt",)))

    assert said(diff) == [
        "- eager graph 'eager_0' removed (2 ops)",
        "+ eager graph 'eager_3' added (1 op)",
    ]


def test_edited_eager_graph_after_an_inserted_one_is_paired() -> None:
    before = step(A, C)
    after = step(D, ("sin", "cos", "neg"), ("exp", "abs"))
    diff = diff_graphs(before, after)

    assert paired(diff) == [(None, "eager_0"), ("eager_0", "eager_1"), ("eager_1", "eager_2")]
    assert "[eager_0 -> eager_1]" in diff.to_text()


def test_eager_graphs_without_a_common_op_are_paired_in_program_order() -> None:
    diff = diff_graphs(step(A, B), step(C, D))

    assert paired(diff) == [("eager_0", "eager_0"), ("eager_1", "eager_1")]


def test_compiled_and_eager_graphs_are_never_paired() -> None:
    diff = diff_graphs(
        [compiled("forward_0", "relu"), compiled("forward_1", *A)],
        step(compiled("forward", "relu"), A),
    )

    assert said(diff) == [
        "- forward graph 'forward_1' removed (2 ops)",
        "+ eager graph 'eager_0' added (2 ops)",
    ]


def test_new_graph_break_is_only_the_graphs_that_it_creates() -> None:
    before = step(compiled("forward_0", "relu", "tan", "exp"), A, compiled("forward_1", "neg"))
    after = step(
        compiled("forward_0", "relu", "tan"),
        D,
        compiled("forward_1", "exp"),
        A,
        compiled("forward_2", "neg"),
    )
    found = said(diff_graphs(before, after))

    assert "+ eager graph 'eager_0' added (2 ops)" in found
    assert not [line for line in found if "eager_1" in line or "forward_2" in line]


def test_changed_runs_of_an_eager_graph_are_a_finding() -> None:
    forward = compiled("forward", "relu")
    before = step(forward, ops(*A, eager=True, runs=2), B)
    after = step(forward, D, ops(*A, eager=True, runs=3), B)

    diff = diff_graphs(before, after)
    assert said(diff) == [
        "+ eager graph 'eager_0' added (2 ops)",
        "~ eager_0 -> eager_1 ran 3 times, before: 2",
    ]
    runs = diff_graphs(before, step(forward, A, B))
    assert said(runs) == ["~ eager_0 ran once, before: 2"]
    assert runs.heading() == "1 graph changed"
    assert (runs.added, runs.removed, runs.changed, runs.rewired) == ((), (), (), ())


def test_edit_and_changed_runs_are_two_findings() -> None:
    forward = compiled("forward", "relu")
    diff = diff_graphs(
        step(forward, ops("sin", "cos", eager=True)),
        step(forward, ops("sin", "tan", eager=True, runs=4)),
    )

    assert [finding.of_graph for finding in diff.findings] == [False, True]
    assert said(diff)[1] == "~ eager_0 ran 4 times, before: 1"
    assert diff.heading() == "1 edit: aten.cos -> aten.tan; 1 graph changed"
    assert len(diff.graphs) == 1


def test_changed_runs_of_compiled_graphs_are_ignored() -> None:
    given = compiled("forward", "relu")

    assert not diff_graphs([given], [replace(given, runs=5)])


def test_edit_of_an_eager_backward_is_a_consequence_of_the_forward() -> None:
    def both(forward: str, backward: str) -> list[Graph]:
        return step(
            compiled("forward", "relu"),
            ops(forward, eager=True),
            ops(backward, eager=True, kind="backward"),
        )

    diff = diff_graphs(both("sin", "cos"), both("tan", "exp"))

    (finding,) = diff.findings
    assert finding.graph == "eager_0"
    assert [change.graph for change in finding.consequences] == ["eager_1"]


def test_added_eager_backward_is_labelled_backward() -> None:
    diff = diff_graphs(step(A), [*step(A), ops("neg", eager=True, kind="backward", name="eager_1")])

    assert said(diff) == ["+ eager backward graph 'eager_1' added (1 op)"]


def test_added_or_removed_eager_backward_is_a_consequence() -> None:
    total = ops("neg", "add", eager=True, kind="backward", name="eager_1")
    before, after = step(compiled("forward", "sin")), step(compiled("forward", "tan"))
    for sides, kind in (
        ((before, [*after, total]), "added"),
        (([*before, total], after), "removed"),
    ):
        (finding,) = diff_graphs(*sides).findings
        ops_that_follow = [change.node.op for change in finding.consequences]
        assert ops_that_follow == ["aten.neg.default", "aten.add.default", "output"]
        assert f"    follows in eager_1: 2 {kind}" in str(finding)


def test_added_compiled_backward_is_a_finding_beside_an_edit() -> None:
    backward = ops("neg", title="backward: backward @ aot")
    diff = diff_graphs(
        step(compiled("forward", "sin")), [*step(compiled("forward", "tan")), backward]
    )
    assert said(diff)[1:] == ["+ backward graph 'backward' added (1 op)"]


def test_added_eager_graph_has_the_line_of_its_graph_break() -> None:
    cause = GraphBreak(
        *("Builtin call", "print", "", "model.py", 31, "  print(x)", "forward", (), "", "0/0")
    )
    diff = diff_graphs(step(A), step(A, ops("neg", eager=True, cause=cause)))

    assert said(diff) == ["+ eager graph 'eager_1' added (1 op), at model.py:31: print(x)"]


def test_many_edited_eager_graphs_are_paired_quickly() -> None:
    before = step(*[("sin", f"op{k}") for k in range(400)])
    after = step(*[("cos", f"op{k}") for k in range(401)])

    assert len(diff_graphs(before, after).graphs) == 401
