"""One edit is one finding that names it, anywhere in the graph; n edits are n findings."""

from __future__ import annotations

import random

import pytest
from graph.build import difference
from graph.build import graph as text_graph
from graph.edits import (
    EDITS,
    Nodes,
    chain,
    exchange,
    graph,
    insert,
    layers,
    rewire,
    scattered,
    topologically_shuffled,
)
from graph.strategies import checked, plain_graphs, renamed, shuffled
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_torchgraph.graph import Graph, Ref

SEEDS = st.integers(0, 2**32)
MODELS: dict[int, Nodes] = {seed: chain(300, seed) for seed in (0, 1)}


@pytest.mark.slow(
    "further cases; a few are in every run", unless=["as it was-rewire", "as it was-swap"]
)
@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("order", ["as it was", "shuffled"])
def test_edit_of_a_flat_model_is_one_finding(kind: str, order: str) -> None:
    tried = 0
    for seed, base in MODELS.items():
        rng = random.Random(f"{seed}{kind}")
        for at in range(2 + rng.randrange(13), len(base) - 1, 13):
            edit = EDITS[kind](base, at, rng)
            if edit is None:
                continue
            tried += 1
            other = topologically_shuffled(edit.nodes, rng) if order == "shuffled" else edit.nodes
            found = difference(graph(base), graph(other))
            where = f"{kind} at {edit.name}:\n{found}"
            assert len(found.findings) == 1, where
            (finding,) = found.findings
            assert finding.kind == edit.kind, where
            assert len(finding.changes) == 1, where
            node = finding.after or finding.before
            assert node is not None
            assert node.name == edit.name, where
    assert tried >= 10


@pytest.mark.slow("further models and backends")
@pytest.mark.parametrize(
    ("scoped", "weights", "order", "kinds"),
    [
        (True, True, "shuffled", ("insert", "exchange", "rewire")),
        (True, False, "as it was", ("remove",)),
        (False, True, "shuffled", ("remove",)),
        (False, False, "as it was", ("insert", "exchange", "rewire")),
    ],
)
def test_a_hundred_edits_of_equal_layers_are_a_hundred_findings(
    scoped: bool, weights: bool, order: str, kinds: tuple[str, ...]
) -> None:
    base = layers(200, scoped=scoped, weights=weights, size=25)
    edited, done = scattered(base, 100, seed=4, kinds=kinds)
    if order == "shuffled":
        edited = topologically_shuffled(edited, random.Random(4))
    diff = difference(graph(base), graph(edited))
    named = [(finding.kind, (finding.after or finding.before).name) for finding in diff.findings]
    assert sorted(named) == sorted(done)


def test_findings_are_in_the_order_of_the_graph() -> None:
    base = layers(40, scoped=True, size=25)
    edited, done = scattered(base, 20, seed=1, kinds=("insert", "exchange"))
    diff = difference(graph(base), graph(edited))
    assert [finding.after.name for finding in diff.findings if finding.after] == [
        name for _, name in reversed(done)
    ]


# -- properties ------------------------------------------------------------------------------------


@checked
@given(plain_graphs(), plain_graphs())
def test_findings_exist_if_and_only_if_graphs_differ(a: Graph, b: Graph) -> None:
    diff = difference(a, b)
    assert bool(diff) == (a != b)
    assert bool(difference(b, a)) == (a != b)
    assert bool(diff) == bool(diff.findings) == bool(str(diff) != "no difference")


@checked
@given(plain_graphs(), SEEDS)
def test_equal_graphs_have_no_difference(g: Graph, seed: int) -> None:
    rng = random.Random(seed)
    diff = difference(g, shuffled(renamed(g, rng), rng))
    assert not diff
    assert str(diff) == "no difference"
    assert (diff.added, diff.removed, diff.changed, diff.rewired) == ((), (), (), ())


def inputs_and(body: str) -> Graph:
    return text_graph(body, inputs="%x0 = input : f32[2, 3]\n%x1 = input : f32[2, 3]")


UNUSED = inputs_and("%n1 = aten.sin(%x0) : f32[2, 3]\nreturn [%x0, %x1, %x0]")
RETURNED = inputs_and("%n1 = aten.sin(%x1) : f32[2, 3]\nreturn [%x0, %n1, %x0]")


