"""A real browser in which every request outside the page fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from report.page.pages import difference, network, one_test

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need a browser, from one place, so that pytest reports them in one line."""
    if CHROMIUM is None and "chromium" in getattr(item, "fixturenames", ()):
        pytest.skip("no Chromium on the PATH")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page in the browser, with its console output and its requests."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("body[data-ready]", state="attached")
        return self.page


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opened]:
    """Fail a test whose page writes to the console or requests anything but itself."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(60_000)  # milliseconds: a page of 50,000 nodes on two busy cores
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.console.append(message.text))
    found.page.on("pageerror", lambda error: found.console.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("dialog", lambda dialog: found.console.append(f"dialog: {dialog.message}"))
    yield found
    url = found.page.url
    context.close()
    assert found.console == []
    assert {request.partition("#")[0] for request in found.requests} <= {url.partition("#")[0]}


@pytest.fixture(scope="session")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A test with one finding in the seventh of twelve layers. Must not be modified."""
    directory = tmp_path_factory.mktemp("failed")
    diff = difference(network(12), network(12, changed=7), directory)
    return one_test("test_a.py::test_step", "failed", message="E  assert", differences=[diff])
