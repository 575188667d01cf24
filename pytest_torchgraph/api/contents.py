"""The contents of a `Capture`: the graphs of one step, of a watch, or of a file.

A capture is its contents at a level. What the contents know does not depend on the level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..convert.from_fx import Converted
from ..errors import CaptureError
from ..graph.census import calls
from ..graph.cost.step import Received
from ..graph.eager_op import EagerOp
from ..graph.model import Graph
from ..graph.savers import with_savers
from ..graph.schedule import ScheduledCall
from ..ops.levels import Level
from ..watching.graphs import PrintedGraphs

if TYPE_CHECKING:
    from ..checks.subject import EagerComparison
    from ..syncs.detect import RecordedCalls
    from ..watching.kernels import Kernel
    from ..watching.record import WatchRecord


class Contents:
    """Graphs of which nothing else is known, as those in a file.

    Args:
        program: the graphs, each eager one behind the one that ran before it.
        sees_eager: whether there would be eager ones if anything had run eagerly.
        received: see the property.

    Attributes:
        origin: how they came about, in words.
        is_watch: whether a watch saw them, which need not see any graph.
        was_called: whether there was a target that was called.
        counts_runs: whether the compiled graphs say how often they ran.
        joints: the joint graphs that forward and backward were split from.
        kernels: the kernels and library calls of the generated code, None where none was generated.
        record: what was compiled and run, None where nothing went through torch.compile.
        comparison: an eager run to compare with, None where there is none.
        rank: the rank that the graphs are of, None where nobody asked for several.
    """

    origin = "loaded from a file"
    is_watch = False
    was_called = False
    counts_runs = False
    joints: Sequence[Graph] = ()
    kernels: Sequence[Kernel] | None = None
    record: WatchRecord | None = None
    comparison: EagerComparison | None = None
    rank: int | None = None

    def __init__(
        self,
        program: Sequence[Graph] = (),
        *,
        sees_eager: bool = False,
        received: Received = MappingProxyType({}),
    ):
        self._program = with_savers(program)
        self._sees_eager = sees_eager
        self._received = received

    @property
    def eager(self) -> tuple[Graph, ...] | None:
        """The graphs of what ran eagerly beside compiled graphs; None where that is not known."""
        found = tuple(graph for graph in self._program if graph.eager)
        return found if found or self._sees_eager else None

    @property
    def eager_ops(self) -> Sequence[EagerOp] | None:
        """Each run of an op in them; None where it is not known that these are all."""
        found = [
            EagerOp(call.op, graph.name, call.node.module)
            for graph in self.eager or ()
            for _ in range(graph.runs)
            for call in calls((graph,))
        ]
        return found or None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs, in the order in which they were made."""
        return tuple(graph for graph in self._program if not graph.eager)

    @property
    def program(self) -> tuple[Graph, ...]:
        """The graphs, each eager one behind the one that ran before it."""
        return self._program

    def settle(self, rank: int) -> None:
        """Work out all that was put off, and let go of the target: it is one rank of several."""
        self.rank = rank
        self.comparison = None
        _ = self.program

    @property
    def received(self) -> Received:
        """Which inputs of compiled forward graphs other graphs made; empty where not known."""
        return self._received

    @property
    def levels(self) -> Sequence[Level]:
        """The levels that are known."""
        return list(dict.fromkeys(graph.level for graph in self.graphs))

    @property
    def calls(self) -> RecordedCalls | None:
        """The calls that ran, None where not each was seen."""
        return None

    @property
    def output(self) -> Any:
        """The output of the target; a `CaptureError` where none was called."""
        raise CaptureError(f"this capture was {self.origin}: it has graphs, no output")

    def at(self, level: Level) -> tuple[Graph, ...]:
        """The graphs of a level, none where it is not known."""
        return tuple(graph for graph in self.graphs if graph.level == level)

    def program_at(self, level: Level) -> tuple[Graph, ...]:
        """The graphs of a level and the eager ones, each behind the one that ran before it.

        The eager ones come last where this level has other graphs: one of its graphs may be several
        of the program, so that it is not known which ran before.
        """
        graphs = self.at(level)
        if [graph.kind for graph in graphs] != [graph.kind for graph in self.graphs]:
            return (*graphs, *(self.eager or ()))
        left = iter(graphs)
        return tuple(graph if graph.eager else next(left) for graph in self.program)

    @property
    def communicating(self) -> tuple[Graph, ...]:
        """The graphs that say what is sent between ranks."""
        return self.program

    @property
    def runs(self) -> Sequence[Graph] | None:
        """The graphs of the program in the order in which they ran, each as often as it did.

        None where that was not recorded.
        """
        return None

    def schedule(self, graph: Graph) -> Sequence[ScheduledCall] | None:
        """The collectives in the code that was generated for a graph; None where there is none."""
        return None

    def live(self, graph: Graph) -> Converted | None:
        """The live module of a graph, None where it has none."""
        return None

    def only(self, within: Any, function: str | None) -> Contents:
        """The part that is about some code; a `CaptureError` for what no watch has seen."""
        raise CaptureError("only() takes apart what a watch saw: use graph_capture.watch()")


