"""Runs a step under a recorder, and raises an error if code ran unrecorded in the step.

`run_noted` starts the recorder, and `refuse_unseen` raises. A dispatch mode is active in one thread
only, so computations in other threads are not recorded. They are noticed only if the step uses
their results, or if they write to its tensors (`UnseenWrites`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch

from ... import torch_private
from ...convert import effects
from ...convert.source_lines import Line, at_line, current_line, format_line
from ...syncs.detect import on_method_call
from ..step import STEP, Step
from .mode import RecordingMode, parts_of, unrecorded

_R = TypeVar("_R")


class Write(NamedTuple):
    """An unrecorded write.

    Attributes:
        role, name: role and name of the tensor, as for a graph input; both "" for a tensor that the
            target computed.
        line: the target's line at which the write was noticed, `None` if after the step.
    """

    role: str
    name: str
    line: Line | None


class _TrackedTensor(NamedTuple):
    """The state of a tensor when it was last checked.

    Attributes:
        tensor: a weak reference to the tensor.
        autograd_version: autograd's version counter.
        own: number of recorded writes to the tensor's storage.
    """

    tensor: Callable[[], torch.Tensor | None]
    autograd_version: int
    own: int


class UnseenWrites:
    """Tracks the writes to the tensors of a step, from the start of a thread on.

    Created in the new thread, before the thread runs anything. Autograd increments the version
    counter after the op, and not at all in inference mode. Each recorded write therefore explains
    an increase by one.

    Attributes:
        unseen: writes by code that was not recorded.
        is_following: whether `follow` is running an op.
    """

    def __init__(self, recorder: RecordingMode):
        self.unseen: list[Write] = []
        self.is_following = False
        self._recorder = recorder
        self._tracked: dict[int, _TrackedTensor] = {}  # by `id` of the tensor
        self._own: Counter[int] = Counter()  # recorded writes, by storage
        for tensor in [*recorder.named.all_tensors(), *recorder.alive()]:
            self._tracked.setdefault(
                id(tensor), _TrackedTensor(weakref.ref(tensor), _count(tensor), 0)
            )

    def follow(
        self, op: Any, run: Callable[..., _R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _R:
        """Run a recorded op, and count its writes as recorded.

        Args:
            op: the op.
            run: the recorder's `__torch_dispatch__`, which calls this method unless `is_following`.
            args, kwargs: the arguments of the op.
        """
        self.look_at(args, kwargs)
        self.is_following = True
        try:
            output = run(op, (), args, kwargs)
        finally:
            self.is_following = False
        self.wrote(*effects.written(op, args, kwargs))
        self._track_results(output, args, kwargs)
        return output

    def wrote(self, *values: Any) -> None:
        """Count one recorded write to each of these tensors."""
        for tensor in parts_of(values, torch.Tensor):
            self._own[self._storage(tensor)] += 1

    @contextmanager
    def own(self, *values: Any) -> Iterator[None]:
        """Count every write to these tensors inside as recorded."""
        before = [(tensor, _count(tensor)) for tensor in parts_of(values, torch.Tensor)]
        yield
        # Views of a storage share their counter, so each storage is counted once.
        self._own.update({self._storage(t): _count(t) - count for t, count in before})

    def _track_results(self, output: Any, *arguments: Any) -> None:
        """Track the results of an op.

        A view shares the version counter of its base only once the op has returned.
        """
        bases = {
            self._storage(argument): self._tracked.get(id(argument))
            for argument in parts_of(arguments, torch.Tensor)
        }
        for tensor in parts_of(output, torch.Tensor):
            tracked = self._tracked.get(id(tensor))
            if tracked is None or tracked.tensor() is not tensor:
                storage = self._storage(tensor)
                # The counter of memory that the op made starts at 0.
                base = bases.get(storage) or _TrackedTensor(_no_tensor, 0, self._own[storage])
                self._tracked[id(tensor)] = base._replace(tensor=weakref.ref(tensor))

    def look_at(self, *values: Any) -> None:
        """Find unrecorded writes to these tensors since the last check."""
        for tensor in parts_of(values, torch.Tensor):
            count, recorded_writes = _count(tensor), self._own[self._storage(tensor)]
            tracked = self._tracked.get(id(tensor))
            if tracked is not None and tracked.tensor() is tensor:
                # A lower count is no finding: in inference mode recorded writes are counted here,
                # but not by autograd.
                if count <= tracked.autograd_version + recorded_writes - tracked.own:
                    continue
                role, name = self._recorder.named.tensors.get(id(tensor), ("", ""))
                self.unseen.append(Write(role, name, current_line(STEP)))
            self._tracked[id(tensor)] = _TrackedTensor(weakref.ref(tensor), count, recorded_writes)

    def look_at_all(self) -> None:
        """Find unrecorded writes to all tracked tensors that are alive."""
        alive = [
            tensor for tracked in self._tracked.values() if (tensor := tracked.tensor()) is not None
        ]
        self.look_at(alive)

    def _storage(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's storage, -1 if the recorder has not met the tensor."""
        value = self._recorder.find_value(tensor)
        return -1 if value is None else self._recorder.storage_of[value]


def _no_tensor() -> None:
    """Return `None`, like a weak reference to a tensor that is gone.

    It stands for the reference until the tensor's own replaces it.
    """


def _count(tensor: torch.Tensor) -> int:
    """Return autograd's version counter of a tensor, shared with its views.

    An inference tensor has none: 0.
    """
    return 0 if tensor.is_inference() else tensor._version


_COMPUTE_NOTHING = (
    "tqdm.",
    "torch._inductor.",
    "torch._dynamo.",
)
"""Module prefixes of threads that compute nothing. torch.fx shows its progress with tqdm."""
_FEEDER = "QueueFeederThread"
"""Name of the thread that sends indices to the workers of a DataLoader, whose batches are written
by other processes."""


