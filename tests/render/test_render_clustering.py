"""Folding of nodes into boxes, which keeps a drawing small."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph.render.layout import Part, fold
from pytest_torchgraph.render.scene import ClusterPath, module_cluster


def clusters(*paths: str) -> list[ClusterPath]:
    return [module_cluster(path) for path in paths]


def sizes(parts: list[Part]) -> list[int]:
    return [part.stop - part.start for part in parts]


TWELVE = [f"layer.{i}.{part}" for i in range(12) for part in ("attention", "mlp") for _ in "abcde"]


def test_modules_are_closed_from_the_inside_out():
    assert sizes(fold(clusters(*TWELVE), 30)) == [5] * 24
    assert sizes(fold(clusters(*TWELVE), 20)) == [10] * 12


def test_focused_node_has_its_own_box_in_open_modules():
    parts = fold(clusters(*TWELVE), 22, [73])

    assert len(parts) <= 22
    assert sizes(parts)[:2] == [10, 10]
    assert (73, 74) in [part[:2] for part in parts]


def test_compact_drawing_folds_chains_beside_the_focus():
    parts = fold(clusters(*TWELVE), 100, [73], compact=True)

    assert [part[:2] for part in parts] == [
        (0, 70),
        (70, 73),
        (73, 74),
        (74, 75),
        (75, 80),
        (80, 120),
    ]
    assert [part.depth for part in parts] == [1, 3, 3, 3, 2, 1]


def test_excess_focus_is_folded_by_importance():
    parts = fold(clusters(*[""] * 5000), 100, list(range(4999, 0, -7)), compact=True)

    alone = [part.start for part in parts if not part.is_group]
    assert len(parts) <= 100
    assert 4999 in alone
    assert len(alone) > 30


def test_module_that_other_nodes_interrupt_is_several_boxes():
    """One box would have to be above and below the others."""
    parts = fold(clusters("cell", "", "cell", "cell", "", "cell"), 5)

    assert sizes(parts) == [1, 1, 2, 1, 1]


@pytest.mark.parametrize("compact", [False, True])
@settings(max_examples=25, deadline=None)
@given(
    paths=st.lists(
        st.sampled_from(["", "a", "a.b", "a.b.c", "d", "d.0", "d.1", "d.1.x"]), max_size=90
    ),
    limit=st.integers(1, 60),
    focus=st.lists(st.integers(0, 89), max_size=5),
)
def test_each_node_is_in_one_box_and_boxes_are_in_graph_order(compact, paths, limit, focus):
    """Boxes in graph order cannot form a cycle."""
    focus = [number for number in focus if number < len(paths)]

    parts = fold(clusters(*paths), limit, focus, compact=compact)

    numbers = [number for part in parts for number in range(part.start, part.stop)]
    assert numbers == list(range(len(paths)))
    assert len(parts) <= limit or len(focus) > 0
    if focus:
        assert (focus[0], focus[0] + 1) in [part[:2] for part in parts]
