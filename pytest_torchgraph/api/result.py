"""`Capture`: the graphs of one run, what the compiler did, and the checks on both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..checks.assertions import Assertions
from ..checks.compilation import need_graphs
from ..errors import CaptureError
from ..graph.census import count_ops
from ..graph.collectives import Collective, collectives_of
from ..graph.equality.numbered_graph import equal_programs
from ..graph.events import in_schedule
from ..graph.model import Detail, Graph, GraphKind
from ..graph.text.format import Header, format_document, shown_runs, with_runs
from ..ops.names import Level, OpCounts
from ..watching.output_code import UnreadableCodeError
from .observed import Observed

if TYPE_CHECKING:
    import torch

    from ..checks.subject import EagerComparison
    from ..graph.events import EagerOp
    from ..watching.kernels import Kernel
    from .contents import Contents

_WHY_NO = {
    "backward": "A backward counts only if it ran: does an output require grad, is grad mode on, "
    "and is backward=False not set?",
}


def _no_eager_ops(via: str, is_watch: bool) -> str:
    if is_watch:
        return (
            "a watch does not see what runs eagerly beside compiled graphs: use "
            "graph_capture(target, ...) via 'aot', 'inductor', 'dynamo' or 'compiled_autograd'"
        )
    if via == "compiled_autograd":
        return (
            "with CompiledAutograd(forward='eager') all of the forward runs eagerly, and is not "
            "recorded: a dispatch mode changes the autograd nodes of some ops, and with them the "
            "graph of the backward. Use CompiledAutograd(forward='aot'), or via='dispatch'"
        )
    return (
        f"a capture via {via!r} compiles nothing, so that it does not tell what is compiled from "
        "what is not: use via='aot'"
    )


class Capture(Assertions, Observed):
    """The graphs that one run gave, and what is known of it: its contents, seen at a level.

    `capture`, `watch` and `load` make captures. Two are equal if the graphs of their `program` are,
    each in turn, and ran as often, as far as both know that. Two watches of which neither
    saw a graph are an `AssertionError`, with the cause: nothing would be compared.

    Args:
        contents: what was captured; of an open watch a function that gives it.
        header: what a stored file says about the origin.
        level: the level at which the graphs are read; None for the own level of each.
        device: type of the device that was asked for, None where none was.

    Attributes:
        via: name of the mechanism, `"watch"` for a watch.
        header, device: as given.
    """

    def __init__(
        self,
        contents: Contents | Callable[[], Contents],
        header: Header,
        *,
        level: Level | None = None,
        device: str | None = None,
    ):
        self.header = header
        self.via = header.via
        self.device = device
        self._read = contents if callable(contents) else lambda: contents
        self._level = level

    @property
    def _contents(self) -> Contents:
        return self._read()

    @property
    def rank(self) -> int | None:
        """The rank that this is a capture of; None where it is not one of `Ranks`."""
        return self._contents.rank

    def settle(self, rank: int) -> None:
        """Make this the capture of a rank: nothing is put off, since its process group ends."""
        contents = self._contents.settled(rank)
        self._read = lambda: contents

    # -- graphs ----------------------------------------------------------------------------------

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, in the order in which they were made, at the capture's level.

        Raises:
            CaptureError: if there is no operation in any of them.
        """
        contents = self._contents
        return contents.graphs if self._level is None else contents.at(self._level)

    @property
    def eager(self) -> tuple[Graph, ...]:
        """The graphs of what ran eagerly, outside of every compiled graph, in order.

        They are named `eager_0`, `eager_1`, ..., are at level "dispatch" and of kind "forward",
        "backward" or "inference". One holds what ran between two compiled graphs; those with equal
        dataflow are one, and `Graph.runs` says how often it ran. An input that another graph made
        is called by both names: `forward_0:fc/addmm`. `Graph.cause` is the graph break, or the
        skipped frame, because of which the ops are in no compiled graph.

        Via "dynamo" the backward of a compiled graph is in no graph, and no op of `eager`. Via
        "compiled_autograd" only the forward has eager graphs: the backward of all that ran is in
        one graph.

        Raises:
            CaptureError: for a capture that does not see what runs eagerly beside compiled graphs:
                by `watch()`, via `CompiledAutograd(forward="eager")`, and via "dispatch", "fx" and
                "export", which compile nothing.
        """
        found = self._contents.eager
        if found is None:
            raise CaptureError(_no_eager_ops(self.via, self._contents.is_watch))
        return found

    @property
    def eager_ops(self) -> Sequence[EagerOp]:
        """Each run of an op of `eager`, in the order of the program.

        Of a capture that was loaded from a file they are in the order of its graphs, without lines.

        Raises:
            CaptureError: as `eager`; and for a file without eager ops, which may have been stored
                by a release that did not record them.
        """
        eager = self.eager
        if self._contents.eager_ops is not None:
            return self._contents.eager_ops
        assert not eager
        raise CaptureError(
            "the capture was loaded from a file, which does not say whether eager ops were looked "
            "for when it was stored: capture again"
        )

    @property
    def compiled_share(self) -> float:
        """Of all ops that were executed, those in compiled graphs: from 0.0 to 1.0.

        An op counts as often as its graph ran, what is inside a higher-order op once for each run.

        Raises:
            CaptureError: as `eager`; and for a capture that was loaded from a file, in which
                compiled graphs do not say how often they ran.
        """
        eager = len(self.eager_ops)
        if not self._contents.counts_runs:
            raise CaptureError(
                "the capture was loaded from a file, which does not say how often compiled graphs "
                "ran"
            )
        compiled = sum(graph.op_counts.total() * graph.runs for graph in self._contents.graphs)
        return compiled / (compiled + eager)

    @property
    def program(self) -> tuple[Graph, ...]:
        """All graphs of the step: `graphs`, each of `eager` behind the one that ran before it.

        At a level (`at`) that has other graphs than the capture's own, `eager` is behind them all.
        Checks of ops, comparison, stored text and pictures are about all of them.
        """
        contents = self._contents
        return contents.program if self._level is None else contents.program_at(self._level)

    @property
    def output(self) -> Any:
        """The output of the target.

        Raises:
            CaptureError: for a capture that was loaded from a file, or made by `watch()`.
        """
        return self._contents.output

    @property
    def forwards(self) -> tuple[Graph, ...]:
        """The forward and inference graphs."""
        return self._of_kind("forward", "inference")

    @property
    def backwards(self) -> tuple[Graph, ...]:
        """The backward graphs that ran."""
        return self._of_kind("backward")

    @property
    def forward(self) -> Graph:
        """The one forward or inference graph.

        Raises:
            CaptureError: if there is none, or more than one.
        """
        return self._the_one("forward", self.forwards)

    @property
    def backward(self) -> Graph:
        """The one backward graph.

        Raises:
            CaptureError: if there is none, or more than one.
        """
        return self._the_one("backward", self.backwards)

    @property
    def joint(self) -> Graph:
        """The one joint graph that AOTAutograd split into forward and backward.

        Raises:
            CaptureError: if there is none, or more than one.
        """
        joints = self._contents.joints
        if len(joints) == 1:
            return joints[0]
        if joints:
            raise CaptureError(f"the capture has {len(joints)} joint graphs, not one")
        raise CaptureError(
            f"the capture via {self.via!r} has no joint graph: one is made via 'aot' where an "
            "output requires grad"
        )

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that inductor generated and the libraries that its code calls beside them.

        They are in the order in which the code of each graph launches them first. See `Kernel` for
        what counts as a call of a library.

        Raises:
            CaptureError: for a capture in which no code was generated, or code that is not read
                (inductor's option `cpp_wrapper`).
        """
        try:
            kernels = self._contents.kernels
        except UnreadableCodeError as error:
            raise CaptureError(f"the kernels are not known: {error}") from None
        if kernels is None:
            raise CaptureError(
                f"a capture via {self.via!r} generates no code, so it has no kernels: use "
                "via='inductor'"
            )
        return tuple(kernels)

    def _sent(self) -> tuple[Sequence[Graph], tuple[Collective, ...]]:
        __tracebackhide__ = True
        self.need_all_ops("whether it communicates")
        graphs: Sequence[Graph] = self._to_check()
        contents, runs = self._contents, None
        if self._level is None:
            graphs, runs = contents.communicating, contents.runs
        if runs is None:
            runs = [graph for graph in graphs for _ in range(graph.runs)]
        known: dict[int, Sequence[Collective]] = {}
        for graph in graphs:
            own = collectives_of((graph,))
            schedule = contents.schedule(graph)
            known[id(graph)] = own if schedule is None else in_schedule(own, schedule)
        return graphs, tuple(each for graph in runs for each in known[id(graph)])

    @property
    def op_counts(self) -> OpCounts:
        """How often each op occurs, over all graphs of the `program`."""
        return count_ops(self.program)

    def at(self, level: Level) -> Capture:
        """The same capture at another level that it knows; all else that it knows stays.

        Args:
            level: "dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export" or "post_grad".
                A watch knows up to four of them; a capture via `compiled_autograd` also the "aot"
                graphs; others only their own.

        Raises:
            CaptureError: if the level was not captured.
        """
        if not self._contents.at(level):
            self._need_any()
            known = ", ".join(self._contents.levels)
            via = "inductor" if level == "post_grad" else level
            raise CaptureError(
                f"this capture knows nothing at level {level!r}; it has {known}: "
                f"capture via={via!r}"
            )
        return type(self)(self._read, self.header, level=level, device=self.device)

    def with_sizes(self, **sizes: int) -> Capture:
        """The same graphs with values for symbolic sizes, so that their cost can be said.

        `capture.with_sizes(s0=8).flops` is what a step costs whose size `s0` is 8. The capture that
        is returned has graphs alone, as one that was loaded from a file. Expressions of symbols
        that all have values become numbers; the others stay.

        Args:
            **sizes: the size for each symbol, by its name in the graphs.

        Raises:
            TypeError: without a size, and for one that is no int.
            ValueError: for a symbol that no graph has, with those that there are; for a negative
                size; where an expression would be no whole number or negative.
            CaptureError: of a watch in which graphs broke, see `flops`.
        """
        from ..graph.sizes import with_sizes
        from .contents import Contents

        self._need_whole()
        program = with_sizes(self.program, sizes)
        contents = Contents.of_program(
            program, sees_eager=self._contents.eager is not None, received=self._contents.received
        )
        return type(self)(contents, self.header, device=self.device)

    def only(self, within: Any = None, function: str | None = None) -> Capture:
        """The part of a watch that is about some code.

        Args:
            within: a path, or an importable package, or several of them.
            function: name of a function, as a glob: that of the code that was compiled.

        Raises:
            CaptureError: for a capture that was not made by `watch()`.
            ValueError: for a `within` that is neither a path nor a package.
        """
        whole = self._contents
        part = whole.only(within, function)

        def read() -> Contents:
            nonlocal whole, part
            if (now := self._contents) is not whole:
                whole, part = now, now.only(within, function)
            return part

        return type(self)(read, self.header, level=self._level, device=self.device)

    def fx(self, graph: Graph) -> torch.fx.GraphModule:
        """A torch.fx.GraphModule of one of this capture's graphs, to run or to transform.

        It takes the inputs of the graph in their order, under names made of theirs, and gives its
        outputs and then the values that it saves; `from_fx` of it is the graph again. Each call
        makes a new copy, which shares parameters and buffers with the model.

        Args:
            graph: one of `graphs`, at the capture's level.

        Raises:
            CaptureError: if the graph is not of this capture, or there is no live module of it: via
                `dispatch`, in a watch, from a file, of what ran eagerly.
        """
        if any(own is graph for own in self._contents.eager or ()):
            raise CaptureError(
                f"{graph.name} ran eagerly, as single ops, so there is no live torch.fx graph of "
                "it: pass one of capture.graphs"
            )
        if not any(own is graph for own in self.graphs):
            raise CaptureError(f"{graph!r} is not one of this capture's graphs")
        converted = self._contents.live(graph)
        if converted is None:
            raise CaptureError(f"a capture via {self.via!r} has no live torch.fx graphs")
        from ..convert.to_fx import to_graph_module

        return to_graph_module(converted)

    def to_text(
        self, detail: Detail = "dataflow", fold: bool = True, digits: int | None = None
    ) -> str:
        """The `.tgraph` text of all graphs of the `program`.

        Args:
            detail: "ops" has op counts alone, "dataflow" what is compared, "full" also strides and
                devices.
            fold: whether repeated modules are written once, as they are stored; False gives one
                line a node, for comparisons line by line.
            digits: how many significant digits float constants have, see `Graph.to_text`.
        """
        return format_document(self.program, self.header, detail, fold=fold, digits=digits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capture):
            return NotImplemented
        if not (self.program or other.program):
            need_graphs(self)
        return equal_programs(self.program, other.program)

    def __hash__(self) -> int:
        return hash(self.program)

    def __repr__(self) -> str:
        graphs = ", ".join(
            f"{with_runs(graph.name, shown_runs(graph))} ({len(graph.nodes)} nodes)"
            for graph in self.program
        )
        return f"<{type(self).__name__} via {self.via}: {graphs or 'no graphs'}>"

    def _of_kind(self, *kinds: GraphKind) -> tuple[Graph, ...]:
        return tuple(graph for graph in self.graphs if graph.kind in kinds)

    def _the_one(self, word: str, graphs: tuple[Graph, ...]) -> Graph:
        if len(graphs) == 1:
            return graphs[0]
        self._need_any()
        there = ", ".join(f"{graph.name} ({len(graph.nodes)} nodes)" for graph in self.graphs)
        count = "no" if not graphs else str(len(graphs))
        hint = f"take one of capture.{word}s" if graphs else _WHY_NO.get(word, "")
        raise CaptureError(
            f"the capture has {count} {word} graph{'s' if len(graphs) != 1 else ''}, not one: "
            f"there is {there or 'nothing'}. {hint}".rstrip()
        )

    def _need_any(self) -> None:
        """Say why a watch has no graph at all."""
        if self.watched is not None and not self.graphs:
            from ..checks.eager import why_no_graph

            raise CaptureError(f"no graph was compiled:\n{why_no_graph(self.watched)}")

    def _need_whole(self) -> None:
        self._need_any()
        self.need_all_ops("what it costs")

    def need_all_ops(self, unknown: str) -> None:
        """Refuse a watch in which graphs broke.

        Args:
            unknown: what is not known then, in words: "whether it communicates".

        Raises:
            CaptureError: with the first graph break.
        """
        breaks = self.watched.breaks if self.watched is not None else ()
        if breaks:
            raise CaptureError(
                f"the graphs broke, first at {breaks[0].file}:{breaks[0].line} ({breaks[0].kind}), "
                f"and what ran there is in none of them, so that it is not known {unknown}: "
                "capture via 'aot' or 'dispatch'"
            )

    @property
    def _split(self) -> tuple[Graph, ...]:
        """`program`, with the graphs of AOTAutograd in place of those that were made of them."""
        contents = self._contents
        at_aot = any(graph.level in ("post_grad", "compiled_autograd") for graph in contents.graphs)
        known = at_aot and contents.at("aot")
        return contents.program_at("aot") if known else self.program

    @property
    def _comparison(self) -> EagerComparison | None:
        return self._contents.comparison
