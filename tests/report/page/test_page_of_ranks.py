"""Ranks and their collectives on the page: one test, classes of equal ranks, lanes of groups."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from projects import Run
from ranks.parallel_models import stages, tensor_parallel
from report.page.captured import Captured
from report.page.pages import settled
from report.page.test_page_in_a_browser import difference, network, one_test, written
from report.page.test_page_of_a_run import data_of
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from pytest_torchgraph import Graph, capture, capture_ranks, watch
from pytest_torchgraph.report.page import collect
from pytest_torchgraph.report.page.gather import AFTER, BEFORE, Gatherer, ranks_data
from pytest_torchgraph.report.page.run_data import ATTRIBUTE


def reduces(before: int = 0, after: int = 0) -> Any:
    """Reduce over `tp`, then over `dp`. The last rank reverses the order."""

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        is_last = dist.get_rank() == dist.get_world_size() - 1
        names = ["dp", "tp"] if is_last else ["tp", "dp"]
        groups = [mesh.get_group(name) for name in ["tp"] * before + names + ["tp"] * after]

        def step(x: Tensor) -> Tensor:
            for group in groups:
                x = functional.all_reduce(x * 2, "sum", group)
            return x + 1

        return step, (torch.ones(4),)

    return build


def data(build: Any, **mesh: Any) -> dict[str, Any]:
    return ranks_data(capture_ranks(build, via="dispatch", **mesh))


def test_equal_ranks_are_one_class() -> None:
    page_data = data(tensor_parallel, dp=2, tp=2)
    assert (page_data["mesh"], page_data["captured"], page_data["world"]) == ("dp=2, tp=2", 4, 4)
    assert page_data["count"] == 1
    (only,) = page_data["classes"]
    assert (only["name"], only["ranks"], only["order"]) == ("A", "ranks 0-3", None)
    sent = only["capture"]["collectives"]
    assert sent["about"] == "2 collectives, 256 B: 2 over tp"
    assert sent["groups"] == ["tp"]
    first, second = sent["rows"]
    assert (first["kind"], first["bytes"], first["tensor"]) == ("all_reduce", "128", "f32[4, 8]")
    assert (first["graph"], second["graph"]) == ("forward", "backward")
    assert (first["module"], second["module"]) == ("down", "up")
    assert first["line"].startswith("tests/ranks/parallel_models.py:")
    assert "self.down(" in first["code"]
    assert (second["wait"], second["exposed"]) == ("at once", True)


def test_rank_order_is_shown_around_the_first_difference() -> None:
    page_data = data(reduces(before=5, after=20), dp=2, tp=2)
    assert [one["ranks"] for one in page_data["classes"]] == ["ranks 0-2", "rank 3"]
    assert page_data["grid"]["rows"] == [[[0, "A"], [1, "A"]], [[2, "A"], [3, "B"]]]
    assert (page_data["grid"]["down"], page_data["grid"]["across"]) == ("dp", "tp")
    order = page_data["classes"][1]["order"]
    assert (order["waits"], order["start"]) == (False, 5)  # no deadlock: the ranks meet again
    assert order["danger"] == "which deadlocks if they share a group"
    assert (order["same_order"], order["words"]) == (False, "communicate in different orders")
    assert page_data["problems"] == []
    assert [row[0] for row in order["rows"]] == list(range(5 - BEFORE, 5 + AFTER))
    assert order["rows"][BEFORE][1:] == [
        "all_reduce over tp, 16 bytes",
        "all_reduce over dp, 16 bytes",
    ]
    assert order["more"] == 27 - 5 - AFTER


def another_group(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Rank 1 waits over `dp` for a collective that no other rank starts."""
    group = mesh.get_group("dp" if dist.get_rank() == 1 else "tp")
    return lambda x: functional.all_reduce(x * 2, "sum", group) + 1, (torch.ones(4),)


def test_deadlocked_ranks_are_named() -> None:
    page_data = data(another_group, dp=2, tp=2)
    assert page_data["waiting"] == 2
    first, second = page_data["problems"]
    assert first.startswith("rank 0 waits forever for rank 1 in all_reduce over tp, 16 bytes: %")
    assert second.startswith("rank 1 waits forever for rank 3 in all_reduce over dp, 16 bytes: ")
    order = page_data["classes"][1]["order"]
    assert (order["waits"], order["start"]) == (True, 0)


def last_is_silent(mesh: DeviceMesh) -> tuple[Any, ...]:
    step, args = stages(mesh)
    return (torch.relu if dist.get_rank() == 2 else step), args


