"""`Capture`: the graphs of one run, and the checks on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import checks, compiled_checks
from ..errors import CaptureError
from ..graph.model import Graph, GraphKind, Level
from ..graph.ops import OpCounts, count_ops
from ..graph.text import Header, format_document

if TYPE_CHECKING:
    import torch

    from ..watching.breaks import GraphBreak
    from ..watching.recompiles import Recompile
    from ..watching.record import Record
    from .eager import Eager, Outcome
    from .kernels import Kernel


@dataclass(frozen=True)
class Contents:
    """What a capture of a watch holds, at the moment at which it is read.

    Attributes:
        graphs: those at its own level.
        levels: those at every level that it knows.
        joints: the joint graphs.
        kernels: the generated kernels, None where no code was generated.
        record: what was compiled, broken off, compiled again and run.
    """

    graphs: tuple[Graph, ...]
    levels: Mapping[Level, tuple[Graph, ...]]
    joints: tuple[Graph, ...]
    kernels: tuple[Kernel, ...] | None
    record: Record


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
        comparison: tuple[Eager, Callable[[], Outcome]] | None = None,
        levels: Mapping[Level, tuple[Graph, ...]] | None = None,
        device: str | None = None,
        record: Record | None = None,
        read: Callable[[], Contents] | None = None,
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

    # -- reading ---------------------------------------------------------------------------------

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
            from ..watching.evidence import why_no_graph

            raise CaptureError(f"no graph was compiled:\n{why_no_graph(self.watched)}")

    @property
    def op_counts(self) -> OpCounts:
        """How often each op occurs, over all graphs."""
        return count_ops(self.graphs)

    def at(self, level: Level) -> Capture:
        """The same capture at another level that it knows.

        Raises:
            CaptureError: if the level was not captured.
        """
        levels = self._levels if self._read is None else self._read().levels
        graphs = levels.get(level)
        if graphs is None:
            graphs = tuple(graph for graph in self.graphs if graph.level == level)
        if not graphs:
            self._need_any()
            known = ", ".join(dict.fromkeys([*(g.level for g in self.graphs), *levels]))
            raise CaptureError(f"this capture knows nothing at level {level!r}; it has {known}")
        return Capture(
            graphs,
            via=self.via,
            torch_release=self.header.torch,
            device=self.device,
            record=self._record if self._read is None else self._read().record,
        )

    # -- what the compiler did -------------------------------------------------------------------

    def record(self, asked: str) -> Record:
        """What was compiled and run, which is what is told of here.

        Args:
            asked: what is asked for, for the message.

        Raises:
            CaptureError: if nothing went through torch.compile.
        """
        found = self._record if self._read is None else self._read().record
        if found is None:
            raise CaptureError(
                f"a capture via {self.via!r} knows no {asked}: they are Dynamo's, so use "
                "via='aot', 'dynamo', 'inductor' or 'compiled_autograd', or graph_capture.watch()"
            )
        return found

    @property
    def watched(self) -> Record | None:
        """What a watch saw; None for a capture that was not made by one."""
        return None if self._read is None else self._read().record

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks, one for each distinct file, line and kind, in order.

        Also the frames that Dynamo skipped or gave up, whose kind says so. Where compiled autograd
        takes over at `loss.backward()`, which Dynamo reports as a break, there is none.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("graph breaks").breaks

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """What was compiled again, with the guards that had failed, in order.

        Also each capture of compiled autograd but the first.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("recompilations").recompiles

    @property
    def executions(self) -> Mapping[str, int]:
        """How often each compiled graph ran, by compile id (`0/1`), what was compiled before too.

        The backward that AOTAutograd made of a graph is `0/1 backward`; the backward that compiled
        autograd captured is `!0`, and what Dynamo made of that `!0/2/0`.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("executions").executions

    @property
    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """The change of `torch._dynamo.utils.counters` meanwhile, by group.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("counters").counters

    def only(self, within: Any = None, function: str | None = None) -> Capture:
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
        from ..watching.watch import contents_of

        read().record.only(within, function)
        return Capture(
            (),
            via=self.via,
            torch_release=self.header.torch,
            read=lambda: contents_of(read().record.only(within, function)),
        )

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
                    from .live import live

                    return live(self._modules[position])
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
        compiled_checks.need_graphs(self)
        checks.assert_op_counts(self.graphs, expected, exact=exact, device=self.device)

    def assert_no_ops(self, *ops: Any) -> None:
        """Assert that none of these ops occurs; patterns as in `assert_op_counts`.

        Raises:
            AssertionError: with each op that occurs and its source lines.
            TypeError: without any op.
            ValueError: for a pattern that can match nothing at the graphs' level.
        """
        __tracebackhide__ = True
        compiled_checks.need_graphs(self)
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
            AssertionError: with the graphs that there are; or if a watch has none, with the cause,
                but for `total=0` where compiled code ran.
        """
        __tracebackhide__ = True
        if forward is None and backward is None and total is None:
            forward = backward = 1
        compiled_checks.need_counted(self, total)
        checks.assert_graph_count(self, forward, backward, total)

    def assert_no_graph_breaks(self, allow: str | Sequence[str] = (), within: Any = None) -> None:
        """Assert that no graph broke off.

        Args:
            allow: regular expressions that are searched in `"kind: reason"`; breaks that match one
                are tolerated.
            within: a path or an importable package, or several: breaks elsewhere are tolerated.

        Raises:
            AssertionError: with each break, its line and its reason; or if no graph was compiled,
                with the cause.
            CaptureError: for a capture that did not go through torch.compile.
        """
        __tracebackhide__ = True
        compiled_checks.assert_graph_breaks(self, 0, None, allow, within)

    def assert_graph_breaks(
        self,
        count: Any = None,
        max: Any = None,
        allow: str | Sequence[str] = (),
        within: Any = None,
    ) -> None:
        """Assert how many distinct graph breaks there are; see `assert_no_graph_breaks`.

        Args:
            count: an int, a `(min, max)` pair, or a mapping of these by device type.
            max: how many at most.
            allow, within: breaks that are not counted.

        Raises:
            TypeError: with neither `count` nor `max`.
        """
        __tracebackhide__ = True
        compiled_checks.assert_graph_breaks(self, count, max, allow, within)

    def assert_no_recompiles(self) -> None:
        """Assert that nothing was compiled again.

        Raises:
            AssertionError: with each recompilation and its reasons; or if nothing could have been
                compiled again.
            CaptureError: for a capture that did not go through torch.compile.
        """
        __tracebackhide__ = True
        compiled_checks.assert_recompiles(self, 0, None)

    def assert_recompiles(self, count: Any = None, max: Any = None) -> None:
        """Assert how often something was compiled again. Reaching Dynamo's limit always fails.

        Args:
            count: an int, a `(min, max)` pair, or a mapping of these by device type.
            max: how often at most.

        Raises:
            AssertionError, CaptureError: see `assert_no_recompiles`.
            TypeError: with neither `count` nor `max`.
        """
        __tracebackhide__ = True
        compiled_checks.assert_recompiles(self, count, max)

    def assert_single_backward_graph(self) -> None:
        """Assert that compiled autograd made the whole backward one graph, and that it ran.

        That is: one capture, which gave one graph without a break in it.

        Raises:
            AssertionError: with what was there instead, and the reason for each further capture.
            CaptureError: for a capture that did not go through torch.compile.
        """
        __tracebackhide__ = True
        compiled_checks.assert_single_backward_graph(self)

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
        compiled_checks.need_graphs(self)
        checks.assert_matches_eager(self, self._comparison, rtol, atol)


_WHY_NO = {
    "backward": "A backward counts only if it ran: does an output require grad, is grad mode on, "
    "and is backward=False not set?",
}
