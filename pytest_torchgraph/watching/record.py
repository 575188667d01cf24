"""All that a watch saw: compilations, breaks, recompilations, runs, and eager calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ..convert.source_lines import is_user_file, relative
from ..errors import TorchGraphError
from ..graph.events import GraphBreak
from ..settings.paths import is_within
from .breaks import breaks_of
from .cache_lookups import CacheBypass, bypasses_of
from .compilations import Compilation, compilations
from .observe.callables import PRECOMPILED, CallKind, CompiledCallable, EagerCause
from .observe.executions import BACKWARD, CountedGraph, Counts
from .observe.hub import HUB, EventRecorder
from .output_code import CudagraphSkip, skips_of
from .recompiles import Recompile, recompiles_of

_IN_TORCH = "skipfiles"
"""A word of Dynamo's reason for leaving code of torch's to the interpreter."""


@dataclass(frozen=True)
class EagerCall:
    """Calls of a compiled callable that ran eagerly, for one reason.

    Attributes:
        function: name of the function, or of the module's class.
        file, line: where it begins; the file as in `GraphBreak`; "" and 0 if it has no code.
        kind: "stance" (`torch.compiler.set_stance`), "limit" (a recompile limit), "disabled"
            (`torch.compiler.disable` or `torch._dynamo.config.disable`), "skipped" (Dynamo gave the
            frame up, or a mode, a transform or a trace was active; also a call of what
            `torch.compiler.precompile` made, which runs unseen) or "backend" (it raised under
            `torch._dynamo.config.suppress_errors`).
        reason: Dynamo's words, or ours.
        count: how many calls.
        calls: how often the function was called, compiled or not.
    """

    function: str
    file: str
    line: int
    kind: CallKind
    reason: str
    count: int
    calls: int

    def __str__(self) -> str:
        known = self.file and not self.file.startswith("<")
        place = f" ({self.file}:{self.line})" if known else ""
        times = f"{self.count} of {self.calls} calls" if self.calls > 1 else "its call"
        how = "unseen" if self.reason == PRECOMPILED else "eagerly"
        return f"{self.function}{place}: {times} ran {how}: {self.reason}"


def eager_calls_of(
    callables: Iterable[CompiledCallable], recompiles: Iterable[Recompile]
) -> Iterator[tuple[EagerCall, EagerCause | None]]:
    """The calls that ran eagerly, each with its cause as it was observed.

    Args:
        callables: those that were called.
        recompiles: the recompilations. Code that reached a limit outside of every call, as in a
            captured backward, is known from them alone, and has no cause.
    """
    limits = {(each.path, each.line): each for each in recompiles if each.limit_hit}
    told = set()
    for callee in callables:
        file = relative(callee.file) if callee.file else ""
        for cause, count in callee.uncompiled.items():
            limit = limits.get((cause.file, cause.line)) if cause.kind == "limit" else None
            if limit is not None:
                told.add((cause.file, cause.line))
                cause = cause._replace(reason=_limit_in_words(limit))
            reason, calls = _in_words(cause, callee), callee.entries
            yield EagerCall(callee.name, file, callee.line, cause.kind, reason, count, calls), cause
    for key, limit in limits.items():
        if key not in told:
            words = _limit_in_words(limit)
            yield EagerCall(limit.function, limit.file, limit.line, "limit", words, 1, 1), None


def _limit_in_words(recompile: Recompile) -> str:
    return (
        "the recompile limit was reached, and from then on it ran eagerly (compile "
        f"{recompile.compile_id}: {next(iter(recompile.reasons), 'no guard is named')})"
    )


def _in_words(cause: EagerCause, callee: CompiledCallable) -> str:
    """A cause, with the frame that it is about if that is not the callable's own."""
    if _IN_TORCH in cause.reason and not is_user_file(cause.file):
        return (
            f"{cause.reason}: a module of torch's own is not compiled by itself; compile a module "
            "or function of yours that calls it"
        )
    other = cause.function and (cause.file, cause.line) != (callee.file, callee.line)
    other = other and not cause.file.startswith("<")
    where = f" ({cause.function} at {relative(cause.file)}:{cause.line})" if other else ""
    return f"{cause.reason}{where}"


