"""The page of a run in Chromium, with many tests.

    PYTHONPATH=.:tests python benchmarks/bench_page.py

Pages of 200 and of 2,000 tests, each with a graph of its own; every fiftieth failed with a
difference. Size of the file, elements in the browser, and milliseconds until the list is there, a
search has found one test, and the next test is shown.

Then outlines of 500 and of 50,000 nodes: milliseconds until one is open, for a search, and for the
way from the first node to the last, and the longest of 60 frames while it scrolls. Needs `dot`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from report.page import pages
from report.page.captured import Captured

from benchmarks.timing import table
from pytest_torchgraph import Graph
from pytest_torchgraph.report.page import collect
from pytest_torchgraph.report.page.html import Parts

EVERY = 50


def run_page(directory: Path, count: int) -> Path:
    """The page of `count` tests."""
    parts = Parts()
    tests = []
    for n in range(count):
        graph = renamed(pages.network(12), n)
        failed = n % EVERY == 0
        now = renamed(pages.network(12, changed=n // EVERY % 12), n)
        found = [pages.difference(graph, now, directory)] if failed else []
        tests.append(
            pages.one_test(
                f"test_a.py::test_{n:05}",
                outcome="failed" if failed else "passed",
                captures=[collect.capture_data(Captured(now if failed else graph), parts)],
                differences=found,
            )
        )
    return pages.written(directory, *tests, parts=parts, causes=None)


def renamed(graph: Graph, number: int) -> Graph:
    """The same graph of another model: no two tests have one."""
    return Graph.from_text(graph.to_text().replace("layers.", f"model{number}.layers."))


def outline_page(directory: Path, nodes: int) -> Path:
    """The page of one test with a chain of so many nodes."""
    parts = Parts()
    capture = collect.capture_data(Captured(pages.network(nodes // 4)), parts)
    return pages.written(
        directory, pages.one_test("test_a.py::test", captures=[capture]), parts=parts
    )


def measured(browser: Any, path: Path, count: int) -> list[str]:
    """A row of the table."""
    page = browser.new_page(viewport={"width": 1300, "height": 850})
    times = [time.perf_counter()]
    page.goto(path.as_uri())
    page.wait_for_selector("nav button")
    times.append(time.perf_counter())
    elements = page.evaluate("document.querySelectorAll('*').length")
    page.fill("input[type=search]", f"test_{count - 1:05}")
    page.wait_for_function("document.querySelector('#count').innerText.startsWith('1 of')")
    times.append(time.perf_counter())
    page.fill("input[type=search]", "")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    pages.settled(page)
    times.append(time.perf_counter())
    page.close()
    return [f"{count:,}", f"{path.stat().st_size / 1e6:.2f} MB", f"{elements:,}", *steps(times)]


def steps(times: Sequence[float]) -> list[str]:
    """The milliseconds between times."""
    return [f"{1000 * (later - earlier):.0f}" for earlier, later in pairwise(times)]


SCROLL = """async () => {
  const scroller = document.querySelector(".outline .scroll");
  const frames = [];
  let last = performance.now();
  for (let frame = 0; frame < 60; frame += 1) {
    scroller.scrollTop = (scroller.scrollHeight * frame) / 60;
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  return Math.max(...frames);
}"""


def measured_outline(browser: Any, path: Path, nodes: int) -> list[str]:
    """A row of the second table."""
    page = browser.new_page(viewport={"width": 1300, "height": 850})
    page.goto(path.as_uri())
    pages.settled(page)
    times = [time.perf_counter()]
    page.locator("details.graph > summary").click()
    page.wait_for_selector(".outline [role=row]")
    times.append(time.perf_counter())
    page.get_by_label("search the graph").fill("layers.0/mm")
    page.wait_for_function("document.querySelectorAll('.outline [role=row]').length === 1")
    times.append(time.perf_counter())
    page.locator(".outline [role=row]").click()
    page.locator(".outline .card button", has_text="path to").click()
    page.wait_for_selector(".outline .way li")
    times.append(time.perf_counter())
    page.get_by_label("search the graph").fill("")
    page.get_by_label("search the graph").fill("aten")
    slowest = page.evaluate(SCROLL)
    rows = page.locator(".outline [role=row]").count()
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    page.close()
    size = f"{path.stat().st_size / 1e6:.2f} MB"
    return [f"{nodes:,}", size, *steps(times), f"{slowest:.0f}", str(rows), f"{heap:.0f} MB"]


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox"],
        )
        folder = Path(directory)
        rows = [measured(browser, run_page(folder, n), n) for n in (200, 2000)]
        outlines = [measured_outline(browser, outline_page(folder, n), n) for n in (500, 50_000)]
        browser.close()
    table(["tests", "file", "elements", "opened, ms", "searched", "next"], rows)
    table(["nodes", "file", "opened, ms", "searched", "way", "frame", "rows", "heap"], outlines)


if __name__ == "__main__":
    main()
