"""How often each compiled graph ran.

torch's trace is silent when compiled code is merely called. While a watch is open, the global that
Dynamo's bytecode calls for a graph is replaced by one that counts, and put back afterwards: the
same for graphs that were compiled before. `functools.lru_cache` of size 0 caches nothing and counts
its calls in C, so a call costs no Python frame and no allocation of ours.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType
from typing import Any

from ... import torch_private
from ...convert.source_lines import original_name
from .events import CompileId, Finished

GRAPH_PREFIX = "__compiled_fn_"
BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Run:
    """What is counted.

    Attributes:
        id: compile id, or the name of the compiled function where its id is no longer known.
        part: "" for a graph that Dynamo compiled or a compiled-autograd capture, "backward" for
            the backward that AOTAutograd made with it.
        function, file, line: of the code that was compiled, "" and 0 where that is not known.
    """

    id: str
    part: str = ""
    function: str = field(default="", compare=False)
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.id} {self.part}".strip()


Counts = Counter[Run]


def counting(call: Callable[..., Any]) -> Any:
    """A callable that does what `call` does, and counts in C how often: see `count_of`."""
    return lru_cache(maxsize=0)(call)


def count_of(counter: Any) -> int:
    """How often the result of `counting` was called."""
    return int(counter.cache_info().misses)


_captures: weakref.WeakKeyDictionary[Any, Run] = weakref.WeakKeyDictionary()
"""Counters of compiled autograd's captures: its cache, which is in C++, keeps them."""


class Executions:
    """The counters of the compiled graphs, while a watch is open."""

    def __init__(self) -> None:
        self._counters: list[tuple[Run, Any]] = []
        self._undo: list[Callable[[], None]] = []
        self._seen: set[str] = set()
        self._classes: set[int] = set()

    def attach_compiled(self) -> None:
        """Count the graphs that were compiled before."""
        for code, hooks in torch_private.compiled_code():
            compile_id, original = torch_private.origin_of(code)
            for scope, name in hooks:
                if name.startswith(GRAPH_PREFIX):
                    run = Run(compile_id or name, "", *_place(original))
                    call = self._attach(scope, name, run)
                    for each in torch_private.autograd_functions_behind(call):
                        self._attach_backward(each, run)
        for each in torch_private.aot_autograd_functions():
            self._attach_backward(each, Run(f"aot{each._aot_id}"))
        self._counters += [(run, counter) for counter, run in list(_captures.items())]

    def attach_new(self, event: Finished) -> int:
        """Count the graphs of a compilation that has just ended, and say how many there are."""
        before = len(self._seen)
        compile_id = str(event.id or "")
        where = (original_name(event.function), event.file, event.line)
        for _, hooks in torch_private.compiled_code():
            for scope, name in hooks:
                if name.startswith(GRAPH_PREFIX) and name not in self._seen:
                    self._attach(scope, name, Run(compile_id or name, "", *where))
        for each in torch_private.aot_autograd_functions():
            self._attach_backward(each, Run(compile_id or f"aot{each._aot_id}", "", *where))
        return len(self._seen) - before

    def capture(self, compile_id: CompileId | None, call: Callable[..., Any]) -> Any:
        """A counted version of what compiled autograd will call for a capture."""
        counter = counting(call)
        run = Run(str(compile_id or "compiled autograd"))
        _captures[counter] = run
        self._counters.append((run, counter))
        return counter

    def counts(self) -> Counts:
        """How often each ran since its counter was made."""
        total: Counts = Counter()
        for run, counter in self._counters:
            total[run] += count_of(counter)
        return total

    def detach(self) -> None:
        """Put everything back as it was."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._counters.clear()
        self._seen.clear()
        self._classes.clear()

    def _attach(self, scope: dict[str, Any], name: str, run: Run) -> Any:
        self._seen.add(name)  # torch never uses a name again, an id it does
        call = scope[name]
        counter = scope[name] = counting(call)
        self._counters.append((run, counter))

        def undo() -> None:
            if scope.get(name) is counter:
                scope[name] = call

        self._undo.append(undo)
        return call

    def _attach_backward(self, function: Any, run: Run) -> None:
        if id(function) in self._classes:
            return
        self._classes.add(id(function))
        original = vars(function)["backward"]
        counter = counting(original.__func__)
        function.backward = staticmethod(counter)
        self._counters.append((replace(run, part=BACKWARD), counter))
        self._undo.append(lambda: setattr(function, "backward", original))


def _place(code: CodeType | None) -> tuple[str, str, int]:
    if code is None:
        return "", "", 0
    return original_name(code.co_name), code.co_filename, code.co_firstlineno
