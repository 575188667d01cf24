"""The calls of compiled callables that one thread is in, and what Dynamo did in each so far."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from .callables import CompiledCallable, EagerCause

ACTIVE, HIT, COMPILED = "active", "hit", "compiled"
"""Keys of a `Call`: it has not returned; code came from Dynamo's cache; Dynamo compiled a frame."""


class Call(dict[str, bool]):
    """A call of a compiled callable, with what Dynamo did for it as keys.

    It is a dict because Dynamo's guard hook adds `HIT` in C, by `setdefault`.

    Args:
        local: the thread's own.
        callee: the callable; `None` for what runs outside of every call, and for a compilation.

    Attributes:
        callee: as given.
        judged_at_end: whether it is judged as it returns.
        misses: how often none of the compilations of a frame fitted, and Dynamo did not compile
            the frame either: the interpreter ran it.
        cause: why Dynamo left a frame to the interpreter; `None` if it left none.
        cause_rank: 0 for a cause that is about all code, 1 for a frame of the user's or one that
            failed to compile, 2 for a frame of torch's.
        partial: why a frame inside the call ran eagerly, for a call that got compiled code too.
        cleanups: what torch runs as the call ends; `None` if our judgement is in there.
        go_on_with: makes this the thread's current call again, in C.
        over: takes note that it has returned, in C.
    """

    __slots__ = (
        "callee",
        "cause",
        "cause_rank",
        "cleanups",
        "go_on_with",
        "judged_at_end",
        "misses",
        "over",
        "partial",
    )

    def __init__(self, local: Local, callee: CompiledCallable | None = None) -> None:
        super().__init__()
        self.callee = callee
        self.judged_at_end = True
        self.misses = 0
        self.cause: EagerCause | None = None
        self.cause_rank = 0
        self.partial: EagerCause | None = None
        self.cleanups: list[Callable[[], object]] | None = None
        self.go_on_with = partial(setattr, local, "hit", self.setdefault)
        self.over = partial(self.pop, ACTIVE, None)

    def end(self) -> None:
        """Forget all of it: it is judged, and can stand for another call."""
        self.clear()
        self[HIT] = True
        self.callee = self.cause = self.partial = self.cleanups = None
        self.misses = 0

    @property
    def served(self) -> bool:
        """Whether it got compiled code."""
        return HIT in self or COMPILED in self


class Interrupted(NamedTuple):
    """A call during which Dynamo is tracing a frame.

    Attributes:
        compile_id: the compilation.
        call: the call.
    """

    compile_id: Any
    call: Call


class ThreadCalls:
    """The calls of one thread.

    Attributes:
        ident: its `threading.get_ident()`.
        last: the latest call that is not judged at its end. It is used again for the next one.
        compiling: the calls that compilations interrupt, outermost first: a backend may call
            compiled code itself.
    """

    def __init__(self, local: Local) -> None:
        self.ident = threading.get_ident()
        self.compiling: list[Interrupted] = []
        self.last = Call(local)
        self.last.end()


class Local(threading.local):
    """What belongs to the running thread.

    Attributes:
        calls: its calls.
        hit: `setdefault` of the current call, to be called by name in C. The call is its
            `__self__`. Outside of every call it is that of a `Call` that is never judged.
    """

    def __init__(self, threads: list[ThreadCalls]) -> None:
        self.calls = ThreadCalls(self)
        self.hit: Any = Call(self).setdefault
        threads.append(self.calls)

    @property
    def current(self) -> Call:
        """The current call."""
        call: Call = self.hit.__self__
        return call
