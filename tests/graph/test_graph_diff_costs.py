"""The cost of an edit, as a figure of its finding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from graph.build import difference, graph
from graph.edits import EDITS, Nodes, chain, exchange
from graph.strategies import checked, eager_graphs, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph import Cost
from pytest_torchgraph.graph import Graph, Ref, TensorMeta, diff_graphs, need_saved
from pytest_torchgraph.graph.cost import owners_of_saved, storage_bytes, total_flops
from pytest_torchgraph.graph.diff import costs as module
from pytest_torchgraph.graph.diff.findings import one_place
from pytest_torchgraph.graph.diff.words import cost_text
from pytest_torchgraph.words import amount

SAVES = {"relu": "result", "tanh": "result", "sin": "operands", "cos": "operands"}
"""Values that an op saves for its backward, as in autograd. `mm` and `mul` save their operands."""


def costs(before: Sequence[Graph], after: Sequence[Graph]) -> list[tuple[int | None, int | None]]:
    found = [finding.cost for finding in diff_graphs(before, after).findings]
    return [(each.flops, each.saved_bytes) for each in found]


def saved_bytes(graphs: Sequence[Graph]) -> int:
    need_saved(graphs)
    return sum(
        storage_bytes(n, graph) * graph.runs for graph in graphs for n in owners_of_saved(graph)
    )


# -- the costs of findings sum up to the difference of the graphs ---------------------------------


def saving(nodes: Nodes, rng: random.Random | None = None) -> Graph:
    """Return a forward on square matrices that saves what autograd would, or random values."""
    meta = TensorMeta("float32", (8, 8))
    nodes = [node if node.kind == "output" else replace(node, result=meta) for node in nodes]
    saved: dict[str, None] = {}
    for node in nodes:
        if not node.is_call:
            continue
        word = node.op.split(".")[1]
        kept = SAVES.get(word, "operands" if word in ("mm", "mul") else "")
        for name in (node.name,) if kept == "result" else node.refs if kept else ():
            saved[name] = None
    if rng is not None:
        names = [node.name for node in nodes if node.is_call]
        saved = dict.fromkeys(rng.sample(names, rng.randrange(len(names))))
    refs = tuple(map(Ref, saved))
    return Graph(tuple(nodes), "forward", "forward", "aot", refs)


def models(length: int, seed: int) -> Nodes:
    """Chain ops that save their operand or their result, and views."""
    nodes = chain(length, seed, ("sin", "relu", "neg", "t", "add", "mul"))
    return [
        replace(node, op="aten.mm.default") if node.op == "aten.mul.default" and k % 2 else node
        for k, node in enumerate(nodes)
    ]


def differ(before: Graph, after: Graph) -> tuple[int, int]:
    pairs = [(total_flops((g,), times_run=True), saved_bytes((g,))) for g in (before, after)]
    return pairs[1][0] - pairs[0][0], pairs[1][1] - pairs[0][1]


def test_saved_value_is_attributed_among_several_edits() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        nodes = edited = models(180, seed)
        for start in (120, 60, 0):
            at = start + rng.randrange(4, 50)
            kind = rng.choice(["insert", "exchange", "remove", "rewire"])
            edited = (EDITS[kind](edited, at, rng) or exchange(edited, at)).nodes
        before, after = saving(nodes), saving(edited)
        known = zip(*costs([before], [after]), strict=True)
        assert tuple(map(sum, known)) == differ(before, after)  # type: ignore[arg-type]


@checked
@given(st.integers(2, 60), st.integers(0, 10**6), st.sampled_from(sorted(EDITS)))
def test_single_edit_costs_the_whole_difference(length: int, seed: int, kind: str) -> None:
    rng = random.Random(seed)
    nodes = models(length, seed)
    edit = EDITS[kind](nodes, rng.randrange(2, len(nodes) - 1), rng)
    before, after = saving(nodes, rng), saving(edit.nodes if edit else nodes, rng)
    edit_costs = costs([before], [after])
    if len(edit_costs) < 2:
        assert edit_costs == [differ(before, after)][: len(edit_costs)]
        assert edit_costs or differ(before, after) == (0, 0)
    elif all(None not in cost for cost in edit_costs):
        assert tuple(map(sum, zip(*edit_costs, strict=True))) == differ(before, after)  # type: ignore[arg-type]


def total_of(figure: Callable[[Sequence[Graph]], int], graphs: Sequence[Graph]) -> int | None:
    try:
        return figure(graphs)
    except Exception:  # a formula that rejects the arguments of a random graph
        return None


ANY = st.lists(graphs() | eager_graphs(), min_size=1, max_size=2)


@pytest.mark.slow("many random graphs")
@settings(checked, max_examples=25)
@given(ANY, ANY, st.booleans())
def test_costs_of_any_two_programs_sum_up_if_known(
    before: list[Graph], after: list[Graph], more: bool
) -> None:
    if more:
        after = [*before, *after]
    edit_costs = costs(before, after)
    for number, figure in enumerate((lambda g: total_flops(g, times_run=True), saved_bytes)):
        known = [cost[number] for cost in edit_costs]
        sums = total_of(figure, before), total_of(figure, after)
        if None not in (*known, *sums):
            assert sum(each or 0 for each in known) == (sums[1] or 0) - (sums[0] or 0)


# -- the value and its words -----------------------------------------------------------------------


SIDES = (
    graph("%a = aten.neg.default(%x) : f32[2, 3]\nreturn %a"),
    graph("%a = aten.exp.default(%x) : f32[2, 3]\nreturn %a\nsave %a"),
)


def test_edit_cost_is_computed_lazily_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    computed = module.compute_costs
    monkeypatch.setattr(module, "compute_costs", lambda *all: calls.append(1) or computed(*all))
    diff = difference(*SIDES)
    assert not calls
    assert [finding.cost.saved_bytes for finding in diff.findings] == [24]
    assert len(calls) == 1
    assert "cost" not in repr(diff.findings[0])


def test_edit_cost_of_a_finding_without_a_difference_is_none() -> None:
    change = difference(*SIDES).findings[0].changes[0]
    assert one_place([change]).cost == Cost(None, None)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(0, 0), ""),
        (Cost(None, None), ""),
        (Cost(None, 0), ""),
        (Cost(None, 1_234_567), "+1.2 MB saved"),
        (Cost(-999, None), "-999 FLOP"),
        (Cost(2_000, 0), "+2.0 kFLOP, +0 B saved"),
    ],
)
def test_edit_cost_in_words(cost: Cost, text: str) -> None:
    assert cost_text(cost) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (-65_536, "-65.5 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (3 * 10**12, "3.0 TB"),
        (10**22, "10,000.0 EB"),
    ],
)
def test_numbers_with_prefixes(count: int, text: str) -> None:
    assert amount(count, "B") == text
