"""Folding of nodes into boxes, which keeps a drawing small."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph.render.layout.clustering import Clustering, Unit, break_cycles
from pytest_torchgraph.render.layout.scene import ClusterPath, module_cluster


def clusters(*paths: str) -> list[ClusterPath]:
    return [module_cluster(path) for path in paths]


def titles(units: list[Unit]) -> list[str]:
    """Return a group's modules and its number of members, or a single node's number."""
    return [
        f"{'+'.join(segment.label for segment in unit.inside)}:{len(unit.members)}"
        if unit.is_group
        else str(unit.members[0])
        for unit in units
    ]


TWELVE = [f"layer.{i}.{part}" for i in range(12) for part in ("attention", "mlp") for _ in "abcde"]


def test_small_drawing_is_not_folded():
    units = Clustering(clusters("a", "a", "b")).units(3)

    assert titles(units) == ["0", "1", "2"]


def test_modules_are_closed_from_the_inside_out():
    by_part = Clustering(clusters(*TWELVE)).units(30)
    by_layer = Clustering(clusters(*TWELVE)).units(20)

    assert titles(by_part)[:3] == ["layer.0.attention:5", "layer.0.mlp:5", "layer.1.attention:5"]
    assert titles(by_layer) == [f"layer.{i}:10" for i in range(12)]


def test_focused_node_has_its_own_box_in_open_modules():
    units = Clustering(clusters(*TWELVE)).units(22, [73])

    shown = titles(units)
    assert "73" in shown
    assert shown[:2] == ["layer.0:10", "layer.1:10"]
    assert len(units) <= 22
    focused = next(unit for unit in units if unit.members == (73,))
    assert [segment.label for segment in focused.cluster] == [
        "layer",
        "layer.7",
        "layer.7.attention",
    ]


def test_compact_drawing_folds_chains_beside_the_focus():
    units = Clustering(clusters(*TWELVE)).units(100, [73], compact=True)

    assert titles(units) == [
        "+".join(f"layer.{i}" for i in range(7)) + ":70",
        ":3",
        "73",
        "74",
        "layer.7.mlp:5",
        "+".join(f"layer.{i}" for i in range(8, 12)) + ":40",
    ]


def test_nodes_without_modules_are_folded_into_consecutive_blocks():
    units = Clustering(clusters(*[""] * 5000)).units(100)

    assert 10 < len(units) <= 100
    assert [n for unit in units for n in unit.members] == list(range(5000))


def test_excess_focus_is_folded_by_importance():
    units = Clustering(clusters(*[""] * 5000)).units(100, list(range(4999, 0, -7)), compact=True)

    alone = [unit.members[0] for unit in units if not unit.is_group]
    assert len(units) <= 100
    assert 4999 in alone
    assert len(alone) > 30


def test_clustering_without_a_limit_gives_each_node_a_box():
    assert len(Clustering(clusters(*TWELVE)).units(None)) == 120


def test_box_on_a_cycle_is_split():
    units = Clustering(clusters("cell", "", "cell", "cell", "", "cell")).units(3)
    links = [(i, i + 1) for i in range(5)]
    assert titles(units) == ["cell:4", "1", "4"]

    cut = break_cycles(units, links, 10)

    assert [unit.members for unit in cut] == [(0,), (1,), (2, 3), (4,), (5,)]
    assert cut[2].cut == (2, 3)


def test_cycle_is_kept_if_breaking_it_exceeds_the_limit():
    units = Clustering(clusters("cell", "", "cell", "cell", "", "cell")).units(3)

    assert break_cycles(units, [(i, i + 1) for i in range(5)], 4) == units


@pytest.mark.parametrize("compact", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    paths=st.lists(
        st.sampled_from(["", "a", "a.b", "a.b.c", "d", "d.0", "d.1", "d.1.x"]), max_size=90
    ),
    limit=st.integers(1, 60),
    focus=st.lists(st.integers(0, 89), max_size=5),
    links=st.lists(st.tuples(st.integers(0, 89), st.integers(0, 89)), max_size=60),
)
def test_units_contain_each_node_once_and_no_cycle(compact, paths, limit, focus, links):
    focus = [number for number in focus if number < len(paths)]
    links = [(a, b) for a, b in links if a < b < len(paths)]

    units = Clustering(clusters(*paths)).units(limit, focus, compact=compact)
    cut = break_cycles(units, links, 10**6)

    for boxes in (units, cut):
        assert sorted(n for box in boxes for n in box.members) == list(range(len(paths)))
    owner = {n: i for i, unit in enumerate(cut) for n in unit.members}
    after = {(owner[a], owner[b]) for a, b in links if owner[a] != owner[b]}
    left = set(owner.values())
    while sources := left - {b for a, b in after if a in left}:
        left -= sources
    assert not left, "a cycle is left"
