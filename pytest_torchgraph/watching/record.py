"""The record of a watch: compilations, graph breaks, recompilations, runs and eager calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..convert.source_lines import is_user_file, relative
from ..errors import TorchGraphError
from ..graph.events import GraphBreak
from ..settings.paths import is_within
from ..words import grouped
from .breaks import breaks_of
from .cache_lookups import CacheBypass, bypasses_of
from .compilations import Compilation, compilations
from .observe import (
    AOT_COMPILED,
    BACKWARD,
    HUB,
    PRECOMPILED,
    CallKind,
    CompiledCallable,
    CountedGraph,
    Counts,
    EagerCause,
    EventRecorder,
)
from .output_code import CudagraphSkip, skips_of
from .recompiles import Recompile, recompiles_of

if TYPE_CHECKING:
    from .trace_log import Log, Process

EARLIER = "compiled before the watch: "
_IN_TORCH = "skipfiles"
"""Marker in Dynamo's reason for skipping torch's own code."""


@dataclass(frozen=True)
class EagerCall:
    """Calls of a compiled callable that ran eagerly, for one reason.

    Attributes:
        function: name of the function, or of the module's class.
        file, line: start of its code; the file as in `GraphBreak`; "" and 0 if it has no code.
        kind: "stance" (`torch.compiler.set_stance`), "limit" (a recompile limit), "disabled"
            (`torch.compiler.disable`, `torch._dynamo.config.disable` or `torch._dynamo.run`),
            "skipped" (Dynamo skipped the frame, or a mode, transform or trace was active; also a
            call of a `torch.compiler.precompile` result, which cannot be observed) or "backend"
            (the backend raised under `torch._dynamo.config.suppress_errors`).
        reason: Dynamo's words, or ours.
        count: number of eager calls.
        calls: number of all calls of the function, compiled or eager.
    """

    function: str
    file: str
    line: int
    kind: CallKind
    reason: str
    count: int
    calls: int

    def __str__(self) -> str:
        has_file = self.file and not self.file.startswith("<")
        location = f" ({self.file}:{self.line})" if has_file else ""
        times = f"{self.count} of {self.calls} calls" if self.calls > 1 else "its call"
        how = "unseen" if self.reason in (PRECOMPILED, AOT_COMPILED) else "eagerly"
        return f"{self.function}{location}: {times} ran {how}: {self.reason}"


def eager_calls_of(
    callables: Iterable[CompiledCallable], recompiles: Iterable[Recompile]
) -> Iterator[tuple[EagerCall, EagerCause | None]]:
    """Return the eager calls, each with its observed cause.

    Args:
        callables: the callables that were called.
        recompiles: the recompilations. A recompile limit that was reached outside any call, for
            example in a captured backward, is found only here, and has no observed cause.
    """
    limits = {
        (recompile.path, recompile.line): recompile
        for recompile in recompiles
        if recompile.limit_hit
    }
    reported = set()
    for callee in callables:
        file = relative(callee.file) if callee.file else ""
        for cause, count in callee.uncompiled.items():
            # The recompilation says more than the cause: the failed guard.
            limit = limits.get((cause.file, cause.line)) if cause.kind == "limit" else None
            if limit is not None:
                reported.add((cause.file, cause.line))
                cause = cause._replace(reason=_describe_limit(limit))
            reason, calls = _describe_cause(cause, callee), callee.entries
            yield EagerCall(callee.name, file, callee.line, cause.kind, reason, count, calls), cause
    for key, limit in limits.items():
        if key not in reported:
            words = _describe_limit(limit)
            yield EagerCall(limit.function, limit.file, limit.line, "limit", words, 1, 1), None


def _describe_limit(recompile: Recompile) -> str:
    return (
        f"recompile limit reached, so later calls ran eagerly (compile {recompile.compile_id}: "
        f"{next(iter(recompile.reasons), 'torch does not name the failed guard')})"
    )


def _describe_cause(cause: EagerCause, callee: CompiledCallable) -> str:
    """Describe a cause, and name its frame unless it is the callable itself."""
    if _IN_TORCH in cause.reason and not is_user_file(cause.file):
        return (
            f"{cause.reason}: Dynamo does not compile a module of torch by itself; compile a "
            "module or function of yours that calls it"
        )
    is_other_frame = cause.function and (cause.file, cause.line) != (callee.file, callee.line)
    is_other_frame = is_other_frame and not cause.file.startswith("<")
    where = f" ({cause.function} at {relative(cause.file)}:{cause.line})" if is_other_frame else ""
    return f"{cause.reason}{where}"


@dataclass(frozen=True, eq=False)
class WatchRecord:
    """A snapshot of a watch, or the part of it that concerns some code.

    Attributes:
        compiled: compilations, in order.
        runs: run count of each compiled graph.
        compiled_names: names of the graphs that were compiled in the watch.
        counters: change of `torch._dynamo.utils.counters`, by group.
        callables: compiled callables that were called.
        mesh_dimensions: purpose of each process group, see `EventRecorder`.
        disabled: the setting that disabled `torch.compile` in this process, "" if none did.
        opened: True if the watch was ever entered.
        warmed_up: True if there were calls before the watch, so it need not contain a graph.
        stepped: optimizers that stepped outside compiled code, with their lines.
        part: the arguments of `only` that restricted the record, in words, "" if unrestricted.
        compiled_in_all: all compiled functions with their files and lines, if the record is
            restricted.
        log: the log that the record was read from; `None` for a watch. A log has compilations and
            no calls, so each graph counts as run once.
    """

    compiled: tuple[Compilation, ...]
    runs: Counts
    compiled_names: frozenset[str]
    counters: Mapping[str, Counter[Any]]
    callables: tuple[CompiledCallable, ...]
    mesh_dimensions: Mapping[str, str] = field(default_factory=dict)
    disabled: str = ""
    opened: bool = True
    warmed_up: bool = False
    stepped: tuple[str, ...] = ()
    part: str = ""
    compiled_in_all: tuple[str, ...] = ()
    log: Log | None = None

    @property
    def state(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the watch records anything new."""
        entries = tuple((callee.entries, callee.uncompiled.total()) for callee in self.callables)
        progress = tuple((len(c.printed), len(c.breaks), c.finished) for c in self.compiled)
        return progress, dict(self.runs), entries, self.stepped

    @cached_property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """Graph breaks, one `GraphBreak` per file, line and kind."""
        return breaks_of(self.compiled)

    @cached_property
    def cache_bypasses(self) -> tuple[CacheBypass, ...]:
        """Reasons why AOTAutograd's cache can never serve the compiled graphs."""
        return bypasses_of(self.compiled)

    @cached_property
    def cudagraph_skips(self) -> tuple[CudagraphSkip, ...]:
        """Graphs for which a CUDA graph was requested, but not made."""
        return skips_of(self.compiled, self.counters)

    @cached_property
    def recompiles(self) -> tuple[Recompile, ...]:
        """Recompilations, in order."""
        return recompiles_of(self.compiled, self.ran_earlier)

    @cached_property
    def eager_calls(self) -> tuple[EagerCall, ...]:
        """Eager calls of compiled callables, grouped by callable and reason."""
        return tuple(call for call, _ in eager_calls_of(self.callables, self.recompiles))

    @cached_property
    def executions(self) -> dict[str, int]:
        """Run count per compiled graph, keyed by compile id (backward graphs: `"0/0 backward"`)."""
        total: Counter[str] = Counter()
        for run, count in sorted(self.runs.items(), key=_sort_key):
            total[str(run)] += count
        return dict(+total)  # without graphs that did not run

    def runs_of(self, compiled: Compilation, part: str = "") -> int:
        """Return how often a graph of a compilation ran in the watch.

        After `torch._dynamo.reset()` another compilation may have the same id, so file and line of
        the code are compared too, if known. Runs of code compiled before the watch do not count.

        Args:
            compiled: the compilation.
            part: as `CountedGraph.part`.
        """
        location = (compiled.file, compiled.line)
        runs = self._runs_by_name.get((str(compiled.id or ""), part), ())
        return sum(n for run, n in runs if not run.file or (run.file, run.line) == location)

    @cached_property
    def _runs_by_name(self) -> dict[tuple[str, str], list[tuple[CountedGraph, int]]]:
        """The run counts of graphs that were compiled in the watch, by id and part."""
        return grouped(
            ((run.id, run.part), (run, count))
            for run, count in self.runs.items()
            if run.name in self.compiled_names
        )

    @property
    def frames(self) -> dict[str, int]:
        """Return the number of compiled runs of each frame, over all its compilations.

        The key is the compile id without its last number: `0` for `0/0` and `0/1`.
        """
        frames: Counter[str] = Counter()
        for run, count in self.runs.items():
            if run.part != BACKWARD:
                # An id without "/", such as "!0" of a captured backward, counts without its number.
                frames[run.id.rpartition("/")[0] or run.id.rstrip("0123456789")] += count
        return dict(frames)

    @property
    def ran_earlier(self) -> list[CountedGraph]:
        """Return the graphs that ran in the watch but were compiled before it."""
        return [run for run in self.runs if run.name not in self.compiled_names]

    @property
    def compiled_earlier(self) -> list[str]:
        """Return a line for each function in `ran_earlier`, empty after a warm-up."""
        earlier = [] if self.warmed_up else self.ran_earlier
        return [*dict.fromkeys(f"{EARLIER}{self._describe(run)}" for run in earlier)]

    def _describe(self, run: CountedGraph) -> str:
        """Return the function of a graph with file and line, as far as they are known."""
        if run.id.startswith("!"):  # a captured backward
            return "backward"
        # torch wraps callables without Python code of their own, such as torch.nn modules.
        name, file, line = run.function or str(run), run.file, run.line
        for callee in [] if is_user_file(file) else self.callables:
            if run.id in callee.served_by:
                name, file, line = callee.name, callee.file, callee.line
        return f"{name} ({relative(file)}:{line})" if file else name

    def only(self, within: Any, function: str | None) -> WatchRecord:
        """Restrict the record to some code.

        Args:
            within: a path or an importable package, `None` for all code.
            function: a glob for the name of the function or module, `None` for all.
        """

        def matches(file: str, *names: str) -> bool:
            # A glob for a qualified name, or for its last part.
            named = function is None or any(
                fnmatchcase(name, function) or fnmatchcase(name.rpartition(".")[2], function)
                for name in names
            )
            return named and is_within(file, within)

        def has(item: Compilation | CountedGraph) -> bool:
            # A glob may also match the name of the callable that the code belongs to.
            names = [name for callee in self.callables for name in callee.names_of(item)]
            return matches(item.file, item.function, *names)

        kept_compilations = tuple(compilation for compilation in self.compiled if has(compilation))
        ids = {str(compilation.id) for compilation in kept_compilations}
        words = [f"within={within!r}"] * (within is not None)
        words += [f"function={function!r}"] * (function is not None)
        return replace(
            self,
            compiled=kept_compilations,
            # The graphs of the kept compilations, and graphs that were compiled before the watch.
            runs=Counter(
                {
                    run: n
                    for run, n in self.runs.items()
                    if (run.id in ids and run.name in self.compiled_names)
                    or (run.function and has(run))
                }
            ),
            callables=tuple(
                callee for callee in self.callables if matches(callee.file, *callee.names)
            ),
            part=", ".join(filter(None, [self.part, *words])),
            compiled_in_all=self.compiled_in_all or tuple(map(_format_place, self.compiled)),
        )


