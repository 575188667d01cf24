"""Estimate of the peak memory of a step's own tensors, by live ranges.

A storage is live from the op that allocates it to the last op of any graph that reads the storage
or a view of it. The step's outputs, and values saved for a backward that did not run, are live to
the end. Not counted are parameters, buffers and inputs, which exist independently of the step,
kernel workspaces, and memory that a local variable keeps alive after its last use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..census import runs
from ..higher_order import KINDS, executed
from ..model import Graph, Node, Ref
from ..step import joined
from .storages import StepStorages, need_saved, producer_of, results_bytes, storage_bytes

_Key = tuple[int, str]
"""Key of a storage: `id` of the graph that made it, and the name of the node."""


def peak_bytes(graphs: Sequence[Graph]) -> int:
    """Return the estimated peak bytes of graphs that run one after the other.

    Args:
        graphs: the graphs.

    Raises:
        CaptureError: if a graph does not record its saved values, or if a size is a symbol.
    """
    need_saved(graphs)
    graphs = joined(graphs).graphs
    ranges = _LiveRanges(StepStorages(graphs))
    for graph in graphs:
        ranges.add_graph(graph)
    return ranges.peak_bytes()


class _LiveRanges:
    """Allocation and last read of each storage of a step.

    Positions count the nodes of all graphs.

    Args:
        storages: the storages.
    """

    def __init__(self, storages: StepStorages):
        self._storages = storages
        self._position = 0
        self._allocations: dict[_Key, tuple[int, int]] = {}  # position and bytes
        self._last_reads: dict[_Key, int] = {}
        self._at_once: Counter[int] = Counter()  # bytes needed only while an op runs
        self._returned: dict[_Key, int] = {}  # `id` of the graph that returned the storage
        self._bodies: dict[int, int] = {}  # peak bytes of each body, by `id`

    def add_graph(self, graph: Graph) -> None:
        """Record the allocations and reads of a graph. Graphs are added in execution order."""
        positions: dict[str, int] = {}
        bases = self._storages.bases(graph)
        for node in graph.nodes:
            positions[node.name] = self._position
            if node.kind != "output":
                if node.is_call and bases[node.name][1] is node:
                    self._allocate(graph, node, positions)
                # A storage that nothing reads is live while its op runs.
                for name in dict.fromkeys((node.name, *node.refs)):
                    self._record_read(graph, *bases[name])
            self._position += 1
        # Saved values live to the end, unless a backward reads them later.
        is_read = any(forward is graph for forward in self._storages.forward_of.values())
        for ref in () if is_read else graph.saved:
            self._record_return(graph, ref)
        for node in graph.outputs:
            self._record_return(graph, Ref(node.name))

    def _allocate(self, graph: Graph, node: Node, positions: dict[str, int]) -> None:
        """Record the allocation of a storage.

        Args:
            graph: the graph.
            node: the node that allocates it.
            positions: the positions of the nodes of the graph so far.
        """
        size, position = storage_bytes(node, graph), self._position
        # A result of a multi-output op exists from the op on, not only from its projection on. All
        # results of the op are counted while it runs, so do not count this one twice.
        producer = producer_of(graph, node)
        if producer is not None:
            position = positions[producer.name]
            self._at_once[position] -= size
        self._at_once[position] += self._bytes_while_running(graph, node)
        self._allocations[id(graph), node.name] = position, size

    def _bytes_while_running(self, graph: Graph, node: Node) -> int:
        """Return the bytes that a call needs while it runs, including all its results."""
        results = sum(results_bytes(node))
        if not graph.subgraphs:
            return results
        called = runs(graph, node)
        inside = max((self._body_peak(run.body) for run in called), default=0)
        if KINDS.get(executed(node).op) in ("call", "branch") and called:
            return inside  # the call returns the results of the body
        return results + inside

    def _body_peak(self, body: Graph) -> int:
        """Return the peak bytes of one run of a body, including its outputs."""
        if id(body) not in self._bodies:
            ranges = _LiveRanges(StepStorages((body,)))
            ranges.add_graph(body)
            self._bodies[id(body)] = ranges.peak_bytes()
        return self._bodies[id(body)]

    def _record_read(self, graph: Graph, maker: Graph, node: Node) -> None:
        """Record that a graph reads, at the current position, the storage that `maker` made."""
        if node.is_call:
            key = id(maker), node.name
            self._last_reads[key] = self._position
            # A backward reads saved values, which may also be outputs of the step.
            if graph.kind != "backward" and self._returned.get(key, id(graph)) != id(graph):
                del self._returned[key]  # a later graph uses it, so it is not an output of the step

    def _record_return(self, graph: Graph, ref: Ref) -> None:
        """Record that a graph returns the storage of a value, which then lives to the end."""
        maker, node = self._storages.find_base(graph, ref)
        if node.is_call:
            self._returned[id(maker), node.name] = id(graph)

    def peak_bytes(self) -> int:
        """Return the maximum bytes over all positions."""
        change: Counter[int] = Counter()  # bytes allocated minus bytes freed, by position
        for key, (position, size) in self._allocations.items():
            change[position] += size
            if key not in self._returned:
                change[self._last_reads[key] + 1] -= size
        alive = most = 0
        for position in sorted(change):
            alive += change[position]
            most = max(most, alive + self._at_once[position])
        return most