@contextlib.contextmanager
def threads_started(recorder: RecordingMode, ignored: Callable[[], bool]) -> Iterator[list[str]]:
    """Collect the names of the threads that start inside, in a growing list.

    From the first such thread on, the recorder tracks writes to its tensors.

    Threads of tqdm and of torch's compilers are ignored. Threads that are already running, and
    threads started from C++ or by `_thread`, are not noticed.

    Args:
        recorder: tracks the writes.
        ignored: called when a thread starts; returns True to ignore the thread. Used for the pools
            that torch starts while compiling.
    """
    names: list[str] = []
    before = threading.getprofile()

    def begins(frame: FrameType, event: Any, argument: Any) -> None:
        """Note the current thread, as its profile hook."""
        thread = threading.current_thread()
        # Python calls the profile hook in the new thread before `run`, so no write is missed.
        if not ignored() and not _module_of(thread).startswith(_COMPUTE_NOTHING):
            names.append(thread.name)
            if recorder.writes is None:
                recorder.writes = UnseenWrites(recorder)
        sys.setprofile(before)  # in this thread: the hook is needed only once
        if before is not None:
            before(frame, event, argument)

    threading.setprofile(begins)
    try:
        yield names
    finally:
        # If the target has set another profile hook, keep it.
        if threading.getprofile() is begins:
            threading.setprofile(before)


def run_noted(
    step: Step,
    recorder: RecordingMode,
    note: Callable[[str, Any], None],
    *,
    call: Callable[..., Any] | None = None,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ignored: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Run a step under a recorder, and return the names of the threads that it started.

    Calls of precompiled code are noted in `recorder.precompiled`.

    Args:
        step: the step.
        recorder: records the forward and the backward.
        note: called for methods that read a tensor; see `on_method_call`.
        call: the callable to run instead of the target: the compiled target.
        around: creates a further context for the forward and for the backward.
        ignored: see `threads_started`.
    """

    @contextmanager
    def recording(*, backward: bool) -> Iterator[None]:
        """Create the context of the forward or the backward."""
        recorder.introduce_inputs(step, backward=backward)
        with around(), recorder.recording(backward=backward), on_method_call(note):
            yield

    # A result of `torch.compiler.precompile.load` runs unrecorded.
    precompiled = torch_private.on_precompiled_call(
        lambda _: recorder.precompiled.append(current_line(STEP))
    )
    with precompiled, threads_started(recorder, ignored) as threads:
        step.run(call, partial(recording, backward=False), partial(recording, backward=True))
    return threads


def refuse_unseen(recorder: RecordingMode, threads: list[str]) -> None:
    """Raise if a recorded value has no recorded producer, or a write was not recorded.

    If an input has a `grad_fn`, an unrecorded op computed it, unless it is known to be older than
    the step. A leaf may be a constant such as a global tensor. If a thread was started, it may also
    be a result of that thread, and is refused.

    Args:
        recorder: the recorder of the step.
        threads: names of the threads started during the recording.

    Raises:
        CaptureError: with the line where the value appeared.
    """
    names = [repr(name) for name in dict.fromkeys(threads)]
    started = f"{'one of the threads' if len(names) > 1 else 'thread'} {', '.join(names)}"
    if recorder.writes is not None:
        recorder.writes.look_at_all()
        for write in recorder.writes.unseen:
            subject = (
                f"{write.role} {write.name!r}"
                if write.role
                else "a tensor that the target computed"
            )
            location = at_line(write.line, "before")
            advice = "write to it in the thread that calls the target"
            if _FEEDER in threads:
                advice = "take the batches of a DataLoader before the capture, or set num_workers=0"
            raise unrecorded(
                f"{subject} changed{location}, but no recorded op wrote to it. Perhaps {started}, "
                f"started during the capture, did: {advice}"
            )
    for line in recorder.precompiled:  # the first one
        raise unrecorded(
            f"code of torch.compiler.precompile ran{at_line(line)}. Capture the original function"
        )
    for unknown_input in recorder.unknown_inputs:
        tensor = _describe_tensor(unknown_input.line)
        if unknown_input.age == "outside":
            method, line = recorder.handed_over[0]  # a tensor is "outside" only if there is one
            location = at_line(line)
            if line is not None and line == unknown_input.line:
                location = " at the same line"
            raise unrecorded(
                f"another library may have computed {tensor}. The library got a tensor by "
                f".{method}(){location}. Compute the result with torch, or compute it before the "
                "capture and pass it as an argument"
            )
        if unknown_input.age == "before" or (unknown_input.age == "unknown" and not threads):
            continue
        reason = (
            f"It may be a result of {started}, started during the capture"
            if threads
            else "The op that computed the tensor ran before the capture, or in a thread that was "
            "started before the capture"
        )
        raise unrecorded(
            f"{tensor} is not a parameter, buffer or argument of the target, and not the result of "
            f"a recorded op. {reason}. Compute the tensor inside the target, in the thread that "
            "calls the target, or pass it as an argument"
        )


def _module_of(thread: threading.Thread) -> str:
    """Return the name of the module whose code a thread runs."""
    runs: Any = thread
    # A subclass overrides `run`, whose code is in the module of the class.
    if type(thread) in (threading.Thread, threading.Timer):
        runs = getattr(thread, "_target", None) or getattr(thread, "function", None)
    return str(getattr(runs, "__module__", ""))


def _describe_tensor(line: Line | None) -> str:
    """Return how a message names an unknown input that appeared at a line."""
    if line is None:
        return "a tensor that the target returns or keeps"
    return f"a tensor first used at {format_line(line)}"
