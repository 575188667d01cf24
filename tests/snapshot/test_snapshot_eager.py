"""Stored graphs of captures with eager graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from projects import GRAPHS

from pytest_torchgraph import Capture, GraphCapture
from pytest_torchgraph.api.contents import Contents
from pytest_torchgraph.graph import Detail, Graph, Header, parse_document
from pytest_torchgraph.snapshot import Comparison, program_of
from pytest_torchgraph.snapshot.compare import compare, same_text
from pytest_torchgraph.snapshot.summary import headline

graphs: dict[str, Any] = {}
exec(GRAPHS, graphs)
graph, text = graphs["graph"], graphs["text"]


def eager(number: int, *ops: str, runs: int = 1, **changes: Any) -> Graph:
    given = replace(graph(*ops), name=f"eager_{number}", level="dispatch", eager=True, runs=runs)
    return replace(given, **changes)


def captured(*program: Graph) -> Capture:
    return Capture(Contents.of_program(program, sees_eager=True), Header("aot", "2.13.0"))


def against(stored: str, *now: Graph, detail: Detail = "dataflow") -> str | None:
    """Return None for a match, else the problem and the details as one text."""
    mismatch = compare(parse_document(stored), program_of(captured(*now)), detail)
    return None if mismatch is None else "\n".join([mismatch.problem, *mismatch.details])


def stored(*of: Graph, detail: Detail = "dataflow") -> str:
    return program_of(captured(*of)).to_text(detail)


DETAILS: list[Detail] = ["ops", "dataflow", "full"]
STEP = (graph("relu", name="forward"), eager(0, "sin", "cos", runs=3), eager(1, "neg"))


@pytest.mark.parametrize("detail", DETAILS)
def test_eager_program_matches_its_snapshot(detail: Detail) -> None:
    document = stored(*STEP, detail=detail)

    assert document.startswith("torchgraph 4\n")
    assert "\neager_0 × 3 {\n" in document
    assert against(document, *STEP, detail=detail) is None
    assert same_text(document, document)


@pytest.mark.parametrize("detail", DETAILS)
def test_file_without_eager_graphs_fails_with_both_lists(detail: Detail) -> None:
    old = stored(STEP[0], detail=detail).replace("torchgraph 4\n", "torchgraph 1\n")

    assert against(old, *STEP, detail=detail) == (
        "captured graphs differ from the stored graphs\nstored:  forward\n"
        "now:     forward, eager_0, eager_1"
    )
    assert against(old, STEP[0], detail=detail) is None


@pytest.mark.parametrize("detail", DETAILS)
def test_changed_runs_fail_and_are_named(detail: Detail) -> None:
    forward, first, second = STEP
    other = (forward, replace(first, runs=1), second)

    assert against(stored(*other, detail=detail), *STEP, detail=detail) == (
        "eager_0 ran 3 times, stored: 1"
    )
    assert against(stored(*STEP, detail=detail), *other, detail=detail) == (
        "eager_0 ran once, stored: 3"
    )
    both = (forward, replace(first, runs=1), replace(second, runs=2))
    assert against(stored(*STEP, detail=detail), *both, detail=detail) == (
        "2 eager graphs changed their run count\n"
        "eager_0 ran once, stored: 3\neager_1 ran 2 times, stored: 1"
    )


def test_runs_of_a_full_file_are_compared_at_detail_ops() -> None:
    other = (STEP[0], replace(STEP[1], runs=2), STEP[2])

    assert against(stored(*other, detail="full"), *STEP, detail="ops") == (
        "eager_0 ran 3 times, stored: 2"
    )


def test_eager_graph_never_matches_a_compiled_graph() -> None:
    compiled = replace(STEP[1], eager=False, level="dispatch", kind="forward", runs=1)
    old = stored(STEP[0], compiled)

    assert "\neager_0: forward @ dispatch {" in old
    assert "differ from the stored graphs" in (against(old, STEP[0], STEP[1]) or "")


def test_kind_of_an_eager_graph_is_compared() -> None:
    other = replace(STEP[2], kind="backward")

    assert against(stored(*STEP), *STEP[:2], other) == (
        "captured graphs differ from the stored graphs\n"
        "stored:  forward, eager_0, eager_1\nnow:     forward, eager_0, eager_1 (backward)"
    )


def test_single_eager_graph_can_be_stored() -> None:
    text = program_of(STEP[1]).to_text("dataflow")

    assert compare(parse_document(text), program_of(captured(*STEP).eager[0]), "dataflow") is None


def test_update_summary_names_eager_graphs() -> None:
    from pytest_torchgraph.snapshot.summary import describe

    subject = program_of(captured(*STEP))
    assert describe(Comparison(subject, is_new=True)) == (
        "forward 1 op, eager_0 2 ops, eager_1 1 op; 12% of the ops compiled"
    )
    failed = compare(parse_document(stored(STEP[0])), subject, "dataflow")
    assert failed is not None
    assert describe(failed) == ("2 graphs added: stored: forward; now: forward, eager_0, eager_1")


def test_heading_of_a_graph_break_names_it(graph_capture: GraphCapture) -> None:
    def whole(x: torch.Tensor) -> torch.Tensor:
        return x.sin().relu()

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.relu()

    old, new = (program_of(graph_capture(target, torch.ones(3))) for target in (whole, broken))
    failed = compare(parse_document(old.to_text("dataflow")), new, "dataflow")
    assert failed is not None
    line = broken.__code__.co_firstlineno + 2
    assert headline(failed) == (
        f"1 edit: graph break added at tests/snapshot/test_snapshot_eager.py:{line} in broken: "
        "torch._dynamo.graph_break()"
    )
