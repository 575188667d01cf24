"""The assertions of a `Capture`, as users see them: arguments, and the errors that they raise.

Each is done by a function of the module beside this one that is about its subject.
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
    """The assertions on a capture. None passes where nothing was captured or compiled."""

    def _to_check(self: Subject, allow: str | Sequence[str] | None = None) -> tuple[Graph, ...]:
        __tracebackhide__ = True
        compilation.need_graphs(self, allow=allow)
        return self.program

    def _checked_device(self: Subject) -> str | None:
        return self.device

    def assert_no_eager_ops(self: Subject, allow: Any = ()) -> None:
        """Assert that no op ran eagerly, outside of every compiled graph.

        What the autograd engine runs between compiled graphs does not count: zeros for an output
        that nothing used, sums of gradients, the way back through an output that AOTAutograd made
        a view of.

        Args:
            allow: what may run eagerly, one or several of: an op, as a pattern of
                `assert_op_counts`; a file, as `"model.py"` or the end of its path; a line of it, as
                `"model.py:31"`. What follows in the backward from an op that may is allowed, too.

        Raises:
            AssertionError: with each line, the ops that ran there, and the graph break or skipped
                frame because of which they are in no compiled graph.
            CaptureError: as `eager`; for a capture from a file that has no eager ops, because those
                of earlier releases have none.
            ValueError: for an op pattern that can match nothing, and for one that matches every op.
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
        """Assert how many graphs there are.

        Args:
            forward: count of forward and inference graphs.
            backward: count of backward graphs that ran.
            total: count of all graphs. What is not given is not checked; with nothing given, one
                forward and one backward are expected.
            allow: regular expressions that are searched in `"kind: reason"` of each `EagerCall` of
                a watch; calls that match one are tolerated.

        Raises:
            AssertionError: with the graphs that there are; or if a watch has none, with the cause,
                but for `total=0` where compiled code ran; or with the calls that ran eagerly.
            TypeError: where each count that is given allows any number, but for a watch, of which
                that says that something was compiled.
        """
        __tracebackhide__ = True
        if forward is None and backward is None and total is None:
            forward = backward = 1
        compilation.need_counted(self, total, allow)
        compilation.assert_graph_count(self, forward, backward, total)

    def assert_kernel_count(
        self: Subject, n: Any = None, extern: Any = None, launches: Any = None
    ) -> None:
        """Assert how many kernels inductor generated, and how often its code calls libraries.

        `assert_kernel_count(1, extern=0, launches=1)`: all of it is fused into one kernel, which is
        launched once. Each graph counts once, however often it ran. What runs eagerly beside the
        graphs is not in their code: `assert_no_eager_ops`.

        Args:
            n: count of generated kernels.
            extern: count of calls of libraries: of whatever was not fused, see `Kernel`.
            launches: how often generated kernels are launched, the same one several times included.
                Each is an int, a `(min, max)` pair in which None is no limit, or a mapping of these
                by device type.

        Raises:
            AssertionError: with each kernel and library call, what it computes, and the modules and
                lines of that where they are known; or if no graph was compiled, with the cause.
            CaptureError: where no code was generated, as via "aot", or not for all graphs.
            TypeError: with nothing to check.
            ValueError: for a mapping without the capture's device.
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
        """Assert that the step costs no more than this.

        Args:
            flops: floating-point operations, by torch's formulas; see `Capture.flops`.
            saved_bytes: what is kept for the backward; see `Capture.saved_bytes`.
            peak_bytes: an estimate of the most bytes at one time; see `Capture.peak_bytes`. Each is
                a whole number, as 1e9, the most; a `(min, max)` in which None is no limit; or a
                mapping of these by device type.
            unknown: "fail", or "ignore" to count nothing for ops that do work and have no formula;
                some op must have been counted.
            recomputed_flops: those of what the backward computes again, as the others, or
                `"10%"` of the forward's FLOPs; see `Capture.recomputed`.

        Raises:
            AssertionError: with what it costs, the modules that compute most, and the ops of which
                most is kept, with their lines; or if no graph was compiled, with the cause.
            CaptureError: where a figure is not known; and of a watch in which graphs broke, for
                what runs between them is in none.
            TypeError: with nothing to check.
            ValueError: for another `unknown`, and a mapping without the capture's device.
        """
        __tracebackhide__ = True
        if unknown not in ("fail", "ignore"):
            raise ValueError(f'unknown={unknown!r} is neither "fail" nor "ignore"')
        from ..graph.cost import flops as flops_of
        from ..graph.cost import peak, step
        from . import budget, recomputation

        compilation.need_graphs(self)
        self.need_all_ops("what it costs")
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
                "flops": lambda: flops_of.total(graphs, times_run=True, unknown=unknown),
                "saved_bytes": lambda: step.saved_bytes(graphs, self._received),
                "peak_bytes": lambda: peak.peak_bytes(graphs, self._received),
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
        """Assert how often the backward runs ops of the forward again; see `Capture.recomputed`.

        Args:
            expected: from an op to its count, as in `assert_op_counts`.
            module: looks only at ops of this module, or below it: its path, or a glob.
            exact: whether every op that is computed again must be matched by a pattern.

        Raises:
            AssertionError: with what is computed again, by what, with modules and lines.
            CaptureError: see `Capture.recomputed`.
            TypeError: with nothing to check.
            ValueError: for an op pattern that can match nothing, and for a module without any op.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        graphs = self._split
        device = device_of(graphs, self.device)
        recomputation.assert_recomputed(graphs, self.recomputed, expected, module, exact, device)

    def assert_not_recomputed(self: Subject, *ops: Any, module: str | None = None) -> None:
        """Assert that the backward runs none of these ops of the forward again.

        Args:
            ops: patterns as in `assert_op_counts`; without any, all ops of `module`.
            module: see `assert_recomputed`.

        Raises:
            AssertionError: with what is computed again, its share of the forward's FLOPs, by what,
                modules and lines, and what is kept there; and if the forward runs none of the ops.
            CaptureError, ValueError: see `assert_recomputed`.
            TypeError: with neither an op nor a module.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        recomputation.assert_not_recomputed(
            self._split, self.recomputed, self._received, ops, module
        )

    def assert_saved(self: Subject, *ops: Any, module: str | None = None) -> None:
        """Assert that every result of these ops is kept for the backward, itself or by a view.

        Args:
            ops, module: see `assert_not_recomputed`. Of an op with several results, those count
                that anything uses.

        Raises:
            AssertionError: with each result that is not kept; and if the forward runs none of the
                ops, or all their results are views of inputs or parameters.
            CaptureError, TypeError, ValueError: see `assert_not_recomputed`.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        recomputation.assert_saved(self._split, self._received, ops, module)

    def assert_not_saved(
        self: Subject, *ops: Any, module: str | None = None, max_bytes: int = 0
    ) -> None:
        """Assert that results of these ops are not kept for the backward.

        Args:
            ops, module: see `assert_not_recomputed`.
            max_bytes: how many bytes all of them together may keep.

        Raises:
            AssertionError: with each result that is kept and its bytes; and if the forward runs
                none of the ops.
            CaptureError, TypeError, ValueError: see `assert_not_recomputed`; and for a size that is
                a symbol.
        """
        __tracebackhide__ = True
        from . import recomputation

        compilation.need_graphs(self)
        recomputation.assert_not_saved(self._split, self._received, ops, module, max_bytes)

    def assert_cacheable(self: Subject, allow: str | Sequence[str] = ()) -> None:
        """Assert that torch.compile's caches can serve every graph at the next start.

        This compiles nothing: see `graph_capture.restart` for a second start.

        Args:
            allow: regular expressions that are searched in `"op: reason"` of a `CacheBypass`, or
                parts of it as they are; bypasses that match one are tolerated.

        Raises:
            AssertionError: with each `CacheBypass`, its module, line and what helps; or if no graph
                was compiled, or no cache was asked, with the cause.
            CaptureError: see `cache_bypasses`.
        """
        __tracebackhide__ = True
        from . import warm_start

        warm_start.assert_cacheable(self, self.cache_bypasses, allow)

    def assert_distinct_graphs(self: Subject, count: int) -> None:
        """Assert how many of the graphs are not equal to one another.

        Where the blocks of a model are compiled one by one it is one for the forward, and one for
        the backward, however many blocks there are.

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
            glob: a glob of module paths, in which `*` is one component, as `"layers.*"`.
            kinds: how many kinds of blocks there may be.
            backward: compare the backward too. Sums of gradients that leave a block are left out:
                autograd adds them up in any of the blocks.

        Raises:
            AssertionError: with the members of each kind, and how it differs from the most common
                one.
            CaptureError: see `Capture.repeated`; for `backward=True` without a backward.
            TypeError, ValueError: see `Capture.repeated`; for `kinds` that is no positive int.
        """
        __tracebackhide__ = True
        from . import blocks

        blocks.assert_repeated(self, self._split, glob, kinds, backward)

    def assert_shared(self: Subject, glob: str, bodies: int = 1) -> None:
        """Assert that blocks share the bodies that `nested_compile_region` compiles.

        Args:
            glob: see `assert_repeated`.
            bodies: how many bodies there may be.

        Raises:
            AssertionError: with the calls of each body, and the blocks that are inlined.
            CaptureError: unless the capture is via "dynamo", "aot", "inductor" or "export".
            TypeError, ValueError: see `assert_repeated`.
        """
        __tracebackhide__ = True
        from . import blocks

        blocks.assert_shared(self, self._split, glob, bodies)

    def assert_compiled_once(
        self: Subject, glob: str, *, model: torch.nn.Module, kinds: int = 1
    ) -> None:
        """Assert that few compilations serve all blocks of a model, as regional compilation does.

        Each block has been given to torch.compile by itself: `block.compile()`.

        Args:
            glob: a glob of the paths in `model.named_modules()`; `*` is one component.
            model: the model, after it ran in the watch.
            kinds: how many compilations there may be.

        Raises:
            AssertionError: with the blocks that each compilation served, and the guard by which it
                differs from those before; with the blocks that ran eagerly, or did not run.
            CaptureError: for a capture that was not made by `watch()`.
            TypeError, ValueError: see `assert_repeated`.
        """
        __tracebackhide__ = True
        from . import regional

        regional.assert_compiled_once(self, glob, model, kinds)

    def assert_dynamic(self: Subject, name: str, *, dim: int | Sequence[int]) -> None:
        """Assert that sizes of an input stayed symbols, in every forward graph that has it.

        Args:
            name: of the input, as the target declares it.
            dim: which dimension, or several; -1 is the last.

        Raises:
            AssertionError: with each graph in which one is a number.
            ValueError: where no forward graph has such an input, or it has no such dimension.
        """
        __tracebackhide__ = True
        compilation.need_graphs(self)
        kernels.assert_sizes(self, name, dim, dynamic=True)

    def assert_static(self: Subject, name: str, *, dim: int | Sequence[int]) -> None:
        """Assert that sizes of an input are numbers; see `assert_dynamic`.

        Raises:
            AssertionError: with each graph in which one is a symbol.
            ValueError: as `assert_dynamic`.
        """
        __tracebackhide__ = True
        compilation.need_graphs(self)
        kernels.assert_sizes(self, name, dim, dynamic=False)

    def assert_no_graph_breaks(
        self: Subject, allow: str | Sequence[str] = (), within: Any = None
    ) -> None:
        """Assert that no graph broke off.

        Args:
            allow: regular expressions that are searched in `"kind: reason"`, or parts of it as they
                are; breaks that match one are tolerated, and so is each `EagerCall` of a watch.
            within: a path or an importable package, or several: breaks elsewhere are tolerated.

        Raises:
            AssertionError: with each break, its line and its reason; or if no graph was compiled,
                with the cause; or with the calls that ran eagerly, and that no break reports.
            CaptureError: for a capture that did not go through torch.compile.
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
        """Assert how many distinct graph breaks there are; see `assert_no_graph_breaks`.

        Args:
            count: an int, a `(min, max)` pair, or a mapping of these by device type.
            max: how many at most.
            allow, within: breaks that are not counted, and eager calls that are tolerated.

        Raises:
            TypeError: with neither `count` nor `max`, and where they allow any number, but for a
                watch, of which that says that something was compiled.
        """
        __tracebackhide__ = True
        compilation.assert_graph_breaks(self, count, max, allow, within)

    def assert_no_recompiles(self: Subject, *, allow: str | Sequence[str] = ()) -> None:
        """Assert that nothing was compiled again.

        Args:
            allow: regular expressions that are searched in `"kind: reason"` of each `EagerCall` of
                a watch; calls that match one are tolerated.

        Raises:
            AssertionError: with each recompilation and its reasons; or if nothing could have been
                compiled again; or with the calls that ran eagerly.
            CaptureError: for a capture that did not go through torch.compile.
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
        """Assert how often something was compiled again. Reaching Dynamo's limit always fails.

        Args:
            count: an int, a `(min, max)` pair, or a mapping of these by device type.
            max: how often at most.
            allow: eager calls that are tolerated; see `assert_no_recompiles`.

        Raises:
            AssertionError, CaptureError: see `assert_no_recompiles`.
            TypeError: with neither `count` nor `max`.
        """
        __tracebackhide__ = True
        compilation.assert_recompiles(self, count, max, allow)

    def assert_single_backward_graph(self: Subject) -> None:
        """Assert that compiled autograd made the whole backward one graph, and that it ran.

        That is: one capture, which gave one graph without a break in it.

        Raises:
            AssertionError: with what was there instead, and the reason for each further capture.
            CaptureError: for a capture that did not go through torch.compile.
        """
        __tracebackhide__ = True
        compilation.assert_single_backward_graph(self)

    def assert_no_syncs(self: Subject, allow: str | Sequence[str] = ()) -> None:
        """Assert that Python never waits for the device; see `syncs` for what is known.

        Of a watch this is about compiled code: what runs around that is not seen.

        Args:
            allow: regular expressions or literal parts, of `"file:line in function: code"` and, in
                the next line, `"kind: op"`; places that match one are tolerated. What comes behind
                a break from which Dynamo cannot resume is `"behind line N of file in function"`.

        Raises:
            AssertionError: with each place, its code and why it waits, and the graph breaks at
                which not all is known that ran; or if nothing was captured or compiled.
            CaptureError: for a capture that cannot know.
        """
        __tracebackhide__ = True
        kernels.assert_no_syncs(self, allow)

    def assert_no_transfers(self: Subject, allow: str | Sequence[str] = ()) -> None:
        """Assert that nothing is copied between devices; see `transfers` for what is known.

        Args:
            allow: regular expressions or literal parts, of `"file:line in function: code"` and, in
                the next line, `"from cuda to cpu: op"`; places that match one are tolerated.

        Raises:
            AssertionError: with each place, its code and the devices, and the graph breaks at
                which not all is known that ran; or if nothing was captured or compiled.
            CaptureError: for a capture that cannot know.
        """
        __tracebackhide__ = True
        kernels.assert_no_transfers(self, allow)

    def assert_matches_eager(self: Subject, rtol: Tolerance = None, atol: Tolerance = None) -> None:
        """Assert that the captured run did what an eager run from the same state does.

        Compared are all leaves of the output (tensors within the tolerance, others by type and
        `==`, containers by type), which tensors require grad, the gradients, and the values that
        buffers and tensor arguments have after the call. NaN equals NaN in the same place, since a
        masked row of a softmax is NaN. An infinity equals one of the same sign.

        If something differs, the target runs eagerly a few times more, to find a cause that can be
        proven: a custom op with hidden state or undeclared writes, a fake implementation with
        another dtype, shape or strides than the op, `np.random` (torch.compile draws from torch's
        generator), and Python values that change from call to call. Without any of these, code that
        was compiled is judged against a run in float64; if the difference is rounding, the message
        has the tolerance for it.

        Args:
            rtol, atol: tolerances: a number; a mapping by device type (`{"cpu": 0, "cuda": 1e-3}`),
                by dtype (`{torch.bfloat16: 1e-2}`), or by device type and then dtype. None, and a
                dtype that is not there, is what `torch.testing.assert_close` has for it.

        Raises:
            AssertionError: with the first thing that differs and its causes; "nothing compared" if
                no floating-point output of either run is above `atol`, or no gradient; if a tensor
                is NaN throughout, all gradients are zero or no output has an element.
            CaptureError: for a capture without a run to compare with, or on the meta device; if a
                parameter, buffer or argument has changed since the capture.
            ValueError: for a mapping by device type without the capture's.
        """
        __tracebackhide__ = True
        compilation.need_graphs(self)
        parity.assert_matches_eager(self, self._comparison, rtol, atol)

    def first_difference(
        self: Subject, rtol: Tolerance = None, atol: Tolerance = None
    ) -> Divergence | None:
        """Find the first node at which the captured run differs from an eager run.

        The step is captured again at the stages of the compiler, at most four times, to find the
        stage that makes the difference. There the values of all nodes are compared with eager's;
        each formula is computed from eager's values in float64. The values take 2 GiB at most, and
        a replay as much again as the graphs that it runs.

        Args:
            rtol, atol: tolerances, as in `assert_matches_eager`.

        Returns:
            The first difference, or how far it could be followed; `None` if all outputs, gradients
            and buffers are within the tolerance.

        Raises:
            CaptureError: for a capture via another mechanism than "aot", "inductor" and "dynamo";
                and as `assert_matches_eager`.
        """
        compilation.need_graphs(self)
        return parity.first_difference(self, self._comparison, rtol, atol)
