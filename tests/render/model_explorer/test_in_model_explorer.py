"""Differences in model-explorer itself, in a browser.

Skipped without its command, which needs a hundred packages and is not in the test extra:

    python -m venv ENV && ENV/bin/pip install ai-edge-model-explorer
    PATH=ENV/bin:$PATH python -m pytest -m slow tests/render/model_explorer
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qs, urlparse
from urllib.request import urlopen

import pytest

from pytest_torchgraph.cli import main

COMMAND = shutil.which("model-explorer")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(COMMAND is None, reason="the command model-explorer is missing"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing"),
]
PATIENCE = 60
STORED = Path(__file__).parents[3] / "examples" / "__snapshots__" / "test_bert"
CLONE = "%.output.dropout/clone"
SELECT = "id => window.postMessage({cmd: 'model-explorer-select-node-by-node-id', nodeId: id})"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running model-explorer."""
    assert COMMAND is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [COMMAND, "--host=127.0.0.1", f"--port={port}"]
    with (tmp_path_factory.mktemp("server") / "log").open("w") as log:
        server = subprocess.Popen(
            [*words, "--no_open_in_browser", "--skip_health_check"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/check_health")
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait()


def _wait(url: str) -> None:
    for _ in range(PATIENCE * 2):
        try:
            urlopen(url).close()
        except URLError:
            time.sleep(0.5)
        else:
            return
    raise AssertionError(f"nothing answers at {url}")


@pytest.fixture
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    webgl = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", *webgl]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(PATIENCE * 1000)
        yield page
        browser.close()


def selected(page: Any) -> list[str]:
    """Return the selected nodes of both panes, from the page's address."""
    data = parse_qs(urlparse(page.url).query)["data"][0]
    return [pane["selectedNodeId"] for pane in json.loads(data)["uiState"]["paneStates"]]


def wait_until(page: Any, wanted: list[str]) -> None:
    for _ in range(PATIENCE * 5):
        if selected(page) == wanted:
            return
        page.wait_for_timeout(200)
    assert selected(page) == wanted


@pytest.mark.slow("a server and a browser")
def test_a_difference_is_opened_and_selection_follows_our_matching(
    address: str,
    page: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    old = (STORED / "test_graphs.tgraph").read_text(encoding="utf-8")
    kept = [line for line in old.splitlines() if not line.strip().startswith(f"{CLONE} =")]
    new = "\n".join([*kept, ""]).replace(CLONE, "%.output.dense/view.1")
    new = new.replace("aten.gelu.default", "aten.relu.default").replace("fn/gelu", "fn/relu")
    Path("old.tgraph").write_text(old, encoding="utf-8")
    Path("new.tgraph").write_text(new, encoding="utf-8")
    assert main(["export", "--model-explorer=out.json", "old.tgraph", "new.tgraph"]) == 0
    _, mapping, printed = capsys.readouterr().out.splitlines()

    page.goto(printed.replace("http://localhost:8080/", address))
    for label in ("~ aten.gelu", "~ aten.relu"):
        page.get_by_text(label).locator("visible=true").first.wait_for()
    gelu = "encoder.layer.0.intermediate.intermediate_act_fn/gelu"
    wait_until(page, [gelu, gelu])
    page.wait_for_timeout(3000)  # the page's worker needs time to load both graphs
    addmm = "encoder.layer.3.output.dense/addmm"
    page.evaluate(SELECT, addmm)
    wait_until(page, [addmm, addmm])

    page.get_by_text("Sync", exact=True).first.click(force=True)
    page.get_by_text("Upload mapping from computer").click()
    page.locator(".cdk-overlay-container input[type=file]").set_input_files(mapping)
    page.get_by_text(Path(mapping).name).wait_for()
    page.keyboard.press("Escape")
    clone = "encoder.layer.0.output.dropout/clone"
    page.evaluate(SELECT, clone)
    page.get_by_text("No mapped node found").wait_for()
    wait_until(page, [clone, addmm])
    added = "encoder.layer.0.output/add"
    page.evaluate(SELECT, added)
    wait_until(page, [added, added])
