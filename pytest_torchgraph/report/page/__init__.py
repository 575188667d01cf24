"""The page of a run, `--torchgraph-report=FILE.html`: what tests captured, and what differs.

`collect` turns captures and comparisons into plain data, in the process that runs the test;
`session` gathers it in the process that reports; `html` writes the page, which `page.js` builds
from the data. The page needs no network, and nothing in it that comes from a test is more than
text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def install(config: pytest.Config, path: Path) -> None:
    """Have this process tell the page of its tests and, unless it is a worker, write the page."""
    from .gather import Gatherer
    from .session import Page

    config.pluginmanager.register(Gatherer(), "torchgraph-gatherer")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Page(config, path), "torchgraph-page")
