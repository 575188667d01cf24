"""A stored text is compared at its own detail or less, and reports a detail that it lacks."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import pytest
from graph.strategies import checked, graphs, plain_graphs, renamed, shuffled
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph.graph import Detail, Graph, Header, Program, TensorMeta, parse_document
from pytest_torchgraph.snapshot.compare import compare

DETAILS: tuple[Detail, ...] = get_args(Detail)


def matches(stored: Graph, stored_at: Detail, now: Graph, at: Detail) -> bool:
    """Return True if `now` matches the stored text of a graph."""
    document = parse_document(stored.to_text(stored_at))
    return compare(document, Program(Header(), (now,)), at) is None


@pytest.mark.slow("many random graphs")
@checked
@given(graphs())
def test_graph_matches_its_stored_text_at_any_available_detail(g: Graph) -> None:
    for stored, detail in enumerate(DETAILS):
        for wanted, at in enumerate(DETAILS):
            assert matches(g, detail, g, at) == (wanted <= stored)


@checked
@given(plain_graphs(6), plain_graphs(6), st.integers(0, 2**32))
def test_more_detail_is_never_less_strict(g: Graph, other: Graph, seed: int) -> None:
    rng = random.Random(seed)
    for now in (other, shuffled(replace(renamed(g, rng), name=g.name), rng)):
        for stored in ("dataflow", "full"):
            assert matches(g, stored, now, "dataflow") == (g == now)
            counts = matches(g, stored, now, "ops")
            assert counts == (g.op_counts == now.op_counts) == matches(g, "ops", now, "ops")
            assert counts or g != now
        assert matches(g, "dataflow", now, "dataflow") or not matches(g, "full", now, "full")


@checked
@given(plain_graphs(6))
def test_only_full_detail_sees_strides_and_devices(g: Graph) -> None:
    node = next(node for node in g.nodes if isinstance(node.result, TensorMeta))
    for change in ({"stride": (7, 7)}, {"device": "meta"}):
        moved = replace(node, result=replace(node.result, **change))
        now = replace(g, nodes=tuple(moved if n is node else n for n in g.nodes))
        assert matches(g, "full", now, "ops")
        assert matches(g, "full", now, "dataflow")
        assert not matches(g, "full", now, "full")