def test_pipeline_stages_are_not_a_deadlock() -> None:
    page_data = data(stages, dp=3)
    assert page_data["count"] == 3
    assert [one["order"] and one["order"]["danger"] for one in page_data["classes"]] == [
        None,
        "",
        "",
    ]
    assert page_data["grid"]["rows"] == [[[0, "A"], [1, "B"], [2, "C"]]]
    assert page_data["grid"]["down"] == ""
    assert (page_data["waiting"], page_data["problems"]) == (0, [])
    silent = data(last_is_silent, dp=3)
    assert silent["waiting"] == 0
    assert silent["problems"][0].startswith("rank 1 sends to rank 2 without a matching receive")


def test_ranks_of_a_large_mesh_are_not_drawn() -> None:
    page_data = data(reduces(), dp=128, tp=8, ranks=(0, 1, 1023))
    assert page_data["grid"] is None
    assert (page_data["captured"], page_data["world"], page_data["count"]) == (3, 1024, 2)


def of_text(*lines: str, level: str = "aot") -> Graph:
    text = "\n".join(f"  {line}" for line in ("%x = input : f32[s0, 8]", *lines))
    return Graph.from_text(f"torchgraph 1\n\nforward @ {level} {{\n{text}\n  return %x\n}}\n")


def test_unknown_collectives_are_reported() -> None:
    captured: Any = Captured(of_text("%a = aten.relu.default(%x) : f32[s0, 8]"))
    assert collect.capture_data(captured)["collectives"] is None
    hidden = of_text("%a = Tensor.redistribute(%x) : f32[s0, 8]", level="dynamo")
    assert collect.collectives_data(Captured(hidden)) is None
    with watch() as nothing:
        pass
    unwatched = collect.capture_data(nothing)
    assert (unwatched["note"], unwatched["collectives"]) == ("no graph was compiled", None)
    reduce = '_c10d_functional.all_reduce.default(%x, "sum", "tp") : f32[s0, 8]'
    many = of_text(*(f"%r{k} = {reduce}" for k in range(collect.MOST_COLLECTIVES + 3)))
    data = collect.collectives_data(Captured(many))
    assert data is not None
    assert data["about"] == "203 collectives, 0 B plus unknown sizes: 203 over tp"
    assert len(data["rows"]) == collect.MOST_COLLECTIVES
    assert data["rows"][0]["bytes"] == "?"
    assert data["more"] == 3


def test_rank_orders_are_readable(opened: Any, tmp_path: Path) -> None:
    alike = one_test("test_alike", ranks=[data(tensor_parallel, dp=2, tp=2)])
    apart = one_test("test_apart", "failed", ranks=[data(reduces(before=1), dp=2, tp=4)])
    waits = one_test("test_waits", "failed", ranks=[data(another_group, dp=2, tp=2)])
    opened.page.set_viewport_size({"width": 600, "height": 900})
    page = opened.open(written(tmp_path, alike, apart, waits))

    assert page.locator("nav .badge").all_inner_texts() == ["ranks disagree"] * 2
    main = page.locator("main").inner_text()
    assert "8 ranks; captured: all of them, in 2 classes" in main
    assert (
        "Different collectives: A ranks 0-6 and B rank 7 communicate in different orders, which "
        "deadlocks if they share a group. The first difference is at collective 1."
    ) in main
    cells = page.locator(".orders td.first").all_inner_texts()
    assert cells == ["✗ all_reduce over tp, 16 bytes", "✗ all_reduce over dp, 16 bytes"]
    marks = page.locator("table.mesh td").all_inner_texts()
    assert [mark.split() for mark in marks] == [[str(n), "A"] for n in range(7)] + [["7", "B"]]

    for table, expected in zip(
        page.locator(".collectives").all(), ("tp tp dp", "tp dp tp"), strict=True
    ):
        lanes = {lane.inner_text(): lane.bounding_box() for lane in table.locator("th.lane").all()}
        for chip, group in zip(table.locator(".sent").all(), expected.split(), strict=True):
            box, lane = chip.bounding_box(), lanes[group]
            assert lane["x"] <= box["x"]
            assert box["x"] + box["width"] <= lane["x"] + lane["width"]
        assert table.locator(".exposed").all_inner_texts() == ["at once"] * 3
    assert page.evaluate("document.documentElement.scrollWidth") == 600

    page.locator("nav ol button").nth(2).click()
    main = settled(page).locator("main").inner_text()
    assert "Deadlock of 2 ranks." in main
    assert "rank 0 waits forever for rank 1 in all_reduce over tp, 16 bytes" in main

    page.get_by_role("searchbox", name="search the tests").fill("down all_reduce")
    page.locator("nav ol button").click()
    main = settled(page).locator("main").inner_text()
    assert "4 ranks; captured: all of them, with equal graphs." in main
    assert page.locator(".orders, table.mesh").count() == 0


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_differences_are_shown_for_each_class_of_ranks(opened: Any, tmp_path: Path) -> None:
    parts = [
        difference(network(6), network(6, changed=layer), tmp_path, ranks)
        for layer, ranks in ((2, "ranks 0-2"), (4, "rank 3"))
    ]
    page = opened.open(written(tmp_path, one_test("test_apart", "failed", differences=parts)))
    headings = page.locator("main h3").all_inner_texts()
    assert headings == [f"Difference from {parts[0]['file']}", "ranks 0-2", "rank 3"]
    assert page.locator("main .command").count() == 1
    shown = page.locator(".findings").all_inner_texts()
    assert ["layers.2" in shown[0], "layers.4" in shown[1]] == [True, True]
    other = [parts[0], {**parts[1], "file": "other.tgraph"}]
    page = opened.open(written(tmp_path, one_test("test_apart", "failed", differences=other)))
    page.reload()
    assert page.locator("main .command").count() == 2


