"""The assertions of a `Capture`: their arguments and the errors that they raise.

The other modules of this package implement them, one module per subject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..graph.checks import device_of
from ..graph.op_checks import OpChecks
from . import compilation, eager, kernels, parity

if TYPE_CHECKING:
    import torch

    from ..graph.divergence import Divergence
    from ..graph.model import Graph
    from .rounding import Tolerance
    from .subject import Subject


class Assertions(OpChecks):
    """The assertions on a capture. All fail if nothing was captured or compiled."""

    def _to_check(self: Subject, allow: str | Sequence[str] | None = None) -> tuple[Graph, ...]:
        __tracebackhide__ = True
        compilation.need_graphs(self, allow=allow)
        return self.program

    def _checked_device(self: Subject) -> str | None:
        return self.device

    def assert_no_eager_ops(self: Subject, allow: Any = ()) -> None:
        """Assert that no op ran eagerly, outside every compiled graph.

        Ops that the autograd engine runs between compiled graphs are ignored: zeros for unused
        outputs, sums of gradients, the backward of an output that AOTAutograd turned into a view.

        Args:
            allow: ops that may run eagerly, as one entry or several. An entry is an op (a pattern
                as in `assert_op_counts`), a file (`"model.py"`, or the end of its path) or a line
                (`"model.py:31"`). The backward ops of an allowed op are also allowed.

        Raises:
            AssertionError: with each line, the ops that ran there, and the graph break or skipped
                frame that kept them out of compiled graphs.
            CaptureError: see `eager`; also for a capture loaded from a file without eager ops,
                because earlier releases of this package did not store them.
            ValueError: if an op pattern cannot match anything, or matches every op.
        """
        __tracebackhide__ = True
        eager.assert_no_eager_ops(self, allow)

    def assert_graph_count(
        self: Subject,
        forward: Any = None,
        backward: Any = None,
        total: Any = None,
        *,
        allow: str | Sequence[str] = (),
    ) -> None:
        """Assert the number of graphs.

        Args:
            forward: number of forward and inference graphs.
            backward: number of backward graphs that ran.
            total: number of all graphs. Omitted counts are not checked. If all counts are omitted,
                one forward and one backward are expected.
            allow: regular expressions for tolerated `EagerCall`s of a watch, searched in
                `"kind: reason"`.

        Raises:
            AssertionError: if a count differs, with the graphs; if a watch has no graphs, with the
                cause; if calls in a watch ran eagerly, with these calls. With `total=0`, a watch
                may have no graphs if compiled code ran.
            TypeError: if every given count allows any number. In a watch, such counts are valid:
                they assert that something was compiled.
        """
        __tracebackhide__ = True
        if forward is None and backward is None and total is None:
            forward = backward = 1
        compilation.need_counted(self, total, allow)
        compilation.assert_graph_count(self, forward, backward, total)

    def assert_kernel_count(
        self: Subject, n: Any = None, extern: Any = None, launches: Any = None
    ) -> None:
        """Assert the number of inductor's kernels, of their launches, and of library calls.

        `assert_kernel_count(1, extern=0, launches=1)` asserts that everything is fused into one
        kernel that is launched once. A graph that ran several times counts once. Ops that ran
        eagerly, outside compiled graphs, are not in the generated code: see `assert_no_eager_ops`.
        Each count is an int, a `(min, max)` pair with `None` for no limit, or a mapping of these by
        device type.

        Args:
            n: number of generated kernels.
            extern: number of library calls, for ops that were not fused; see `Kernel`.
            launches: number of launches of generated kernels, including repeated launches.

        Raises:
            AssertionError: if a count differs. The message lists each kernel and library call with
                its ops and, if known, their modules and lines. If no graph was compiled, the
                message gives the cause.
            CaptureError: if a graph has no generated code, for example via "aot".
            TypeError: if there is nothing to check.
            ValueError: if a mapping lacks the capture's device.
        """
        __tracebackhide__ = True
        if n is None and extern is None and launches is None:
            raise TypeError("assert_kernel_count() checks nothing: pass n, extern or launches")
        compilation.need_graphs(self)
        kernels.assert_kernel_count(self, n, extern, launches)

    def assert_budget(
        self: Subject,
        flops: Any = None,
        saved_bytes: Any = None,
        peak_bytes: Any = None,
        unknown: str = "fail",
        recomputed_flops: Any = None,
    ) -> None:
        """Assert upper limits on the cost of the step.

        Args:
            flops: floating-point operations, by torch's formulas; see `Capture.flops`.
            saved_bytes: bytes saved for the backward; see `Capture.saved_bytes`.
            peak_bytes: estimated peak memory in bytes; see `Capture.peak_bytes`. Each limit is a
                whole number (1e9 is accepted), a `(min, max)` pair with `None` for no limit, or a
                mapping of these by device type.
            unknown: "fail", or "ignore" to count zero FLOPs for ops that compute but have no
                formula. At least one op must have a formula.
            recomputed_flops: FLOPs that the backward recomputes: a limit as above, or a share of
                the forward's FLOPs, for example `"10%"`. See `Capture.recomputed`.

        Raises:
            AssertionError: for each exceeded limit, with the cost and its largest parts: modules
                for FLOPs, otherwise ops with their lines. If no graph was compiled, with the cause.
            CaptureError: if a cost is unknown; also for a watch with graph breaks, because the ops
                between its graphs are not recorded.
            TypeError: if there is nothing to check.
            ValueError: if `unknown` is invalid, or a mapping lacks the capture's device.
        """
        __tracebackhide__ = True
        if unknown not in ("fail", "ignore"):
            raise ValueError(f'unknown={unknown!r} is neither "fail" nor "ignore"')
        from ..graph import cost
        from . import budget, recomputation

        compilation.need_graphs(self)
        self.need_all_ops("the cost")
        graphs = self.program
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
                "saved_bytes": lambda: cost.saved_bytes(graphs, self._received),
                "peak_bytes": lambda: cost.peak_bytes(graphs, self._received),
                "recomputed_flops": lambda: recomputation.flops_of(recomputed),
            },
            device_of(graphs, self.device),
            self._received,
            recomputed,
        )

    def assert_recomputed(
        self: Subject,
        expected: Mapping[Any, Any],
        module: str | None = None,
        exact: bool = False,
    ) -> None:
        """Assert how often the backward recomputes forward ops; see `Capture.recomputed`.

        Args:
            expected: maps ops to counts, as in `assert_op_counts`.
            module: limits the check to ops in this module or its submodules: a path or a glob.
            exact: True requires a pattern for every recomputed op.

        Raises:
            AssertionError: with the recomputed ops, the causes, modules and lines.
            CaptureError: see `Capture.recomputed`.
            TypeError: if there is nothing to check.
            ValueError: if an op pattern cannot match anything, or a module has no op.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        graphs = self._split
        device = device_of(graphs, self.device)
        recomputation.assert_recomputed(graphs, self.recomputed, expected, module, exact, device)

    def assert_not_recomputed(self: Subject, *ops: Any, module: str | None = None) -> None:
        """Assert that the backward does not run these forward ops again.

        Args:
            ops: patterns as in `assert_op_counts`; without patterns, all ops of `module`.
            module: see `assert_recomputed`.

        Raises:
            AssertionError: with the recomputed ops, their share of the forward's FLOPs, the causes,
                modules and lines, and the ops whose results are saved in the same modules. Also if
                the forward runs none of the ops.
            CaptureError, ValueError: see `assert_recomputed`.
            TypeError: if neither an op nor a module is given.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        recomputation.assert_not_recomputed(
            self._split, self.recomputed, self._received, ops, module
        )

    def assert_saved(self: Subject, *ops: Any, module: str | None = None) -> None:
        """Assert that every result of these ops is saved for the backward, directly or as a view.

        Args:
            ops, module: see `assert_not_recomputed`. For an op with several results, only used
                results count.

        Raises:
            AssertionError: with each unsaved result; or if the forward runs none of the ops, or all
                their results are views of inputs or parameters.
            CaptureError, TypeError, ValueError: see `assert_not_recomputed`.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        recomputation.assert_saved(self._split, self._received, ops, module)

    def assert_not_saved(
        self: Subject, *ops: Any, module: str | None = None, max_bytes: int = 0
    ) -> None:
        """Assert that results of these ops are not saved for the backward.

        Args:
            ops, module: see `assert_not_recomputed`.
            max_bytes: maximum of the saved bytes of all results together.

        Raises:
            AssertionError: with each saved result and its bytes; or if the forward runs none of the
                ops.
            CaptureError, TypeError, ValueError: see `assert_not_recomputed`; also for a symbolic
                size.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        recomputation.assert_not_saved(self._split, self._received, ops, module, max_bytes)

    def assert_cacheable(self: Subject, allow: str | Sequence[str] = ()) -> None:
        """Assert that torch.compile's caches can serve every graph at the next start.

        The check compiles nothing. See `graph_capture.restart` for an actual second start.

        Args:
            allow: regular expressions, or literal parts, for tolerated `CacheBypass`es, searched in
                `"op: reason"`.

        Raises:
            AssertionError: with each `CacheBypass`, its module, line and remedy; or if no graph was
                compiled, or no cache was consulted, with the cause.
            CaptureError: see `cache_bypasses`.
        """
        __tracebackhide__ = True
        from . import warm_start

        warm_start.assert_cacheable(self, self.cache_bypasses, allow)

    def assert_distinct_graphs(self: Subject, count: int) -> None:
        """Assert the number of distinct graphs.

        If the blocks of a model are compiled separately, there is one distinct forward and one
        distinct backward, for any number of blocks.

        Raises:
            AssertionError: with the groups of equal graphs and their inputs; or if no graph was
                compiled, with the cause.
        """
        __tracebackhide__ = True
        compilation.need_graphs(self)
        kernels.assert_distinct_graphs(self, count)

    def assert_repeated(self: Subject, glob: str, kinds: int = 1, backward: bool = False) -> None:
        """Assert that blocks of a model compute the same; see `Capture.repeated`.

        Args:
            glob: a glob of module paths in which `*` matches one component: `"layers.*"`.
            kinds: maximum number of kinds of blocks.
            backward: True to also compare the backward. The comparison ignores sums of gradients
                that leave a block, because autograd may compute a sum in any of the blocks.

        Raises:
            AssertionError: with the members of each kind, and its difference from the most common
                kind.
            CaptureError: see `Capture.repeated`; also for `backward=True` without a backward.
            TypeError, ValueError: see `Capture.repeated`; also if `kinds` is not a positive int.
        """
        __tracebackhide__ = True
        from . import blocks

        blocks.assert_repeated(self, self._split, glob, kinds, backward)

    def assert_shared(self: Subject, glob: str, bodies: int = 1) -> None:
        """Assert that blocks share the subgraphs that `nested_compile_region` compiles.

        Args:
            glob: see `assert_repeated`.
            bodies: maximum number of subgraphs.

        Raises:
            AssertionError: with the calls of each subgraph, and the inlined blocks.
            CaptureError: unless the capture is via "dynamo", "aot", "inductor" or "export".
            TypeError, ValueError: see `assert_repeated`.
        """
        __tracebackhide__ = True
        from . import blocks

        blocks.assert_shared(self, self._split, glob, bodies)

    def assert_compiled_once(
        self: Subject, glob: str, *, model: torch.nn.Module, kinds: int = 1
    ) -> None:
        """Assert that few compilations serve all blocks of a model (regional compilation).

        Each block must have been compiled separately: `block.compile()`.

        Args:
            glob: a glob of the paths in `model.named_modules()`; `*` matches one component.
            model: the model, after it ran in the watch.
            kinds: maximum number of compilations.

        Raises:
            AssertionError: with the blocks that each compilation served, and the guard that
                separates it from earlier compilations; or with the blocks that ran eagerly or did
                not run.
            CaptureError: if the capture was not made by `watch()` or `steady()`.
            TypeError, ValueError: see `assert_repeated`.
        """
        __tracebackhide__ = True
        from . import regional

        regional.assert_compiled_once(self, glob, model, kinds)

    def assert_dynamic(self: Subject, name: str, *, dim: int | Sequence[int]) -> None:
        """Assert that sizes of an input are symbolic in every forward graph that has the input.

        Args:
            name: name of the input in the target's signature.
            dim: one dimension or several; -1 is the last.

        Raises:
            AssertionError: with each graph that has a constant size.
            ValueError: if no forward graph has the input, or the input lacks the dimension.
        """
        __tracebackhide__ = True
        compilation.need_graphs(self)
        kernels.assert_sizes(self, name, dim, dynamic=True)

    def assert_static(self: Subject, name: str, *, dim: int | Sequence[int]) -> None:
        """Assert that sizes of an input are constant; see `assert_dynamic`.

        Raises:
            AssertionError: with each graph that has a symbolic size.
            ValueError: see `assert_dynamic`.
        """
        __tracebackhide__ = True
        compilation.need_graphs(self)
        kernels.assert_sizes(self, name, dim, dynamic=False)

    def assert_no_graph_breaks(
        self: Subject, allow: str | Sequence[str] = (), within: Any = None
    ) -> None:
        """Assert that there were no graph breaks.

        Args:
            allow: regular expressions, or literal parts, for tolerated breaks and `EagerCall`s of a
                watch, searched in `"kind: reason"`.
            within: a path, an importable package, or several: breaks elsewhere are tolerated.

        Raises:
            AssertionError: if graphs broke, with each break, its line and its reason; if no graph
                was compiled, with the cause; if calls ran eagerly without a reported break, with
                these calls.
            CaptureError: if the capture did not go through torch.compile.
        """
        __tracebackhide__ = True
        compilation.assert_graph_breaks(self, 0, None, allow, within)

    def assert_graph_breaks(
        self: Subject,
        count: Any = None,
        max: Any = None,
        allow: str | Sequence[str] = (),
        within: Any = None,
    ) -> None:
        """Assert the number of distinct graph breaks; see `assert_no_graph_breaks`.

        Args:
            count: an int, a `(min, max)` pair, or a mapping of these by device type.
            max: the maximum number.
            allow, within: see `assert_no_graph_breaks`. Tolerated breaks do not count.

        Raises:
            TypeError: if neither `count` nor `max` is given, or if they allow any number. In a
                watch, any number is valid: it asserts that something was compiled.
        """
        __tracebackhide__ = True
        compilation.assert_graph_breaks(self, count, max, allow, within)

    def assert_no_recompiles(self: Subject, *, allow: str | Sequence[str] = ()) -> None:
        """Assert that nothing was recompiled.

        Args:
            allow: regular expressions for tolerated `EagerCall`s of a watch, searched in
                `"kind: reason"`.

        Raises:
            AssertionError: if code was recompiled, with each recompilation and its reasons; if
                calls ran eagerly, with these calls; or if no recompilation was possible.
            CaptureError: if the capture did not go through torch.compile.
        """
        __tracebackhide__ = True
        compilation.assert_recompiles(self, 0, None, allow)

    def assert_recompiles(
        self: Subject,
        count: Any = None,
        max: Any = None,
        *,
        allow: str | Sequence[str] = (),
    ) -> None:
        """Assert the number of recompilations. Reaching Dynamo's limit always fails.

        Args:
            count: an int, a `(min, max)` pair, or a mapping of these by device type.
            max: the maximum number.
            allow: tolerated eager calls; see `assert_no_recompiles`.

        Raises:
            AssertionError, CaptureError: see `assert_no_recompiles`.
            TypeError: if neither `count` nor `max` is given.
        """
        __tracebackhide__ = True
        compilation.assert_recompiles(self, count, max, allow)

    def assert_single_backward_graph(self: Subject) -> None:
        """Assert that compiled autograd captured the whole backward as one graph, and that it ran.

        There must be one capture, compiled to one graph without graph breaks.

        Raises:
            AssertionError: with the actual graphs, and the reason for each additional capture.
            CaptureError: if the capture did not go through torch.compile.
        """
        __tracebackhide__ = True
        compilation.assert_single_backward_graph(self)

    def assert_no_syncs(self: Subject, allow: str | Sequence[str] = ()) -> None:
        """Assert that Python never waits for the device; see `syncs` for the limits of the record.

        On a watch, only compiled code is checked.

        Args:
            allow: regular expressions or literal parts for tolerated places, searched in
                `"file:line in function: code"` and, on the next line, `"kind: op"`. If Dynamo
                cannot resume after a graph break, the place is
                `"after line N of file in function"`.

        Raises:
            AssertionError: with each place, its code and the cause of the wait; with the graph
                breaks at which the record is incomplete; or if nothing was captured or compiled.
            CaptureError: if the capture cannot record syncs.
        """
        __tracebackhide__ = True
        kernels.assert_no_syncs(self, allow)

    def assert_no_transfers(self: Subject, allow: str | Sequence[str] = ()) -> None:
        """Assert that nothing is copied between devices; see `transfers` for its limits.

        Args:
            allow: regular expressions or literal parts for tolerated places, searched in
                `"file:line in function: code"` and, on the next line, `"from cuda to cpu: op"`.

        Raises:
            AssertionError: with each place, its code and the devices; with the graph breaks at
                which the record is incomplete; or if nothing was captured or compiled.
            CaptureError: if the capture cannot record transfers.
        """
        __tracebackhide__ = True
        kernels.assert_no_transfers(self, allow)

    def assert_matches_eager(self: Subject, rtol: Tolerance = None, atol: Tolerance = None) -> None:
        """Assert that the captured run matches an eager run from the same state.

        The check compares the output, the `requires_grad` of its tensors, the gradients, and the
        final values of buffers and tensor arguments. In the output, tensors are compared within the
        tolerance, containers by type, and all other values by type and `==`. NaN equals NaN in the
        same place, because a masked row of a softmax is NaN. Infinities are equal if their signs
        are.

        After a difference, the target runs eagerly a few more times to find a provable cause: a
        custom op with hidden state or undeclared writes, a fake implementation whose dtype, shape
        or strides differ from the op's, `np.random` (torch.compile draws from torch's generator),
        and Python values that change between calls. If there is none, compiled code is compared
        with a run in float64; if the difference is rounding, the message suggests a tolerance.

        Args:
            rtol, atol: tolerances: a number; a mapping by device type (`{"cpu": 0, "cuda": 1e-3}`),
                by dtype (`{torch.bfloat16: 1e-2}`), or by device type and then dtype. `None` and
                missing dtypes use the defaults of `torch.testing.assert_close`.

        Raises:
            AssertionError: if the runs differ, with the first difference and its causes. "nothing
                compared" if all floating-point outputs or all gradients of both runs are at most
                `atol`, a tensor is NaN throughout, all gradients are zero, or no output has an
                element.
            CaptureError: if the capture has no run for comparison, or is on the meta device; if a
                parameter, buffer or argument changed after the capture.
            ValueError: if a mapping by device type lacks the device type of a tensor.
        """
        __tracebackhide__ = True
        compilation.need_graphs(self)
        parity.assert_matches_eager(self, self._comparison, rtol, atol)

    def first_difference(
        self: Subject, rtol: Tolerance = None, atol: Tolerance = None
    ) -> Divergence | None:
        """Find the first node where the captured run differs from an eager run.

        The step is captured again at the compiler's stages, at most four times, to find the stage
        that introduces the difference. At that stage the values of all nodes are compared with
        eager values. To recognize rounding, the formulas of both runs are also computed in float64,
        from the values of the eager run. The values take at most 2 GiB, and a replay takes as much
        again as the graphs that it runs.

        Args:
            rtol, atol: tolerances, as in `assert_matches_eager`.

        Returns:
            The first difference, or the last stage that could be checked; `None` if all outputs,
            gradients and buffers are within the tolerance.

        Raises:
            CaptureError: if the mechanism is not "aot", "inductor" or "dynamo"; also see
                `assert_matches_eager`.
        """
        compilation.need_graphs(self)
        return parity.first_difference(self, self._comparison, rtol, atol)
