"""The graphs of a watch, read from what the trace printed.

Names come from the text alone, by the same rule with cold and warm caches, never from live objects
that happen to exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..convert.canonical_names import CanonicalNames
from ..convert.compiled_autograd.fold import RunFacts, fold
from ..convert.from_fx import Naming
from ..convert.printed import (
    Printed,
    aot_names,
    convert_printed,
    describe_like,
    dynamo_names,
    is_size,
    read_printed,
)
from ..convert.printed.results import PrintedNames
from ..graph.model import Graph, GraphKind
from ..graph.numbering import numbered
from ..ops.levels import LEVELS, Level
from .compilations import Compilation
from .kernels import Kernel, kernels_of
from .observe.executions import BACKWARD, Run

if TYPE_CHECKING:
    from .record import WatchRecord

AOT_KINDS: dict[str, GraphKind] = {
    "forward": "forward",
    "inference": "inference",
    "backward": "backward",
}

_ROLES = {"parameter": 1, "buffer": 2}
_LEAVES = {"weight": 0, "bias": 1}


class Graphs:
    """The graphs of what a watch saw, each worked out when it is first asked for.

    Symbols are numbered over Dynamo's graphs and those of AOTAutograd, compilation by compilation.
    What comes from a later stage goes on from there, so that its symbols have the same names,
    whatever is read first.

    Attributes:
        record: what the watch saw.
    """

    def __init__(self, record: WatchRecord):
        self.record = record

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """Those that count: after AOTAutograd where it took part, else Dynamo's."""
        return numbered(graph for read in self._read for graph in read.own)

    def at(self, level: Level) -> tuple[Graph, ...]:
        """The graphs of one level, none where no compilation reached it."""
        if level == "post_grad":
            return self._post_grad
        return numbered(graph for read in self._read for graph in read.levels.get(level, ()))

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that at least one compilation reached."""
        return tuple(level for level in LEVELS if self.at(level))

    @cached_property
    def joints(self) -> tuple[Graph, ...]:
        """The joint graphs that AOTAutograd made, before it split them."""
        return numbered(graph for read in self._read for graph in read.joints(self._later))

    @cached_property
    def kernels(self) -> tuple[Kernel, ...] | None:
        """The kernels that inductor generated, None where it generated nothing."""
        found = [
            kernel
            for each in self.record.compiled
            for code in each.code
            for kernel in kernels_of(code.code, str(each.id or ""))
        ]
        return tuple(found) if any(each.code for each in self.record.compiled) else None

    @cached_property
    def _post_grad(self) -> tuple[Graph, ...]:
        return numbered(graph for read in self._read for graph in read.post_grad(self._later))

    @cached_property
    def _read(self) -> list[_Read]:
        canon = CanonicalNames()
        found = [_Read(each, self.record.runs, canon) for each in self.record.compiled]
        self._canon = canon
        return found

    @property
    def _later(self) -> CanonicalNames:
        return self._canon.copy()


class _Read:
    """What one compilation gave. It counts only if it went well, and its backward if that ran.

    Attributes:
        own: the graphs that count.
        levels: the graphs of each level up to AOTAutograd.
    """

    def __init__(self, compiled: Compilation, runs: Mapping[Run, int], canon: CanonicalNames):
        self.own: list[Graph] = []
        self.levels: dict[Level, list[Graph]] = {}
        self._reader: _Reader | None = None
        if compiled.failure:
            return
        if compiled.is_capture:
            if runs.get(Run(str(compiled.id or ""))):
                self.own = self.levels["compiled_autograd"] = _captured(compiled, canon)
            return
        self._ran = runs.get(Run(str(compiled.id or ""), BACKWARD), 0) > 0
        self._reader = reader = _Reader(compiled, canon)
        self.levels = {"dynamo": reader.dynamo(), "aot": reader.aot(backward=self._ran)}
        if compiled.id is None or compiled.id.autograd is None:
            self.own = self.levels["aot"] or self.levels["dynamo"]

    def joints(self, canon: CanonicalNames) -> list[Graph]:
        """The joint graphs."""
        return [] if self._reader is None else self._reader.joints(canon)

    def post_grad(self, canon: CanonicalNames) -> list[Graph]:
        """What inductor generated code from."""
        return [] if self._reader is None else self._reader.post_grad(canon, backward=self._ran)


def _captured(compiled: Compilation, canon: CanonicalNames) -> list[Graph]:
    """The backward that compiled autograd captured."""
    return [
        fold(read_printed(text), RunFacts(), PrintedNames(canon)).graph
        for text in compiled.texts("compiled_autograd")
    ]


class _Reader:
    """Reads the texts of one compilation."""

    def __init__(self, compiled: Compilation, canon: CanonicalNames):
        self.compiled = compiled
        self.canon = canon
        self.read_dynamo = [read_printed(text) for text in compiled.texts("dynamo")]
        self.names = [pair for each in self.read_dynamo for pair in dynamo_names(each)]
        self.ranks = ranks_of(
            pair
            for each in self.read_dynamo
            for node, pair in zip(each.placeholders, dynamo_names(each), strict=True)
            if not is_size(node)  # which come last: nobody declares them
        )
        self.described: list[Printed] = []
        self.forward_names: dict[str, str] = {}

    def dynamo(self) -> list[Graph]:
        """Dynamo's graph."""
        return [
            self.convert(each, "dynamo", "forward", self.inputs(each), self.canon)
            for each in self.read_dynamo
        ]

    def inputs(self, printed: Printed) -> dict[str, tuple[str, str]]:
        """What the inputs of a Dynamo graph are called."""
        names = dynamo_names(printed)
        return {node.name: pair for node, pair in zip(printed.placeholders, names, strict=True)}

    def aot(self, *, backward: bool) -> list[Graph]:
        """What AOTAutograd made of it."""
        found = []
        for event in self.compiled.printed:
            kind = AOT_KINDS.get(event.stage)
            if kind is None:
                continue
            printed = read_printed(event.text)
            self.described.append(printed)
            if kind == "backward" and not backward:
                continue
            found.append(self.aot_graph(printed, "aot", kind, self.canon))
        return found

    def joints(self, canon: CanonicalNames) -> list[Graph]:
        """Forward and backward in one, before they were split."""
        return [
            self.aot_graph(read_printed(text), "aot", "joint", canon)
            for text in self.compiled.texts("joint")
        ]

    def post_grad(self, canon: CanonicalNames, *, backward: bool) -> list[Graph]:
        """What inductor generated code from."""
        found = []
        for text in self.compiled.texts("post_grad"):
            printed = read_printed(text)
            kind: GraphKind = "inference"
            for stage in self.described:
                if _inputs(stage) == _inputs(printed):
                    describe_like(printed, stage)
            if self.compiled.texts("forward"):
                kind = "backward" if _is_backward(printed) else "forward"
            if kind == "backward" and not backward:
                continue
            found.append(self.aot_graph(printed, "post_grad", kind, canon))
        return found

    def aot_graph(
        self, printed: Printed, level: Level, kind: GraphKind, canon: CanonicalNames
    ) -> Graph:
        """A graph behind AOTAutograd, whose inputs are those of Dynamo's graph."""
        forward = self.forward_names if kind == "backward" else {}
        return self.convert(printed, level, kind, aot_names(printed, self.names, forward), canon)

    def convert(
        self,
        printed: Printed,
        level: Level,
        kind: GraphKind,
        inputs: dict[str, tuple[str, str]],
        canon: CanonicalNames,
    ) -> Graph:
        """A printed graph as a `Graph`."""
        naming = Naming(inputs, dynamo=self.names, ranks=self.ranks)
        found = convert_printed(
            printed, level=level, kind=kind, name=kind, canon=canon, naming=naming
        )
        if kind in ("forward", "inference") and level != "dynamo":
            self.forward_names = found.names
        return found.graph


def ranks_of(names: Iterable[tuple[str, str]]) -> dict[str, int]:
    """An order of the inputs that does not depend on which of them is used first.

    Their declared order is not in the text: so arguments, parameters, buffers, each by name, and a
    weight before its bias, as modules declare them.
    """

    def place(each: tuple[str, str]) -> tuple[Any, ...]:
        role, name = each
        owner, _, leaf = name.rpartition(".")
        return _ROLES.get(role, 0), natural(owner), _LEAVES.get(leaf, 2), natural(leaf)

    return {name: number for number, (_, name) in enumerate(sorted(set(names), key=place))}


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which names are in the order that people expect: `blocks.2` before `blocks.10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _inputs(printed: Printed) -> list[str]:
    return [str(node.name) for node in printed.placeholders]


def _is_backward(printed: Printed) -> bool:
    return any(str(node.name).startswith("tangents_") for node in printed.placeholders)
