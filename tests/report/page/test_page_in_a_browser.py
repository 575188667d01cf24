"""The page's reaction to clicks, with real graphs in a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report.page.captured import Captured
from report.page.pages import difference, network, one_test, settled, view_box, written

from pytest_torchgraph import Graph
from pytest_torchgraph.graph import GraphBreak
from pytest_torchgraph.report.page import collect


def test_failure_is_shown_first_with_the_change_in_the_middle_of_its_picture(
    opened: Any, tmp_path: Path, failed: dict[str, Any]
) -> None:
    page = opened.open(written(tmp_path, one_test("test_a.py::test_other"), failed))
    assert page.locator("main h2").inner_text() == "failed test_a.py::test_step"
    assert "layers.7" in page.locator(".findings").inner_text()
    chosen = page.locator(".view .chosen").first
    assert "gelu" in chosen.text_content()
    view, box = page.locator(".view").bounding_box(), chosen.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert view["x"] < middle[0] < view["x"] + view["width"]
    assert view["y"] < middle[1] < view["y"] + view["height"]
    assert box["height"] > 20  # large enough to be read


CAUSE = {
    "sign": "~",
    "what": "aten.gelu -> aten.relu",
    "where": "layers.{0 … 11}.act",
    "places": 480,
    "costs": "+0 FLOP, +1.2 MB saved",
    "sources": ["nets/blocks.py:31: x = <b>act</b>(x)"],
    "ranks": [1, 3],
    "with": ["~ %w follows %v"],
    "before": "%gelu = aten.gelu.default(%x)",
    "after": "%relu = aten.relu.default(%x)",
    "files": [f"test_a.py::test_step[{k}]" for k in range(40)],
}


def test_page_opens_with_causes_if_any(opened: Any, tmp_path: Path, failed: dict[str, Any]) -> None:
    tests = [{**failed, "id": test} for test in CAUSE["files"]]
    causes = {
        "heading": "1 cause in 40 tests",
        "releases": ["2.13.0 -> 2.15.0"],
        "accept": "pytest --lf --torchgraph-update",
        "list": [CAUSE],
    }
    page = opened.open(written(tmp_path, *tests, causes=causes))
    assert page.locator("main h2").inner_text() == "1 cause in 40 tests"
    assert page.locator("main .where").first.inner_text() == "torch 2.13.0 -> 2.15.0"
    (cause_text,) = page.locator(".cause").all_inner_texts()
    for what in (
        "~aten.gelu -> aten.relu",
        "480 places in 40 tests · 2 ranks: 1, 3 · costs +0 FLOP, +1.2 MB saved",
        CAUSE["where"],
        CAUSE["sources"][0],
        "+ %relu = aten.relu.default(%x)  ~ %w follows %v",
    ):
        assert what in cause_text.replace("\n", "")
    assert page.locator("main .command pre").inner_text() == causes["accept"]
    assert page.locator("#all-causes").get_attribute("aria-current") == "true"

    assert page.locator(".tests button:visible").count() == 10
    page.locator(".cause summary").click()
    page.locator(".tests button:visible").nth(39).wait_for()
    assert page.locator(".tests button:visible").count() == 40
    page.locator(".tests button").nth(3).click()
    assert settled(page).locator("main h2").inner_text() == "failed test_a.py::test_step[3]"
    assert page.locator("#all-causes").get_attribute("aria-current") is None
    page.locator("#all-causes").click()
    assert settled(page).locator("main h2").inner_text() == "1 cause in 40 tests"


def test_cause_shows_each_form(opened: Any, tmp_path: Path, failed: dict[str, Any]) -> None:
    forms = [
        {"before": "", "after": f"%y = aten.add.Tensor(%x, {k})", "with": [], "file": f"{k}"}
        for k in (2, 3)
    ]
    shown = {**CAUSE, "forms": forms, "files": [failed["id"]]}
    causes = {"heading": "1 cause", "releases": [], "accept": "", "list": [shown]}
    page = opened.open(written(tmp_path, failed, causes=causes))
    assert page.locator(".cause pre span").all_text_contents() == [
        *("+ %y = aten.add.Tensor(%x, 2)", "  in 2"),
        *("+ %y = aten.add.Tensor(%x, 3)", "  in 3"),
    ]


def test_picture_is_zoomed_and_seen_as_a_whole(
    opened: Any, tmp_path: Path, failed: dict[str, Any]
) -> None:
    page = opened.open(written(tmp_path, failed))
    page.get_by_role("button", name="whole picture").click()
    whole = view_box(page)
    page.get_by_role("button", name="zoom in").click()
    near = view_box(page)
    assert near[2] < whole[2]
    page.get_by_role("button", name="zoom out").click()
    assert view_box(page)[2] == pytest.approx(whole[2])
    view = page.locator(".view").bounding_box()
    page.mouse.move(view["x"] + 100, view["y"] + 100)
    page.mouse.wheel(0, -200)  # `test_panes_move_together` drags
    page.wait_for_function(
        "w => document.querySelector('.view').shadowRoot.querySelector('svg')"
        ".viewBox.baseVal.width < w",
        arg=whole[2] - 1,
    )


def test_nodes_that_the_picture_folds_are_in_a_table_with_a_search(
    opened: Any, tmp_path: Path, failed: dict[str, Any]
) -> None:
    page = opened.open(written(tmp_path, failed))
    page.locator("summary", has_text="All").click()
    page.locator("details:not(.cost) tbody tr").first.wait_for()
    assert page.locator("details:not(.cost) tbody tr").count() == len(
        failed["differences"][0]["graphs"][0]["after"]["names"]
    )
    page.get_by_label("search the nodes").fill("layers.3 mm")
    assert page.locator("details:not(.cost) tbody tr").count() == 1
    page.get_by_label("search the nodes").fill("layers.7/relu")
    assert page.locator("details:not(.cost) tbody tr td").first.inner_text() == "~"
    page.get_by_role("button", name="layers.7/relu", exact=True).click()
    details = page.locator(".picture .card").inner_text()
    assert "layers.7/relu" in details
    assert "f32[2, 8]" in details
    assert re.search(r"users\s+layers\.8/mm", details)


def test_what_is_copied_is_what_is_shown(
    opened: Any, tmp_path: Path, failed: dict[str, Any]
) -> None:
    hidden = {**failed["differences"][0], "accept": "pytest\u202e\u3164\u200b\u0085;\u00a0rm"}
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opened.open(written(tmp_path, {**failed, "differences": [hidden]}))
    page.get_by_role("button", name="copy").click()
    page.get_by_role("button", name="copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator(".command pre").inner_text()
    assert copied == r"pytest\u202e\u3164\u200b\u0085;\u00a0rm"


def test_tests_are_searched_and_filtered(opened: Any, tmp_path: Path) -> None:
    relu = collect.capture_data(Captured(network(3, changed=1)))  # type: ignore[arg-type]
    gelu = collect.capture_data(Captured(network(3)))  # type: ignore[arg-type]
    tests = [
        one_test("test_a.py::test_relu", captures=[relu]),
        one_test("test_a.py::test_gelu", captures=[gelu]),
        one_test("test_b.py::test_away", "skipped", message="no such device"),
    ]
    page = opened.open(written(tmp_path, *tests))
    rows = page.locator("nav li")
    assert rows.count() == 3
    page.get_by_label("search the tests").fill("aten.relu")
    assert rows.all_inner_texts() == ["test_a.py::test_relu\npassed"]
    page.get_by_label("search the tests").fill("nowhere")
    assert page.locator("nav").inner_text() == "No test matches."
    page.get_by_label("search the tests").fill("")
    page.get_by_role("button", name="1 skipped").click()
    assert rows.count() == 2
    assert page.locator("#count").inner_text() == "2 of 3 tests"
    page.get_by_role("button", name="2 passed").click()
    page.get_by_role("button", name="1 skipped").click()
    assert rows.all_inner_texts() == ["test_b.py::test_away\nskipped"]


def test_many_tests_are_listed_lazily(opened: Any, tmp_path: Path) -> None:
    passing = collect.capture_data(Captured(network(20)))  # type: ignore[arg-type]
    tests = [one_test(f"test_a.py::test_{n:04}", captures=[passing]) for n in range(500)]
    tests[300] = one_test("test_a.py::test_0300", "failed", message="E  boom")
    path = written(tmp_path, *tests)
    assert path.read_text("utf-8").count('<script type="text/plain"') == 3  # two tests, words
    page = opened.open(path)
    rows = page.locator("nav li")
    assert page.locator("main h2").inner_text() == "failed test_a.py::test_0300"
    assert rows.count() < 60
    assert rows.first.get_attribute("aria-setsize") == "500"
    current, box = page.locator("nav [aria-current=true]"), page.locator("nav .scroll")
    top, box = current.bounding_box()["y"], box.bounding_box()
    assert box["y"] <= top < box["y"] + box["height"]

    page.locator("nav .scroll").evaluate("each => { each.scrollTop = each.scrollHeight; }")
    page.locator("nav [data-test='499']").click()
    assert settled(page).locator("main h2").inner_text() == "passed test_a.py::test_0499"
    assert rows.count() < 60
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.locator("main h2").inner_text() == "passed test_a.py::test_0497"
    page.get_by_label("search the tests").fill("test_00")
    assert page.locator("#count").inner_text() == "100 of 500 tests"


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_missing_details_are_reported(opened: Any, tmp_path: Path) -> None:
    broken = one_test("test_a.py::test_b", "failed", message="E  boom")
    path = written(tmp_path, one_test("test_a.py::test_a"), broken)
    data = json.loads(re.findall('id="data">(.*?)</script>', path.read_text("utf-8"))[0])
    lost = data["tests"][1]["part"]
    path.write_text(
        path.read_text("utf-8").replace(f'data-part="{lost}"', 'data-part="x"'), "utf-8"
    )
    page = opened.open(path)
    assert (
        f"cannot be read: part {lost} of the page is missing" in page.locator("main").inner_text()
    )
    page.keyboard.press("k")
    assert page.locator("main h2").inner_text() == "passed test_a.py::test_a"
    assert page.get_by_role("alert").count() == 0


@pytest.mark.slow("a graph of 10,000 nodes; few nodes are in every run")
def test_nodes_of_a_large_graph_are_listed_in_part(opened: Any, tmp_path: Path) -> None:
    large = difference(network(2500), network(2500, changed=1700), tmp_path)
    page = opened.open(written(tmp_path, one_test("test_b", "failed", differences=[large])))
    # Count work instead of time: the page builds only visible elements.
    assert page.evaluate("document.querySelectorAll('*').length") < 6000
    page.locator("summary", has_text="All 10").click()
    rows = page.locator("details:not(.cost) tbody tr")
    rows.nth(199).wait_for()
    assert rows.count() == 200
    page.get_by_label("search the nodes").fill("layers.1700/relu")
    assert rows.count() == 1


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "\x1b[31mred\x1b[0m",
    "x" * 2_000,
    "\u202egnirts",
    "a\x00b",
    "half \ud800 of a pair",
)


def test_hostile_names_are_shown_as_text(opened: Any, tmp_path: Path) -> None:
    hostile = "".join(name for name in HOSTILE if "\ud800" not in name)
    graph = Graph.from_text(network(2).to_text())
    diff = difference(graph, network(2, changed=1), tmp_path)
    for pair in diff["graphs"]:
        for side in ("before", "after"):
            data = pair[side]
            data.update(names=[hostile] * len(data["names"]), texts=[hostile] * len(data["texts"]))
    for finding in diff["findings"]:
        finding.update(summary=hostile, more=hostile)
    diff.update(file=hostile, headline=hostile, accept=hostile, diff=[hostile])
    tests = [
        one_test(name, "failed", message=name, where=name, differences=[diff]) for name in HOSTILE
    ]
    page = opened.open(written(tmp_path, *tests, about=hostile, warning=hostile))
    assert page.locator("nav li").count() == len(HOSTILE)
    for number in range(len(HOSTILE)):
        page.locator("nav button").nth(number).click()
        page.locator("summary", has_text="All").click()
        page.locator(".view .chosen").first.dispatch_event("pointerup")
    assert page.locator("img, iframe, object").count() == 0
    assert page.locator("script:not([data-part])").count() == 2
    page.locator("nav button").first.click()
    assert settled(page).locator("main h2").inner_text() == f"failed {HOSTILE[0]}"
    page.locator("nav button").nth(5).click()
    assert "\\u202egnirts" in settled(page).locator("main h2").inner_text()  # shown, not obeyed


EVIL = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 viewBox="0 0 10 10" onload="console.log('ran')"><script>console.log('ran')</script>
 <a xlink:href="javascript:console.log('ran')"><rect id="box-1" width="10" height="10"/></a>
 <image href="https://example.invalid/x.png"/><foreignObject><p>x</p></foreignObject>
 <style>:host { position: fixed; inset: 0 }</style><style>svg{position:fixed}</style>
 <style>.tg-picture text { fill: #F2F2F2; }</style>
 <g style="position:fixed"><input value="x"/></g><animate onbegin="console.log('ran')"/></svg>"""


