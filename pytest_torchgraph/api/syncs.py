"""The syncs and transfers of a capture, from all that its contents know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import CaptureError
from ..graph.model import Graph
from ..syncs import detect
from ..syncs.model import Sync, Transfer
from ..watching.graphs import PrintedGraphs
from ..watching.record import WatchRecord
from .contents import Contents


def syncs_of(contents: Contents, via: str, graphs: Sequence[Graph]) -> tuple[Sync, ...]:
    """The places at which Python waits for the device; see `Capture.syncs`.

    Args:
        contents: the contents of the capture.
        via: name of its mechanism.
        graphs: its graphs, at its level.

    Raises:
        CaptureError: for a capture that cannot know.
    """
    if contents.calls is not None:
        return detect.recorded_syncs(contents.calls)
    record = _record(contents, via, graphs, "syncs")
    if record is None:
        return detect.compiled_syncs(graphs, (), None)
    printed, hooks, eager = PrintedGraphs(record), _traced(via, record), _eager(contents)
    return detect.compiled_syncs(graphs, record.breaks, printed, hooks, eager)


def transfers_of(contents: Contents, via: str, graphs: Sequence[Graph]) -> tuple[Transfer, ...]:
    """The copies between devices; see `Capture.transfers`, and `syncs_of` for the arguments."""
    if contents.calls is not None:
        return detect.recorded_transfers(contents.calls)
    record = _record(contents, via, graphs, "transfers")
    if record is None:
        return detect.compiled_transfers(graphs, ())
    return detect.compiled_transfers(graphs, record.breaks, _traced(via, record), _eager(contents))


def _record(
    contents: Contents, via: str, graphs: Sequence[Graph], asked: str
) -> WatchRecord | None:
    """The record of the compiler; None where the graphs are all that can run."""
    found = contents.record
    exported = via == "export" and contents.was_called
    if found is None and not exported:
        of = "" if contents.was_called else " from a file"
        raise CaptureError(
            f"a capture via {via!r}{of} knows no "
            f"{asked}: use via='dispatch', which sees what runs, 'aot', 'dynamo', 'inductor', "
            "'compiled_autograd' or 'export', or graph_capture.watch()"
        )
    if via == "compiled_autograd" and all(graph.kind == "backward" for graph in graphs):
        raise CaptureError(
            f"the forward ran eagerly, so nothing is known of its {asked}: use "
            "CompiledAutograd(forward='aot'), or via='dispatch', which sees what runs"
        )
    return found


def _traced(via: str, record: WatchRecord) -> PrintedGraphs | None:
    """Dynamo's graphs of a captured backward, traced as far as its first break."""
    if via != "compiled_autograd":
        return None
    inner = [each for each in record.compiled if each.id and each.id.autograd is not None]
    return PrintedGraphs(replace(record, compiled=tuple(inner)))


def _eager(contents: Contents) -> detect.RecordedCalls | None:
    """The calls that ran eagerly beside the graphs, None where they were not recorded."""
    graphs, ops = contents.eager, contents.eager_ops
    if graphs is None or ops is None:
        return None
    return detect.eager_calls(graphs, ops)
