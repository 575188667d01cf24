"""`watch()` and `steady()`: graphs compiled inside a block, or by calls after a warm-up."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .. import torch_private
from ..checks.eager import why_no_graph
from ..checks.subject import CallsComparison, StepResult
from ..context import CONTEXT
from ..convert.source_lines import current_line, format_line
from ..graph.text import Header
from ..mechanisms.step import (
    EagerRun,
    Invocation,
    Outcome,
    PythonState,
    RandomState,
    Step,
    Updates,
    outcome_of,
    preserve_state,
)
from ..torch_release import need_torch
from ..watching.graphs import PrintedGraphs
from ..watching.observe import HUB, EventRecorder
from ..watching.record import record_of
from .contents import Contents
from .result import Capture


class Watch:
    """A context manager that returns a `Capture` of everything compiled and run inside it.

    A watch can be re-entered, which adds to the same capture, and watches can be nested.

    `_read` returns the contents of the capture, and `_last` keeps them. `None` in `_last` makes the
    next read build them anew.

    Args:
        passive: True allows captures inside the watch, which does not record them.
        warmed_up: True if the target was called before the watch, as by `steady`.
    """

    def __init__(self, *, passive: bool = False, warmed_up: bool = False) -> None:
        self._warmed_up = warmed_up
        self._recorder = EventRecorder(passive=passive)
        self._last: Contents | None = None
        self._comparison: CallsComparison | None = None
        self._stepped: dict[str, None] = {}
        self._noting: list[contextlib.AbstractContextManager[None]] = []
        release = torch.__version__.partition("+")[0]
        self.capture = Capture(self._read, Header("watch", release))

    def __enter__(self) -> Capture:
        HUB.open(self._recorder)
        # A stack, because a watch may be entered again before it is left.
        self._noting.append(torch_private.on_optimizer_step(self._note_step))
        self._noting[-1].__enter__()
        self._last = None
        return self.capture

    def _note_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the step of an optimizer, with the user's line. A watch has none of its ops."""
        line = current_line()
        place = "" if line is None else f" at {format_line(line)}"
        self._stepped[f"{type(optimizer).__name__}{place}"] = None

    def compare(self, comparison: CallsComparison) -> None:
        """Give the capture eager runs for `assert_matches_eager`."""
        self._comparison, self._last = comparison, None

    def __exit__(self, *error: object) -> None:
        self._noting.pop().__exit__(None, None, None)
        HUB.close(self._recorder)
        self._last = None
        CONTEXT.notify(self.capture)

    if not TYPE_CHECKING:  # otherwise type checkers accept every name

        def __getattr__(self, name: str) -> NoReturn:
            """Raise an error with the correct usage if the watch is used as its capture."""
            if not name.startswith("_") and hasattr(Capture, name):
                raise AttributeError(
                    f"{name!r} is not available on the context manager: use `with "
                    f"graph_capture.watch() as seen: ...`, then `seen.{name}`"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<watch {'open' if self._recorder.is_open else 'closed'}>"

    def _read(self) -> Contents:
        """Return the contents of the capture, as recorded until now."""
        # While the watch is open, run counts change without notification, so read them again.
        if self._last is None or self._recorder.is_open:
            record = replace(
                record_of(self._recorder), warmed_up=self._warmed_up, stepped=tuple(self._stepped)
            )
            # Equal counts keep the contents, and with them the graphs that were already parsed.
            last = None if self._last is None else self._last.record
            if self._last is None or last is None or last.state != record.state:
                self._last = Contents.of_watch(PrintedGraphs(record), self._comparison)
        return self._last


def watch() -> Watch:
    """Watch what the code in a `with` block compiles and runs, without changing it.

    `with watch() as capture: compiled_model(x)` records every graph, graph break and recompilation,
    and the run count of each compiled graph. Then `capture.assert_no_graph_breaks()` checks them.
    The capture can also be read while the watch is open. Nothing is reset; backends, caches, guards
    and counters do not change. Runs of code that was compiled before are recorded, but not its
    graphs and breaks, so checks of these fail. All threads are watched.

    Raises:
        UnsupportedTorchError: if torch is older than 2.9.
    """
    need_torch()
    return Watch()


def steady(
    target: Callable[..., Any],
    /,
    *calls: Any,
    loss_fn: Callable[[Any], torch.Tensor] | None = None,
    backward: bool | None = None,
    updates: Any = None,
) -> Capture:
    """Call a compiled target several times, and watch all calls except the first.

    `steady(torch.compile(model), (x,), (x,)).assert_no_recompiles()` asserts that the second call
    compiles nothing. Nothing is reset, and the target runs unchanged. Before the first call,
    `.grad` is removed. Gradients, buffers and tensor arguments then carry from call to call. After
    the last call, they and the RNG state are restored. The results of the calls are kept for
    `assert_matches_eager`, which compares every call with an eager one.

    Args:
        target: the compiled callable, or a callable with compiled parts.
        *calls: the arguments of each call, for at least two calls: a tuple of positional arguments,
            `(x,)`, or a pair of this tuple and a dict of keyword arguments, `((x,), {"mask": m})`.
        loss_fn, backward: for each call; see `capture`.
        updates: what a training step changes, see `capture`. Its state carries from call to call,
            and is restored; `assert_matches_eager` then also compares parameters and state.

    Returns:
        The graphs and runs of all calls after the first, like a capture of `watch()`.

    Raises:
        TypeError: if the target is not callable, there are fewer than two calls, or a call is not a
            tuple; for `updates`, see `capture`.
        CaptureError: if the backward cannot run, see `capture`.
    """
    if not callable(target):
        raise TypeError(f"the target must be callable, not {type(target).__name__}")
    if len(calls) < 2:
        raise TypeError(
            "steady(target, *calls) needs at least two calls (a warm-up and a call to watch), "
            f"but got {len(calls)}"
        )
    named_updates = None
    if updates is not None:
        if loss_fn is not None or backward is not None:
            raise TypeError(
                "loss_fn= and backward= cannot be combined with updates=: a training step calls "
                "its own loss and backward"
            )
        named_updates = Updates(updates)
    # One invocation with all calls as its arguments names, saves and restores the state of all.
    every = Invocation(target, calls, {}, updates=named_updates)
    invocations = [
        Invocation(target, *arguments_of(call, number), loss_fn, backward, named_updates)
        for number, call in enumerate(calls)
    ]
    python = PythonState(every.named, target)
    states, outcomes, idle = [], list[Outcome](), []
    # The recorder also sees which line of the first call fixed a dynamic size: torch reports it
    # only while it compiles.
    watch, recorder = Watch(warmed_up=True), EventRecorder(passive=True, with_graphs=False)
    with (
        preserve_state(every.named, updates=named_updates, hooked=updates is None) as saved,
        HUB.recording(recorder),
        contextlib.ExitStack() as watching,
    ):
        for number, invocation in enumerate(invocations):
            if number == 1:  # after the warm-up
                watching.enter_context(watch)
            states.append(RandomState(every.named.generators))
            runs = recorder.counted(HUB.look(recorder)).executed
            step = Step(invocation, saved)
            step.run()
            if recorder.counted(HUB.look(recorder)).executed == runs:  # no compiled code ran
                idle.append(number)
            outcomes.append(outcome_of(step).kept(outcomes[-1] if outcomes else None))
            # The eager runs run a backward in the same calls.
            invocations[number] = invocation.with_backward(step.ran_backward)
    eager_run = EagerRun(every, states[0])

    def eager(compare: Callable[[int, StepResult], bool]) -> None:
        """Make all calls again, eagerly, from the first state; see `CallsComparison.eager`."""

        def how(combined: Step) -> None:
            # `combined` is a step of `every`: it saved the state that all calls change.
            for number, (invocation, state) in enumerate(zip(invocations, states, strict=True)):
                state.restore()
                step = Step(invocation, combined.saved)
                step.run()
                if compare(number, outcome_of(step)):
                    break

        eager_run.eagerly(how=how)

    record = replace(record_of(recorder), runs=Counter())
    reasons = [why_no_graph(record).strip()] if idle and record.callables else []
    changes = [*map(str, python.changes())]
    watch.compare(CallsComparison(outcomes, idle, reasons, changes, eager_run.backends, eager))
    return watch.capture


def arguments_of(call: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a call; see `steady` for its notation."""
    if isinstance(call, list):  # a batch, as a loader gives it
        call = tuple(call)
    if not isinstance(call, tuple):
        raise TypeError(
            f"call {number} must be a tuple or a list of arguments, not {type(call).__name__}: "
            "write (x,) for one argument, or ((x,), {'mask': mask})"
        )
    if len(call) == 2 and isinstance(call[0], tuple) and isinstance(call[1], dict):
        return call[0], call[1]
    return call, {}
