"""`restart()`: a second compilation with the caches of the first, here or in a new process."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import torch_private
from ..checks.eager import why_no_graph
from ..isolation import CACHES, variables_restored
from ..mechanisms.protocol import check_options
from ..mechanisms.step import Invocation, Step, compile_marks_restored, exclusive, preserve_state
from ..mechanisms.torch_compile import Inductor
from ..settings.paths import allows, patterns
from ..torch_release import need_torch
from ..watching.cache_lookups import CacheLookup, lookups_of
from ..watching.observe import HUB, EventRecorder
from ..watching.record import WatchRecord, record_of
from ..words import counted
from .watch import arguments_of


class RestartHalf(NamedTuple):
    """One half of a restart.

    Attributes:
        seconds: duration of the calls, including compilation.
        record: torch.compile's record.
    """

    seconds: float
    record: WatchRecord


class Restart:
    """The result of `restart`: the second start's lookups in the caches of the first.

    Attributes:
        cold, warm: seconds of the first and the second start, for information only.
        lookups: every lookup of the second start, in order.
    """

    def __init__(self, cold: RestartHalf, warm: RestartHalf) -> None:
        self.cold = cold.seconds
        self.warm = warm.seconds
        self.lookups: tuple[CacheLookup, ...] = lookups_of(
            warm.record.compiled, cold.record.compiled
        )
        self._cold = cold.record

    def assert_warm(self, max_misses: int = 0, allow: str | Sequence[str] = ()) -> None:
        """Assert that the second start took every graph from torch.compile's caches.

        Args:
            max_misses: maximum number of misses. A bypass is a miss.
            allow: regular expressions, or literal parts, for tolerated misses, searched in their
                `reason`.

        Raises:
            AssertionError: if there are more misses, with the reason and line of each; if no graph
                was compiled or no cache was used, with the cause; or if the first start was warm
                already.
            ValueError: if `max_misses` is not an int of at least 0.
        """
        if isinstance(max_misses, bool) or not isinstance(max_misses, int) or max_misses < 0:
            raise ValueError(
                f"max_misses={max_misses!r} is not a valid number of misses: pass an int of at "
                "least 0"
            )
        if not any(
            compilation.ops and not compilation.failure for compilation in self._cold.compiled
        ):
            raise AssertionError(f"no graph was compiled:\n{why_no_graph(self._cold)}")
        if not self.lookups:
            raise AssertionError(
                "the second start used no cache, because only the inductor backend has caches: "
                "compile the target with backend='inductor'"
            )
        cold_lookups = [
            event for compilation in self._cold.compiled for event in compilation.lookups
        ]
        # A key that missed may hit later in the same start: two graphs can be equal.
        missed = {event.key for event in cold_lookups if event.state == "miss"}
        early_hits = [e for e in cold_lookups if e.state == "hit" and e.key not in missed]
        if early_hits:
            raise AssertionError(
                f"the first start was already warm: {counted(len(early_hits), 'lookup')} hit in an "
                "empty cache directory, so a remote cache served them. Disable it: set "
                "torch._inductor.config.fx_graph_remote_cache and "
                "torch._functorch.config.enable_remote_autograd_cache to False"
            )
        tolerated = patterns(allow)
        misses = [m for m in self.lookups if m.state != "hit" and not allows(tolerated, m.reason)]
        if len(misses) > max_misses:
            lines = [
                f"not warm: {len(misses)} of {counted(len(self.lookups), 'lookup')} missed, "
                f"expected at most {max_misses}",
                *(f"  {lookup}" for lookup in misses),
                "  to see each cause and its remedy: graph_capture(target, ...).assert_cacheable()",
            ]
            raise AssertionError("\n".join(lines))

    def __repr__(self) -> str:
        states = [lookup.state for lookup in self.lookups]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"<Restart: {counts or 'no lookup'}; {self.cold:.1f} s, then {self.warm:.1f} s>"


def restart(
    target: Callable[..., Any],
    /,
    *calls: Any,
    via: Any = "inductor",
    backward: bool | None = None,
    loss_fn: Callable[[Any], torch.Tensor] | None = None,
    process: bool = False,
) -> Restart:
    """Compile a target with an empty cache directory, then compile it again with the filled one.

    `restart(model, (x,)).assert_warm()` asserts that the second start compiles no graph anew.

    The directory is temporary and deleted at the end. Before each half, Dynamo and inductor's
    in-memory caches are reset. After each call, the RNG state, `.grad`, buffers and tensor
    arguments are restored.

    Args:
        target: a function or module. A compiled target keeps its own options.
        *calls: the arguments of each call, for at least one call; see `steady`.
        via: "inductor", or `Inductor(...)` with the options of `torch.compile`.
        backward, loss_fn: for each call; see `capture`.
        process: run the second half in a new Python process. Target, arguments and the settings of
            torch.compile that were assigned here are pickled. The new process has the grad mode,
            autocast and precision of this one, but no dispatch mode and no process group.

    Raises:
        TypeError: see `steady`; also if an option of `via` has the wrong type.
        ValueError: if `via` is anything else, or has an unknown mode or option.
        CaptureError: see `capture`; also if the target, an argument or a setting cannot be pickled,
            with its name.
    """
    need_torch()
    mechanism = Inductor() if via == "inductor" else via
    if not isinstance(mechanism, Inductor):
        raise ValueError(
            f"via={via!r} has no caches: use via='inductor', or Inductor(...) with options"
        )
    check_options(mechanism)
    mechanism.patches()  # raises for an unknown mode or option
    if not callable(target):
        raise TypeError(f"the target must be callable, not {type(target).__name__}")
    if not calls:
        raise TypeError(
            "restart(target, *calls) needs at least one call: pass the arguments of each "
            "call as a tuple, as in restart(target, (x,))"
        )
    arguments = [arguments_of(call, number) for number, call in enumerate(calls)]
    first = CallArguments(target, arguments, mechanism, loss_fn, backward)
    with exclusive(resets=True), HUB.paused(), own_cache_directory() as directory:
        if not process:
            cold = first.run()
            torch_private.clear_memory_caches()
            return Restart(cold, first.run())
        from .second_process import SecondProcess

        # Pickle before the first half. An error then costs no compilation, and the target's modules
        # contain no compiled code yet.
        second = SecondProcess(first, directory)
        with torch_private.stable_cache_keys():
            cold = first.run()
        return Restart(cold, second.run())


class CallArguments(NamedTuple):
    """The calls of a target, executed once per half.

    Attributes:
        target, arguments, loss_fn, backward: arguments of `restart`.
        mechanism: options of `torch.compile`.
    """

    target: Callable[..., Any]
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]
    mechanism: Inductor
    loss_fn: Callable[[Any], torch.Tensor] | None
    backward: bool | None

    def run(self) -> RestartHalf:
        """Reset Dynamo, compile the target and execute the calls."""
        args, kwargs = self.arguments[0]  # any call: its names include the target's modules
        # torch.compile marks the module itself, so the marks are restored around it.
        with compile_marks_restored(self._invocation(self.target, args, kwargs).named):
            return self._run()

    def _invocation(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Invocation:
        return Invocation(target, args, kwargs, self.loss_fn, self.backward)

    def _run(self) -> RestartHalf:
        """See `run`. Each call has its own state, which is restored before the next call."""
        target, options = self.target, self.mechanism
        if not torch_private.is_compiled(target):
            target = torch.compile(
                target,
                dynamic=options.dynamic,
                fullgraph=options.fullgraph,
                mode=options.mode,
                options=options.options,
            )
        recorder = EventRecorder(with_graphs=False, with_keys=True)
        with torch_private.fresh_dynamo(), HUB.recording(recorder):
            begin = time.perf_counter()
            for args, kwargs in self.arguments:
                invocation = self._invocation(target, args, kwargs)
                with preserve_state(invocation.named) as saved:
                    Step(invocation, saved).run()
            seconds = time.perf_counter() - begin
        return RestartHalf(seconds, record_of(recorder))


_WRITTEN = ("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH")
"""Environment variables that inductor sets when it compiles."""


@contextlib.contextmanager
def own_cache_directory() -> Iterator[Path]:
    """Give torch.compile an empty cache directory, and delete it afterwards.

    torch's `fresh_cache` does not delete the directory after an exception.
    """
    torch_private.clear_memory_caches()
    with tempfile.TemporaryDirectory(
        prefix="torchgraph-restart-", ignore_cleanup_errors=True
    ) as directory:
        try:
            with variables_restored((*CACHES, *_WRITTEN)):
                for name, relative in CACHES.items():
                    os.environ[name] = str(Path(directory, relative))
                yield Path(directory)
        finally:
            torch_private.clear_memory_caches()
