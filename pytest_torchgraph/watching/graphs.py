"""Graphs of a watch, parsed from the text that torch's trace prints.

Names come only from this text, not from live objects, so they are the same with cold and warm
caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..convert.canonical_names import CanonicalNames
from ..convert.compiled_autograd import RunFacts, fold
from ..convert.from_fx import Naming, convert
from ..convert.placeholders import InputName
from ..convert.printed import (
    Printed,
    aot_names,
    describe_by_joint,
    describe_like,
    dynamo_names,
    is_size,
    read_printed,
)
from ..convert.source_lines import relative
from ..graph.census import calls
from ..graph.diff import natural_key
from ..graph.events import ScheduledCall
from ..graph.model import Graph, GraphKind
from ..graph.module_paths import numbered
from ..ops.matching import LEVELS, Level
from .compilations import Compilation
from .kernels import Kernel, kernels_of, schedule_of
from .observe import BACKWARD
from .output_code import UnreadableCodeError

if TYPE_CHECKING:
    from .record import WatchRecord

AOT_KINDS: dict[str, GraphKind] = {
    "forward": "forward",
    "inference": "inference",
    "backward": "backward",
}
"""The graph kind of each stage that AOTAutograd prints after partitioning."""

_ROLES = {"parameter": 1, "buffer": 2}
"""Sort rank of an input by role; arguments come first."""


class PrintedGraphs:
    """Graphs of a watch record, parsed on first access.

    Symbols are numbered in the Dynamo and AOTAutograd graphs first, one compilation at a time.
    Joint and post-grad graphs are parsed on demand, each with a copy of this numbering. Symbol
    names therefore do not depend on the order of access.

    Attributes:
        record: the recorded watch.
    """

    def __init__(self, record: WatchRecord):
        self.record = record
        self._at: dict[Level, tuple[Graph, ...]] = {}

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """Graphs of each compilation: AOTAutograd's, or Dynamo's if there are none."""
        return numbered(graph for compilation in self._compilations for graph in compilation.own)

    def at(self, level: Level) -> tuple[Graph, ...]:
        """Return the graphs of one level, empty if no compilation reached it."""
        if level == "post_grad":
            return self._post_grad
        if level not in self._at:
            self._at[level] = numbered(
                graph
                for compilation in self._compilations
                for graph in compilation.levels.get(level, ())
            )
        return self._at[level]

    def by_compilation(self, level: Level | None) -> Iterator[tuple[Graph, Compilation]]:
        """Yield the graphs of a level, or for `None` `graphs`, each with its compilation."""
        owners: list[Compilation] = []
        # Only the number of graphs counts here: `at` returns the same graphs, numbered over all
        # compilations.
        for compiled, its in zip(self.record.compiled, self._compilations, strict=True):
            graphs: Sequence[Any] = its.own if level is None else its.levels.get(level, ())
            if level == "post_grad":
                graphs = its.post_grad(self._later_names)
            owners += [compiled] * len(graphs)
        return zip(self.graphs if level is None else self.at(level), owners, strict=True)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels reached by at least one compilation."""
        return tuple(level for level in LEVELS if self.at(level))

    @cached_property
    def joints(self) -> tuple[Graph, ...]:
        """Joint graphs of AOTAutograd, before partitioning."""
        return numbered(
            graph
            for compilation in self._compilations
            for graph in compilation.joints(self._later_names)
        )

    @cached_property
    def kernels(self) -> tuple[Kernel, ...] | None:
        """Kernels and library calls in inductor's code, `None` if inductor generated no code.

        Raises:
            UnreadableCodeError: if another backend than inductor compiled some of the code, whose
                kernels are then unknown.
        """
        generated = [
            (compilation, code) for compilation in self.record.compiled for code in compilation.code
        ]
        if not generated:
            return None
        for compilation, graphs in zip(self.record.compiled, self._compilations, strict=True):
            # A captured backward has no code of its own: the compilations inside it have. A graph
            # without ops needs no code.
            if not compilation.code and not compilation.is_capture and any(calls(graphs.own)):
                raise UnreadableCodeError(
                    f"{compilation.function} ({relative(compilation.file)}:{compilation.line}) was "
                    "compiled with a backend other than inductor: leave this function out with "
                    "only(function=...)"
                )
        return tuple(
            kernel
            for compiled, code in generated
            for kernel in kernels_of(code.code, str(compiled.id or ""))
        )

    @property
    def communicating(self) -> tuple[Graph, ...]:
        """Graphs to read communication from: inductor's, or the compilation's own."""
        return self._communicating[0]

    def schedule(self, graph: Graph) -> Sequence[ScheduledCall] | None:
        """Return the collectives in inductor's code for a graph in `communicating`.

        Returns:
            The collectives, `()` if the code is unreadable, `None` if the graph has no code.
        """
        return self._communicating[1].get(id(graph))

    @cached_property
    def _communicating(self) -> tuple[tuple[Graph, ...], dict[int, Sequence[ScheduledCall]]]:
        """The graphs of `communicating`, and the collectives of those with code, by graph id."""
        lowered = {
            compilation.id.autograd
            for compilation in self.record.compiled
            if compilation.code and compilation.id is not None and not compilation.is_capture
        }
        pairs: list[tuple[Graph, Sequence[ScheduledCall] | None]] = []
        for compiled, graphs in zip(self.record.compiled, self._compilations, strict=True):
            # Inductor compiled the graphs inside this captured backward: use them instead.
            if compiled.is_capture and compiled.id and compiled.id.autograd in lowered:
                continue
            pairs += graphs.scheduled(self._later_names)
        graphs_in_order = numbered(graph for graph, _ in pairs)
        schedules = zip(map(id, graphs_in_order), (calls for _, calls in pairs), strict=True)
        return graphs_in_order, {
            graph_id: calls for graph_id, calls in schedules if calls is not None
        }

    @cached_property
    def _post_grad(self) -> tuple[Graph, ...]:
        return numbered(
            graph
            for compilation in self._compilations
            for graph, _ in compilation.post_grad(self._later_names)
        )

    @cached_property
    def _compilations(self) -> list[_CompilationGraphs]:
        names = CanonicalNames(self.record.mesh_dimensions)
        result = [
            _CompilationGraphs(compiled, self.record, names) for compiled in self.record.compiled
        ]
        self._names = names  # now with all symbols of these graphs
        return result

    @property
    def _later_names(self) -> CanonicalNames:
        """A copy of the numbering, for a graph that is parsed on demand. Needs `_compilations`."""
        return self._names.copy()


