"""Graphs made to confuse the diff. The diff ends soon, and its findings are correct."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graph.build import calls, difference
from graph.edits import (
    Nodes,
    call,
    chain,
    exchange,
    given,
    graph,
    insert,
    remove,
    returned,
    scattered,
)

from pytest_torchgraph.graph import GraphDiff


def one_op(length: int) -> Nodes:
    """Return a run of one op."""
    return chain(length, words=("relu",))


def ladder(length: int) -> Nodes:
    """Return two chains of ops. Each step takes values of both chains."""
    nodes, p, q = [given("x")], "x", "x"
    for k in range(length // 2):
        nodes += [call(f"a{k}", "add", [p, q]), call(f"b{k}", "add", [q, p])]
        p, q = f"a{k}", f"b{k}"
    return [*nodes, returned(p, q)]


def fan(length: int) -> Nodes:
    """Return many equal ops that use one value. All of their results are returned."""
    twins = [call(f"f{k}", "mul", ["hub", "hub"]) for k in range(length)]
    return [given("x"), call("hub", "sin", ["x"]), *twins, returned(*[t.name for t in twins])]


def dead_fan(length: int) -> Nodes:
    """Return many equal ops that nothing uses."""
    return [given("x"), *[call(f"f{k}", "sin", ["x"]) for k in range(length)], returned("x")]


def hub(length: int) -> Nodes:
    """Return a chain in which every op also uses the first value."""
    nodes = [given("x"), call("hub", "sin", ["x"])]
    for k in range(length):
        nodes.append(call(f"n{k}", "mul", [nodes[-1].name, "hub"]))
    return [*nodes, returned(nodes[-1].name)]


def far(length: int) -> Nodes:
    """Return a chain whose second operands come from any earlier op."""
    return chain(length, seed=3, words=("add", "mul"), reach=10**9)


def diamonds(length: int) -> Nodes:
    """Return a value that is repeatedly split into two equal halves and joined again."""
    nodes, last = [given("x")], "x"
    for k in range(length // 3):
        left, right = call(f"l{k}", "sin", [last]), call(f"r{k}", "sin", [last])
        last = f"j{k}"
        nodes += [left, right, call(last, "add", [left.name, right.name])]
    return [*nodes, returned(last)]


SHAPES: dict[str, Callable[[int], Nodes]] = {
    function.__name__: function for function in (one_op, ladder, fan, dead_fan, hub, far, diamonds)
}


def difference_of(before: Nodes, after: Nodes) -> GraphDiff:
    return difference(graph(before), graph(after))


@pytest.mark.slow("further cases; a few are in every run", unless=["diamonds"])
@pytest.mark.parametrize("shape", SHAPES)
def test_op_added_among_equal_ops_is_one_finding(shape: str) -> None:
    base = SHAPES[shape](300)
    tried = 0
    for at in range(1, len(base) - 1, 37):
        word = "exotic" if shape == "dead_fan" or at % 2 else "relu"
        edit = insert(base, at, None, word)
        diff = difference_of(base, edit.nodes)
        assert [finding.kind for finding in diff.findings] == ["added"], diff
        assert len(diff.added) == 1, diff
        tried += 1
    assert tried >= 8


@pytest.mark.slow("further cases; a few are in every run", unless=["diamonds"])
@pytest.mark.parametrize("shape", sorted(SHAPES.keys() - {"dead_fan"}))
def test_op_replaced_among_equal_ops_is_one_finding(shape: str) -> None:
    base = SHAPES[shape](300)
    for at in range(2, len(base) - 1, 37):
        edit = exchange(base, at)
        diff = difference_of(base, edit.nodes)
        assert [(f.kind, f.after.name) for f in diff.findings if f.after] == [
            ("changed", edit.name)
        ], diff


def test_op_removed_from_a_run_of_equal_ops_is_one_finding() -> None:
    base = one_op(300)
    for at in range(2, 302, 53):
        diff = difference_of(base, remove(base, at).nodes)
        assert [(f.kind, len(f.changes)) for f in diff.findings] == [("removed", 1)], diff


@pytest.mark.parametrize("count", [1, 10, 100])
def test_added_equal_ops_are_as_many_added_nodes(count: int) -> None:
    diff = difference_of(one_op(300), one_op(300 + count))
    assert len(diff.added) == count
    assert not diff.removed
    assert not diff.changed
    diff = difference_of(fan(300), fan(300 + count))
    assert len(diff.added) == count
    assert not diff.removed


@pytest.mark.slow("further cases; a few are in every run", unless=["insert-diamonds", "insert-hub"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("edit", [insert, exchange], ids=["insert", "exchange"])
def test_diff_work_grows_with_the_size_of_the_graph_not_its_square(
    shape: str, edit: Callable[[Nodes, int], Nodes]
) -> None:
    def work(length: int) -> int:
        base = SHAPES[shape](length)
        edited = edit(base, len(base) // 2).nodes  # type: ignore[attr-defined]
        before, after = graph(base), graph(edited)
        return calls(lambda: difference(before, after))

    assert work(1600) < 6 * work(400)


@pytest.mark.slow("large graphs")
@pytest.mark.parametrize("words", [("sin", "add"), ("sin", "cos", "relu", "add", "mul")])
def test_diff_of_unrelated_graphs_takes_bounded_work(words: tuple[str, ...]) -> None:
    a, b = chain(600, 1, words), chain(700, 2, words)
    found: list[GraphDiff] = []
    work = calls(lambda: found.append(difference_of(a, b)))
    assert found[0].findings
    assert len(a) - len(found[0].removed) == len(b) - len(found[0].added)
    assert work < 5_000_000


@pytest.mark.slow("large graphs")
def test_graphs_without_a_common_op_are_removed_and_added_entirely() -> None:
    a, b = chain(800, 1, ("sin", "add")), chain(900, 2, ("cos", "mul"))
    found: list[GraphDiff] = []
    work = calls(lambda: found.append(difference_of(a, b)))
    assert (len(found[0].removed), len(found[0].added)) == (800, 900)
    assert work < 1_000_000


@pytest.mark.slow("a search for a second")
def test_many_edits_of_an_adversarial_graph_stay_close_to_their_number() -> None:
    base = far(2000)
    edited, done = scattered(base, 40, seed=2, kinds=("insert", "exchange"))
    diff = difference_of(base, edited)
    named = sorted((f.kind, f.after.name) for f in diff.findings if f.after)
    assert named == sorted(done)