class Eager(NamedTuple):
    """What ran eagerly in a step.

    Attributes:
        graphs: the graphs, each with the number of the compiled one behind which it ran first.
        ops: each run of an op in them.
        received: see `Contents.received`.
        order: all runs in order: whether it is of one of these graphs, and the number of the graph,
            else of the compiled one.
    """

    graphs: Sequence[tuple[int, Graph]]
    ops: Sequence[EagerOp]
    received: Received = MappingProxyType({})
    order: Sequence[tuple[bool, int]] = ()


class StepContents(Contents):
    """The graphs of one step of a target, its output and its record.

    Args:
        build: gives the graphs, when they are first read, and the calls that ran.
        output: what the target returned.
        eager: gives, when it is first read, the graphs of what ran eagerly, each with the number of
            the graph behind which it ran first, -1 for none; and the ops in them. None where that
            is not known.
        live: each graph that has a live module, with what it was converted from.
        levels: the graphs of other levels than their own.
        kernels: gives the kernels, when they are first read; None where no code was generated.
        schedules: gives the collectives in the code of each graph; None where there is no code.
        joints, record, comparison: see `Contents`.
    """

    was_called = True

    def __init__(
        self,
        build: Callable[[], tuple[tuple[Graph, ...], RecordedCalls | None]],
        output: Any,
        *,
        eager: Callable[[], Eager] | None = None,
        live: Iterable[tuple[Graph, Converted]] = (),
        levels: Mapping[Level, tuple[Graph, ...]] | None = None,
        joints: Sequence[Graph] = (),
        kernels: Callable[[], Sequence[Kernel]] | None = None,
        schedules: Callable[[], Sequence[Sequence[ScheduledCall]]] | None = None,
        record: WatchRecord | None = None,
        comparison: EagerComparison | None = None,
    ):
        super().__init__()
        self._build: Callable[[], tuple[tuple[Graph, ...], RecordedCalls | None]] | None = build
        self._output = output
        self._build_eager = eager
        self.counts_runs = eager is not None
        self._live = {id(graph): converted for graph, converted in live}
        self._levels = levels or {}
        self.joints = joints
        self._build_kernels = kernels
        self._build_schedules = schedules
        self.record = record
        self.comparison = comparison

    @cached_property
    def _built(self) -> tuple[tuple[Graph, ...], RecordedCalls | None]:
        assert self._build is not None
        built = self._build()
        self._build = None  # with what was recorded
        return built

    @cached_property
    def kernels(self) -> Sequence[Kernel] | None:  # type: ignore[override]
        """The kernels and library calls of the generated code."""
        return None if self._build_kernels is None else tuple(self._build_kernels())

    @cached_property
    def _schedules(self) -> Mapping[int, Sequence[ScheduledCall]]:
        """The collectives in the code of each graph, by its `id`."""
        if self._build_schedules is None:
            return {}
        return dict(zip(map(id, self.graphs), self._build_schedules(), strict=True))

    def schedule(self, graph: Graph) -> Sequence[ScheduledCall] | None:
        """The collectives in the code that was generated for a graph."""
        return self._schedules.get(id(graph))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that the mechanism gave."""
        return self._built[0]

    @cached_property
    def _built_eager(self) -> Eager | None:
        built = None if self._build_eager is None else self._build_eager()
        self._build_eager = None  # with what was recorded
        return built

    @property
    def eager(self) -> tuple[Graph, ...] | None:
        """The graphs of what ran eagerly."""
        built = self._built_eager
        return None if built is None else tuple(graph for _, graph in built.graphs)

    @property
    def eager_ops(self) -> Sequence[EagerOp] | None:
        """Each run of an op in them."""
        built = self._built_eager
        return None if built is None else built.ops

    @property
    def program(self) -> tuple[Graph, ...]:
        """The graphs, each eager one behind the one that ran before it."""
        built = self._built_eager
        eager = () if built is None else built.graphs
        found = [graph for behind, graph in eager if behind < 0]
        for number, graph in enumerate(self.graphs):
            found.append(graph)
            found += [graph for behind, graph in eager if behind == number]
        return tuple(found)

    @property
    def runs(self) -> Sequence[Graph] | None:
        """The graphs in the order in which they ran."""
        built = self._built_eager
        if built is None:
            return None
        return [built.graphs[n][1] if eager else self.graphs[n] for eager, n in built.order]

    @property
    def received(self) -> Received:
        """Which inputs of compiled forward graphs other graphs made."""
        built = self._built_eager
        return {} if built is None else built.received

    @property
    def levels(self) -> Sequence[Level]:
        """The levels of the graphs, then the others."""
        return list(dict.fromkeys([*super().levels, *self._levels]))

    @property
    def calls(self) -> RecordedCalls | None:
        """The calls that ran."""
        return self._built[1]

    @property
    def output(self) -> Any:
        """The output of the target."""
        return self._output

    def at(self, level: Level) -> tuple[Graph, ...]:
        """The graphs of a level."""
        return self._levels.get(level) or super().at(level)

    def live(self, graph: Graph) -> Converted | None:
        """The live module of a graph."""
        return self._live.get(id(graph))


class WatchContents(Contents):
    """The graphs and the record of a watch, which grow as long as it is open.

    Args:
        read: gives what there is by now.
    """

    origin = "made by watch()"
    is_watch = True

    def __init__(self, read: Callable[[], PrintedGraphs]):
        super().__init__()
        self._read = read

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that count, of each compilation at its own level."""
        return self._read().graphs

    @property
    def program(self) -> tuple[Graph, ...]:
        """The graphs: what ran eagerly is not seen."""
        return self.graphs

    @property
    def communicating(self) -> tuple[Graph, ...]:
        """The graphs that inductor lowered, where it wrote code; else those that count."""
        return self._read().communicating

    def schedule(self, graph: Graph) -> Sequence[ScheduledCall] | None:
        """The collectives in the code that was generated for a graph."""
        return self._read().schedule(graph)

    @property
    def levels(self) -> Sequence[Level]:
        """The levels that at least one compilation reached."""
        return self._read().levels

    @property
    def joints(self) -> Sequence[Graph]:  # type: ignore[override]
        """The joint graphs."""
        return self._read().joints

    @property
    def kernels(self) -> Sequence[Kernel] | None:  # type: ignore[override]
        """The generated kernels."""
        return self._read().kernels

    @property
    def record(self) -> WatchRecord:  # type: ignore[override]
        """The compilations, graph breaks, recompilations and runs."""
        return self._read().record

    def at(self, level: Level) -> tuple[Graph, ...]:
        """The graphs of a level; where no compilation reached it, those that count at it."""
        return self._read().at(level) or super().at(level)

    def only(self, within: Any, function: str | None) -> Contents:
        """The part that is about some code."""
        last = self._read()
        part = PrintedGraphs(last.record.only(within, function))

        def read_part() -> PrintedGraphs:
            nonlocal last, part
            if (now := self._read()) is not last:
                last, part = now, PrintedGraphs(now.record.only(within, function))
            return part

        return WatchContents(read_part)
