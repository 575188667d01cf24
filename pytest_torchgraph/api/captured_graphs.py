"""The graphs of a capture, and the compiler's record of its run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..checks.compilation import need_recorded
from ..checks.subject import Subject
from ..errors import CaptureError
from ..graph.census import count_ops
from ..graph.model import Detail, Graph, GraphKind, in_phase, need_phase, phase_of
from ..graph.text import Header, format_document, ops_in_words, shown_runs, with_runs
from ..ops.matching import ATEN_LEVELS, Level, OpCounts
from ..watching.output_code import UnreadableCodeError
from ..words import CHECK_BACKWARD

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from ..graph.events import EagerOp
    from ..mechanisms.torch_compile import PassRun
    from ..watching.compilations import Compilation
    from ..watching.kernels import Kernel
    from ..watching.record import WatchRecord
    from ..watching.trace_log import Log
    from .contents import Contents

_T = TypeVar("_T")
_WHY_NO_BACKWARD = f"A backward counts only if it ran: {CHECK_BACKWARD}."


def _why_no_eager_ops(via: str) -> str:
    """Return why a capture does not record ops outside compiled graphs, and what to use."""
    if via in ("watch", "trace"):
        return (
            f"a {via} does not record ops that run eagerly: use graph_capture(target, ...) via "
            "'aot', 'inductor', 'dynamo' or 'compiled_autograd'"
        )
    if via == "compiled_autograd":
        return (
            "CompiledAutograd(forward='eager') does not record the forward, because a dispatch "
            "mode would change the autograd nodes of some ops, and so the backward graph. Use "
            "CompiledAutograd(forward='aot'), or via='dispatch'"
        )
    return (
        f"a capture via {via!r} compiles nothing, so its ops are not divided into compiled ops "
        "and eager ops: use via='aot'"
    )


class CapturedGraphs(Subject):
    """The graphs of a capture; see `Capture`.

    `_read` returns the contents. Those of an open watch change, so everything reads them anew
    (`_contents`). A capture at another level shares `_read`.
    """

    def __init__(
        self,
        contents: Contents | Callable[[], Contents],
        header: Header,
        *,
        level: Level | None = None,
        device: str | None = None,
    ):
        self.header = header
        self.via = header.via
        self.device = device
        self._read = contents if callable(contents) else lambda: contents
        self._level = level

    @property
    def _contents(self) -> Contents:
        return self._read()

    @property
    def rank(self) -> int | None:
        """Rank that was captured, or `None` outside `Ranks`."""
        return self._contents.rank

    def finish_for_rank(self, rank: int) -> None:
        """Assign the capture to a rank.

        Deferred work is done now, because the rank's process group is about to end.
        """
        contents = self._contents.finished_for_rank(rank)
        self._read = lambda: contents

    @property
    def watched(self) -> WatchRecord | None:
        """Record of a watch, or `None` for other captures."""
        return self._contents.record if self._contents.is_watch else None

    def record(self, asked: str) -> WatchRecord:
        """Return the compiler's record: compilations, graph breaks, recompilations, run counts.

        Args:
            asked: the requested information, for the message.

        Raises:
            CaptureError: if nothing went through torch.compile.
        """
        remedy = "via='aot', 'dynamo', 'inductor' or 'compiled_autograd', or graph_capture.watch()"
        return self._recorded(self._contents.record, f"{asked} are", remedy)

    def _calls(self, asked: str) -> WatchRecord:
        """Return the record of a run, which has calls; see `record`."""
        record = self.record(asked)
        if record.log is not None:  # a log has compilations only
            raise self._unavailable(f"{asked} are", "graph_capture.watch()")
        return record

    @property
    def log(self) -> Log | None:
        """The log of torch that the capture was loaded from; `None` for other captures."""
        return self._contents.record.log if self._contents.record is not None else None

    def _recorded(self, fact: _T | None, subject: str, remedy: str) -> _T:
        """Return a fact, or raise an error with the remedy if this capture does not have it."""
        if fact is None:
            raise self._unavailable(subject, remedy)
        return fact

    def _unavailable(self, subject: str, remedy: str) -> CaptureError:
        """Return the error for data that this capture does not have."""
        how = self._contents.origin or f"via {self.via!r}"
        return CaptureError(f"{subject} not available on a capture {how}: use {remedy}")

    # -- graphs ----------------------------------------------------------------------------------

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Compiled or recorded graphs, in creation order, at the capture's level.

        Raises:
            CaptureError: if no graph contains an operation.
        """
        contents = self._contents
        return contents.graphs if self._level is None else contents.at(self._level)

    @property
    def eager(self) -> tuple[Graph, ...]:
        """Graphs of ops that ran eagerly, outside every compiled graph, in program order.

        The graphs are named `eager_0`, `eager_1`, ... Their level is "dispatch", their kind
        "forward", "backward" or "inference". An eager graph contains the ops between two compiled
        graphs. Eager graphs with equal dataflow are merged; `Graph.runs` is their run count. The
        name of an input that another graph produced contains both names: `forward_0:fc/addmm`.
        `Graph.cause` is the graph break or skipped frame that kept the ops out of compiled graphs.

        Via "dynamo", the backward of a compiled graph is in no graph, and `eager` does not contain
        its ops. Via "compiled_autograd", only the forward has eager graphs, because the entire
        backward is one graph.

        Raises:
            CaptureError: if the capture does not record ops outside compiled graphs: `watch()`,
                `CompiledAutograd(forward="eager")`, and via "dispatch", "fx" and "export", which
                compile nothing.
        """
        eager_graphs = self._contents.eager
        if eager_graphs is None:
            raise CaptureError(_why_no_eager_ops(self.via))
        return eager_graphs

    @property
    def eager_ops(self) -> Sequence[EagerOp]:
        """Every eager op call, in program order.

        For a capture loaded from a file, the calls are in the order of its graphs and have no
        source lines.

        Raises:
            CaptureError: see `eager`; also for a file without eager ops, because a release that did
                not record them may have stored it.
        """
        eager = self.eager
        if self._contents.eager_ops is not None:
            return self._contents.eager_ops
        assert not eager  # eager graphs always have ops
        raise CaptureError(
            "the file does not say whether eager ops were recorded when it was stored: capture "
            "again"
        )

    @property
    def compiled_share(self) -> float:
        """Fraction of executed ops that ran in compiled graphs, from 0.0 to 1.0.

        Each op counts once per run of its graph, including the ops inside higher-order ops.

        Raises:
            CaptureError: see `eager`; also for a capture loaded from a file, which has no run
                counts of compiled graphs.
        """
        eager = len(self.eager_ops)
        if not self._contents.counts_runs:
            raise CaptureError(
                "the file does not store the run counts of compiled graphs: capture again"
            )
        compiled = sum(graph.op_counts.total() * graph.runs for graph in self._contents.graphs)
        return compiled / (compiled + eager)

    def by_compilation(self) -> list[tuple[Graph, Compilation]]:
        """Return the graphs of a watch, at the capture's level, each with its compilation."""
        printed = self._contents.printed
        return [] if printed is None else [*printed.by_compilation(self._level)]

    @property
    def program(self) -> tuple[Graph, ...]:
        """All graphs in program order: `graphs`, and each `eager` graph after its predecessor.

        If a level (`at`) divides the step into different graphs, the `eager` graphs come last.
        Op checks, comparisons, stored text and pictures cover the whole program.
        """
        contents = self._contents
        return contents.program if self._level is None else contents.program_at(self._level)

    @property
    def output(self) -> Any:
        """Output of the target.

        Raises:
            CaptureError: for a capture loaded from a file or made by `watch()`.
        """
        return self._contents.output

    @property
    def forwards(self) -> tuple[Graph, ...]:
        """Forward and inference graphs."""
        return self._of_kind("forward", "inference")

    @property
    def backwards(self) -> tuple[Graph, ...]:
        """Backward graphs that ran."""
        return self._of_kind("backward")

    @property
    def forward(self) -> Graph:
        """The only forward or inference graph.

        Raises:
            CaptureError: if there are no forward graphs, or several.
        """
        return self._require_one("forward", self.forwards)

    @property
    def backward(self) -> Graph:
        """The only backward graph.

        Raises:
            CaptureError: if there are no backward graphs, or several.
        """
        return self._require_one("backward", self.backwards)

    def phase(self, name: str) -> tuple[Graph, ...]:
        """Return the graphs of a phase of the step, compiled and eager, in program order.

        In a capture with `updates=`, "backward" is what a backward runs. "update" is, outside a
        backward, what writes a parameter, a gradient or named state other than a module's buffers
        in its own forward, what only feeds such writes, and what else runs after a backward and
        feeds no later one, such as a logged loss. "forward" is the rest. Without `updates=`,
        "forward" and "backward" are `forwards` and `backwards`.

        Args:
            name: "forward", "backward" or "update".

        Raises:
            CaptureError: for "update" without `updates=`.
            ValueError: for another name.
        """
        need_phase(name)
        if self._has_phases:
            return tuple(graph for graph in self.program if phase_of(graph) == name)
        if name == "update":
            raise CaptureError(
                "this capture has no update: capture the whole training step, "
                "graph_capture(step, ..., updates=(model, optimizer))"
            )
        return self.forwards if name == "forward" else self.backwards

    @property
    def _has_phases(self) -> bool:
        is_training_step = self._contents.training is not None
        return is_training_step or any(graph.kind == "update" for graph in self.program)

    def _of_phase(self, name: str) -> tuple[Graph, ...]:
        """Return the graphs of a phase, see `graph.model.in_phase`; raise as `phase` does."""
        self.phase(name)  # raises for an unknown phase, and for an update without `updates=`
        return in_phase(self.program, name)

    @property
    def joint(self) -> Graph:
        """The only joint graph, before AOTAutograd split it into forward and backward.

        Raises:
            CaptureError: if there are no joint graphs, or several.
        """
        joints = self._contents.build_joints()
        if len(joints) == 1:
            return joints[0]
        if joints:
            raise CaptureError(
                f"capture.joint needs exactly one joint graph, but the capture has {len(joints)}"
            )
        remedy = "graph_capture(target, ..., via='aot') with an output that requires grad"
        raise self._unavailable("a joint graph is", remedy)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels that inductor generated, and library calls of the generated code.

        For each graph, they are in the order in which the generated code first launches them. See
        `Kernel` for the definition of a library call.

        Raises:
            CaptureError: if no code was generated, or the code is not parsed (inductor's option
                `cpp_wrapper`).
        """
        try:
            kernels = self._contents.kernels
        except UnreadableCodeError as error:
            raise CaptureError(f"cannot list the kernels: {error}") from None
        remedy = "graph_capture(target, ..., via='inductor')"
        return tuple(self._recorded(kernels, "kernels are", remedy))

    @property
    def passes(self) -> tuple[PassRun, ...]:
        """Graph passes that inductor ran, in order, with the graphs before and after.

        A pass that runs other passes comes after them. Passes after the fx graphs (the fusions of
        inductor's scheduler) are not recorded.

        Raises:
            CaptureError: if the capture did not record passes.
        """
        remedy = "graph_capture(target, ..., via=Inductor(passes=True))"
        return self._recorded(self._contents.passes, "passes are", remedy)

    @property
    def op_counts(self) -> OpCounts:
        """Count of each op over all graphs of the `program`."""
        return count_ops(self.program)

    def at(self, level: Level) -> Self:
        """Return this capture at another recorded level. Everything else is unchanged.

        For a watch, `capture.at("dynamo")` has the graphs that Dynamo passed to its backend.

        Args:
            level: "dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export" or "post_grad".
                A watch records up to four levels. A capture via `compiled_autograd` also has the
                "aot" graphs. Other captures have only their own level.

        Raises:
            CaptureError: if the level was not captured, or if a backend that does not use
                AOTAutograd compiled some of the code, which therefore has no aten graphs.
        """
        if not self._contents.at(level):
            self._need_any()  # without any graph, the level is not the problem
            levels = ", ".join(self._contents.levels)
            via = "inductor" if level == "post_grad" else level
            raise CaptureError(
                f"level {level!r} was not captured (captured levels: {levels}): use via={via!r}"
            )
        if level in ATEN_LEVELS:
            # A watch has the Dynamo graph in place of one that it lacks at this level.
            for graph in self._contents.graphs:
                if graph.level == "dynamo" and any(node.is_call for node in graph.nodes):
                    raise CaptureError(
                        f"{graph.name} has no graph at level {level!r}, because its backend does "
                        "not use AOTAutograd: select other functions with only(function=...), or "
                        "compile with another backend, such as 'aot_eager'"
                    )
        return type(self)(self._read, self.header, level=level, device=self.device)

    def with_sizes(self, **sizes: int) -> Self:
        """Return a capture with values for symbolic sizes, so that its cost is a number.

        `capture.with_sizes(s0=8).flops` is the cost of a step with size `s0` equal to 8. The
        returned capture has only graphs, like a capture loaded from a file. An expression becomes a
        number if all its symbols have values; other expressions stay symbolic.

        Args:
            **sizes: the size of each symbol, by its name in the graphs.

        Raises:
            TypeError: if no size is given, or a size is not an int.
            ValueError: for a symbol that is in no graph (the message lists the symbols), for a
                negative size, and if an expression would become fractional or negative.
            CaptureError: for a watch with graph breaks, see `flops`.
        """
        from ..graph.sizes import with_sizes
        from .contents import Contents

        self._need_whole()
        program = with_sizes(self.program, sizes)
        contents = Contents.of_program(program, sees_eager=self._contents.eager is not None)
        return type(self)(contents, self.header, device=self.device)

    def only(self, within: Any = None, function: str | None = None) -> Self:
        """Return the part of a watch that belongs to some code.

        `capture.only(within="my_package")` ignores what other packages compile, and
        `capture.only(function="forward*")` keeps the functions whose names match the glob.

        Args:
            within: a path, an importable package, or a sequence of these.
            function: a glob of names of compiled functions.

        Raises:
            CaptureError: if the capture was not made by `watch()`.
            ValueError: if `within` is neither a path nor a package.
        """
        whole = self._contents
        part = whole.only(within, function)  # now, so that a wrong argument raises here

        # An open watch makes new contents, whose part has to be selected anew.
        def read() -> Contents:
            nonlocal whole, part
            if (now := self._contents) is not whole:
                whole, part = now, now.only(within, function)
            return part

        return type(self)(read, self.header, level=self._level, device=self.device)

    def fx(self, graph: Graph) -> torch.fx.GraphModule:
        """Return a `torch.fx.GraphModule` of a captured graph, to run or transform.

        The module takes the graph's inputs in their order, under names derived from theirs. It
        returns the graph's outputs followed by its saved values. `from_fx` converts the module back
        to the same graph. Each call makes a new copy, which shares parameters and buffers with the
        model.

        Args:
            graph: one of `graphs`, at the capture's level.

        Raises:
            CaptureError: if the graph is not from this capture, or has no live module: if it ran
                eagerly, or was captured via "dispatch" or by a watch, or loaded from a file.
        """
        # By identity, because another capture may have an equal graph.
        if any(eager_graph is graph for eager_graph in self._contents.eager or ()):
            raise CaptureError(
                f"{graph.name} ran eagerly, op by op, so it has no live torch.fx graph: pass one "
                "of capture.graphs"
            )
        if not any(captured_graph is graph for captured_graph in self.graphs):
            raise CaptureError(
                f"{graph!r} is not one of this capture's graphs: pass one of capture.graphs"
            )
        converted = self._contents.live_by_id.get(id(graph))
        remedy = "graph_capture(target, ..., via='aot')"
        converted = self._recorded(converted, "torch.fx graphs are", remedy)
        from ..convert.to_fx import to_graph_module

        return to_graph_module(converted)

    def to_text(
        self, detail: Detail = "dataflow", fold: bool = True, digits: int | None = None
    ) -> str:
        """Return the `.tgraph` text of all graphs of the `program`.

        Args:
            detail: "ops" writes only op counts, "dataflow" everything that comparisons use, "full"
                also strides and devices.
            fold: True writes repeated modules once, as stored files do. False writes each node on
                its own line, for line-by-line comparison.
            digits: significant digits of float constants, see `Graph.to_text`.
        """
        return format_document(self.program, self.header, detail, fold=fold, digits=digits)

    def __repr__(self) -> str:
        graphs = ", ".join(
            f"{with_runs(graph.name, shown_runs(graph))} ({ops_in_words(graph)})"
            for graph in self.program
        )
        return f"<{type(self).__name__} via {self.via}: {graphs or 'no graphs'}>"

    def _of_kind(self, *kinds: GraphKind) -> tuple[Graph, ...]:
        return tuple(graph for graph in self.graphs if graph.kind in kinds)

    def _require_one(self, word: str, graphs: tuple[Graph, ...]) -> Graph:
        """Return the only graph, or raise an error that lists all graphs of the capture."""
        if len(graphs) == 1:
            return graphs[0]
        self._need_any()
        names = ", ".join(f"{graph.name} ({ops_in_words(graph)})" for graph in self.graphs)
        count = len(graphs) or "none"
        hint = _WHY_NO_BACKWARD if word == "backward" else ""
        hint = f"Use one of capture.{word}s" if graphs else hint
        raise CaptureError(
            f"expected one {word} graph, found {count} (graphs: {names or 'none'}). {hint}".rstrip()
        )

    def _need_any(self) -> None:
        """Raise `CaptureError` with the reason if a watch has no graph."""
        if self.watched is not None and not self.graphs:
            from ..checks.eager import why_no_graph

            raise CaptureError(f"no graph was compiled:\n{why_no_graph(self.watched)}")

    def _need_whole(self) -> None:
        """Raise `CaptureError` if ops of the step are in no graph, so that its cost is unknown."""
        self._need_any()
        self.need_all_ops("the cost")

    def need_all_ops(self, unknown: str) -> None:
        """Refuse a watch with graph breaks, or that ran code compiled before it.

        Args:
            unknown: the missing information, for the message: "the cost".

        Raises:
            CaptureError: with the first graph break, or this code.
        """
        try:
            need_recorded(self.watched)
        except AssertionError as error:
            raise CaptureError(f"{unknown} is unknown: {error}") from None
        breaks = self.watched.breaks if self.watched is not None else ()
        if breaks:
            raise CaptureError(
                f"{unknown} is unknown: ops that ran at graph breaks are not in the graphs of a "
                f"watch (first graph break: {breaks[0].file}:{breaks[0].line}, {breaks[0].kind}). "
                "Use graph_capture(target, ...) via 'aot' or 'dispatch'"
            )

    @property
    def _split(self) -> tuple[Graph, ...]:
        """`program` with AOTAutograd's graphs instead of the graphs derived from them.

        Inductor changes AOTAutograd's graphs, and compiled autograd traces the backward ones again.
        """
        contents = self._contents
        at_aot = any(graph.level in ("post_grad", "compiled_autograd") for graph in contents.graphs)
        has_aot = at_aot and contents.at("aot")
        return contents.program_at("aot") if has_aot else self.program