def reported(gatherer: Gatherer, when: str = "call") -> dict[str, Any]:
    """Return the data that a gatherer puts into the report of a phase."""
    hook = gatherer.pytest_runtest_makereport(SimpleNamespace(stash=pytest.Stash()))  # type: ignore[arg-type]
    report: Any = SimpleNamespace(when=when)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    return dict(vars(report).get(ATTRIBUTE, {}))


def test_ranks_are_gathered_together_and_once() -> None:
    gatherer = Gatherer()
    running = gatherer.pytest_runtest_protocol()
    next(running)
    capture(torch.relu, torch.ones(2), via="dispatch")
    ranks = capture_ranks(reduces(), dp=2, tp=2, via="dispatch")
    ranks[:2].assert_same_graphs()

    def raising(mesh: DeviceMesh) -> tuple[Any, ...]:
        return reduces()(mesh) if dist.get_rank() < 2 else ()

    with pytest.raises(TypeError):
        capture_ranks(raising, dp=2, tp=2, via="dispatch")
    assert reported(gatherer, "setup") == {}
    page_data = reported(gatherer)
    assert [(ranks_data["captured"], ranks_data["count"]) for ranks_data in page_data["ranks"]] == [
        (4, 2)
    ]
    assert [entry["rank"] for entry in page_data["captures"]] == [None, 0, 1]
    assert reported(gatherer, "teardown") == {}
    with pytest.raises(StopIteration):
        next(running)


@pytest.mark.slow("runs pytest in a new process")
def test_run_has_ranks_as_one_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import os

        import torch
        import torch.distributed as dist
        import torch.distributed._functional_collectives as functional

        def build(mesh):
            group = mesh.get_group("tp")
            return lambda x: functional.all_reduce(x * 2, "sum", group) + 1, (torch.ones(4),)

        def test_ranks(graph_ranks, graph_capture):
            graph_capture(torch.relu, torch.ones(2), via="dispatch")
            graph_ranks(build, dp=2, tp=2, via="dispatch")
            graph_ranks(build, tp=2, via="dispatch").assert_same_graphs()

        def test_a_rank_raises(graph_ranks):
            def raising(mesh):
                if dist.get_rank() == 2:
                    raise RuntimeError("no rank 2")
                return build(mesh)
            graph_ranks(raising, tp=4, via="dispatch")

        def test_stored(graph_ranks, graph_snapshot):
            def another(mesh):
                step, args = build(mesh)
                edited = os.environ.get("EDIT") and dist.get_rank() % 2
                return (lambda x: step(x).relu() if edited else step(x).tanh()), args
            assert graph_ranks(another, dp=2, tp=2, via="dispatch") == graph_snapshot

        def test_odd(graph_ranks, monkeypatch):
            import pytest_torchgraph.report.page.gather as shown
            monkeypatch.setattr(shown, "capture_data", lambda *given: 1 / 0)
            graph_ranks(build, tp=2, via="dispatch")
        """
    )
    run("--torchgraph-update", "-k", "stored").assert_outcomes(passed=1, deselected=3)
    run("--torchgraph-report=page.html", EDIT="1").assert_outcomes(passed=2, failed=2)
    tests = {test["id"].partition("::")[2]: test for test in data_of(pytester)["tests"]}
    both = tests["test_ranks"]
    assert [ranks_data["mesh"] for ranks_data in both["ranks"]] == ["dp=2, tp=2", "tp=2"]
    assert [entry["rank"] for entry in both["captures"]] == [None]
    raised = tests["test_a_rank_raises"]
    assert raised["ranks"] == []
    assert [entry["rank"] for entry in raised["captures"]] == [0, 1]
    (note,) = [ranks_data["note"] for ranks_data in tests["test_odd"]["ranks"]]
    assert note == "<Ranks of tp=2: ranks 0-1> cannot be shown: ZeroDivisionError: division by zero"
    (part,) = tests["test_stored"]["differences"]
    assert part["ranks"] == "ranks 1, 3"
    assert part["headline"].startswith("ranks 1, 3 differ from the stored graphs")
    assert [finding["sign"] for finding in part["findings"]] == ["~"]
    assert any(line.startswith("+") and "relu" in line for line in part["diff"])
