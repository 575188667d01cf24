"""Make the pictures of the documentation: `python tests/docs/screenshots.py`.

Runs `examples/demo.py` and writes its picture as `docs/failure.svg`, and screenshots of its page:
`docs/page.png`, a finding and its place, and `docs/page-sides.png`, before and after. Needs torch,
transformers, `dot` and Chromium. `docs/measured/tabpfn.md` says where `docs/break.png` is from.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SIZE = {"width": 1440, "height": 1000}


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        demo = [sys.executable, str(ROOT / "examples" / "demo.py")]
        subprocess.run(demo, cwd=directory, check=True)
        (picture,) = (Path(directory) / "demo").glob("*.svg")
        shutil.copy(picture, ROOT / "docs" / "failure.svg")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox"],
        )
        page = browser.new_page(viewport=SIZE)
        address = (Path(directory) / "demo" / "page.html").as_uri()
        page.goto(f"{address}#test=test_bert.py::test_graphs&finding=1")
        _settled(page)
        page.screenshot(path=ROOT / "docs" / "page.png")
        page.locator(".switch").get_by_role("button", name="before and after").click()
        _settled(page)
        page.locator(".picture").first.scroll_into_view_if_needed()
        page.screenshot(path=ROOT / "docs" / "page-sides.png")
        browser.close()


def _settled(page: Any) -> None:
    """Wait until the selection is read and shown."""
    page.wait_for_function("loading.then(() => document.body.dataset.ready !== undefined)")


if __name__ == "__main__":
    main()