def _format_place(compiled: Compilation) -> str:
    return f"{compiled.function or '?'} ({relative(compiled.file)}:{compiled.line})"


def record_of(recorder: EventRecorder) -> WatchRecord:
    """Take a snapshot of a recorder.

    Raises:
        TorchGraphError: if an observer failed. Such an error does not affect the watched code.
    """
    if recorder.broken is not None:
        raise TorchGraphError(
            "the watch could not parse torch's reports, so its record is incomplete. This is a "
            f"bug in pytest-torchgraph, please report it: {recorder.broken!r}"
        ) from recorder.broken
    counted = recorder.counted(HUB.look(recorder))
    return WatchRecord(
        compiled=tuple(compilations(recorder.events)),
        runs=counted.executed,
        compiled_names=counted.compiled,
        counters=counted.counters,
        callables=tuple(counted.callables.values()),
        mesh_dimensions=dict(recorder.mesh_dimensions),
        disabled=recorder.disabled,
        opened=recorder.opened,
    )


def record_of_process(process: Process) -> WatchRecord:
    """Return the record of a process in a log."""
    # Compiled autograd traces through AOTAutograd's backward graphs, and runs none of them.
    captures = any(compilation.is_capture for compilation in process.compiled)
    runs = Counter(
        CountedGraph(str(c.id or ""), part, c.function, c.file, c.line)
        for c in process.compiled
        for part in (("",) if captures else ("", BACKWARD))
    )
    names = frozenset(run.name for run in runs)
    return WatchRecord(process.compiled, runs, names, {}, (), log=process.log)


def _sort_key(item: tuple[CountedGraph, int]) -> tuple[Any, ...]:
    """Return a key that sorts the numbers in compile ids by value: `2/0` before `10/0`."""
    run = item[0]
    return ([(part.lstrip("!").zfill(8)) for part in run.id.split("/")], run.part)
