"""What is known of a capture beside its graphs: what the compiler did, syncs, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import CaptureError
from ..graph.model import Graph
from ..syncs import detect
from ..syncs.model import Sync, Transfer
from ..watching.graphs import PrintedGraphs
from ..watching.record import WatchRecord
from .contents import Contents

if TYPE_CHECKING:
    from ..graph.blocks import BlockKind
    from ..graph.cost.cost import Cost
    from ..graph.cost.recomputed import Recomputed
    from ..graph.cost.step import Received
    from ..graph.events import GraphBreak
    from ..graph.model import Graph
    from ..syncs.model import Sync, Transfer
    from ..watching.cache_lookups import CacheBypass
    from ..watching.output_code import CudagraphSkip
    from ..watching.recompiles import Recompile
    from ..watching.record import EagerCall, WatchRecord
    from .contents import Contents


class Observed:
    """The records of a capture; what was not recorded is an error, not a nothing."""

    if TYPE_CHECKING:
        via: str

        @property
        def program(self) -> tuple[Graph, ...]:
            """All graphs of the step."""
            ...

        @property
        def _contents(self) -> Contents:
            """What was captured."""
            ...

        def _need_whole(self) -> None:
            """Refuse a watch that has no graph, or in which graphs broke."""
            ...

        @property
        def _split(self) -> tuple[Graph, ...]:
            """The graphs of the step as autograd or AOTAutograd made them."""
            ...

        @property
        def graphs(self) -> tuple[Graph, ...]:
            """The graphs, at the capture's level."""
            ...

    @property
    def watched(self) -> WatchRecord | None:
        """The record of a watch; None for a capture that was not made by one."""
        return self._contents.record if self._contents.is_watch else None

    def record(self, asked: str) -> WatchRecord:
        """The record of the compiler: compilations, graph breaks, recompilations, runs.

        Args:
            asked: what is asked for, for the message.

        Raises:
            CaptureError: if nothing went through torch.compile.
        """
        found = self._contents.record
        if found is None:
            raise CaptureError(
                f"a capture via {self.via!r} knows no {asked}: they are Dynamo's, so use "
                "via='aot', 'dynamo', 'inductor' or 'compiled_autograd', or graph_capture.watch()"
            )
        return found

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks, one for each distinct file, line and kind, in order.

        Also the frames that Dynamo skipped or gave up, whose kind says so. Where compiled autograd
        takes over at `loss.backward()`, which Dynamo reports as a break, there is none.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("graph breaks").breaks

    @property
    def eager_calls(self) -> tuple[EagerCall, ...]:
        """The calls of compiled callables that ran eagerly, one for each callable and reason.

        Every other call inside the watch ran compiled code or was compiled, or Dynamo found no
        tensor operation in it, or it raised.

        Raises:
            CaptureError: for a capture that was not made by `watch()` or `steady(...)`.
        """
        if not self._contents.is_watch:
            raise CaptureError(
                f"eager_calls is available on captures of watch() and steady(...), not via "
                f"{self.via!r}: capture.eager has what ran eagerly via 'aot', 'inductor', 'dynamo' "
                "and 'compiled_autograd'"
            )
        return self.record("calls").eager_calls

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """The recompilations, with the guards that had failed, in order.

        Also each capture of compiled autograd but the first.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("recompilations").recompiles

    @property
    def cache_bypasses(self) -> tuple[CacheBypass, ...]:
        """The reasons for which graphs are compiled anew in every process; empty if none are.

        Of a watch it is what torch reported: AOTAutograd's cache refused a graph, or did not save
        one. Via "aot", "inductor" and "dynamo" AOTAutograd's cache is asked about Dynamo's graphs
        when this is first read, under the settings of the capture.

        Raises:
            CaptureError: for a capture by another mechanism, or from a file.
        """
        build = self._contents.build_bypasses
        if build is not None:
            return build()
        if not self._contents.is_watch:
            raise CaptureError(
                f"a capture via {self.via!r} knows no cache bypasses: use via='aot', 'inductor' or "
                "'dynamo', graph_capture.watch(), or graph_capture.restart(...)"
            )
        return self.record("cache lookups").cache_bypasses

    @property
    def cudagraph_skips(self) -> tuple[CudagraphSkip, ...]:
        """The graphs that run without a CUDA graph though one was asked for, and torch's reasons.

        That is under `mode="reduce-overhead"` or `"max-autotune"`. On the CPU each graph is one,
        for which torch gives no reason.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("CUDA graphs").cudagraph_skips

    @property
    def executions(self) -> Mapping[str, int]:
        """How often each compiled graph ran, by compile id (`0/1`), what was compiled before too.

        The backward that AOTAutograd made of a graph is `0/1 backward`; the backward that compiled
        autograd captured is `!0`, and what Dynamo made of that `!0/2/0`.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("executions").executions

    @property
    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """The change of `torch._dynamo.utils.counters` meanwhile, by group.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("counters").counters

    @property
    def syncs(self) -> tuple[Sync, ...]:
        """The places at which Python waits for the device, one for each line, op and cause.

        What would wait on another device counts on the CPU as well. A capture via `dispatch` knows
        each op that ran, and calls of `tolist`, `cpu` and `repr`; one through torch.compile the ops
        in its graphs and what breaks them, and each op that ran eagerly; a watch the former alone.
        Where code ran at a graph break of which not all is known, the place is there with
        `certain=False`. A watch knows nothing of code outside of compiled functions, and nobody of
        what an operator of one's own or a tensor subclass does inside.

        Raises:
            CaptureError: for a capture that cannot know.
        """
        return syncs_of(self._contents, self.via, self.graphs)

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The copies from one device to another, one for each line, op and pair of devices.

        What a CPU run does not copy is not there: `tensor.cpu()` of a tensor on the CPU is among
        the `syncs` alone, and `tensor.to(device)` of one that is on that device is nowhere.

        Raises:
            CaptureError: for a capture that cannot know.
        """
        return transfers_of(self._contents, self.via, self.graphs)

    @property
    def _received(self) -> Received:
        return self._contents.received

    def repeated(self, glob: str) -> tuple[BlockKind, ...]:
        """Return the kinds of blocks that a glob matches, the most common one first.

        Blocks are one kind if their ops in the forward compute the same: op, constants, dtype and
        shape. Names and the values of parameters do not count. Via "inductor" the graphs are
        AOTAutograd's.

        Args:
            glob: a glob of module paths, in which `*` is one component: `"layers.*"` matches
                `layers.0`, not `layers.0.attention`.

        Raises:
            CaptureError: on a watch, which has no module paths.
            TypeError: for a glob that is no string.
            ValueError: if the glob matches no module of the forward, or only one.
        """
        from ..graph.blocks import kinds_of

        if self._contents.is_watch:
            raise CaptureError(
                "a watch has no module paths, so repeated blocks are not known: capture the model "
                "with graph_capture(model, ...), or check regional compilation with "
                f"assert_compiled_once({glob!r}, model=model)"
            )
        return kinds_of([graph for graph in self._split if graph.kind != "backward"], glob)

    # -- costs -------------------------------------------------------------------------------------

    @property
    def flops(self) -> int:
        """The floating-point operations of the step, by torch's formulas.

        All graphs of the `program` count, as often as they ran; of one loaded from a file compiled
        graphs count once.

        Raises:
            CaptureError: see `Graph.flops`; and of a watch in which graphs broke, for what runs
                between them is in none.
        """
        from ..graph.cost.flops import total

        self._need_whole()
        return total(self.program, times_run=True)

    @property
    def saved_bytes(self) -> int:
        """The bytes that the step keeps for its backward, as often as its graphs ran.

        Storages count once, and a view keeps that of its base; what parameters, buffers and inputs
        hold is left out. Values that are also outputs count. Via "dispatch" it is what eager
        autograd keeps and its backward reads (not what it keeps for a shape alone), via "aot" what
        the partitioned graphs keep, and what runs eagerly between them. A file and a
        watch do not say which inputs of a graph an earlier graph made: there they are left out.

        Raises:
            CaptureError: for a capture that does not know what is saved, as via "dynamo", or what
                runs between graphs that broke (see `flops`); and for a size that is a symbol.
        """
        from ..graph.cost.step import saved_bytes

        self._need_whole()
        return saved_bytes(self.program, self._received)

    @property
    def peak_bytes(self) -> int:
        """An estimate of the most bytes that the step's own tensors take at one time.

        Parameters, buffers and inputs do not count, nor does the workspace of kernels; see
        `pytest_torchgraph.graph.cost.peak` for when a tensor is taken to be freed.

        Raises:
            CaptureError: see `saved_bytes`.
        """
        from ..graph.cost.peak import peak_bytes

        self._need_whole()
        return peak_bytes(self.program, self._received)

    @property
    def recomputed(self) -> tuple[Recomputed, ...]:
        """The ops of the forward that the backward runs again, by checkpointing for instance.

        One entry for each op of the forward; `Recomputed.times` says how often, and `by` why. Views
        and values that depend on constants alone are left out. Via "inductor" it is what
        AOTAutograd's graphs say, before inductor's passes.

        That a recomputed dropout draws what the forward drew is taken for granted:
        `checkpoint(..., preserve_rng_state=False)` looks the same here. `assert_matches_eager`
        sees it.

        Raises:
            CaptureError: for a step without a backward; via "dynamo", "fx" and "export", whose
                graphs have none; of a stored capture via "inductor"; if the backward runs bodies of
                higher-order ops, as that of `torch.cond`; and as `flops`.
        """
        from ..graph.cost.recomputed import recomputed

        self._need_whole()
        return recomputed(self._split, self._received)

    @property
    def recomputed_flops(self) -> int:
        """The FLOPs of what the backward computes again, without autograd's own formulas.

        Raises:
            CaptureError: as `recomputed` and `flops`.
        """
        from ..checks.recomputation import flops_of

        return flops_of(self.recomputed)

    def cost_table(self, depth: int | None = None) -> str:
        """What the step costs as a table: a row for each module, with all that is below it.

        There are columns for the FLOPs of each direction, their sum, its share of the whole, and
        the bytes that are kept for the backward; the last is left out where that is not known. A
        last line names the ops that torch has no formula for, which count nothing.

        Args:
            depth: how many parts the path of a module has at most; None (the default) for any
                number.

        Raises:
            CaptureError: see `Graph.flops`.
            ValueError: for a depth that is none.
        """
        from ..graph.cost.recomputed import recomputed_if_known
        from ..graph.cost.table import format_cost_table

        again = recomputed_if_known(self._split, self._received)
        return format_cost_table(self.program, self.by_module(depth), depth, again)

    def by_module(self, depth: int | None = None) -> Mapping[str, Cost]:
        """What the step costs, by the path of the module in which the ops are.

        Args:
            depth: how many parts of a path tell modules apart: 1 is one entry for each child of
                the model, with all below it; None the innermost modules, each without those below.

        Raises:
            CaptureError: see `Graph.flops`; ops without a formula are left out.
            ValueError: for a depth that is none.
        """
        from ..graph.cost.table import by_module

        self._need_whole()
        return by_module(self.program, depth, received=self._received)


def syncs_of(contents: Contents, via: str, graphs: Sequence[Graph]) -> tuple[Sync, ...]:
    """The places at which Python waits for the device; see `Capture.syncs`.

    Args:
        contents: the contents of the capture.
        via: name of its mechanism.
        graphs: its graphs, at its level.

    Raises:
        CaptureError: for a capture that cannot know.
    """
    if contents.calls is not None:
        return detect.recorded_syncs(contents.calls)
    record = _record(contents, via, graphs, "syncs")
    if record is None:
        return detect.compiled_syncs(graphs, (), None)
    printed, hooks, eager = PrintedGraphs(record), _traced(via, record), _eager(contents)
    return detect.compiled_syncs(graphs, record.breaks, printed, hooks, eager)


def transfers_of(contents: Contents, via: str, graphs: Sequence[Graph]) -> tuple[Transfer, ...]:
    """The copies between devices; see `Capture.transfers`, and `syncs_of` for the arguments."""
    if contents.calls is not None:
        return detect.recorded_transfers(contents.calls)
    record = _record(contents, via, graphs, "transfers")
    if record is None:
        return detect.compiled_transfers(graphs, ())
    return detect.compiled_transfers(graphs, record.breaks, _traced(via, record), _eager(contents))


def _record(
    contents: Contents, via: str, graphs: Sequence[Graph], asked: str
) -> WatchRecord | None:
    """The record of the compiler; None where the graphs are all that can run."""
    found = contents.record
    exported = via == "export" and contents.was_called
    if found is None and not exported:
        of = "" if contents.was_called else " from a file"
        raise CaptureError(
            f"a capture via {via!r}{of} knows no "
            f"{asked}: use via='dispatch', which sees what runs, 'aot', 'dynamo', 'inductor', "
            "'compiled_autograd' or 'export', or graph_capture.watch()"
        )
    if via == "compiled_autograd" and all(graph.kind == "backward" for graph in graphs):
        raise CaptureError(
            f"the forward ran eagerly, so nothing is known of its {asked}: use "
            "CompiledAutograd(forward='aot'), or via='dispatch', which sees what runs"
        )
    return found


def _traced(via: str, record: WatchRecord) -> PrintedGraphs | None:
    """Dynamo's graphs of a captured backward, traced as far as its first break."""
    if via != "compiled_autograd":
        return None
    inner = [each for each in record.compiled if each.id and each.id.autograd is not None]
    return PrintedGraphs(replace(record, compiled=tuple(inner)))


def _eager(contents: Contents) -> detect.RecordedCalls | None:
    """The calls that ran eagerly beside the graphs, None where they were not recorded."""
    graphs, ops = contents.eager, contents.eager_ops
    if graphs is None or ops is None:
        return None
    return detect.eager_calls(graphs, ops)
