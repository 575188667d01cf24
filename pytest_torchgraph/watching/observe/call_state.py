"""The calls of compiled callables that one thread is in, and what Dynamo did in each so far."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .callables import CompiledCallable, EagerCause

HIT, COMPILED = "hit", "compiled"
"""Keys of `ThreadCalls.served`: code came from Dynamo's cache, or Dynamo compiled a frame."""


class _SetAside(NamedTuple):
    """A call that another call, or a compilation, interrupts.

    Attributes:
        key: the compile id, or the object that stands for the inner call.
        callee, cause, cause_rank, partial, misses, cleanups: as in `ThreadCalls`.
        served: a copy of it.
    """

    key: Any
    callee: CompiledCallable | None
    served: dict[str, bool]
    misses: int
    cause: EagerCause | None
    cause_rank: int
    partial: EagerCause | None
    cleanups: list[Callable[[], object]] | None


class ThreadCalls:
    """The calls of one thread.

    Attributes:
        ident: its `threading.get_ident()`.
        callee: the callable of the latest call that is not judged; `None` if there is none.
        served: whether the call got compiled code. Dynamo's guard hook adds `HIT`, in C. It is not
            empty if there is no call to judge.
        misses: how often none of the compilations of a frame fitted, and Dynamo did not compile
            the frame either: the interpreter ran it.
        cause: why Dynamo left a frame to the interpreter; `None` if it left none.
        cause_rank: 0 for a cause that is about all code, 1 for a frame of the user's or one that
            failed to compile, 2 for a frame of torch's.
        partial: why a frame inside the call ran eagerly, for a call that got compiled code too.
        active: the callables that are running, outermost first. torch pops them, in C.
        cleanups: what torch runs as the latest call ends; `None` if that has our judgement already.
        set_aside: the calls that are interrupted, outermost first.
    """

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.callee: CompiledCallable | None = None
        self.served: dict[str, bool] = {HIT: True}
        self.misses = 0
        self.cause: EagerCause | None = None
        self.cause_rank = 0
        self.partial: EagerCause | None = None
        self.active: list[CompiledCallable] = []
        self.cleanups: list[Callable[[], object]] | None = None
        self.set_aside: list[_SetAside] = []

    def begin(self, callee: CompiledCallable | None) -> None:
        """Start with a clean slate, for a call or a compilation."""
        self.callee, self.cause, self.partial = callee, None, None
        self.served.clear()
        self.misses = 0
        self.cleanups = None

    def end(self) -> None:
        """Forget the latest call, which is judged."""
        self.begin(None)
        self.served[HIT] = True

    def interrupt(self, key: Any) -> None:
        """Set the latest call aside."""
        self.set_aside.append(
            _SetAside(
                key,
                self.callee,
                dict(self.served),
                self.misses,
                self.cause,
                self.cause_rank,
                self.partial,
                self.cleanups,
            )
        )

    def resume(self) -> Any:
        """Go on with the call that was set aside last; return its key."""
        last = self.set_aside.pop()
        self.begin(last.callee)
        self.served.update(last.served)
        self.misses, self.cleanups = last.misses, last.cleanups
        self.cause, self.cause_rank, self.partial = last.cause, last.cause_rank, last.partial
        return last.key

    def explain_miss(self) -> None:
        """Take note that Dynamo looks at the frame that it had no code for."""
        self.misses = max(0, self.misses - 1)

    @property
    def traced(self) -> CompiledCallable | None:
        """The callable whose call made Dynamo compile what it compiles now."""
        calls = [self.callee, *(each.callee for each in reversed(self.set_aside))]
        return next((callee for callee in calls if callee is not None), None)
