"""The contents of a `Capture`: the graphs of one step, of a watch, or of a file.

A capture is its contents at a level. The contents are the same at every level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..convert.from_fx import Converted
from ..errors import CaptureError
from ..graph.census import calls
from ..graph.cost import with_savers
from ..graph.events import EagerOp, Frozen, ScheduledCall, UpdatedParameter
from ..graph.model import Graph, Source
from ..graph.step import StepCall, with_calls
from ..ops.matching import Level
from ..watching.graphs import PrintedGraphs

if TYPE_CHECKING:
    from ..checks.subject import CallsComparison, Comparison
    from ..mechanisms.torch_compile import PassRun
    from ..syncs.detect import RecordedCalls
    from ..watching.cache_lookups import CacheBypass
    from ..watching.kernels import Kernel
    from ..watching.record import WatchRecord

T = TypeVar("T")

OF_LOG = "loaded from a log of torch, which has compilations and no calls"


class EagerPart(NamedTuple):
    """The eager part of a step.

    Attributes:
        graphs: eager graphs, each with the number of the compiled graph that ran before it; -1 if
            no compiled graph ran before.
        ops: every op call of the graphs; `None` if the record may be incomplete.
        order: all runs in execution order, as (True, number of the eager graph) or (False, number
            of the compiled graph); `None` if unknown.
        calls: the runs with their links and cuts, one for each of `order`; () if unknown.
    """

    graphs: Sequence[tuple[int, Graph]]
    ops: Sequence[EagerOp] | None
    order: Sequence[tuple[bool, int]] | None = ()
    calls: Sequence[StepCall] = ()


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls `make` on its first call, and releases it afterwards.

    A call that raises leaves `make` for the next call.
    """
    pending, results = [make], []

    def get() -> T:
        if pending:
            results.append(pending[0]())
            pending.clear()
        return results[0]

    return get


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that a capture records. Immutable: reading an open watch makes new contents.

    Each attribute that is a function is called once, when its result is first read.

    Attributes:
        build: returns the compiled graphs, and the recorded calls or `None` if their record is
            incomplete.
        returned: output of the target, if a target was called.
        build_eager: returns the ops that ran eagerly, outside compiled graphs; `None` if unknown.
        live_by_id: live modules of graphs, by the `id` of the graph.
        by_level: graphs of additional levels.
        build_joints: returns the joint graphs, before the split into forward and backward.
        build_kernels: returns the kernels of the generated code; `None` if there is no code.
        build_schedules: returns the collectives in each graph's code; `None` if there is no code.
        build_bypasses: returns the graphs' `CacheBypass`es; `None` if unknown.
        passes: passes that inductor ran; `None` if not recorded.
        record: compilations and runs; `None` if nothing went through torch.compile.
        comparison: eager runs for comparison, or `None`.
        rank: rank of the graphs; `None` outside `Ranks`.
        printed: graphs that torch printed during a watch; `None` without a watch.
        methods: see `Captured.methods`.
        find_frozen: returns the numbers that are frozen into compiled graphs; `None` unless this is
            a training step.
        training: returns what a training step did to its parameters; `None` for other captures.
        origin: where the graphs come from, for messages; "" if a target was called.
    """

    build: Callable[[], tuple[tuple[Graph, ...], RecordedCalls | None]]
    returned: Any = None
    build_eager: Callable[[], EagerPart | None] | None = None
    live_by_id: Mapping[int, Converted] = field(default_factory=dict)
    by_level: Mapping[Level, tuple[Graph, ...]] = field(default_factory=dict)
    build_joints: Callable[[], Sequence[Graph]] = tuple
    build_kernels: Callable[[], Sequence[Kernel] | None] | None = None
    build_schedules: Callable[[], Sequence[Sequence[ScheduledCall]]] | None = None
    build_bypasses: Callable[[], tuple[CacheBypass, ...]] | None = None
    passes: tuple[PassRun, ...] | None = None
    record: WatchRecord | None = None
    comparison: Comparison = None
    rank: int | None = None
    printed: PrintedGraphs | None = None
    origin: str = ""
    training: Callable[[], Sequence[UpdatedParameter]] | None = None
    methods: Sequence[tuple[str, str, Source | None, str]] = ()
    find_frozen: Callable[[], tuple[Frozen, ...]] | None = None

    def __post_init__(self) -> None:
        for name in (
            "build",
            "build_eager",
            "build_kernels",
            "build_schedules",
            "build_bypasses",
            "find_frozen",
            "training",
        ):
            if (make := getattr(self, name)) is not None:
                # The class is frozen. `replace` wraps a function again: both share one result.
                object.__setattr__(self, name, once(make))

    @classmethod
    def of_program(cls, program: Sequence[Graph], *, sees_eager: bool = False) -> Contents:
        """Return the contents of graphs without run information, such as graphs from a file.

        Args:
            program: all graphs in program order, compiled and eager.
            sees_eager: True if eager ops would have been recorded.
        """
        compiled: list[Graph] = []
        eager: list[tuple[int, Graph]] = []
        for graph in with_savers(program):
            if graph.eager:
                eager.append((len(compiled) - 1, graph))
            else:
                compiled.append(graph)

        def build_eager() -> EagerPart | None:
            ops = [
                EagerOp(call.op, graph.name, call.node.module)
                for _, graph in eager
                for _ in range(graph.runs)
                for call in calls((graph,))
            ]
            # A file without eager graphs may be of a release that did not record eager ops.
            return EagerPart(eager, ops or None, None) if eager or sees_eager else None

        graphs = tuple(compiled)
        origin = "loaded from a file"
        return cls(lambda: (graphs, None), build_eager=build_eager, origin=origin)

    @classmethod
    def of_watch(
        cls, printed: PrintedGraphs, comparison: CallsComparison | None = None
    ) -> Contents:
        """Return the contents of a watch: its record, and the graphs for `Capture.graphs`."""
        log = printed.record.log
        return cls(
            lambda: (printed.graphs, None),
            build_joints=lambda: printed.joints,
            build_kernels=lambda: printed.kernels,
            record=printed.record,
            comparison=comparison,
            printed=printed,
            rank=None if log is None else log.rank,
            origin=OF_LOG if log is not None else "made by watch()",
        )

    @property
    def is_watch(self) -> bool:
        """True if a watch recorded the contents."""
        return self.printed is not None

    @property
    def counts_runs(self) -> bool:
        """True if compiled graphs have run counts."""
        return not self.origin and self.build_eager is not None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Compiled graphs, in creation order."""
        return self.build()[0]

    @property
    def calls(self) -> RecordedCalls | None:
        """Recorded calls; `None` if the record is incomplete."""
        return self.build()[1]

    @property
    def _eager_part(self) -> EagerPart | None:
        return None if self.build_eager is None else self.build_eager()

    @property
    def eager(self) -> tuple[Graph, ...] | None:
        """Graphs of ops that ran eagerly, outside compiled graphs; `None` if unknown."""
        part = self._eager_part
        return None if part is None else tuple(graph for _, graph in part.graphs)

    @property
    def eager_ops(self) -> Sequence[EagerOp] | None:
        """Every op call of the eager graphs; `None` if the record may be incomplete."""
        return None if self._eager_part is None else self._eager_part.ops

    @cached_property
    def program(self) -> tuple[Graph, ...]:
        """All graphs in program order, each eager graph after its predecessor.

        The first read also sets `Graph.calls`, which is known only with all graphs.
        """
        part = self._eager_part
        eager = () if part is None else part.graphs
        program = [graph for after, graph in eager if after < 0]
        for number, graph in enumerate(self.graphs):
            program.append(graph)
            program += [graph for after, graph in eager if after == number]
        calls: dict[int, list[StepCall]] = {}
        if part is not None and part.calls:
            for (is_eager, number), call in zip(part.order or (), part.calls, strict=True):
                graph = part.graphs[number][1] if is_eager else self.graphs[number]
                calls.setdefault(id(graph), []).append(call)
        # A watch has no calls: it does not record which value of a graph enters which other graph.
        if calls or self.is_watch:
            for graph in program:
                object.__setattr__(graph, "calls", tuple(calls.get(id(graph), ())))
        return tuple(program)

    @property
    def runs(self) -> Sequence[Graph] | None:
        """Graphs of the program in execution order, repeated per run; `None` if unknown."""
        part = self._eager_part
        if part is None or part.order is None:
            return None
        return [part.graphs[n][1] if is_eager else self.graphs[n] for is_eager, n in part.order]

    @property
    def communicating(self) -> tuple[Graph, ...]:
        """Graphs that show communication between ranks: inductor's lowered graphs, if known."""
        return self.program if self.printed is None else self.printed.communicating

    @property
    def kernels(self) -> Sequence[Kernel] | None:
        """Kernels and library calls of the generated code; `None` if there is no code."""
        return None if self.build_kernels is None else self.build_kernels()

    @cached_property
    def _schedules(self) -> Mapping[int, Sequence[ScheduledCall]]:
        schedules = () if self.build_schedules is None else self.build_schedules()
        return dict(zip(map(id, self.graphs), schedules, strict=True)) if schedules else {}

    def schedule(self, graph: Graph) -> Sequence[ScheduledCall] | None:
        """Return the collectives in the code generated for a graph; `None` if there is no code."""
        if self.printed is not None:
            return self.printed.schedule(graph)
        return self._schedules.get(id(graph))

    @property
    def levels(self) -> Sequence[Level]:
        """Recorded levels, starting with the graphs' own."""
        if self.printed is not None:
            return self.printed.levels
        return list(dict.fromkeys([*(graph.level for graph in self.graphs), *self.by_level]))

    def at(self, level: Level) -> tuple[Graph, ...]:
        """Return the graphs of a level; empty if the level was not recorded."""
        further = self.by_level.get(level) if self.printed is None else self.printed.at(level)
        return further or tuple(graph for graph in self.graphs if graph.level == level)

    def program_at(self, level: Level) -> tuple[Graph, ...]:
        """Return the graphs of a level, with each eager graph after its predecessor.

        Eager graphs come last if the level divides the step differently.
        """
        graphs = self.at(level)
        # A graph of this level may be several graphs of the program, so it is unknown which graph
        # precedes an eager graph.
        if [graph.kind for graph in graphs] != [graph.kind for graph in self.graphs]:
            return (*graphs, *(self.eager or ()))
        graphs_at_level = iter(graphs)
        own = self.program
        return with_calls([graph if graph.eager else next(graphs_at_level) for graph in own], own)

    @property
    def output(self) -> Any:
        """Output of the target. Raises `CaptureError` if no target was called."""
        if self.origin:
            raise CaptureError(
                f"capture.output is not available on a capture {self.origin}: use "
                "graph_capture(target, ...)"
            )
        return self.returned

    def finished_for_rank(self, rank: int) -> Contents:
        """Return the contents of a rank, with deferred work done and without the target."""
        _ = self.program  # builds the graphs
        return replace(self, rank=rank, comparison=None)

    def only(self, within: Any, function: str | None) -> Contents:
        """Return the part of a watch that belongs to some code. Otherwise, raise `CaptureError`."""
        if self.printed is None:
            raise CaptureError(
                f"only() is not available on a capture {self.origin or 'by graph_capture(...)'}: "
                "use `with graph_capture.watch() as capture:`"
            )
        part = PrintedGraphs(self.printed.record.only(within, function))
        return replace(Contents.of_watch(part), rank=self.rank)
