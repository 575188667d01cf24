"""What captures send between ranks, in order, as plain data for the page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...errors import CaptureError
from ...graph.collective_table import format_bytes, format_tensor, format_wait
from ...words import amount, counted

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...graph.collectives import Collective

MOST = 200
"""How many collectives are listed at most: each capture of a run has its list in the page."""

Data = dict[str, Any]
"""A list: `about`, its summary; `groups`, in the order of their first use; `rows`, each a
collective; `more`, how many it leaves out."""


def collectives_data(capture: Capture) -> Data | None:
    """The collectives of a capture; None where there are none, or where it does not know them."""
    try:
        found = capture.collectives
    except (CaptureError, AssertionError):  # of a watch that saw no graph, or not all
        return None
    if not found:
        return None
    often = Counter(each.group for each in found)
    over = ", ".join(f"{count:,} over {group or '?'}" for group, count in often.items())
    size = amount(sum(each.bytes or 0 for each in found), "B")
    if any(each.bytes is None for each in found):
        size += " and what is not known"
    return {
        "about": f"{counted(len(found), 'collective')}, {size}: {over}",
        "groups": list(often),
        "rows": [_row(each) for each in found[:MOST]],
        "more": max(0, len(found) - MOST),
    }


def _row(each: Collective) -> Data:
    return {
        "graph": each.graph,
        "kind": each.kind,
        "group": each.group,
        "bytes": format_bytes(each),
        "tensor": format_tensor(each),
        "module": each.module,
        "line": str(each.source or ""),
        "code": each.source.code.strip() if each.source else "",
        "wait": format_wait(each),
        "exposed": each.exposed,
    }
