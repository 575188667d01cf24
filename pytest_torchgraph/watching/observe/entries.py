"""Entries into compiled code, and whether anything came of them.

What was compiled leaves traces; what silently was not leaves none. So each call of a compiled
callable is noted when it is made, and whether anything was compiled, or served from Dynamo's cache,
before the next one.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from types import CodeType
from typing import Any, NamedTuple

from ... import torch_private
from ...convert.source_lines import is_user_file, original_name
from .events import Finished, Started
from .executions import count_of, counting


class Note(NamedTuple):
    """Why Dynamo compiled nothing: its own words, and the frame that it says them of."""

    reason: str
    function: str = ""
    file: str = ""
    line: int = 0


_GENERATED = "GraphModule.__new__.<locals>.GraphModuleImpl"

WRAPPER = "compile_wrapper"
"""Name of the frame in which torch calls what was compiled."""

_Key = tuple[str, str, int]

SILENT = Note("")
"""The cause of an entry of which nothing came and for which nothing gives a reason."""


@dataclass(slots=True)
class Region:
    """A compiled callable that was called.

    Attributes:
        name: its qualified name.
        file, line: where its code is; empty and 0 where it has none.
        code: its code object, None for a callable without one.
        entries: how often it was called.
        uncompiled: for the calls in which nothing compiled ran, the causes: Dynamo's words, or
            `SILENT`.
        inlined: whether Dynamo sees the code inside a function of torch's, not by itself.
        known: whether anything was ever heard of its code.
    """

    name: str
    file: str = ""
    line: int = 0
    code: CodeType | None = None
    entries: int = 0
    uncompiled: Counter[Note] = field(default_factory=Counter)
    inlined: bool = False
    known: bool = False

    @property
    def names(self) -> list[str]:
        """What it may be called: a module by its class, and by its method."""
        if self.code is None or self.name.endswith(self.code.co_name):
            return [self.name]
        return [self.name, self.code.co_name, f"{self.name}.{self.code.co_name}"]

    def names_of(self, other: Any) -> list[str]:
        """`names`, for what has the `file`, `line` and `function` of this code or a part of it."""
        if self.code is None or (other.file, other.function) != (self.file, self.code.co_name):
            return []
        return self.names if self.line <= other.line <= _last_line(self.code) else []

    def since(self, before: Region | None) -> Region:
        """What was added to an earlier state of this region."""
        if before is None:
            return replace(self, uncompiled=Counter(self.uncompiled))
        return replace(
            self,
            entries=self.entries - before.entries,
            uncompiled=self.uncompiled - before.uncompiled,
        )


Snapshot = dict[int, Region]
"""Regions by the order in which they were first entered, which tells two of one name apart."""


class _Thread:
    """What happens in one thread.

    Attributes:
        hits: counts, in C, how often Dynamo found compiled code.
        compiled: how often Dynamo compiled a frame.
        pending: the latest entry, as long as it is not known what came of it.
        mark: `progress` at that entry.
        note, rank: why Dynamo left something alone since.
        interrupted: the same of the frames that Dynamo is tracing, by compile id: a backend may
            call compiled code itself.
    """

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.hits: Any = counting(partial(bool, 1))
        self.compiled = 0
        self.pending: Region | None = None
        self.mark = 0
        self.note: Note | None = None
        self.rank = 0
        self.interrupted: list[tuple[Any, Region | None, bool, Note | None, int]] = []

    @property
    def progress(self) -> int:
        """Grows whenever something compiled is run or made."""
        return count_of(self.hits) + self.compiled

    def begin(self, event: Started) -> None:
        """Dynamo begins to trace a frame."""
        region = self.pending
        if region is not None and region.code is not None:
            of = (event.function, event.line)
            if of == (region.code.co_name, region.line) or self.interrupted:
                region.known = True  # Dynamo does not say how one inside another one ended
        unresolved = self.mark == self.progress
        self.interrupted.append((event.id, self.pending, unresolved, self.note, self.rank))
        self.pending = self.note = None

    def end(self, compile_id: Any) -> None:
        """Dynamo has traced it, or given it up."""
        while any(each[0] == compile_id for each in self.interrupted):
            found, self.pending, unresolved, self.note, self.rank = self.interrupted.pop()
            self.mark = self.progress if unresolved else self.progress - 1
            if found == compile_id:
                break

    @property
    def is_inside(self) -> bool:
        """Whether it still is in the latest entry: in compiled code, or compiling it."""
        frame = sys._current_frames().get(self.ident)
        while frame is not None and frame.f_code.co_name != WRAPPER:
            frame = frame.f_back
        return frame is not None


class _Local(threading.local):
    """The `_Thread` of the running thread."""

    def __init__(self, threads: list[_Thread]) -> None:
        self.here = _Thread()
        self.hit = self.here.hits
        threads.append(self.here)


class Regions:
    """All compiled callables that are entered while it observes."""

    def __init__(self) -> None:
        self._threads: list[_Thread] = []
        self._local = _Local(self._threads)
        self.hit: Callable[[], bool] = partial(methodcaller("hit"), self._local)
        """To be called when Dynamo has found compiled code: it counts in C, and gives true."""
        self._all: list[Region] = []
        self._found: dict[int, Region] = {}
        self._calls: dict[int, Any] = {}
        self._heard_of: set[_Key] = set()
        self._empty: set[_Key] = set()
        self._given_up: dict[_Key | None, Note] = {}

    @property
    def current(self) -> str:
        """Name of the compiled callable that this thread entered last."""
        pending = self._local.here.pending
        return "" if pending is None else pending.name

    def started(self, event: Started) -> None:
        """Dynamo begins to trace a frame."""
        self._local.here.begin(event)

    def finished(self, event: Finished, *, has_graph: bool) -> None:
        """Dynamo compiled a frame, or failed to."""
        here = self._local.here
        here.end(event.id)
        if event.failure:
            reason = first_line(event.reason) or event.failure
            self.note(reason, *_code_of(event), failed=True)
            self._given_up[_code_of(event)] = Note(reason, *_code_of(event))
        else:
            here.compiled += 1
            self._heard_of.add(_code_of(event))
            (self._empty.discard if has_graph else self._empty.add)(_code_of(event))

    def note(
        self,
        reason: str,
        function: str = "",
        file: str = "",
        line: int = 0,
        *,
        failed: bool = False,
    ) -> None:
        """Dynamo said why it left something alone.

        What holds for all code counts before a frame that is the user's or that failed, and that
        before one of torch's; of several the first, which is the outermost.
        """
        here = self._local.here
        rank = 0 if not file else 1 if failed or is_user_file(file) else 2
        self._heard_of.add((function, file, line))
        if here.note is None or rank < here.rank:
            here.note, here.rank = Note(reason, function, file, line), rank

    def observer(self, original: Callable[[], Any]) -> Callable[[], Any]:
        """What takes the place of a function that torch calls whenever compiled code is entered.

        The call that is repeated a thousand times costs this one Python frame and nothing that
        grows.
        """
        found = self._found
        stance_of = torch_private.current_stance()
        modes = torch_private.get("dispatch_mode_count")
        local = self._local

        def entered() -> Any:
            caller = sys._getframe(1)
            if caller.f_code.co_name == WRAPPER:
                here = local.here
                call = caller.f_locals.get("fn")
                region = found.get(id(call))
                progress = here.hits.cache_info().misses + here.compiled
                if (
                    region is None
                    or progress == here.mark
                    or here.note
                    or modes()
                    or stance_of("_stance").stance != "default"
                ):
                    region = self._enter(here, call)
                region.entries += 1
                here.pending = region
                here.mark = progress
            return original()

        return entered

    def _enter(self, here: _Thread, call: Any) -> Region:
        """All that has to be done about an entry that is not the ordinary one."""
        self._settle(here)
        if id(call) not in self._found:
            self._add(call)
            self._drop_ended_threads()
        disabled = torch_private.compile_is_disabled()
        if disabled:
            self.note(f"torch.compile is switched off by {disabled}")
        if torch_private.stance() != "default":
            self.note(f"torch.compiler.set_stance({torch_private.stance()!r}) is in force")
        for mode in torch_private.modes_that_stop_compilation():
            self.note(f"{mode} is active: Dynamo compiles nothing under a TorchDispatchMode")
        return self._found[id(call)]

    def _add(self, call: Any) -> None:
        """Know a callable from now on, as long as it lives: it may hold tensors."""
        key = id(call)
        self._found[key] = _region(call)
        self._all.append(self._found[key])
        try:
            self._calls[key] = weakref.ref(call, lambda _: self._forget(key))
        except TypeError:
            self._calls[key] = call  # so that its id stays its own

    def _forget(self, key: int) -> None:
        self._found.pop(key, None)
        self._calls.pop(key, None)

    def _settle(self, thread: _Thread) -> None:
        """Judge the latest entry of a thread."""
        region = thread.pending
        if region is not None and thread.mark == thread.progress:
            key = None if region.code is None else _key(region.code)
            if thread.note or key not in self._empty:
                region.uncompiled[thread.note or self._given_up.get(key, SILENT)] += 1
        thread.pending = thread.note = None

    def _drop_ended_threads(self) -> None:
        alive = sys._current_frames()
        latest = {
            each.ident: each for each in self._threads
        }  # a new thread gets an old one's ident
        for thread in list(self._threads):
            if thread.ident not in alive or latest[thread.ident] is not thread:
                self._settle(thread)
                self._threads.remove(thread)

    def snapshot(self) -> Snapshot:
        """The state at this moment."""
        here = self._local.here
        for thread in self._threads:
            if thread is here or not thread.is_inside:
                self._settle(thread)
        return {n: self._judged(region) for n, region in enumerate(self._all)}

    def _judged(self, region: Region) -> Region:
        """A copy of a region, in which calls count that were made inside those of another one.

        What came after such a call, in the outer one, looks as if it had come of the inner one. But
        code of which nothing was ever heard was not compiled.
        """
        found = region.since(None)
        code = region.code
        if not (code is None or region.known or region.inlined or _key(code) in self._heard_of):
            open_ = sum(thread.pending is region for thread in self._threads)
            missing = region.entries - found.uncompiled.total() - open_
            found.uncompiled += Counter({SILENT: missing})
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._all.clear()
        self._found.clear()
        self._calls.clear()
        self._threads.clear()


def first_line(text: str) -> str:
    """The first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _code_of(event: Finished) -> _Key:
    return original_name(event.function), event.file, event.line


def _key(code: CodeType) -> _Key:
    return code.co_name, code.co_filename, code.co_firstlineno


def _last_line(code: CodeType) -> int:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    lines = [line for *_, line in code.co_lines() if line is not None]
    return max([code.co_firstlineno, *lines, *map(_last_line, inner)])


def _region(call: Any) -> Region:
    code = getattr(call, "__code__", None)
    wrapped = torch_private.unwrap_inline(call)
    owner = getattr(wrapped if wrapped is not None else call, "__self__", wrapped)
    name = getattr(call if wrapped is None else wrapped, "__qualname__", type(call).__qualname__)
    if owner is not None and hasattr(owner, "named_modules"):
        name = type(owner).__qualname__.replace(_GENERATED, type(owner).__name__)
        code = getattr(getattr(type(owner), "forward", None), "__code__", code)
    elif wrapped is not None:
        code = getattr(wrapped, "__code__", None)
    if not isinstance(code, CodeType):
        return Region(name)
    return Region(
        name,
        code.co_filename,
        code.co_firstlineno,
        code,
        inlined=owner is not None or not is_user_file(code.co_filename),
        known=torch_private.is_compiled_code(code),
    )
