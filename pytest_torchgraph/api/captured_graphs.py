"""The graphs that a capture holds, and parts of it: another level, some code, a live module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CaptureError
from ..graph.model import Graph, GraphKind
from ..graph.ops import count_ops
from ..graph.text import Header, format_document
from ..ops.levels import Level
from ..ops.names import OpCounts
from .contents import Contents

if TYPE_CHECKING:
    import torch

    from ..mechanisms.step.eager import Eager, Outcome
    from ..syncs.found import Seen
    from ..watching.kernels import Kernel
    from ..watching.record import Record

_Self = TypeVar("_Self", bound="CapturedGraphs")


class CapturedGraphs:
    """The graphs that one run gave: the part of `Capture` that reads them.

    Attributes:
        via: name of the mechanism.
        header: what a stored file says about the origin.
    """

    def __init__(
        self,
        graphs: tuple[Graph, ...] | Callable[[], tuple[Graph, ...]],
        *,
        via: str,
        torch_release: str = "",
        output: Any = None,
        has_output: bool = False,
        modules: Mapping[int, Any] | None = None,
        joints: tuple[Graph, ...] = (),
        kernels: tuple[Kernel, ...] | None = None,
        comparison: tuple[Eager, Callable[[], Outcome]] | None = None,
        levels: Mapping[Level, tuple[Graph, ...]] | None = None,
        device: str | None = None,
        record: Record | None = None,
        read: Callable[[], Contents] | None = None,
        seen: Seen | None = None,
        watched: Record | None = None,
    ):
        self._graphs = graphs
        self.via = via
        self.header = Header(via, torch_release)
        self.device = device
        self._output = output
        self._has_output = has_output
        self._modules = dict(modules or {})
        self._joints = joints
        self._kernels = kernels
        self._comparison = comparison
        self._levels = dict(levels or {})
        self._record = record
        self._read = read
        self._seen = seen
        self._watched = watched

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, in the order in which they were made.

        Raises:
            CaptureError: if there is no operation in any of them.
        """
        if self._read is not None:
            return self._read().graphs
        if callable(self._graphs):
            self._graphs = self._graphs()
        return self._graphs

    @property
    def output(self) -> Any:
        """What the target returned.

        Raises:
            CaptureError: for a capture that was loaded from a file, or made by `watch()`.
        """
        if not self._has_output:
            how = "loaded from a file" if self.watched is None else "made by watch()"
            raise CaptureError(f"this capture was {how}: it has graphs, no output")
        return self._output

    @property
    def forwards(self) -> tuple[Graph, ...]:
        """The forward and inference graphs."""
        return self._of_kind("forward", "inference")

    @property
    def backwards(self) -> tuple[Graph, ...]:
        """The backward graphs that ran."""
        return self._of_kind("backward")

    @property
    def forward(self) -> Graph:
        """The one forward or inference graph.

        Raises:
            CaptureError: if there is none, or more than one.
        """
        return self._the_one("forward", self.forwards)

    @property
    def backward(self) -> Graph:
        """The one backward graph.

        Raises:
            CaptureError: if there is none, or more than one.
        """
        return self._the_one("backward", self.backwards)

    @property
    def joint(self) -> Graph:
        """The one joint graph that AOTAutograd split into forward and backward.

        Raises:
            CaptureError: if there is none, or more than one.
        """
        joints = self._joints if self._read is None else self._read().joints
        if len(joints) == 1:
            return joints[0]
        if joints:
            raise CaptureError(f"the capture has {len(joints)} joint graphs, not one")
        raise CaptureError(
            f"the capture via {self.via!r} has no joint graph: one is made via 'aot' where an "
            "output requires grad"
        )

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that inductor generated, in the order of the generated code.

        Raises:
            CaptureError: for a capture in which no code was generated.
        """
        kernels = self._kernels if self._read is None else self._read().kernels
        if kernels is None:
            raise CaptureError(
                f"a capture via {self.via!r} generates no code, so it has no kernels: use "
                "via='inductor'"
            )
        return kernels

    def _of_kind(self, *kinds: GraphKind) -> tuple[Graph, ...]:
        return tuple(graph for graph in self.graphs if graph.kind in kinds)

    def _the_one(self, word: str, graphs: tuple[Graph, ...]) -> Graph:
        if len(graphs) == 1:
            return graphs[0]
        self._need_any()
        there = ", ".join(f"{graph.name} ({len(graph.nodes)} nodes)" for graph in self.graphs)
        count = "no" if not graphs else str(len(graphs))
        hint = f"take one of capture.{word}s" if graphs else _WHY_NO.get(word, "")
        raise CaptureError(
            f"the capture has {count} {word} graph{'s' if len(graphs) != 1 else ''}, not one: "
            f"there is {there or 'nothing'}. {hint}".rstrip()
        )

    def _need_any(self) -> None:
        """Say why a watch has no graph at all."""
        if self.watched is not None and not self.graphs:
            from ..checks.evidence import why_no_graph

            raise CaptureError(f"no graph was compiled:\n{why_no_graph(self.watched)}")

    @property
    def op_counts(self) -> OpCounts:
        """How often each op occurs, over all graphs."""
        return count_ops(self.graphs)

    def at(self: _Self, level: Level) -> _Self:
        """The same capture at another level that it knows.

        Raises:
            CaptureError: if the level was not captured.
        """
        levels: Iterable[Level]
        if self._read is None:
            graphs, levels = self._levels.get(level, ()), self._levels
        else:
            contents = self._read()
            graphs, levels = contents.at(level), contents.levels
        if not graphs:
            graphs = tuple(graph for graph in self.graphs if graph.level == level)
        if not graphs:
            self._need_any()
            known = ", ".join(dict.fromkeys([*(g.level for g in self.graphs), *levels]))
            raise CaptureError(f"this capture knows nothing at level {level!r}; it has {known}")
        return type(self)(
            graphs,
            via=self.via,
            torch_release=self.header.torch,
            device=self.device,
            record=self._record if self._read is None else self._read().record,
            seen=self._seen,
            watched=self.watched,
            output=self._output,
            has_output=self._has_output,
            comparison=self._comparison,
        )

    def only(self: _Self, within: Any = None, function: str | None = None) -> _Self:
        """The part of a watch that is about some code.

        Args:
            within: a path, or an importable package, or several of them.
            function: name of a function, as a glob: that of the code that was compiled.

        Raises:
            CaptureError: for a capture that was not made by `watch()`.
            ValueError: for a `within` that is neither a path nor a package.
        """
        read = self._read
        if read is None:
            raise CaptureError("only() takes apart what a watch saw: use graph_capture.watch()")
        from ..watching.graphs import Graphs

        last = read()
        part = Graphs(last.record.only(within, function))

        def read_part() -> Contents:
            nonlocal last, part
            if (now := read()) is not last:
                last, part = now, Graphs(now.record.only(within, function))
            return part

        return type(self)((), via=self.via, torch_release=self.header.torch, read=read_part)

    def fx(self, graph: Graph) -> torch.fx.GraphModule:
        """A torch.fx.GraphModule of one of this capture's graphs, to run or to transform.

        It takes the inputs of the graph in their order, under names made of theirs, and gives its
        outputs and then the values that it saves; `from_fx` of it is the graph again. Each call
        makes a new copy, which shares parameters and buffers with the model.

        Raises:
            CaptureError: if the graph is not of this capture, or the mechanism has none.
        """
        for position, own in enumerate(self.graphs):
            if own is graph:
                if position in self._modules:
                    from ..convert.to_fx import live

                    return live(self._modules[position])
                raise CaptureError(f"a capture via {self.via!r} has no live torch.fx graphs")
        raise CaptureError(f"{graph!r} is not one of this capture's graphs")

    def to_text(self, detail: str = "dataflow") -> str:
        """The `.tgraph` text of all graphs; see `Graph.to_text` for `detail`."""
        return format_document(self.graphs, self.header, detail)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CapturedGraphs):
            return NotImplemented
        return [(graph.kind, graph) for graph in self.graphs] == [
            (graph.kind, graph) for graph in other.graphs
        ]

    def __hash__(self) -> int:
        return hash(self.graphs)

    def __repr__(self) -> str:
        graphs = ", ".join(f"{graph.name} ({len(graph.nodes)} nodes)" for graph in self.graphs)
        return f"<{type(self).__name__} via {self.via}: {graphs or 'no graphs'}>"

    @property
    def watched(self) -> Record | None:
        """What a watch saw; None for a capture that was not made by one."""
        return self._watched if self._read is None else self._read().record


_WHY_NO = {
    "backward": "A backward counts only if it ran: does an output require grad, is grad mode on, "
    "and is backward=False not set?",
}