@dataclass(frozen=True, eq=False)
class WatchRecord:
    """All that a watch had seen at one moment, or the part of it that is about some code.

    Attributes:
        compiled: the compilations, in order.
        runs: how often each compiled graph ran.
        counters: the change of `torch._dynamo.utils.counters`, by group.
        callables: the compiled callables that were called.
        mesh_dimensions: what process groups were for, see `EventRecorder`.
        disabled: the setting that switched `torch.compile` off for the process, "" for none.
        opened: whether the watch was ever entered.
        warmed_up: whether the first calls were made before, and no graph is to be expected.
        part: the arguments of `only` that restricted it, in words, "" for everything.
        compiled_in_all: the functions that were compiled in all, with their files and lines, where
            it is a part.
    """

    compiled: tuple[Compilation, ...]
    runs: Counts
    counters: Mapping[str, Counter[Any]]
    callables: tuple[CompiledCallable, ...]
    mesh_dimensions: Mapping[str, str] = field(default_factory=dict)
    disabled: str = ""
    opened: bool = True
    warmed_up: bool = False
    part: str = ""
    compiled_in_all: tuple[str, ...] = ()

    @property
    def state(self) -> tuple[Any, ...]:
        """A value that changes whenever the watch sees something more."""
        entries = tuple((each.entries, each.uncompiled.total()) for each in self.callables)
        return len(self.compiled), tuple(map(_progress, self.compiled)), dict(self.runs), entries

    @cached_property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks, one `GraphBreak` for each file, line and kind."""
        return breaks_of(self.compiled)

    @cached_property
    def cache_bypasses(self) -> tuple[CacheBypass, ...]:
        """What keeps AOTAutograd's cache from ever serving what was compiled."""
        return bypasses_of(self.compiled)

    @cached_property
    def cudagraph_skips(self) -> tuple[CudagraphSkip, ...]:
        """The graphs that got no CUDA graph, though one was asked for."""
        return skips_of(self.compiled, self.counters)

    @cached_property
    def recompiles(self) -> tuple[Recompile, ...]:
        """The recompilations, in order."""
        return recompiles_of(self.compiled)

    @cached_property
    def eager_calls(self) -> tuple[EagerCall, ...]:
        """The calls of compiled callables that ran eagerly, by callable and reason."""
        return tuple(call for call, _ in eager_calls_of(self.callables, self.recompiles))

    @cached_property
    def executions(self) -> dict[str, int]:
        """How often each compiled graph ran, by compile id; a backward has `backward` behind it."""
        return {str(run): count for run, count in sorted(self.runs.items(), key=_by_id) if count}

    @property
    def frames(self) -> dict[str, int]:
        """How often each frame ran compiled, in whichever of its compilations.

        The key is the compile id without its last number: `0` for `0/0` and `0/1`.
        """
        frames: Counter[str] = Counter()
        for run, count in self.runs.items():
            if run.part != BACKWARD:
                frames[run.id.rpartition("/")[0] or run.id.rstrip("0123456789")] += count
        return dict(frames)

    @property
    def ran_earlier(self) -> list[str]:
        """The compile ids of the graphs that ran here and were compiled before the watch."""
        here = {str(each.id) for each in self.compiled}
        return [run.id for run, count in self.runs.items() if count and run.id not in here]

    def only(self, within: Any, function: str | None) -> WatchRecord:
        """The part that is about some code.

        Args:
            within: a path or an importable package, None for all.
            function: a glob for the name of the function or module, None for all.
        """

        def matches(file: str, *names: str) -> bool:
            named = function is None or any(
                fnmatchcase(name, function) or fnmatchcase(name.rpartition(".")[2], function)
                for name in names
            )
            return named and is_within(file, within)

        def has(each: Compilation | CountedGraph) -> bool:
            names = [name for callee in self.callables for name in callee.names_of(each)]
            return matches(each.file, each.function, *names)

        kept = tuple(each for each in self.compiled if has(each))
        ids = {str(each.id) for each in kept}
        words = [f"within={within!r}"] * (within is not None)
        words += [f"function={function!r}"] * (function is not None)
        return replace(
            self,
            compiled=kept,
            runs=Counter(
                {
                    run: n
                    for run, n in self.runs.items()
                    if run.id in ids or (run.function and has(run))
                }
            ),
            callables=tuple(each for each in self.callables if matches(each.file, *each.names)),
            part=", ".join([*([self.part] if self.part else []), *words]),
            compiled_in_all=self.compiled_in_all or tuple(map(_place, self.compiled)),
        )


def _place(compiled: Compilation) -> str:
    return f"{compiled.function or '?'} ({relative(compiled.file)}:{compiled.line})"


def _progress(compiled: Compilation) -> tuple[int, int, bool]:
    return len(compiled.printed), len(compiled.breaks), compiled.finished


def record_of(recorder: EventRecorder) -> WatchRecord:
    """Read what a recorder has recorded until now.

    Raises:
        TorchGraphError: if the observers failed, which the watched code does not notice.
    """
    if recorder.broken is not None:
        raise TorchGraphError(
            "the watch could not read what torch reported, so it knows nothing for certain; this "
            f"is a mistake of pytest-torchgraph's: {recorder.broken!r}"
        ) from recorder.broken
    now = HUB.look(recorder)
    return WatchRecord(
        compiled=tuple(compilations(recorder.events)),
        runs=recorder.executed(now),
        counters=recorder.counted(now),
        callables=tuple(recorder.callables(now).values()),
        mesh_dimensions=dict(recorder.mesh_dimensions),
        disabled=recorder.disabled,
        opened=recorder.opened,
    )


def _by_id(item: tuple[CountedGraph, int]) -> tuple[Any, ...]:
    run = item[0]
    return ([(part.lstrip("!").zfill(8)) for part in run.id.split("/")], run.part)
