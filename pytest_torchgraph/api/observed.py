"""Records of a capture besides its graphs: compiler events, syncs, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import CaptureError
from ..syncs import detect
from ..syncs.model import Sync, Transfer
from ..watching.graphs import PrintedGraphs
from .captured_graphs import CapturedGraphs

if TYPE_CHECKING:
    from ..graph.blocks import BlockKind
    from ..graph.cost import Cost, Recomputed
    from ..graph.events import Frozen, GraphBreak, UpdatedParameter
    from ..watching.cache_lookups import CacheBypass
    from ..watching.output_code import CudagraphSkip
    from ..watching.recompiles import Recompile
    from ..watching.record import EagerCall, WatchRecord
    from .contents import Contents


TRAINING = "graph_capture(step, ..., updates=(model, optimizer))"
"""Remedy for a capture of another target."""


class Observed(CapturedGraphs):
    """The records of a capture. Reading a missing record raises `CaptureError`."""

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """Graph breaks in order, one for each distinct file, line and kind.

        Includes frames that Dynamo skipped or abandoned; their kind says so. Excludes the break
        that Dynamo reports at `loss.backward()` when compiled autograd takes over.

        Raises:
            CaptureError: if the capture did not go through torch.compile.
        """
        return self.record("graph breaks").breaks

    @property
    def eager_calls(self) -> tuple[EagerCall, ...]:
        """Calls of compiled callables that ran eagerly, one for each callable and reason.

        Every other call inside the watch ran compiled code, was compiled, contained no tensor
        operation according to Dynamo, or raised.

        Raises:
            CaptureError: if the capture was not made by `watch()` or `steady(...)`.
        """
        if not self._contents.is_watch or self.log is not None:
            raise self._unavailable(
                "eager_calls is",
                "graph_capture.watch() or steady(...), or, for ops that ran eagerly, capture.eager "
                "via 'aot', 'inductor', 'dynamo' or 'compiled_autograd'",
            )
        return self.record("calls").eager_calls

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """Recompilations in order, with the failed guards.

        Each capture of compiled autograd after the first is a recompilation as well.

        Raises:
            CaptureError: if the capture did not go through torch.compile.
        """
        return self.record("recompilations").recompiles

    @property
    def cache_bypasses(self) -> tuple[CacheBypass, ...]:
        """Reasons that force graphs to be compiled in every process; empty if all are cacheable.

        A watch has torch's own reports: AOTAutograd's cache refused a graph or did not save it. Via
        "aot", "inductor" and "dynamo", the first read asks AOTAutograd's cache about Dynamo's
        graphs, under the settings of the capture.

        Raises:
            CaptureError: for other mechanisms, and for a capture loaded from a file.
        """
        build = self._contents.build_bypasses
        if build is not None:
            return build()
        if not self._contents.is_watch:
            raise self._unavailable(
                "cache bypasses are",
                "via='aot', 'inductor' or 'dynamo', graph_capture.watch(), or "
                "graph_capture.restart(...)",
            )
        return self.record("cache lookups").cache_bypasses

    @property
    def cudagraph_skips(self) -> tuple[CudagraphSkip, ...]:
        """Graphs that ran without the requested CUDA graph, with torch's reasons.

        A CUDA graph is requested by `mode="reduce-overhead"` or `"max-autotune"`. On the CPU every
        graph is skipped, and torch gives no reason.

        Raises:
            CaptureError: if the capture did not go through torch.compile.
        """
        return self.record("CUDA graphs").cudagraph_skips

    @property
    def executions(self) -> Mapping[str, int]:
        """Run count per compiled graph, keyed by compile id (`0/1`).

        Includes graphs compiled before the capture. The backward that AOTAutograd made for a graph
        is `0/1 backward`. A backward captured by compiled autograd is `!0`; Dynamo's graph of it is
        `!0/2/0`.

        Raises:
            CaptureError: if the capture did not go through torch.compile, or is a log of torch.
        """
        return self._calls("executions").executions

    @property
    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """Change of `torch._dynamo.utils.counters` during the capture, by group.

        Raises:
            CaptureError: if the capture did not go through torch.compile, or is a log of torch.
        """
        return self._calls("counters").counters

    @property
    def syncs(self) -> tuple[Sync, ...]:
        """Places where Python waits for the device, one for each line, op and cause.

        Ops that would wait on another device count on the CPU as well. The mechanism limits the
        record:

        - via `dispatch`: every op that ran, and calls of `tolist`, `cpu` and `repr`;
        - via torch.compile: ops in graphs, their graph breaks, and every op that ran eagerly;
        - a watch: ops in graphs and their graph breaks.

        If the record of the code at a graph break is incomplete, its sync has `certain=False`. A
        watch records no code outside compiled functions. No mechanism sees inside custom operators
        or tensor subclasses.

        Raises:
            CaptureError: if the capture cannot record syncs.
        """
        return self._syncs_in(None)

    def _syncs_in(self, phase: str | None) -> tuple[Sync, ...]:
        """Return the `syncs` of a phase; of the whole step for `None`. See `Capture.phase`."""
        events = self._events("syncs", phase)
        return tuple(event for event in events if isinstance(event, Sync))

    @property
    def _ran_eagerly(self) -> bool:
        """True if code that the user compiled ran eagerly, as in a training step via "dispatch"."""
        calls = self._contents.calls
        return calls is not None and calls.ran_eagerly

    @property
    def _training(self) -> Sequence[UpdatedParameter]:
        """What a training step did to each parameter of the named modules.

        Raises:
            CaptureError: without `updates=`.
        """
        return self._recorded(self._contents.training, "updated parameters are", TRAINING)()

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Copies between devices, one for each line, op and pair of devices.

        Copies that do not happen in a CPU run are missing: `tensor.cpu()` of a CPU tensor is only
        in `syncs`, and `tensor.to(device)` of a tensor already on that device is in neither.

        Raises:
            CaptureError: if the capture cannot record transfers.
        """
        return tuple(event for event in self._events("transfers") if isinstance(event, Transfer))

    @property
    def frozen(self) -> tuple[Frozen, ...]:
        """Python numbers that change from step to step, and are constants of compiled graphs.

        A learning rate, step count, loss scale or momentum in a graph is out of date in the next
        step, or makes it compile again. The first read captures one more step, with the state
        advanced, and restores it. Only numbers that the next step changes are found.

        Raises:
            CaptureError: without `updates=`; if nothing was compiled, as via "dispatch"; if the
                next step's graphs have other ops, as after a first step that makes state.
        """
        contents = self._contents
        find = None if contents.training is None else contents.find_frozen
        return self._recorded(find, "frozen numbers are", TRAINING)()

    def _events(self, asked: str, phase: str | None = None) -> tuple[detect.Event, ...]:
        """Return all syncs and transfers of a phase, of the whole step for `None`.

        Args:
            asked: what the user asked for, for the message; see `_need_sync_record`.
            phase: see `Capture.phase`.
        """
        contents = self._contents
        # A recorded call names its graph, and the call of a method its phase.
        names = None if phase is None else {phase, *(g.name for g in self._of_phase(phase))}
        if contents.calls is not None:  # via "dispatch", which records every call
            return detect.recorded_events(contents.calls.of_graphs(names))
        record = self._need_sync_record(asked)
        graphs = [graph for graph in self.graphs if names is None or graph.name in names]
        if record is None:
            return detect.compiled_events(graphs, ())
        printed, hooks = PrintedGraphs(record), _traced(self.via, record)
        eager = _eager(contents)
        breaks = record.breaks
        if eager is not None and contents.training is not None:
            # In a training step, calls of methods are recorded too, so no break hides anything.
            # `eager` is a new object, so `contents` stays as it is.
            breaks = ()
            eager.methods += contents.methods
        eager = eager and eager.of_graphs(names)
        return detect.compiled_events(graphs, breaks, printed, hooks, eager)

    def _need_sync_record(self, asked: str) -> WatchRecord | None:
        """Return the compiler's record; `None` for an export, which has graphs but no record.

        Raises:
            CaptureError: if the capture cannot record what is asked for.
        """
        record = self._contents.record
        # Only an export of this process: the file of one has another origin.
        if record is None and not (self.via == "export" and not self._contents.origin):
            raise self._unavailable(
                f"{asked} are",
                "via='dispatch', 'aot', 'dynamo', 'inductor', 'compiled_autograd' or 'export', or "
                "graph_capture.watch()",
            )
        if self.via == "compiled_autograd" and all(g.kind == "backward" for g in self.graphs):
            raise CaptureError(
                f"{asked} of the forward are not recorded, because the forward ran eagerly: use "
                "CompiledAutograd(forward='aot'), or via='dispatch'"
            )
        return record

    def repeated(self, glob: str) -> tuple[BlockKind, ...]:
        """Return the kinds of blocks that a glob matches, the most common kind first.

        Blocks are of one kind if their forward ops are equal in op, constants, dtype and shape.
        Names and parameter values are ignored. Via "inductor", AOTAutograd's graphs are compared.

        Args:
            glob: a glob of module paths; `*` matches one component: `"layers.*"` matches
                `layers.0`, not `layers.0.attention`.

        Raises:
            CaptureError: on a watch, which has no module paths.
            TypeError: if the glob is not a string.
            ValueError: if the glob matches fewer than two modules of the forward.
        """
        from ..graph.blocks import kinds_of

        if self._contents.is_watch:
            raise CaptureError(
                "repeated blocks are not available on a watch, which has no module paths: use "
                "graph_capture(model, ...), or check regional compilation with "
                f"assert_compiled_once({glob!r}, model=model)"
            )
        return kinds_of(self._split, glob)

    # -- costs -------------------------------------------------------------------------------------

    @property
    def flops(self) -> int:
        """Floating-point operations of the step, by torch's formulas.

        Every graph of the `program` counts once per run. Compiled graphs loaded from a file count
        once.

        Raises:
            CaptureError: see `Graph.flops`; also for a watch with graph breaks, because the ops
                between its graphs are not recorded.
        """
        from ..graph.cost import total_flops

        self._need_run_counts()
        return total_flops(self.program, times_run=True)

    @property
    def saved_bytes(self) -> int:
        """Bytes that the step saves for its backward, times the run count of each graph.

        Each storage counts once; a view counts its base's storage. Parameters, buffers and inputs
        do not count. Saved values that are also outputs count.

        Via "dispatch", these are the tensors that eager autograd saves and its backward reads,
        without tensors saved only for their shape. Via "aot", these are the saved values of the
        partitioned graphs and of the eager ops between them. If it is unknown which inputs of a
        graph earlier graphs produced (a watch, an older file), those inputs do not count.

        Raises:
            CaptureError: if saved values are unknown (via "dynamo"), ops between graphs are unknown
                (see `flops`), a size is symbolic, or no backward ran although an output requires a
                gradient.
        """
        from ..graph.cost import saved_bytes

        self._need_run_counts()
        saved = saved_bytes(self.program)
        if self._lacks_backward:
            raise CaptureError(
                "saved bytes are unknown, because no backward ran although an output requires a "
                "gradient: omit backward=False, or capture under torch.no_grad()"
            )
        return saved

    def _need_run_counts(self) -> None:
        """Raise `CaptureError` if ops of the step or the run counts of its graphs are unknown."""
        self._need_whole()
        if self.log is not None:
            raise self._unavailable(
                "the costs of the whole run are", "the cost of one graph, such as graph.flops"
            )

    @cached_property
    def _lacks_backward(self) -> bool:
        """True if an output of the target requires a gradient, and no backward ran."""
        # The output is also `None` if no target was called.
        if self._contents.returned is None or any(g.kind == "backward" for g in self.program):
            return False
        from ..mechanisms.step import output_leaves

        return any(tensor.requires_grad for tensor in output_leaves(self._contents.returned))

    @property
    def peak_bytes(self) -> int:
        """Estimated peak of the bytes that the step's own tensors occupy.

        Parameters, buffers, inputs and kernel workspaces do not count. See
        `pytest_torchgraph.graph.cost.peak` for the assumed lifetime of a tensor.

        Raises:
            CaptureError: see `saved_bytes`.
        """
        from ..graph.cost import peak_bytes

        self._need_run_counts()
        return peak_bytes(self.program)

    @property
    def recomputed(self) -> tuple[Recomputed, ...]:
        """Forward ops that the backward runs again, for example because of checkpointing.

        Each forward op has one entry; `Recomputed.times` is the count and `by` the cause. Views and
        values that depend only on constants are excluded. Via "inductor", AOTAutograd's graphs are
        read, before inductor's passes.

        A recomputed dropout is assumed to draw the same numbers as the forward: `checkpoint(...,
        preserve_rng_state=False)` looks the same here. `assert_matches_eager` detects the
        difference.

        Raises:
            CaptureError: for a step without a backward; via "dynamo", "fx" and "export", which have
                no backward graphs; for a stored capture via "inductor"; if the backward runs
                subgraphs of higher-order ops, for example of `torch.cond`; and see `flops`.
        """
        from ..graph.cost import recomputed_ops

        self._need_whole()
        return recomputed_ops(self._split)

    @property
    def recomputed_flops(self) -> int:
        """FLOPs of the recomputed ops, without autograd's own formulas.

        Raises:
            CaptureError: see `recomputed` and `flops`.
        """
        from ..checks.recomputation import flops_of

        return flops_of(self.recomputed)

    def cost_table(self, depth: int | None = None) -> str:
        """Return the cost of the step as a table with a row per module, including its submodules.

        The columns are the FLOPs of each direction, their sum, its share of the total, and the
        bytes saved for the backward. Unknown saved bytes have no column. The last line lists ops
        without a FLOP formula, which count as zero.

        Args:
            depth: maximum number of components in a module path; `None` (the default) for no limit.

        Raises:
            CaptureError: see `Graph.flops`.
            ValueError: if the depth is invalid.
        """
        from ..graph.cost import format_cost_table

        return format_cost_table(self.program, self.by_module(depth), depth)

    def by_module(self, depth: int | None = None) -> Mapping[str, Cost]:
        """Return the cost of the step by module path.

        Args:
            depth: number of path components that distinguish modules: 1 gives an entry per child of
                the model, including its submodules; `None` gives the innermost modules, each
                without its submodules.

        Raises:
            CaptureError: see `Graph.flops`; ops without a formula are left out.
            ValueError: if the depth is invalid.
        """
        from ..graph.cost import by_module

        self._need_run_counts()
        costs = by_module(self.program, depth, recomputed=self._recomputed_if_known)
        if self._lacks_backward:  # the saved bytes are unknown, see `saved_bytes`
            return {path: replace(cost, saved_bytes=None) for path, cost in costs.items()}
        return costs

    @cached_property
    def _recomputed_if_known(self) -> tuple[Recomputed, ...]:
        # Cached because the page asks for the costs at several depths.
        from ..graph.cost import recomputed_if_known

        return recomputed_if_known(self._split)


def _traced(via: str, record: WatchRecord) -> PrintedGraphs | None:
    """Return Dynamo's graphs of a captured backward, traced up to its first graph break."""
    if via != "compiled_autograd":
        return None
    inner = [
        compilation
        for compilation in record.compiled
        if compilation.id and compilation.id.autograd is not None
    ]
    return PrintedGraphs(replace(record, compiled=tuple(inner)))


def _eager(contents: Contents) -> detect.RecordedCalls | None:
    """Return the calls that ran eagerly, or `None` if they were not recorded."""
    graphs, ops = contents.eager, contents.eager_ops
    if graphs is None or ops is None:
        return None
    return detect.eager_calls(graphs, ops)