def test_picture_cannot_run_scripts(opened: Any, tmp_path: Path) -> None:
    shown = {"title": "evil", "svg": EVIL, "note": "", "graphs": [], "findings": []}
    broken = {"title": "broken", "svg": "<svg", "note": "", "graphs": [], "findings": []}
    page = opened.open(written(tmp_path, one_test("test_a", "failed", pictures=[shown, broken])))
    page.locator(".view rect").click()
    inside = page.evaluate("document.querySelector('.view').shadowRoot.innerHTML")
    assert "script" not in inside
    assert "href" not in inside
    assert "onload" not in inside
    assert "fixed" not in inside.replace(str(page.evaluate("PICTURE_STYLE")), "")
    assert "<input" not in inside
    assert "fill: #F2F2F2" in inside
    assert "cannot be read" in page.locator("main").inner_text()
    # The page's policy is the second barrier: the browser reports that it blocked the script.
    opened.console[:] = [line for line in opened.console if "Content Security Policy" not in line]


def test_page_of_a_run_without_graphs_says_so(opened: Any, tmp_path: Path) -> None:
    page = opened.open(written(tmp_path))
    assert page.locator("nav").inner_text() == "No test used graphs."


def eager(number: int, line: int, runs: int = 1, kind: str = "forward") -> Graph:
    cause = GraphBreak(
        *("Builtin call", "print", "", "model.py", line, "  print(x)", "f", (), "", "0/0")
    )
    text = (
        f"torchgraph 2\n\neager_{number} {{\n  %x = input\n  %y = aten.neg(%x)\n  return %y\n}}\n"
    )
    graph = Graph.from_text(text)
    return replace(graph, kind=kind, runs=runs, cause=cause)  # type: ignore[arg-type]


