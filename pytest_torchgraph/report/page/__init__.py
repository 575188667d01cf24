"""HTML page of a run, `--torchgraph-report=FILE.html`: captures, comparisons, failed checks.

With an audit, the page begins with the code that the suite compiles, taken from the same data as
the JSON file (surfaces.document).

Data flow; under pytest-xdist a worker runs the test and the controller reports:

    Capture, Comparison, Failure
      plain data               of each test (collect)
      attribute of TestReport  in the process that runs the test (gather)
      data of the page         in the reporting process (run_data), large data in `Parts` (html)
    FILE.html                  a template with page.css, the files of script/ and the data (html)

Views, in script/: the head of the page with the search for tests (head), the list of tests (tests),
one test (test), causes and the audit (overviews, audit), a graph as an outline or a picture
(outline, picture, sides, nodes, panel), ranks, costs and blocks.

The page works without network access. Everything from a test is inserted as text, never as HTML
(`element` and `name` in script/elements.js).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .collect import comparison_data, picture_data
    from .gather import PICTURES, merge_pages
    from .html import page
    from .run_data import RED
else:
    __getattr__ = front_door(
        __name__,
        {
            "collect": "comparison_data picture_data",
            "gather": "PICTURES merge_pages",
            "html": "page",
            "run_data": "RED",
        },
    )

if TYPE_CHECKING:
    import pytest


def install(config: pytest.Config, path: Path) -> None:
    """Register the plugin that gathers the data and, except in a worker, the page's writer.

    Args:
        config: pytest config of the run.
        path: file to write.
    """
    from .gather import Gatherer
    from .run_data import Page

    config.pluginmanager.register(Gatherer(), "torchgraph-gatherer")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Page(config, path), "torchgraph-page")
