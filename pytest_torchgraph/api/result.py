"""`Capture`: the graphs of one run, what the compiler did, and the assertions on both.

The modules of `checks` implement the assertions, one module per subject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..checks import compilation, parity
from ..checks.compilation import CompilationChecks
from ..checks.eager import EagerChecks
from ..checks.kernels import KernelChecks
from ..checks.passes import PassChecks
from ..checks.training import TrainingChecks
from ..graph.checks import device_of
from ..graph.collectives import Collective, collectives_of
from ..graph.equality import equal_programs
from ..graph.events import in_schedule
from ..graph.op_checks import OpChecks
from .observed import Observed

if TYPE_CHECKING:
    import torch

    from ..checks.rounding import Tolerance
    from ..graph.divergence import Divergence
    from ..graph.model import Graph


class Capture(
    CompilationChecks, EagerChecks, KernelChecks, PassChecks, TrainingChecks, Observed, OpChecks
):
    """The graphs of one run at one level, and what else the run recorded.

    `capture`, `watch` and `load` return captures. Two captures are equal if their `program`s have
    equal graphs in the same order, with equal run counts if both record them. Comparing two watches
    without graphs raises `AssertionError` with the cause, because the comparison would be vacuous.

    Methods raise `TypeError` for an argument of a wrong type, and `ValueError` for a wrong value.

    Args:
        contents: the captured contents; for an open watch, a function that returns them.
        header: origin, as written to a stored file.
        level: level of the graphs; `None` keeps each graph's own level.
        device: type of the requested device, or `None`.

    Attributes:
        via: name of the mechanism; `"watch"` for a watch, `"trace"` for a log that torch wrote.
        header, device: see the arguments.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capture):
            return NotImplemented
        # Each of these raises if the comparison would be vacuous.
        if not (self.program or other.program):
            compilation.need_graphs(self)
        compilation.need_recorded(self.watched)
        compilation.need_recorded(other.watched)
        return equal_programs(self.program, other.program)

    def __hash__(self) -> int:
        return hash(self.program)

    def _sent(self, phase: str | None = None) -> tuple[Sequence[Graph], tuple[Collective, ...]]:
        """Return the graphs to check for communication, and each run of a collective, in order.

        Args:
            phase: see `Capture.phase`; `None` for the whole step.
        """
        self.need_all_ops("the communication")
        graphs: Sequence[Graph] = self._to_check(phase=phase)
        contents, runs = self._contents, None
        # The order of the runs is known only for the graphs of the whole step, at their own level.
        # Without it, all runs of a graph follow one another.
        if self._level is None and phase is None:
            graphs, runs = contents.communicating, contents.runs
        if runs is None:
            runs = [graph for graph in graphs for _ in range(graph.runs)]
        collectives_by_graph: dict[int, Sequence[Collective]] = {}
        # If there is generated code, its order of collectives replaces the order in the graph.
        for graph in graphs:
            collectives = collectives_of((graph,))
            schedule = contents.schedule(graph)
            collectives_by_graph[id(graph)] = (
                collectives if schedule is None else in_schedule(collectives, schedule)
            )
        return graphs, tuple(
            collective for graph in runs for collective in collectives_by_graph[id(graph)]
        )

    def _to_check(
        self, allow: str | Sequence[str] | None = None, phase: str | None = None
    ) -> tuple[Graph, ...]:
        """Return the graphs that an assertion checks. Fail if there are none.

        Args:
            allow: see `checks.compilation.need_graphs`.
            phase: see `Capture.phase`; `None` for the whole step.
        """
        compilation.need_graphs(self, allow=allow)
        return self.program if phase is None else self._of_phase(phase)

    def _checked_device(self) -> str | None:
        return self.device

    def assert_budget(
        self,
        flops: Any = None,
        saved_bytes: Any = None,
        peak_bytes: Any = None,
        unknown: str = "fail",
        recomputed_flops: Any = None,
        *,
        phase: str | None = None,
    ) -> None:
        """Assert limits on the cost of the step.

        `assert_budget(flops=2e9, saved_bytes=(None, 64 * 2**20), recomputed_flops="10%")` checks
        three costs. A limit is a maximum (a whole number; 1e9 is accepted), a `(min, max)` pair
        with `None` for no limit, or a mapping of these by device type. Omitted costs are not
        checked.

        Args:
            flops: floating-point operations, by torch's formulas; see `Capture.flops`.
            saved_bytes: bytes saved for the backward; see `Capture.saved_bytes`.
            peak_bytes: estimated peak memory in bytes; see `Capture.peak_bytes`.
            unknown: "fail" (the default), or "ignore" to count zero FLOPs for ops that compute but
                have no formula. At least one op must have a formula.
            recomputed_flops: FLOPs that the backward recomputes, or their share of the forward's
                FLOPs, for example `"10%"`; see `Capture.recomputed`.
            phase: only this phase of the step, see `Capture.phase`: for `flops` and `peak_bytes`.

        Raises:
            AssertionError: if a limit is exceeded. The message lists each such cost and its largest
                parts: modules for FLOPs, otherwise ops with their lines. If no graph was compiled,
                the message gives the cause.
            CaptureError: if a cost is unknown, as for a watch with graph breaks, because the ops
                between its graphs are not recorded.
            TypeError: if there is nothing to check, or if another cost is limited in a phase.
            ValueError: if `unknown` is invalid, or a mapping lacks the capture's device.
        """
        if phase is not None and not (saved_bytes is None and recomputed_flops is None):
            raise TypeError(
                "saved_bytes and recomputed_flops are costs of the step, not of a phase"
            )
        if unknown not in ("fail", "ignore"):
            raise ValueError(f'unknown={unknown!r} is neither "fail" nor "ignore"')
        from ..checks import budget, recomputation
        from ..graph import cost

        compilation.need_graphs(self)
        self.need_all_ops("the cost")
        graphs = self.program if phase is None else self._of_phase(phase)
        recomputed = () if recomputed_flops is None else self.recomputed
        budget.assert_budget(
            graphs,
            {
                "flops": flops,
                "saved_bytes": saved_bytes,
                "peak_bytes": peak_bytes,
                "recomputed_flops": recomputation.limit_in_flops(recomputed_flops, self._split),
            },
            {
                "flops": lambda: cost.total_flops(graphs, times_run=True, unknown=unknown),
                "saved_bytes": lambda: self.saved_bytes,
                "peak_bytes": lambda: cost.peak_bytes(graphs),
                "recomputed_flops": lambda: recomputation.flops_of(recomputed),
            },
            device_of(graphs, self.device),
            recomputed,
        )

    def assert_recomputed(
        self, expected: Mapping[Any, Any], module: str | None = None, exact: bool = False
    ) -> None:
        """Assert how often the backward recomputes forward ops; see `Capture.recomputed`.

        `assert_recomputed({"aten.addmm": 8})` asserts that the backward runs 8 of the forward's
        `addmm` calls again.

        Args:
            expected: count of each op, as in `assert_op_counts`.
            module: a module path, or a glob of paths: checks only ops in these modules and their
                submodules.
            exact: True requires that every recomputed op matches a pattern in `expected`.

        Raises:
            AssertionError: if a count differs, with the recomputed ops and their causes, modules
                and lines.
            CaptureError: see `Capture.recomputed`.
            TypeError: if there is nothing to check.
            ValueError: if an op pattern cannot match anything, or the forward has no op in
                `module`.
        """
        from ..checks import recomputation

        compilation.need_graphs(self)
        graphs = self._split
        device = device_of(graphs, self.device)
        recomputation.assert_recomputed(graphs, self.recomputed, expected, module, exact, device)

    def assert_not_recomputed(self, *ops: Any, module: str | None = None) -> None:
        """Assert that the backward does not run these forward ops again.

        Args:
            *ops: patterns as in `assert_op_counts`; without patterns, all ops of `module`.
            module: see `assert_recomputed`.

        Raises:
            AssertionError: if ops are recomputed. The message lists them with their share of the
                forward's FLOPs, the causes, modules and lines, and the ops in the same modules
                whose results are saved. Also if the forward runs none of the ops.
            CaptureError, ValueError: see `assert_recomputed`.
            TypeError: if neither an op nor a module is given.
        """
        from ..checks import recomputation

        compilation.need_graphs(self)
        recomputation.assert_not_recomputed(self._split, self.recomputed, ops, module)

    def assert_saved(self, *ops: Any, module: str | None = None) -> None:
        """Assert that every result of these ops is saved for the backward, directly or as a view.

        Args:
            *ops: see `assert_not_recomputed`. For an op with several results, only used results
                count.
            module: see `assert_recomputed`.

        Raises:
            AssertionError: if a result is not saved, with each of these results; if the forward
                runs none of the ops; or if all their results are views of inputs or parameters.
            CaptureError, TypeError, ValueError: see `assert_not_recomputed`.
        """
        from ..checks import recomputation

        compilation.need_graphs(self)
        recomputation.assert_saved(self._split, ops, module)

    def assert_not_saved(self, *ops: Any, module: str | None = None, max_bytes: int = 0) -> None:
        """Assert that results of these ops are not saved for the backward.

        Args:
            *ops: see `assert_not_recomputed`.
            module: see `assert_recomputed`.
            max_bytes: maximum number of saved bytes, summed over all results.

        Raises:
            AssertionError: if more bytes are saved, with each saved result and its bytes; or if the
                forward runs none of the ops.
            CaptureError: see `assert_recomputed`; also for a symbolic size.
            TypeError: see `assert_not_recomputed`.
            ValueError: see `assert_recomputed`; also if `max_bytes` is not an int of at least 0.
        """
        from ..checks import recomputation

        compilation.need_graphs(self)
        recomputation.assert_not_saved(self._split, ops, module, max_bytes)

    def assert_repeated(self, glob: str, kinds: int = 1, backward: bool = False) -> None:
        """Assert that blocks of a model compute the same; see `Capture.repeated`.

        `assert_repeated("layers.*")` asserts that all layers are of one kind.

        Args:
            glob: a glob of module paths in which `*` matches one component.
            kinds: maximum number of kinds of blocks.
            backward: True to also compare the backward. The comparison ignores sums of gradients
                that leave a block, because autograd may compute a sum in any of the blocks.

        Raises:
            AssertionError: if there are more kinds, with the members of each kind, and its
                difference from the most common kind.
            CaptureError: see `Capture.repeated`; also for `backward=True` without a backward.
            TypeError, ValueError: see `Capture.repeated`; also if `kinds` is not a positive int.
        """
        from ..checks import blocks

        blocks.assert_repeated(self, self._split, glob, kinds, backward)

    def assert_shared(self, glob: str, bodies: int = 1) -> None:
        """Assert that blocks share the subgraphs that `nested_compile_region` compiles.

        Args:
            glob: see `assert_repeated`.
            bodies: maximum number of subgraphs.

        Raises:
            AssertionError: if there are more subgraphs, or a block was inlined, with the calls of
                each subgraph and the inlined blocks.
            CaptureError: unless the capture is via "dynamo", "aot", "inductor" or "export".
            TypeError, ValueError: see `assert_repeated`.
        """
        from ..checks import blocks

        blocks.assert_shared(self, self._split, glob, bodies)

    def assert_compiled_once(self, glob: str, *, model: torch.nn.Module, kinds: int = 1) -> None:
        """Assert that few compilations serve all blocks of a model (regional compilation).

        Compile each block separately before the watch: `block.compile()`.

        Args:
            glob: a glob of the paths in `model.named_modules()`; `*` matches one component.
            model: the model, after it ran in the watch.
            kinds: maximum number of compilations.

        Raises:
            AssertionError: if there are more compilations, with the blocks that each of them served
                and the guard that separates it from earlier ones; or if blocks ran eagerly or did
                not run, with these blocks.
            CaptureError: if the capture was not made by `watch()` or `steady()`.
            TypeError, ValueError: see `assert_repeated`.
        """
        from ..checks import regional

        regional.assert_compiled_once(self, glob, model, kinds)

    def assert_matches_eager(
        self, rtol: Tolerance = None, atol: Tolerance = None, strides: bool = True
    ) -> None:
        """Assert that the captured run matches an eager run from the same state.

        The check compares the output, the `requires_grad` of its tensors, the gradients, and the
        final values of buffers and tensor arguments. In the output, tensors are compared within the
        tolerance, containers by type, and all other values by type and `==`. NaN equals NaN in the
        same position, because a fully masked row of a softmax is NaN. Infinities are equal if their
        signs are.

        Via "aot", "inductor" and "dynamo", the check also compares the strides of the output's
        dense tensors in dimensions larger than 1, which of them are the same object, and which of
        them share memory with each other, or with an argument, a parameter or a buffer.

        After `steady`, the check makes all calls again, eagerly, from the same first state, and
        compares each with the compiled call. Python values that the calls changed keep their last
        values; a failure names them.

        After a difference, the target runs eagerly a few more times to find a provable cause: a
        custom op with hidden state or undeclared writes, a fake implementation whose dtype, shape
        or strides differ from the op's, `np.random` (torch.compile draws from torch's generator),
        and Python values that change between calls. If there is none, compiled code is compared
        with a run in float64; if the difference is rounding, the message suggests a tolerance.

        Args:
            rtol, atol: tolerances: a number; a mapping by device type (`{"cpu": 0, "cuda": 1e-3}`),
                by dtype (`{torch.bfloat16: 1e-2}`), or by device type and then dtype. `None` and
                missing dtypes use the defaults of `torch.testing.assert_close`.
            strides: False to ignore strides. Sharing is compared nevertheless.

        Raises:
            AssertionError: if the runs differ, with the first difference and its causes; after
                `steady`, also if no compiled code ran in a call. Also, with
                the message "nothing compared", if all floating-point outputs or all gradients of
                both runs are at most `atol`, a tensor contains only NaN, all gradients are zero, or
                no output has an element.
            CaptureError: if the capture has no eager run to compare with, as a watch, or is on the
                meta device; if the target, or part of it, is compiled with a backend that computes
                otherwise than the capture, such as a custom one (use `steady`); or if a parameter,
                buffer or argument changed after the capture.
            ValueError: if a mapping by device type lacks the device type of a tensor.
        """
        parity.assert_matches_eager(self, self._contents.comparison, rtol, atol, strides=strides)

    def first_difference(self, rtol: Tolerance = None, atol: Tolerance = None) -> Divergence | None:
        """Find the first node where the captured run differs from an eager run.

        The step is captured again at the compiler's stages, at most four times, to find the stage
        that introduces the difference. At that stage, the values of all nodes are compared with
        eager values. To recognize rounding, both formulas are also evaluated in float64, from the
        values of the eager run. The recorded values take at most 2 GiB, and a replay of a graph
        needs as much memory again as the graph itself.

        Args:
            rtol, atol: tolerances, as in `assert_matches_eager`.

        Returns:
            The first difference, or the last stage that could be checked; `None` if all outputs,
            gradients and buffers are within the tolerance.

        Raises:
            CaptureError: if the mechanism is not "aot", "inductor" or "dynamo"; also see
                `assert_matches_eager`.
        """
        return parity.first_difference(self, self._contents.comparison, rtol, atol)
