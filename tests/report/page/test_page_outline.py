"""Graphs as outlines on the page: foldable modules, costs, saved values, paths, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401  # provides the FLOP formulas
from report.page.captured import Captured
from report.page.pages import difference, one_test, trained, written

from pytest_torchgraph import Graph
from pytest_torchgraph.graph import diff_graphs
from pytest_torchgraph.report.page import collect
from pytest_torchgraph.report.page.html import Parts
from pytest_torchgraph.report.page.nodes import compared_data, graph_data


def rows(page: Any) -> list[str]:
    every = page.locator(".outline [role=row]")
    return [" ".join(text.split()) for text in every.all_inner_texts()]


def named(page: Any, text: str) -> Any:
    """Return the row of a module or a node."""
    return page.locator(".outline [role=row]").filter(
        has=page.locator(".what bdi", has_text=text).first
    )


def deep(layers: int, cloned: int = -1) -> Graph:
    """Return a chain of layers of twelve nodes each in a list. `cloned` has one node more."""
    ops = ("add", "mul", "neg", "exp", "log", "sin", "cos", "tanh", "relu", "abs", "sqrt", "gelu")
    lines, x = ["torchgraph 1\n\nforward @ aot {\n  %x = input : f32[2, 8]\n"], "%x"
    for n in range(layers):
        for op in (*ops, "clone") if n == cloned else ops:
            name = f"%model.layers.{n}/{op}"
            lines.append(f"  {name} = aten.{op}.default({x}) : f32[2, 8]\n")
            x = name
    return Graph.from_text("".join([*lines, f"  return {x}\n}}\n"]))


@pytest.fixture
def shown(opened: Any, tmp_path: Path) -> Any:
    """Open the outline of the only graph of a passing test."""

    def shown(graph: Graph) -> Any:
        parts = Parts()
        data = collect.capture_data(Captured(graph), parts)  # type: ignore[arg-type]
        test = one_test("test_a.py::test_step", captures=[data])
        page = opened.open(written(tmp_path, test, parts=parts))
        page.locator("details.graph > summary").click()
        page.locator(".outline [role=row]").first.wait_for()
        return page

    return shown


@pytest.fixture
def compared(opened: Any, tmp_path: Path) -> Any:
    """Open both graphs of a difference side by side."""
    diff = difference(trained(removed=1), trained(changed=4), tmp_path)
    test = one_test("test_a.py::test_step", "failed", differences=[diff])
    page = opened.open(written(tmp_path, test))
    page.locator("details.graph > summary").click()
    page.locator(".outline [role=row]").first.wait_for()
    return page


def test_modules_fold_and_say_what_they_cost_and_save(shown: Any) -> None:
    page = shown(trained())
    assert rows(page)[0] == "▸ inputs 7 inputs"
    layers = named(page, "layers").first
    assert layers.get_attribute("aria-expanded") == "true"
    assert "100.0 %" in layers.inner_text()
    product = page.locator(".outline [role=row]", has_text="aten.mm.default").first
    assert product.locator(".bar").get_attribute("title") == "256 FLOP"
    assert "16.7 %" in product.inner_text()
    layers.click()
    assert layers.get_attribute("aria-expanded") == "false"
    assert not [text for text in rows(page) if "aten.mm" in text]

    page.get_by_label("cost:").select_option("saved")
    assert "100.0 %" in layers.inner_text()
    page.get_by_label("cost:").select_option("")
    assert page.locator(".outline .bar").count() == 0
    page.get_by_label("cost:").select_option("flops")
    page.get_by_role("checkbox", name="saved for backward").check()
    assert rows(page) == [f"● layers.{n}/mm aten.mm.default f32[2, 8] 16.7 %" for n in range(3)]
    assert page.locator(".outline .kept").first.get_attribute("title") == "64 B saved for backward"
    assert page.locator(".outline [role=status]").inner_text().startswith("3 of 30 nodes")


def test_outline_path_from_a_node_to_the_loss(shown: Any) -> None:
    page = shown(trained())
    page.get_by_label("search the graph").fill("layers.3/mm")
    page.locator(".outline [role=row]").click()
    page.get_by_role("button", name="path to the loss").click()
    way = page.locator(".outline .way li button").all_inner_texts()
    assert way[0] == "layers.3/mm"
    assert way[-1] == "loss"
    assert len(way) == 7
    page.locator(".outline .way li button").nth(1).click()  # fully unfolded
    assert page.locator(".outline .selected").inner_text().split()[0] == "gelu"
    assert page.get_by_label("search the graph").input_value() == ""

    page.get_by_label("search the graph").fill("dead")
    page.locator(".outline [role=row]").click()
    page.get_by_role("button", name="path to the loss").click()
    assert "No output of this graph needs it" in page.locator(".outline .card").inner_text()


def test_two_graphs_are_side_by_side_row_by_row(compared: Any) -> None:
    page = compared
    sides = page.locator(".outline [role=row].removed .side").all_inner_texts()
    assert "dropout" in sides[0]
    assert sides[1] == ""
    (changed,) = page.locator(".outline [role=row].changed").all()
    before, after = changed.locator(".side").all_inner_texts()
    assert "aten.gelu" in before
    assert "aten.relu" in after
    assert changed.locator(".sign").inner_text() == "~"
    touched = page.locator(".outline [role=row].touched .sign").all_inner_texts()
    assert touched == ["2", "1", "1"]  # the list of layers, and two of its layers
    # An unchanged layer is folded into one row on both sides.
    alike = named(page, "0").first
    assert alike.get_attribute("aria-expanded") == "false"
    assert [text.split()[:2] for text in alike.locator(".side").all_inner_texts()] == [
        ["▸", "0"]
    ] * 2
    # The selection is shown in the picture as well.
    changed.click()
    assert "relu" in page.locator(".view .chosen").first.text_content()
    panel = page.locator(".outline .card").inner_text()
    assert "layers.4/relu" in panel


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_finding_shows_its_rows(compared: Any) -> None:
    page = compared
    active = page.locator(".outline .active .what")
    shown = {
        finding.inner_text().split()[0]: (finding.click(), active.first.inner_text())[1]
        for finding in page.locator(".findings li > button:first-child").all()
    }
    assert shown == {
        "~changed": "gelu aten.gelu.default",
        "-removed": "dropout aten.dropout.default",
    }
    assert page.locator(".outline .card:visible").count() == 0  # the node was not selected
    assert "&node=" not in page.evaluate("location.hash")


@pytest.mark.slow("a browser and a run of pytest")
def test_equal_nodes_are_folded_until_opened(opened: Any, tmp_path: Path) -> None:
    before = deep(1)
    text = before.to_text().replace("aten.gelu.default", "aten.silu.default")
    diff = difference(before, Graph.from_text(text), tmp_path)
    test = one_test("test_a.py::test_step", "failed", differences=[diff])
    page = opened.open(written(tmp_path, test))
    page.locator("details.graph > summary").click()
    alike = page.locator(".outline [role=row]", has_text="alike")
    assert alike.inner_text().strip() == "⋯ 8 nodes alike"
    assert not [row for row in rows(page) if "aten.exp" in row]
    alike.click()
    assert [row for row in rows(page) if "aten.exp" in row]
    assert alike.count() == 0


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_outline_is_used_by_keys(shown: Any) -> None:
    page = shown(trained())
    tree = page.get_by_role("treegrid")
    tree.focus()
    active = page.locator(".outline .active")
    page.keyboard.press("ArrowDown")
    assert "layers" in active.inner_text()
    page.keyboard.press("ArrowLeft")
    assert active.get_attribute("aria-expanded") == "false"
    page.keyboard.press("ArrowRight")
    assert active.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")  # from a folded module to its parent
    page.keyboard.press("ArrowLeft")
    assert tree.get_attribute("aria-activedescendant") == active.get_attribute("id")
    page.keyboard.press("End")
    assert "output" in active.inner_text()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert "loss" in page.locator(".outline .card strong").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".outline .card").is_hidden()
    page.keyboard.press("Home")
    assert "inputs" in active.inner_text()


@pytest.mark.slow("a browser and a run of pytest")
def test_address_of_a_node_leads_to_it(shown: Any, opened: Any) -> None:
    page = shown(trained())
    page.get_by_label("search the graph").fill("layers.3/mm")
    page.locator(".outline [role=row]").click()
    address = page.url
    assert address.endswith("&outline=1&node=layers.3/mm&graph=forward")
    page.goto("about:blank")
    page.goto(address)
    page.locator(".outline .card strong", has_text="layers.3/mm").wait_for()
    page.goto(address.replace("outline=1", "outline=7"))
    assert "The node layers.3/mm is not in this test." in page.get_by_role("alert").inner_text()


@pytest.mark.slow("a small graph has an outline in every run")
def test_fifty_thousand_nodes_are_rendered_lazily(shown: Any) -> None:
    page = shown(deep(4167))
    every = page.locator(".outline [role=row]")
    layers = named(page, "layers").first
    assert layers.get_attribute("aria-expanded") == "false"  # 4,167 rows are too many at once
    layers.click()
    page.get_by_role("treegrid").focus()
    page.keyboard.press("End")
    layers.wait_for(state="detached")
    page.keyboard.press("ArrowUp")
    assert page.locator(".outline .active").inner_text().split()[:2] == ["▸", "4166"]
    assert every.count() < 80

    page.get_by_label("search the graph").fill("gelu")
    assert page.locator(".outline [role=status]").inner_text() == "4,167 of 50,006 nodes"
    page.get_by_label("search the graph").fill("model.layers.0/gelu")
    every.click()
    page.get_by_role("button", name="path to an output").click()
    details = page.locator(".outline .card").inner_text()
    assert "49,993 nodes on a shortest path, 49,993 on any." in details
    assert page.locator(".outline .way li").count() == 200


def test_outline_pairs_equal_the_matching() -> None:
    before, after = trained(removed=1), trained(changed=4)
    (data,) = compared_data(diff_graphs((before,), (after,)))
    old, new = data["before"]["names"], data["after"]["names"]
    partners = {old[one]: (new[other], sign) for one, other, sign in data["pairs"]}
    assert "layers.1/dropout" not in partners
    assert partners["layers.4/gelu"] == ("layers.4/relu", "~")
    assert partners["layers.2/mm"] == ("layers.2/mm", "")
    assert len({name for name, _ in partners.values()}) == len(partners) == len(new)


def test_outline_of_an_added_graph_has_no_partner() -> None:
    (data,) = compared_data(diff_graphs((), (trained(),)))
    assert data["before"] is None
    assert data["pairs"] == []
    assert "loss" in data["after"]["names"]


def test_outline_columns_have_node_facts() -> None:
    data = graph_data(trained())
    at = data["names"].index("layers.1/mm")
    assert data["texts"][data["op"][at]] == "aten.mm.default"
    assert data["texts"][data["module"][at]] == "layers.1"
    assert data["texts"][data["result"][at]] == "f32[2, 8]"
    assert [data["names"][ref] for ref in data["refs"][at]] == ["layers.0/gelu", "layers.1/t"]
    assert data["flops"][at] == 256
    assert data["saved"][at] == 64
    assert [data["names"][end] for end in data["ends"]] == ["loss"]
    assert data["end"] == "loss"
