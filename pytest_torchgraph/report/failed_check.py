"""Pictures of failed checks: into the artifacts, the report's section, and the page of the run.

Nothing in here may change the outcome of a test: what goes wrong is said in the section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..checks.compilation import UnexpectedBreaks
from ..graph.failures import Failure, UnexpectedOps, shown_by
from ..settings import config as settings
from ..snapshot.changes import brief
from . import artifacts

if TYPE_CHECKING:
    from ..graph.model import Graph
    from ..render.picture import Picture


def complete_report(item: pytest.Item, report: pytest.TestReport, error: BaseException) -> None:
    """Add a picture of what is wrong to the report of a failed check; to others nothing."""
    shows = shown_by(error)
    if shows is None:
        return
    from ..render.output.drawing import draw

    try:
        title, graphs, picture = _picture(shows)
        path = artifacts.path(item, title, ".svg")
        drawn = draw(picture.digraph, path)
    except Exception as error:
        line = f"picture: none, {brief(error)}"
        report.sections.append(("torchgraph", line))
        return
    if drawn.renderer is None:
        report.sections.append(("torchgraph", f"picture: none, {drawn.note}"))
        svg = ""
    else:
        note = f" ({drawn.note})" if drawn.note else ""
        shown = settings.shown(item.config, drawn.path)
        report.sections.append(("torchgraph", f"picture: {shown}{note}"))
        svg = drawn.path.read_text(encoding="utf-8")
        artifacts.attach(item, report, drawn.path, title)
    if settings.get(item.config).report is not None:
        from .page.collect import picture_data
        from .page.gather import PICTURES

        try:
            data = picture_data(title, graphs, picture, svg, drawn.note or "")
        except Exception as error:
            line = f"not in the page of this run: {brief(error)}"
            report.sections.append(("torchgraph", line))
        else:
            item.stash.setdefault(PICTURES, []).append(data)


def _picture(shows: Failure) -> tuple[str, tuple[Graph, ...], Picture]:
    if isinstance(shows, UnexpectedBreaks):
        from ..render import breaks

        return "graph breaks", shows.capture.forwards, breaks.picture(shows.capture)
    assert isinstance(shows, UnexpectedOps)
    from ..render import surplus

    picture = surplus.picture(shows.graphs, shows.nodes, shows.title)
    return shows.title, tuple(shows.graphs), picture
