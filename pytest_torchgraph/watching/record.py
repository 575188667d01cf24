"""What a watch saw, put together: compilations, breaks, recompilations, runs, entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ..errors import TorchGraphError
from ..settings.within import inside
from .breaks import GraphBreak, breaks_of
from .compilations import Compilation, compilations
from .cudagraphs import CudagraphSkip, skips_of
from .observe.entries import Region
from .observe.executions import BACKWARD, Counts, Run
from .observe.hub import HUB
from .observe.recorder import EventRecorder
from .recompiles import Recompile, recompiles_of


@dataclass(frozen=True, eq=False)
class WatchRecord:
    """The state of a watch at one moment, or the part of it that is about some code.

    Attributes:
        compiled: the compilations, in order.
        runs: how often each compiled graph ran.
        counters: the change of `torch._dynamo.utils.counters`, by group.
        regions: the compiled callables that were called.
        disabled: what kept the whole process from compiling, "" for nothing.
        opened: whether the watch was ever entered.
        part: what this was restricted to, in words, "" for everything.
    """

    compiled: tuple[Compilation, ...]
    runs: Counts
    counters: Mapping[str, Counter[Any]]
    regions: tuple[Region, ...]
    disabled: str = ""
    opened: bool = True
    part: str = ""

    @property
    def state(self) -> tuple[Any, ...]:
        """What tells this moment from another one of the same watch."""
        entries = tuple((each.entries, each.uncompiled.total()) for each in self.regions)
        return len(self.compiled), tuple(map(_progress, self.compiled)), dict(self.runs), entries

    @cached_property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks, one for each file, line and kind."""
        return breaks_of(self.compiled)

    @cached_property
    def cudagraph_skips(self) -> tuple[CudagraphSkip, ...]:
        """The graphs that got no CUDA graph, though one was asked for."""
        return skips_of(self.compiled, self.counters)

    @cached_property
    def recompiles(self) -> tuple[Recompile, ...]:
        """The recompilations, in order."""
        return recompiles_of(self.compiled)

    @cached_property
    def executions(self) -> dict[str, int]:
        """How often each compiled graph ran, by compile id; a backward has `backward` behind it."""
        return {str(run): count for run, count in sorted(self.runs.items(), key=_by_id) if count}

    @property
    def frames(self) -> dict[str, int]:
        """How often the code of each frame was run compiled, by what its compile ids begin with."""
        found: Counter[str] = Counter()
        for run, count in self.runs.items():
            if run.part != BACKWARD:
                found[run.id.rpartition("/")[0] or run.id.rstrip("0123456789")] += count
        return dict(found)

    @property
    def ran_earlier(self) -> list[str]:
        """The compile ids of what ran here and was compiled before."""
        here = {str(each.id) for each in self.compiled}
        return [run.id for run, count in self.runs.items() if count and run.id not in here]

    def only(self, within: Any, function: str | None) -> WatchRecord:
        """The part that is about code under a path or package, or of functions of this name."""

        def matches(file: str, *names: str) -> bool:
            named = function is None or any(
                fnmatchcase(name, function) or fnmatchcase(name.rpartition(".")[2], function)
                for name in names
            )
            return named and inside(file, within)

        def has(each: Compilation | Run) -> bool:
            names = [name for region in self.regions for name in region.names_of(each)]
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
            regions=tuple(each for each in self.regions if matches(each.file, *each.names)),
            part=", ".join([*([self.part] if self.part else []), *words]),
        )


def _progress(compiled: Compilation) -> tuple[int, int, bool]:
    return len(compiled.printed), len(compiled.breaks), compiled.finished


def record_of(recorder: EventRecorder) -> WatchRecord:
    """What a recorder has seen until now.

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
        regions=tuple(recorder.regions(now).values()),
        disabled=recorder.disabled,
        opened=recorder.opened,
    )


def _by_id(item: tuple[Run, int]) -> tuple[Any, ...]:
    run = item[0]
    return ([(part.lstrip("!").zfill(8)) for part in run.id.split("/")], run.part)
