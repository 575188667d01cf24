"""The page of a run with an audit, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from projects import Run
from report.audits import broken_at, compiling, made
from report.page.pages import settled
from report.page.pages import written as page_of

from pytest_torchgraph.audit import AuditOutcome, Cause, LeakedSetting
from pytest_torchgraph.report.page.gather import read_page
from pytest_torchgraph.report.surfaces.document import audit_document

NOTHING = Cause("nothing", "", "", "Dynamo found no tensor operation", "", 0)


@pytest.fixture
def show(opened: Any, tmp_path: Path) -> Callable[..., Any]:
    """Open the page of an audit, and of tests that used graphs."""

    def show(outcome: AuditOutcome, *ids: str, **more: Any) -> Any:
        parts = {"outcome": "passed", "seconds": 0.1, "message": "", "where": "test_a.py:1"}
        lists: dict[str, Any] = {"captures": [], "ranks": [], "differences": [], "pictures": []}
        tests = [{"id": test_id, **parts, **lists} for test_id in ids]
        data = {"causes": None, "audit": audit_document(outcome), **more}
        return opened.open(page_of(tmp_path, *tests, **data))

    return show


def test_audit_page_opens_with_the_compilations_of_the_suite(show: Callable[..., Any]) -> None:
    facts = {f"test_a.py::test_{n}": compiling(broken_at(7)) for n in range(3)}
    facts["test_a.py::test_empty"] = compiling(
        NOTHING, compiles=False, graphs=0, ops=0, frames=(), callables=("test_a.py:90 f",)
    )
    page = show(made(facts, tests=10), "test_a.py::test_1")
    assert page.locator("main h2").inner_text() == "torch.compile in this suite"
    figures = page.locator(".figures li").all_inner_texts()
    assert figures[0].split("\n") == ["4 of 10", "tests use torch.compile"]
    nothing, broken = page.locator(".cause").all_inner_texts()
    assert nothing.startswith("nothing compiled 1 test")
    assert "test_a.py:90 in f" in nothing
    assert broken.startswith("graph break 3 tests")
    assert "net.py:7 in forward" in broken
    page.locator(".cause summary").click()
    page.locator(".cause .tests button", has_text="test_1").click()
    assert settled(page).locator("main h2").inner_text() == "passed test_a.py::test_1"
    page.locator("#all-compiled").click()
    assert settled(page).url.endswith("#audit")


def unfold(page: Any, text: str) -> None:
    """Open the section with this summary. Its content is built by an event, slightly later."""
    page.locator("summary", has_text=text).click()
    page.locator("details[open]", has_text=text).locator("> :nth-child(2)").first.wait_for()


def test_audit_page_lists_regressions_first_and_offers_improvements(
    show: Callable[..., Any],
) -> None:
    known, new = broken_at(3, "print(1)"), broken_at(9, "print(2)")
    before = {"test_a": compiling(known), "test_b": compiling(), "test_gone": compiling(ops=9)}
    after = {"test_a": compiling(), "test_b": compiling(new), "test_new": compiling(ops=1)}
    page = show(made(after, before))
    headings = page.locator("main h3").all_inner_texts()
    assert headings[0] == "Worse than torchgraph-audit.json"
    assert headings[1] == "graph break at net.py:9 in forward: print(2) 1 test"
    unfold(page, "1 change for the better")
    assert "no longer occurs: break | net.py" in page.locator(".better").inner_text()
    unfold(page, "1 test not in the baseline yet")
    unfold(page, "1 test of the baseline not run")
    assert page.locator("main").inner_text().count("test_gone") == 1


def test_tests_are_filtered_and_sorted(show: Callable[..., Any]) -> None:
    causes = [(), (broken_at(7),)]
    facts = {
        f"test_{n:04}": compiling(*causes[n % 2], seconds=n / 100, ops=2000 - n) for n in range(500)
    }
    facts["test_empty"] = compiling(NOTHING, compiles=False)
    page = show(made(facts))
    rows = page.locator("table.audit tbody")
    assert rows.count() == 200  # the page builds only visible elements
    assert rows.first.inner_text().startswith("test_0499")
    assert "the first 200 of 501 tests" in page.locator("main").inner_text()
    page.get_by_role("button", name="ops", exact=True).click()
    assert rows.first.inner_text().startswith("test_0000")
    page.get_by_label("search the audited tests").fill("net.py:7 TEST_00")
    assert rows.count() == 50
    page.get_by_role("button", name="compiles nothing").click()
    assert [text.split()[0] for text in rows.all_inner_texts()] == ["test_empty"]


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_audit_page_without_compilations_or_watch_says_so(show: Callable[..., Any]) -> None:
    page = show(made({}, tests=12))
    main = page.locator("main").inner_text()
    assert main.split("\n")[-1] == "None of 12 tests uses torch.compile."
    assert not page.locator("nav").is_visible()
    left = [LeakedSetting("torch._dynamo.config.verbose", "False", "True", "test_a")]
    page = show(made({"test_a": compiling()}, broken="KeyError: 'x'", settings=left))
    assert "Incomplete audit: KeyError: 'x'" in page.locator("main .failed").inner_text()
    assert "no graph break, no recompile" in page.locator("main").inner_text()
    unfold(page, "1 torch setting changed and not restored")
    leaked = "torch._dynamo.config.verbose: False → True · test_a"
    assert leaked in page.locator("main").inner_text()
    cut = made({"test_a": compiling()}, mode="check", said=("a.json: not checked: cut short",))
    assert "a.json: not checked: cut short" in show(cut).locator("main").inner_text()


@pytest.mark.slow("a browser, for further keys, addresses and panes")
def test_audit_page_is_uncut_on_a_narrow_window_and_on_paper(show: Callable[..., Any]) -> None:
    facts = {f"test_{'long_' * 30}{n}": compiling(broken_at(n, "x" * 300)) for n in range(30)}
    page = show(made(facts), *facts)
    page.set_viewport_size({"width": 600, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 600
    assert page.locator(".figures").bounding_box()["width"] > 500
    page.set_viewport_size({"width": 1000, "height": 800})
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    last = page.locator("table.audit tbody").last.bounding_box()
    height = page.evaluate("document.documentElement.scrollHeight")
    assert 800 < last["y"] + last["height"] <= height


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m\"'`${1}"


def test_audit_page_shows_hostile_text_as_text(show: Callable[..., Any]) -> None:
    cause = Cause("break", HOSTILE, HOSTILE, HOSTILE, HOSTILE, 3)
    where = f"{HOSTILE}:3 {HOSTILE}"
    facts = compiling(cause, frames=(where,), callables=(where,), backends=(HOSTILE,))
    tests = {f"{HOSTILE}{n}": replace(facts, ops=n + 1) for n in range(3)}
    before = {test: compiling(replace(cause, code="x"), ops=9) for test in tests}
    outcome = made(tests, {**before, f"{HOSTILE}gone": compiling()}, file=HOSTILE, said=(HOSTILE,))
    page = show(outcome, *tests)
    for selector in ("main summary", "main .cause.better summary"):
        for summary in page.locator(selector).all():
            summary.click()
    page.get_by_label("search the audited tests").fill(HOSTILE[:20])
    assert page.locator("table.audit tbody").count() == 3
    assert page.locator("img, iframe, object").count() == 0
    assert page.locator("script:not([data-part])").count() == 2
    assert "\\u202e" in page.locator("main h3").first.inner_text()  # shown, not obeyed


@pytest.mark.slow("runs pytest several times")
def test_run_with_an_audit_has_its_page(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import torch

        def helper(x):
            y = x.sin()
            print("hi")
            return y.cos()

        def test_break():
            torch.compile(helper, backend="eager")(torch.ones(3))
        """
    )
    pages = ("--torchgraph-report=page.html", "--torchgraph-json=run.json")
    run("--torchgraph-audit=show", *pages).assert_outcomes(passed=1)
    data, _ = read_page(pytester.path / "page.html")
    assert data["audit"] == json.loads((pytester.path / "run.json").read_text("utf-8"))["audit"]
    assert data["audit"]["causes"][0]["line"] == 5
    assert data["about"].startswith("torch 2.")
    run(pages[0]).assert_outcomes(passed=1)
    assert '"audit":null' in (pytester.path / "page.html").read_text("utf-8")
