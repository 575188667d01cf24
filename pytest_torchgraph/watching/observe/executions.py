"""Run counts of compiled graphs.

torch's trace does not report calls of compiled code. While a watch is open, the globals that
Dynamo's bytecode calls for its graphs are replaced by counters, and restored afterwards. This
includes graphs compiled earlier. A counter is a `functools.lru_cache` of size 0. It caches nothing
and counts its calls in C, so a call costs no Python frame and no allocation of ours.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, count, repeat
from types import CodeType
from typing import Any

from ... import torch_private
from ...convert.source_lines import original_name
from .structured_trace import CompilationFinished, CompileId

GRAPH_PREFIX = "__compiled_fn_"
"""Prefix of the globals through which Dynamo's bytecode calls compiled graphs."""
BACKWARD = "backward"
"""`CountedGraph.part` of a backward."""


@dataclass(frozen=True, slots=True)
class CountedGraph:
    """A compiled graph whose runs are counted.

    Attributes:
        id: compile id, or the name of the compiled function if Dynamo no longer has the id.
        part: "" for a graph that Dynamo compiled or a compiled-autograd capture, "backward" for the
            backward that AOTAutograd made with it.
        function, file, line: the compiled code, "" and 0 if unknown. They distinguish graphs with
            equal ids, because `torch._dynamo.reset()` restarts compile ids at 0/0.
        name: name of the graph in this process. Unlike an id, torch never uses it again.
        code_ref, own_resets: as in `CompilationStarted`; `None` if the code is unknown.
    """

    id: str
    part: str = ""
    function: str = ""
    file: str = ""
    line: int = 0
    name: str = ""
    code_ref: weakref.ref[CodeType] | None = field(default=None, compare=False)
    own_resets: int = field(default_factory=torch_private.own_resets, compare=False)

    def __str__(self) -> str:
        return f"{self.id} {self.part}".strip()


Counts = Counter[CountedGraph]
"""Run count of each graph."""


def counting(call: Callable[..., Any]) -> Any:
    """Wrap `call` in a counter of its calls, in C; `count_of` reads the count."""
    return lru_cache(maxsize=0)(call)


def count_of(counter: Any) -> int:
    """Return the number of calls of a wrapper made by `counting`."""
    return int(counter.cache_info().misses)


_captures: weakref.WeakKeyDictionary[Any, CountedGraph] = weakref.WeakKeyDictionary()
"""Counters of captured backwards. Compiled autograd's cache, in C++, keeps them alive."""


_numbers = count()
"""Numbers of the captured backwards, for their names."""


