"""The page of a run, `--torchgraph-report=FILE.html`: captures, comparisons, failed checks.

With an audit it begins with what the suite compiles, whose data are those of the JSON file
(surfaces.document).

How data flow; under pytest-xdist a worker runs the test and the controller reports:

    Capture, Comparison, Failure
      plain data               of each test (collect)
      attribute of TestReport  in the process that runs the test (gather)
      data of the page         in the process that reports (session), large ones packed (parts)
    FILE.html                  a template with page.css, the files of script/ and the data (html)

The page needs no network, and everything from a test is put into it as text (`element` and
`name` in script/elements.js).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def install(config: pytest.Config, path: Path) -> None:
    """Register the plugins that gather the page's data and, unless in a worker, write it.

    Args:
        config: of the run.
        path: the file to write.
    """
    from .gather import Gatherer
    from .run_data import Page

    config.pluginmanager.register(Gatherer(), "torchgraph-gatherer")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Page(config, path), "torchgraph-page")
