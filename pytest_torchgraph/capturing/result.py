"""`Capture`: the graphs of one run, and the checks on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .. import checks
from ..errors import CaptureError
from ..graph.model import Graph, GraphKind, Level
from ..graph.ops import OpCounts, count_ops
from ..graph.text import Header, format_document

if TYPE_CHECKING:
    import torch

    from .eager import Eager, Outcome
    from .kernels import Kernel


class Capture:
    """The graphs that one run gave, in the order in which they were made.

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
        comparison: tuple[Eager, Outcome] | None = None,
        levels: Mapping[Level, tuple[Graph, ...]] | None = None,
        device: str | None = None,
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

    # -- reading ---------------------------------------------------------------------------------

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, in the order in which they were made.

        Raises:
            CaptureError: if there is no operation in any of them.
        """
        if callable(self._graphs):
            self._graphs = self._graphs()
        return self._graphs

    @property
    def output(self) -> Any:
        """What the target returned.

        Raises:
            CaptureError: for a capture that was loaded from a file.
        """
        if not self._has_output:
            raise CaptureError("this capture was loaded from a file: it has graphs, no output")
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
        if len(self._joints) == 1:
            return self._joints[0]
        if self._joints:
            raise CaptureError(f"the capture has {len(self._joints)} joint graphs, not one")
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
        if self._kernels is None:
            raise CaptureError(
                f"a capture via {self.via!r} generates no code, so it has no kernels: use "
                "via='inductor'"
            )
        return self._kernels

    def _of_kind(self, *kinds: GraphKind) -> tuple[Graph, ...]:
        return tuple(graph for graph in self.graphs if graph.kind in kinds)

    def _the_one(self, word: str, graphs: tuple[Graph, ...]) -> Graph:
        if len(graphs) == 1:
            return graphs[0]
        there = ", ".join(f"{graph.name} ({len(graph.nodes)} nodes)" for graph in self.graphs)
        count = "no" if not graphs else str(len(graphs))
        hint = f"take one of capture.{word}s" if graphs else _WHY_NO.get(word, "")
        raise CaptureError(
            f"the capture has {count} {word} graph{'s' if len(graphs) != 1 else ''}, not one: "
            f"there is {there or 'nothing'}. {hint}".rstrip()
        )

    @cached_property
    def op_counts(self) -> OpCounts:
        """How often each op occurs, over all graphs."""
        return count_ops(self.graphs)

    def at(self, level: Level) -> Capture:
        """The same capture at another level that it knows.

        Raises:
            CaptureError: if the level was not captured.
        """
        graphs = self._levels.get(level)
        if graphs is None:
            graphs = tuple(graph for graph in self.graphs if graph.level == level)
        if not graphs:
            known = ", ".join(dict.fromkeys([*(g.level for g in self.graphs), *self._levels]))
            raise CaptureError(f"this capture knows nothing at level {level!r}; it has {known}")
        return Capture(graphs, via=self.via, torch_release=self.header.torch, device=self.device)

    def fx(self, graph: Graph) -> torch.fx.GraphModule:
        """The live GraphModule of one of this capture's graphs, to run or to transform.

        Raises:
            CaptureError: if the graph is not of this capture, or the mechanism has none.
        """
        for position, own in enumerate(self.graphs):
            if own is graph:
                if position in self._modules:
                    return self._modules[position]  # type: ignore[no-any-return]
                raise CaptureError(f"a capture via {self.via!r} has no live torch.fx graphs")
        raise CaptureError(f"{graph!r} is not one of this capture's graphs")

    def to_text(self, detail: str = "dataflow") -> str:
        """The `.tgraph` text of all graphs; see `Graph.to_text` for `detail`."""
        return format_document(self.graphs, self.header, detail)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capture):
            return NotImplemented
        return [(graph.kind, graph) for graph in self.graphs] == [
            (graph.kind, graph) for graph in other.graphs
        ]

    def __hash__(self) -> int:
        return hash(self.graphs)

    def __repr__(self) -> str:
        graphs = ", ".join(f"{graph.name} ({len(graph.nodes)} nodes)" for graph in self.graphs)
        return f"<Capture via {self.via}: {graphs or 'no graphs'}>"

    # -- checks ----------------------------------------------------------------------------------

    def assert_op_counts(self, expected: Mapping[Any, Any], *, exact: bool = False) -> None:
        """Assert how often ops occur, over all graphs.

        Args:
            expected: from an op to its count. The op is a packet (`"aten.mm"`), an overload
                (`"aten.mm.default"`), a glob over both (`"aten.add*"`) or an object
                (`torch.ops.aten.mm`, `torch.relu`). The count is an int, a `(min, max)` where max
                may be None, or a mapping by device type.
            exact: whether every op that occurs must be matched by one of the patterns.

        Raises:
            AssertionError: with the counts that there are.
            TypeError: if `expected` is empty.
            ValueError: for a pattern that can match nothing at the graphs' level.
        """
        __tracebackhide__ = True
        checks.assert_op_counts(self.graphs, expected, exact=exact, device=self.device)

    def assert_no_ops(self, *ops: Any) -> None:
        """Assert that none of these ops occurs; patterns as in `assert_op_counts`.

        Raises:
            AssertionError: with each op that occurs and its source lines.
            TypeError: without any op.
            ValueError: for a pattern that can match nothing at the graphs' level.
        """
        __tracebackhide__ = True
        checks.assert_no_ops(self.graphs, ops)

    def assert_graph_count(
        self, forward: Any = None, backward: Any = None, total: Any = None
    ) -> None:
        """Assert how many graphs there are.

        Args:
            forward: count of forward and inference graphs.
            backward: count of backward graphs that ran.
            total: count of all graphs. What is not given is not checked; with nothing given, one
                forward and one backward are expected.

        Raises:
            AssertionError: with the graphs that there are.
        """
        __tracebackhide__ = True
        if forward is None and backward is None and total is None:
            forward = backward = 1
        checks.assert_graph_count(self, forward, backward, total)

    def assert_matches_eager(self, rtol: float | None = None, atol: float | None = None) -> None:
        """Assert that outputs and gradients are those of an eager run from the same state.

        Args:
            rtol, atol: tolerances; None for those of `torch.testing.assert_close` by dtype.

        Raises:
            AssertionError: naming the first output or gradient that differs, with the largest
                difference; or if all gradients are zero, which would hide any mistake in them.
            CaptureError: for a capture without a run to compare with.
        """
        __tracebackhide__ = True
        checks.assert_matches_eager(self, self._comparison, rtol, atol)


_WHY_NO = {
    "backward": "A backward counts only if it ran: does an output require grad, is grad mode on, "
    "and is backward=False not set?",
}
