"""An estimate of the most bytes that a step's own tensors take at one time, by live ranges.

A storage lives from the op that makes it to the last op that reads it or a view of it. What is
saved lives on to the last op of a later graph that reads it, and what a graph returns to the end of
the step. Parameters, buffers and inputs are there anyway and do not count; neither does the
workspace of a kernel, nor what a local variable of the program keeps alive after its last use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from ..model import Graph, Ref
from .saved import base, need_saved, storage_bytes


def peak_bytes(graphs: Sequence[Graph]) -> int:
    """The estimate for graphs that run one after the other.

    Raises:
        CaptureError: where graphs do not say what is saved, and for a size that is a symbol.
    """
    need_saved(graphs)
    carried: dict[str, int] = {}  # what was saved and a later graph reads, by its name
    returned = peak = 0
    for number, graph in enumerate(graphs):
        later = {node.name for other in graphs[number + 1 :] for node in other.inputs}
        ranges = _LiveRanges(graph, carried, later if graphs[number + 1 :] else None)
        peak = max(peak, returned + ranges.peak)
        carried = ranges.carried
        returned += ranges.returned
    return peak


class _LiveRanges:
    """The storages of one graph while it runs.

    Args:
        graph: the graph.
        carried: the bytes of what earlier graphs saved, by name.
        later: the names of what later graphs read; None where there are none, so that all that is
            saved is kept.

    Attributes:
        peak: the most bytes that are alive at one time, with what is carried.
        carried: what is left of that when the graph has run, with what this one saves.
        returned: the bytes that this graph returns, apart from those.
    """

    def __init__(
        self, graph: Graph, carried: Mapping[str, int], later: Collection[str] | None
    ) -> None:
        made = {node.name: base(graph, Ref(node.name)) for node in graph.nodes}
        owners = {
            name: owner.name
            for name, owner in made.items()
            if owner.is_call or owner.name in carried
        }
        last: dict[str, int] = {}
        for position, node in enumerate(graph.nodes):
            for name in (node.name, *node.refs):
                if name in owners:
                    last[owners[name]] = position
        saved = {
            owners[ref.name]: ref.name
            for ref in graph.saved
            if ref.name in owners and (later is None or ref.name in later)
        }
        outputs = {owners[node.name] for node in graph.outputs if node.name in owners}
        outlive = saved.keys() | outputs | {name for name in carried if name in (later or ())}
        sizes = dict(carried)
        ends: defaultdict[int, list[str]] = defaultdict(list)
        for owner, position in last.items():
            if owner not in outlive:
                ends[position].append(owner)
        alive = self.peak = sum(sizes.values())
        for position, node in enumerate(graph.nodes):
            if node.is_call and owners.get(node.name) == node.name:
                sizes[node.name] = storage_bytes(node)
                alive += sizes[node.name]
            self.peak = max(self.peak, alive)
            alive -= sum(sizes.pop(owner, 0) for owner in ends[position])
        self.carried = {saved.get(name, name): sizes[name] for name in saved if name in sizes}
        self.carried |= {name: sizes[name] for name in carried if name in sizes}
        self.returned = sum(sizes[name] for name in outputs if name in sizes and name not in saved)
