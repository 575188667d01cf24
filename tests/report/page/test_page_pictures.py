"""Pictures on the page: two panes that move together, colours by cost, the path to the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401  # provides the FLOP formulas
from report.page.pages import difference, network, one_test, settled, trained, written

from pytest_torchgraph import Graph
from pytest_torchgraph.render import HEAT_PAINTS

TEXTS = """(pane) => [...pane.shadowRoot.querySelectorAll('g.node:not(.absent) text')]
  .map((text) => text.textContent)"""
BOXES = "(pane) => pane.shadowRoot.querySelector('svg').getAttribute('viewBox')"
FILLS = """(pane) => Object.fromEntries([...pane.shadowRoot.querySelectorAll('g.node')].map((box) =>
  [box.querySelector('text').textContent,
   getComputedStyle(box.querySelector('path, polygon')).fill]))"""
CLEAR = """(pane) => [...pane.shadowRoot.querySelectorAll('g.node:not(.faint)')]
  .map((box) => box.querySelector('text').textContent)"""


@pytest.fixture(scope="module")
def three_edits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("three_edits")
    diff = difference(trained(removed=4), trained(changed=2, added=3), directory)
    return one_test("test_a.py::test_step", "failed", message="E  assert", differences=[diff])


@pytest.fixture
def page(opened: Any, tmp_path: Path, three_edits: dict[str, Any]) -> Any:
    return opened.open(written(tmp_path, three_edits))


def panes(page: Any, script: str) -> list[Any]:
    return [view.evaluate(script) for view in page.locator(".view").all()]


def both(page: Any) -> None:
    page.get_by_role("button", name="before and after").click()


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_each_pane_shows_its_own_graph(page: Any) -> None:
    (together,) = panes(page, TEXTS)
    assert {"~ aten.gelu → aten.relu", "+ aten.clone", "- aten.dropout"} <= set(together)
    both(page)
    assert page.locator(".panes figcaption").all_inner_texts() == ["before", "after"]
    before, after = panes(page, TEXTS)
    assert "~ aten.gelu" in before
    assert "- aten.dropout" in before
    assert "+ aten.clone" not in before
    assert "~ aten.relu" in after
    assert "+ aten.clone" in after
    assert "- aten.dropout" not in after
    assert len(before) == len(after) == len(together) - 1
    page.get_by_role("button", name="difference", exact=True).click()
    assert panes(page, TEXTS) == [together]


def test_panes_move_together(page: Any) -> None:
    both(page)
    page.get_by_role("button", name="whole picture").click()
    page.get_by_role("button", name="zoom in").click()
    near = panes(page, BOXES)
    right = page.locator(".view").nth(1).bounding_box()
    page.mouse.move(right["x"] + 100, right["y"] + 100)
    page.mouse.down()
    page.mouse.move(right["x"] + 40, right["y"] + 60, steps=3)
    page.mouse.up()
    moved = panes(page, BOXES)
    assert near[0] == near[1] != moved[0] == moved[1]
    # The added op exists only on the right.
    page.locator(".findings button:has(.sign)").nth(1).click()
    there = panes(page, BOXES)
    assert there[0] == there[1] != moved[0]
    assert panes(page, "(pane) => pane.shadowRoot.querySelectorAll('.chosen').length") == [0, 1]


@pytest.mark.slow("runs pytest in a new process")
def test_picture_options_apply_to_all_pictures_and_stay(
    opened: Any, tmp_path: Path, three_edits: dict[str, Any]
) -> None:
    twice = {**three_edits, "differences": three_edits["differences"] * 2}
    page = opened.open(written(tmp_path, twice, {**three_edits, "id": "test_a.py::test_other"}))
    page.get_by_role("button", name="before and after").first.click()
    assert page.locator(".view").count() == 4
    page.get_by_label("colours").nth(1).select_option("floating-point operations")
    assert page.get_by_label("colours").first.input_value() == "flops"
    assert page.locator(".legend:visible").count() == 2
    page.locator("nav li button").nth(1).click()
    assert settled(page).locator(".view").count() == 2


def test_boxes_are_coloured_by_their_share_of_a_cost(page: Any) -> None:
    (plain,) = panes(page, FILLS)
    page.get_by_label("colours").select_option("floating-point operations")
    (flops,) = panes(page, FILLS)
    # Six products of 256 FLOPs, and a sum without FLOPs: a sixth each.
    assert flops["aten.mm"] == rgb(HEAT_PAINTS["more"].fill)
    assert flops["+ aten.clone"] == rgb(HEAT_PAINTS["none"].fill)
    assert "1,536 FLOP" in page.locator(".legend").inner_text()
    page.get_by_label("colours").select_option("bytes saved for backward")
    (kept,) = panes(page, FILLS)
    assert kept != flops
    assert "192 B" in page.locator(".legend").inner_text()
    page.get_by_label("colours").select_option("changes")
    assert panes(page, FILLS) == [plain]
    assert not page.locator(".legend").is_visible()


@pytest.mark.slow("runs pytest in a new process")
def test_boxes_with_saved_values_are_marked(page: Any) -> None:
    marks = """(pane) => [...pane.shadowRoot.querySelectorAll('g.node:has(.kept)')].map((box) =>
      [box.querySelector('text').textContent, box.querySelector('.kept title').textContent])"""
    (marked,) = panes(page, marks)
    assert ["aten.mm", "64 B saved for backward"] in marked
    both(page)
    page.get_by_label("colours").select_option("floating-point operations")
    assert panes(page, marks) == [marked, marked]
    page.get_by_label("colours").select_option("bytes saved for backward")
    dots = "(pane) => pane.shadowRoot.querySelectorAll('.kept').length"
    assert panes(page, dots) == [len(marked)] * 2


def test_pane_of_the_old_graph_has_its_costs(tmp_path: Path) -> None:
    """The old graph saved another product, and its loss was a mean."""
    old = trained().to_text(fold=False).replace("  save %layers.1/mm\n", "  save %layers.5/mm\n")
    old = old.replace("aten.sum.default", "aten.mean.default")
    (pair,) = difference(Graph.from_text(old), trained(), tmp_path)["graphs"]
    data = pair["before"]
    assert sum(data["flops"]) == 6 * 2 * 2 * 8 * 8
    assert sum(data["saved"]) == 3 * 2 * 8 * 4
    boxes = dict(zip(data["names"], data["ids"], strict=True))
    assert all(boxes[f"layers.{n}/mm"] for n in range(6))


def path(page: Any, node: str) -> Any:
    if not page.locator("details[open] tbody").count():
        page.locator("summary", has_text="All").click()
    page.get_by_label("search the nodes").fill(node)
    page.locator("tbody").get_by_role("button", name=node, exact=True).click()
    return page.locator(".picture .card")


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_path_from_a_node_to_the_loss_is_marked_and_listed(page: Any) -> None:
    panel = path(page, "layers.3/gelu")
    panel.get_by_role("button", name="path to the loss").click()
    assert panel.locator(".way li button").all_inner_texts() == [
        "layers.3/gelu",
        "layers.3/clone",
        *(f"layers.{n}/{op}" for n in (4, 5) for op in ("mm", "gelu")),
        "loss",
    ]
    assert "7 nodes on a shortest path, 7 on any" in panel.inner_text()
    (clear,) = panes(page, CLEAR)
    assert "+ aten.clone" in clear
    assert "~ aten.gelu → aten.relu" not in clear
    page.keyboard.press("Escape")
    assert not panel.is_visible()
    (clear,) = panes(page, CLEAR)
    assert "~ aten.gelu → aten.relu" in clear

    panel = path(page, "mean")
    panel.get_by_role("button", name="path to the loss").click()
    message = "No output of this graph needs it, but it leads to an effect, write: mutates"
    assert message in panel.inner_text()
    panel = path(page, "layers.4/dropout")  # the page does not contain the rest of the old graph
    assert panel.get_by_role("button", name="path").count() == 0
    assert "is not in this picture" in panel.inner_text()


@pytest.mark.slow("runs pytest in a new process")
def test_picture_without_sides_and_costs_has_no_switches(opened: Any, tmp_path: Path) -> None:
    diff = difference(network(2), network(2, changed=1), tmp_path)
    for pair in diff["graphs"]:
        for side in ("before", "after"):
            pair[side].update(dict.fromkeys(("flops", "saved"), [0] * len(pair[side]["names"])))
    shown = {"title": "breaks", "note": "", **{key: diff[key] for key in ("svg", "graphs")}}
    test = one_test("test_a", "failed", pictures=[{**shown, "findings": []}])
    page = opened.open(written(tmp_path, test))
    assert page.locator(".picture .tools button").count() == 3  # zoom in, out, whole picture
    assert page.get_by_label("colours").count() == 0