class Executions:
    """Counters of all compiled graphs, starting when the observers are installed."""

    def __init__(self) -> None:
        self._counters: list[tuple[CountedGraph, Any]] = []
        self._undo: list[Callable[[], None]] = []
        self._functions: set[int] = set()  # ids of the replaced autograd functions

    def attach_compiled(self) -> None:
        """Attach counters to the graphs that were compiled earlier."""
        for code, scope, name in _compiled_graphs():
            compile_id, original = torch_private.origin_of(code)
            code_ref = original and weakref.ref(original)
            graph = CountedGraph(compile_id or name, "", *_location(original), name, code_ref)
            call = self._attach(scope, name, graph)
            for function in _find_autograd_functions(call):
                self._attach_backward(function, graph)
        # Those that AOTAutograd made without Dynamo. `_attach_backward` skips the others.
        for function in torch_private.aot_autograd_functions():
            self._attach_backward(function, CountedGraph(f"aot{function._aot_id}"))
        # Captured backwards keep their counters from watch to watch; see `detach`.
        self._counters += [(graph, counter) for counter, graph in list(_captures.items())]

    def attach_new(self, event: CompilationFinished) -> bool:
        """Attach counters to the graphs of a compilation that has just ended.

        Returns:
            True if it has a graph.
        """
        known = {graph.name for graph, _ in self._counters}
        has_graph = False
        compile_id = str(event.id or "")
        location = (original_name(event.function), event.file, event.line)
        for code, scope, name in _compiled_graphs():
            if name not in known:
                has_graph = True
                _, original = torch_private.origin_of(code)
                code_ref = original and weakref.ref(original)
                graph = CountedGraph(compile_id or name, "", *location, name, code_ref)
                self._attach(scope, name, graph)
        for function in torch_private.aot_autograd_functions():
            graph = CountedGraph(compile_id or f"aot{function._aot_id}", "", *location)
            self._attach_backward(function, graph)
        return has_graph

    def capture(self, compile_id: CompileId | None, call: Callable[..., Any]) -> Any:
        """Wrap the function that compiled autograd calls for a captured backward in a counter."""
        counter = counting(call)
        name = f"capture {next(_numbers)}"
        graph = CountedGraph(str(compile_id or "compiled autograd"), name=name)
        _captures[counter] = graph  # for later watches: `detach` does not remove the counter
        self._counters.append((graph, counter))
        return counter

    def counts(self) -> Counts:
        """Return the run count of each graph since its counter was attached."""
        total: Counts = Counter()
        for graph, counter in self._counters:
            total[graph] += count_of(counter)
        return total

    def forward_runs(self) -> list[int]:
        """Return the run counts in the order of the counters, 0 for backward graphs."""
        return [0 if graph.part else count_of(counter) for graph, counter in self._counters]

    def ran_since(self, before: Sequence[int]) -> dict[str, None]:
        """Return the compile ids of graphs that ran since the counts `before`, in order.

        Args:
            before: an earlier result of `forward_runs`.
        """
        # Counters may have been attached since, so `before` is shorter, and continues with zeros.
        earlier = chain(before, repeat(0))
        pairs = zip(self._counters, self.forward_runs(), earlier, strict=False)
        return {
            graph.id: None
            for (graph, _), current_count, earlier_count in pairs
            if current_count > earlier_count
        }

    def detach(self) -> None:
        """Remove the counters from torch, except for those of captured backwards."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._counters.clear()
        self._functions.clear()

    def _attach(self, scope: dict[str, Any], name: str, graph: CountedGraph) -> Any:
        """Replace the global that calls a graph by a counter, and return the original."""
        call = scope[name]
        counter = scope[name] = counting(call)
        self._counters.append((graph, counter))

        def undo() -> None:
            # A reset may have removed the global.
            if scope.get(name) is counter:
                scope[name] = call

        self._undo.append(undo)
        return call

    def _attach_backward(self, function: Any, graph: CountedGraph) -> None:
        """Count the calls of `backward` of an autograd function, unless they are counted already.

        Args:
            function: the autograd function that AOTAutograd made.
            graph: the forward graph.
        """
        if id(function) in self._functions:
            return
        self._functions.add(id(function))
        original = vars(function)["backward"]
        counter = counting(original.__func__)
        function.backward = staticmethod(counter)
        backward = replace(graph, part=BACKWARD, name=f"aot{function._aot_id}")
        self._counters.append((backward, counter))
        self._undo.append(lambda: setattr(function, "backward", original))


def _compiled_graphs() -> Iterator[tuple[CodeType, dict[str, Any], str]]:
    """Yield the bytecode that calls each graph of Dynamo, and the graph's scope and name there."""
    for code, hooks in torch_private.compiled_code():
        yield from ((code, scope, name) for scope, name in hooks if name.startswith(GRAPH_PREFIX))


_functions_by_graph: weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]] = (
    weakref.WeakKeyDictionary()
)
"""Autograd functions that each compiled graph calls. The search for them visits many objects, and
it would be repeated whenever the observers are installed."""


def _find_autograd_functions(call: Any) -> list[Any]:
    """Return the autograd functions that a compiled graph calls, searching only once."""
    try:
        references = _functions_by_graph.get(call)
    except TypeError:  # not weakly referenceable, or not hashable
        return torch_private.autograd_functions_behind(call)
    if references is None:
        references = [
            weakref.ref(function) for function in torch_private.autograd_functions_behind(call)
        ]
        _functions_by_graph[call] = references
    return [function for reference in references if (function := reference()) is not None]


def _location(code: CodeType | None) -> tuple[str, str, int]:
    """Return function, file and first line of a code object, empty if unknown."""
    if code is None:
        return "", "", 0
    return original_name(code.co_name), code.co_filename, code.co_firstlineno