def test_capture_is_shown_as_one_program_with_the_breaks_between(
    opened: Any, tmp_path: Path
) -> None:
    capture = Captured(
        network(1).renamed("forward_0"),
        eager(0, 31, runs=3),
        eager(1, 31),
        network(2).renamed("forward_1"),
        eager(2, 40, kind="backward"),
    )
    capture.breaks = (capture.program[1].cause,)  # type: ignore[assignment]
    test = one_test("test_a.py::test_step", captures=[collect.capture_data(capture)])  # type: ignore[arg-type]
    page = opened.open(written(tmp_path, test))

    shown = page.locator("main details:not(.cost) > summary, main .cut").all_inner_texts()
    cut = "✂ Builtin call · model.py:{} · print(x)"
    assert shown == [
        "forward_0 · forward at aot · 3 ops",
        cut.format(31),
        "eager_0 · eager · ran 3 times · 1 op",
        "eager_1 · eager · ran once · 1 op",
        "forward_1 · forward at aot · 6 ops",
        cut.format(40),
        "eager_2 · eager backward · ran once · 1 op",
    ]
    frames = page.locator("main details.eager")
    assert frames.count() == 3
    assert frames.first.evaluate("each => getComputedStyle(each).borderTopStyle") == "dashed"
    page.locator("summary", has_text="eager_0").click()
    assert page.locator("details.eager[open] td").all_inner_texts() == ["1", "aten.neg"]
    assert "model.py:31" in page.locator("main .card").inner_text()
    assert page.locator("nav .badge").inner_text() == "1 break"
