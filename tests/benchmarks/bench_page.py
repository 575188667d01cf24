"""The page of a run in Chromium, with many tests.

    PYTHONPATH=tests python tests/benchmarks/bench_page.py [2000]

Every fiftieth test failed with a difference. Size of the file, elements in the browser, and seconds
until the list is there, a search has found one test, and the next test is shown. Needs `dot`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from report.page import pages
from report.page.captured import Captured
from timing import table

from pytest_torchgraph.report.page import collect

EVERY = 50


def run_page(directory: Path, count: int) -> Path:
    """The page of `count` tests."""
    before, after = pages.network(6), pages.network(6, changed=2)
    failed = [pages.difference(before, after, directory)]
    capture = collect.capture_data(Captured(before))
    tests = [
        pages.one_test(
            f"test_a.py::test_{n:05}",
            outcome="failed" if n % EVERY == 0 else "passed",
            captures=[capture],
            differences=failed if n % EVERY == 0 else [],
        )
        for n in range(count)
    ]
    return pages.written(directory, *tests, causes=None)


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
    seconds = [f"{later - earlier:.2f}" for earlier, later in pairwise(times)]
    return [f"{count:,}", f"{path.stat().st_size / 1e6:.2f} MB", f"{elements:,}", *seconds]


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox"],
        )
        counts = [int(word) for word in sys.argv[1:]] or [200, 2000]
        rows = [measured(browser, run_page(Path(directory), count), count) for count in counts]
        browser.close()
    table(["tests", "file", "elements", "opened, s", "searched, s", "next, s"], rows)


if __name__ == "__main__":
    main()