class _CompilationGraphs:
    """Graphs of one compilation, converted stage by stage.

    There are none if it failed. A backward is included only if it ran. It uses the names of its
    forward.

    Attributes:
        own: graphs at the compilation's own level. Empty for a compilation inside a captured
            backward, because the graph that compiled autograd captured is counted instead.
        levels: graphs by level, up to AOTAutograd.
    """

    def __init__(self, compiled: Compilation, record: WatchRecord, canon: CanonicalNames):
        self.compiled = compiled
        self.own: list[Graph] = []
        self.levels: dict[Level, list[Graph]] = {}
        self._aot_printed: list[Printed] = []
        self._forward_names: dict[str, str] = {}
        self._forward_printed: Printed | None = None
        self._is_counted = record.log is None  # a log does not show how often a graph ran
        self._runs = record.runs_of(compiled)
        self._backward_runs = record.runs_of(compiled, BACKWARD)
        # A failed compilation has no graph that runs. A captured backward has one of its own kind.
        self._is_read = not (compiled.failure or compiled.is_capture)
        if compiled.is_capture and not compiled.failure and self._runs:
            captured = [
                fold(read_printed(text), RunFacts(), canon).graph
                for text in compiled.texts("compiled_autograd")
            ]
            self.own = [self._with_runs(graph, self._runs) for graph in captured]
            self.levels["compiled_autograd"] = self.own
        if not self._is_read:
            return
        dynamo_printed = [read_printed(text) for text in compiled.texts("dynamo")]
        named = [
            (node, pair)
            for graph in dynamo_printed
            for node, pair in zip(graph.placeholders, dynamo_names(graph), strict=True)
        ]
        self._names = [pair for _, pair in named]
        # Sizes are not declared, so they come last.
        self._input_order = input_order_of(pair for node, pair in named if not is_size(node))
        self.levels["dynamo"] = [self._dynamo_graph(graph, canon) for graph in dynamo_printed]
        self.levels["aot"] = self._aot(canon)
        if compiled.id is None or compiled.id.autograd is None:
            self.own = self.levels["aot"] or self.levels["dynamo"]

    def joints(self, canon: CanonicalNames) -> list[Graph]:
        """Convert the joint graphs, before AOTAutograd partitions them."""
        texts = self.compiled.texts("joint") if self._is_read else ()
        return [self._lowered(read_printed(text), "aot", "joint", canon) for text in texts]

    def post_grad(self, canon: CanonicalNames) -> list[tuple[Graph, int]]:
        """Convert inductor's post-grad graphs, each with its number in the compilation."""
        graphs = []
        for number, text in enumerate(self.compiled.texts("post_grad") if self._is_read else ()):
            printed = read_printed(text)
            kind: GraphKind = "inference"
            # Inductor prints no descriptions of inputs, but a post-grad graph has the names of the
            # inputs of its AOTAutograd graph.
            for earlier in self._aot_printed:
                if _input_names(earlier) == _input_names(printed):
                    describe_like(printed, earlier)
            if self.compiled.texts("forward"):
                kind = "backward" if _is_backward(printed) else "forward"
            if kind != "backward" or self._backward_runs:
                graphs.append((self._aot_graph(printed, "post_grad", kind, canon), number))
        return graphs

    def scheduled(
        self, names: CanonicalNames
    ) -> list[tuple[Graph, Sequence[ScheduledCall] | None]]:
        """Return the graphs to read communication from, each with the collectives in its code.

        If inductor wrote code and torch printed every post-grad graph, these are the post-grad
        graphs. Otherwise they are the compilation's own graphs. The collectives are `None` for a
        graph without code and `()` if the code is unreadable.
        """
        code = self.compiled.code
        if not code or not self._is_read:
            return [(graph, None) for graph in self.own]
        graphs = [(graph, number) for number, graph in enumerate(self.own)]
        if len(code) == len(self.compiled.texts("post_grad")):  # each module has its graph
            graphs = self.post_grad(names)
        elif len(code) != len(graphs):  # code and graphs cannot be paired
            return [(graph, ()) for graph in self.own]
        return [(graph, self._schedule(number, names.groups)) for graph, number in graphs]

    def _schedule(self, number: int, groups: Mapping[str, str]) -> Sequence[ScheduledCall]:
        """Return the collectives in a module of the code, `()` if the code is unreadable."""
        try:
            return schedule_of(self.compiled.code[number].code, groups=groups)
        except UnreadableCodeError:
            return ()

    def _with_runs(self, graph: Graph, runs: int) -> Graph:
        return replace(graph, runs=runs, counted=True) if self._is_counted else graph

    def _dynamo_graph(self, printed: Printed, canon: CanonicalNames) -> Graph:
        """Convert a graph that Dynamo traced."""
        pairs = zip(printed.placeholders, dynamo_names(printed), strict=True)
        inputs = {node.name: pair for node, pair in pairs}
        graph = self._convert(printed, "dynamo", "forward", inputs, canon)
        return self._with_runs(graph, self._runs)

    def _aot(self, canon: CanonicalNames) -> list[Graph]:
        """Convert AOTAutograd's graphs; the backward only if it ran.

        Keeps the printed graphs in `_aot_printed`, whose descriptions `post_grad` needs.
        """
        graphs = []
        for event in self.compiled.printed:
            kind = AOT_KINDS.get(event.stage)
            if kind is None:
                continue
            printed = read_printed(event.text)
            if kind == "forward":
                # A forward that saves random states has lost the descriptions of its outputs.
                for text in self.compiled.texts("joint"):
                    describe_by_joint(printed, read_printed(text))
            self._aot_printed.append(printed)
            runs = self._backward_runs if kind == "backward" else self._runs
            if kind != "backward" or runs:
                graph = self._lowered(printed, "aot", kind, canon)
                graphs.append(self._with_runs(graph, runs))
        return graphs

    def _lowered(
        self, printed: Printed, level: Level, kind: GraphKind, canon: CanonicalNames
    ) -> Graph:
        """Convert a graph of AOTAutograd, and note if inductor decomposed it."""
        graph = self._aot_graph(printed, level, kind, canon)
        by_inductor = bool(self.compiled.code or self.compiled.texts("post_grad"))
        return replace(graph, decomposed=by_inductor)

    def _aot_graph(
        self, printed: Printed, level: Level, kind: GraphKind, canon: CanonicalNames
    ) -> Graph:
        """Convert a graph of AOTAutograd or a later stage, naming its inputs as Dynamo did."""
        forward, forward_printed = (
            (self._forward_names, self._forward_printed) if kind == "backward" else ({}, None)
        )
        inputs = aot_names(printed, self._names, forward, forward_printed)
        return self._convert(printed, level, kind, inputs, canon)

    def _convert(
        self,
        printed: Printed,
        level: Level,
        kind: GraphKind,
        inputs: dict[str, InputName],
        canon: CanonicalNames,
    ) -> Graph:
        """Convert a printed graph, and record the names of a forward for its backward."""
        naming = Naming(inputs, dynamo=self._names, input_order=self._input_order)
        converted = convert(printed, level=level, kind=kind, name=kind, canon=canon, naming=naming)
        if kind in ("forward", "inference") and level != "dynamo":
            self._forward_names = converted.names
            self._forward_printed = printed
        return converted.graph


def input_order_of(names: Iterable[InputName]) -> dict[str, int]:
    """Number the inputs: arguments sorted by name, then parameters and buffers as they are used.

    The text does not show the order of declaration. Arguments are matched by their order, which
    must not depend on which is used first. Parameters and buffers are matched by name, and renamed
    ones by their order, which must not depend on their names.

    Args:
        names: role and name of each input, in the order of use.

    Returns:
        The position of each input, keyed by name.
    """

    def key(pair: InputName) -> tuple[Any, ...]:
        role, name = pair
        return _ROLES.get(role, 0), [] if role in _ROLES else natural_key(name)

    ordered = sorted(dict.fromkeys(names), key=key)
    return {name: number for number, (_, name) in enumerate(ordered)}


def _input_names(printed: Printed) -> list[str]:
    return [str(node.name) for node in printed.placeholders]


def _is_backward(printed: Printed) -> bool:
    # AOTAutograd's name for a gradient of an output.
    return any(str(node.name).startswith("tangents_") for node in printed.placeholders)