@checked
@given(plain_graphs(), plain_graphs())
@example(UNUSED, RETURNED)
@example(RETURNED, UNUSED)
@example(
    inputs_and("%a = aten.sin(%x0) : f32[2, 3]\n%b = aten.cos(%a) : f32[2, 3]\nreturn %b"),
    inputs_and("%b = aten.cos(%x0) : f32[2, 3]\n%a = aten.sin(%b) : f32[2, 3]\nreturn %a"),
)
def test_raw_lists_agree_with_the_findings(a: Graph, b: Graph) -> None:
    diff = difference(a, b)
    places = [place for finding in diff.findings for place in finding.places]
    changes = [change for place in places for change in (*place.changes, *place.consequences)]
    assert len(diff.added) == sum(change.kind == "added" for change in changes)
    assert len(diff.removed) == sum(change.kind == "removed" for change in changes)
    assert len(diff.changed) == sum(change.kind == "changed" for change in changes)
    assert len(diff.rewired) == sum(change.kind == "rewired" for change in changes)
    assert len(a.nodes) - len(diff.removed) == len(b.nodes) - len(diff.added)
    for change in changes:
        assert (change.before is None) == (change.kind == "added")
        assert (change.after is None) == (change.kind == "removed")
        assert change.before is None or change.before in a.nodes
        assert change.after is None or change.after in b.nodes
    assert len({id(change.node) for change in changes}) == len(changes)


@pytest.mark.parametrize("sides", [(UNUSED, RETURNED), (RETURNED, UNUSED)])
def test_unused_op_is_not_reported_as_moved(sides: tuple[Graph, Graph]) -> None:
    diff = difference(*sides)
    assert [(finding.kind, finding.changes[0].node.op) for finding in diff.findings] == [
        ("rewired", "aten.sin"),
        ("rewired", "output"),
    ], diff
    assert not any(finding.consequences for finding in diff.findings)


@checked
@given(plain_graphs(20), SEEDS)
def test_a_new_op_on_a_used_value_of_any_graph_is_found(g: Graph, seed: int) -> None:
    rng = random.Random(seed)
    nodes = list(g.nodes)
    at = rng.randrange(len(nodes) - 1)
    written = {effect.target for node in nodes for effect in node.effects}
    if Ref(nodes[at].name) in written or not any(nodes[at].name in node.refs for node in nodes):
        return  # a write through the new op is another write
    edit = insert(nodes, at, rng, "exotic")
    diff = difference(g, graph(edit.nodes))
    assert [node.name for node in diff.added] == [edit.name]
    assert diff.removed == diff.changed == ()


def test_a_change_and_its_reverse_mirror_each_other() -> None:
    base, rng = MODELS[0], random.Random(0)
    at = next(k for k in range(100, 200) if len(set(base[k].refs)) == 2)
    for edit in (insert, exchange, rewire):
        sides = graph(base), graph(edit(base, at, rng).nodes)  # type: ignore[union-attr]
        forth, back = difference(*sides), difference(*sides[::-1])
        assert len(forth.findings) == len(back.findings) == 1
        assert (forth.added, forth.removed) == (back.removed, back.added)
        for there, here in ((forth.changed, back.changed), (forth.rewired, back.rewired)):
            assert [(b, a) for a, b in there] == list(here)
        for before, after in forth.rewired:
            assert before.name == after.name == base[at].name
            assert before.refs != after.refs


def test_distant_edits_are_two_findings_and_adjacent_edits_are_one() -> None:
    base, rng = layers(4, scoped=True), random.Random(0)
    both = insert(insert(base, 150, rng).nodes, 50, rng)
    assert len(difference(graph(base), graph(both.nodes)).findings) == 2
    one = insert(base, 50, rng)
    twice = insert(one.nodes, 51, rng, "exotic")
    diff = difference(graph(base), graph(twice.nodes))
    assert [len(finding.changes) for finding in diff.findings] == [2]


MODULE_EDITS = st.lists(
    st.tuples(st.integers(0, 39), st.sampled_from(["insert", "exchange", "remove", "rewire"])),
    min_size=1,
    max_size=12,
    unique_by=lambda edit: edit[0],
)


@pytest.mark.slow("many random graphs")
@checked
@given(MODULE_EDITS, st.booleans(), SEEDS)
def test_edits_in_distinct_modules_are_separate_findings(
    edits: list[tuple[int, str]], is_shuffled: bool, seed: int
) -> None:
    rng = random.Random(seed)
    base = layers(40, scoped=True, weights=True, size=12)
    first = next(k for k, node in enumerate(base) if node.kind != "placeholder")
    nodes = base
    for layer, kind in sorted(edits, reverse=True):
        at = first + 12 * layer + rng.randrange(8, 11)
        edit = EDITS[kind](nodes, at, rng) or exchange(nodes, at, rng)
        nodes = edit.nodes
    if is_shuffled:
        nodes = topologically_shuffled(nodes, rng)
    diff = difference(graph(base), graph(nodes))
    assert len(diff.findings) == len(edits), diff
