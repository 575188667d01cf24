"""A reader's whole path: cause, test, finding, both sides, node, path, address, paper."""

from __future__ import annotations

from typing import Any

import pytest
from projects import Run
from report.page.pages import settled, trained

TESTS = """
    import os
    from pathlib import Path

    import pytest
    from pytest_torchgraph import Graph


    @pytest.mark.parametrize("model", ["small", "large", "other"])
    def test_step(graph_snapshot, model):
        edited = os.environ.get("EDIT") and model != "other"
        graph = Path(__file__).with_name("after.txt" if edited else "before.txt").read_text()
        assert Graph.from_text(graph) == graph_snapshot
"""


@pytest.mark.slow("each of its steps has a test in every run")
def test_from_the_cause_to_paper(pytester: pytest.Pytester, run: Run, opened: Any) -> None:
    pytester.makepyfile(test_net=TESTS)
    pytester.maketxtfile(before=trained().to_text(), after=trained(changed=2).to_text())
    run("--torchgraph-update").assert_outcomes(passed=3)
    run("--torchgraph-report=page.html", EDIT="1").assert_outcomes(failed=2, passed=1)
    page = opened.open(pytester.path / "page.html")

    assert page.locator("main h2").inner_text() == "1 cause in 2 tests"
    assert "layers.2" in page.locator(".cause").inner_text()
    page.locator(".cause .tests button").first.click()
    assert settled(page).locator("main h2").inner_text() == "failed test_net.py::test_step[large]"
    page.keyboard.press("f")
    assert page.locator("main h2").inner_text() == "failed test_net.py::test_step[small]"
    settled(page).keyboard.press("n")
    assert "changed in layers.2" in page.locator('.findings [aria-current="true"]').inner_text()

    page.keyboard.press("b")
    before, after = page.locator(".picture .view").all()
    assert "aten.gelu" in before.locator(".chosen").first.text_content()
    assert "aten.relu" in after.locator(".chosen").first.text_content()

    page.locator("details.graph > summary").click()
    page.locator(".outline .changed").click()
    page.locator(".outline .card").get_by_role("button", name="path to the loss").click()
    way = page.locator(".outline .way li button").all_inner_texts()
    assert (way[0], way[-1]) == ("layers.2/relu", "loss")

    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator(".outline .card strong", has_text="layers.2/relu").wait_for()
    assert page.locator("main h2").inner_text() == "failed test_net.py::test_step[small]"

    page.evaluate("window.print = () => {}")
    page.get_by_role("button", name="print").click()
    page.locator(".printed").nth(1).wait_for()
    paper = page.locator(".paper").inner_text()
    assert "1 cause in 2 tests" in paper
    assert "test_net.py::test_step[large]" in paper
    assert page.locator(".printed .drawn").count() == 2
