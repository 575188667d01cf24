"""`Capture`: the graphs of one run, what the compiler did, and the assertions on both.

The modules of `checks` implement the assertions, one module per subject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..checks import compilation, eager, kernels, parity, passes
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


class Capture(Observed, OpChecks):
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
        if not (self.program or other.program):
            compilation.need_graphs(self)
        compilation.need_recorded(self.watched)
        compilation.need_recorded(other.watched)
        return equal_programs(self.program, other.program)

    def __hash__(self) -> int:
        return hash(self.program)

    def _sent(self, phase: str | None = None) -> tuple[Sequence[Graph], tuple[Collective, ...]]:
        self.need_all_ops("the communication")
        graphs: Sequence[Graph] = self._to_check(phase=phase)
        contents, runs = self._contents, None
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
        compilation.need_graphs(self, allow=allow)
        return self.program if phase is None else self._of_phase(phase)

    def _checked_device(self) -> str | None:
        return self.device

    def assert_no_eager_ops(self, allow: Any = ()) -> None:
        """Assert that no op ran eagerly, outside every compiled graph.

        Ops that the autograd engine runs between compiled graphs are ignored: zeros for unused
        outputs, sums of gradients, and the backward of an output that AOTAutograd turned into a
        view.

        Args:
            allow: ops that may run eagerly, as one entry or a sequence. An entry is an op (a
                pattern as in `assert_op_counts`), a file (`"model.py"`, or the end of its path) or
                a line (`"model.py:31"`). The backward ops of an allowed op are also allowed.

        Raises:
            AssertionError: if other ops ran eagerly. The message lists each line, the ops that ran
                there, and the graph break or skipped frame that kept them out of compiled graphs.
            CaptureError: if eager ops were not recorded; see `eager`. This includes a capture
                loaded from a file without eager ops, because earlier releases of this package did
                not store them.
            ValueError: if an op pattern cannot match anything, or matches every op.
        """
        eager.assert_no_eager_ops(self, allow)

    def assert_graph_count(
        self,
        forward: Any = None,
        backward: Any = None,
        total: Any = None,
        *,
        update: Any = None,
        allow: str | Sequence[str] = (),
    ) -> None:
        """Assert the number of graphs.

        `assert_graph_count()` expects one forward and one backward. If any count is given, omitted
        counts are not checked. A count is an int, a `(min, max)` pair with `None` for no limit, or
        a mapping of these by device type: `{"cpu": 2, "cuda": (1, None)}`.

        Args:
            forward: number of forward and inference graphs.
            backward: number of backward graphs that ran.
            update: number of graphs of the update of a training step.
            total: number of all graphs. With `total=0`, a watch passes if compiled code ran and
                nothing was compiled.
            allow: regular expressions for tolerated `EagerCall`s of a watch, searched in
                `"kind: reason"`, and for code in it that was compiled before it, searched in
                `"compiled before the watch: FUNCTION (FILE:LINE)"`.

        Raises:
            AssertionError: if a count differs, with the graphs; if a watch has no graphs, with the
                cause; or if calls in a watch ran eagerly, or code that was compiled before it.
            TypeError: if every given count allows any number. For a watch, these counts are valid
                and assert that something was compiled.
            CaptureError: for `update` on a capture that was made without `updates=`.
        """
        if forward is None and backward is None and total is None and update is None:
            forward = backward = 1
        compilation.need_counted(self, total, allow)
        compilation.assert_graph_count(self, forward, backward, total, update)

    def assert_kernel_count(self, n: Any = None, extern: Any = None, launches: Any = None) -> None:
        """Assert the number of inductor's kernels, of their launches, and of library calls.

        `assert_kernel_count(1, extern=0, launches=1)` asserts that everything is fused into one
        kernel that is launched once. A graph that ran several times counts once. Omitted counts are
        not checked. Ops that ran eagerly, outside compiled graphs, are not in the generated code:
        see `assert_no_eager_ops`. A count is an int, a `(min, max)` pair with `None` for no limit,
        or a mapping of these by device type.

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
        if n is None and extern is None and launches is None:
            raise TypeError("assert_kernel_count() checks nothing: pass n, extern or launches")
        compilation.need_graphs(self)
        kernels.assert_kernel_count(self, n, extern, launches)

    def assert_pass(self, name: str, times: int | None = None) -> None:
        """Assert that a graph pass of inductor changed something.

            capture = graph_capture(model, x, via=Inductor(passes={"post_grad": [MyFusion()]}))
            capture.assert_pass("MyFusion", times=3)

        A pass that never ran fails, whatever `times`.

        Args:
            name: name of the pass; see `PassRun.name`.
            times: exact number of matches that a `PatternMatcherPass` replaced; for other passes,
                of graphs that the pass changed. 0: it ran and changed nothing. `None`: at least 1.

        Raises:
            AssertionError: with the runs of the pass; with all passes that ran, if it never ran.
            CaptureError: if the capture has no passes: use `Inductor(passes=True)`.
        """
        passes.assert_pass(self, name, times)

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

    def assert_cacheable(self, allow: str | Sequence[str] = ()) -> None:
        """Assert that torch.compile's caches can serve every graph at the next start.

        The check compiles nothing. `graph_capture.restart` makes an actual second start.

        Args:
            allow: regular expressions, or literal parts, for tolerated `CacheBypass`es, searched in
                `"op: reason"`.

        Raises:
            AssertionError: if a graph is not cacheable, with each `CacheBypass`, its module, line
                and remedy; or if no graph was compiled or no cache was consulted, with the cause.
            CaptureError: see `cache_bypasses`.
        """
        from ..checks import warm_start

        warm_start.assert_cacheable(self, self.cache_bypasses, allow)

    def assert_distinct_graphs(self, count: int) -> None:
        """Assert the number of distinct graphs. Equal graphs have the same dataflow.

        If the equal blocks of a model are compiled separately, there is one distinct forward and
        one distinct backward, for any number of blocks: `assert_distinct_graphs(2)`.

        Args:
            count: number of distinct graphs, at least 1.

        Raises:
            AssertionError: if the number differs, with the groups of equal graphs and their inputs;
                or if no graph was compiled, with the cause.
            TypeError: if `count` is not a positive int.
        """
        compilation.need_graphs(self)
        kernels.assert_distinct_graphs(self, count)

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

    def assert_dynamic(
        self,
        name: str,
        *,
        dim: int | Sequence[int],
        sizes: tuple[int, int | None] = (2, None),
    ) -> None:
        """Assert that each forward graph that has an input serves all sizes of its dimensions.

        `assert_dynamic("x", dim=0)` asserts that one graph serves every batch size. Sizes of other
        inputs may change with the size.

        Args:
            name: name of the input in the target's signature.
            dim: one dimension or several; -1 is the last.
            sizes: the smallest and the largest size, `None` for no limit. Guards against the
                overflow of 32-bit indices, which inductor makes, are ignored.

        Raises:
            AssertionError: if a size is constant, with each graph in which it is, and the line of
                the code that required a number of a dynamic size; if a guard ties the size to
                another size of the input or refuses a size in `sizes`, with the guard and its
                line; if there was a graph break, because code after it may compile again.
            CaptureError: for a capture loaded from a file, which has no guards. Via "export", only
                the symbols are checked: the exported program has range constraints, not guards.
            TypeError: if `dim` is neither an int nor a sequence of ints, or is empty.
            ValueError: if no forward graph has the input, or the input is not a tensor or lacks the
                dimension; if `sizes` is not a range.
        """
        compilation.need_graphs(self)
        kernels.assert_sizes(self, name, dim, sizes)

    def assert_static(self, name: str, *, dim: int | Sequence[int]) -> None:
        """Assert that sizes of an input are constant in every forward graph that has the input.

        Args:
            name, dim: see `assert_dynamic`.

        Raises:
            AssertionError: if a size is symbolic, with each graph in which it is.
            TypeError, ValueError: see `assert_dynamic`.
        """
        compilation.need_graphs(self)
        kernels.assert_sizes(self, name, dim, None)

    def assert_no_graph_breaks(self, allow: str | Sequence[str] = (), within: Any = None) -> None:
        """Assert that there were no graph breaks.

        Args:
            allow: regular expressions, or literal parts, for tolerated breaks and `EagerCall`s of a
                watch, searched in `"kind: reason"`, and for code that was compiled before the
                watch; see `assert_graph_count`.
            within: a path, an importable package, or a sequence of these. Only breaks in this code
                count.

        Raises:
            AssertionError: if graphs broke, with each break, its line and its reason; if no graph
                was compiled, with the cause; if calls ran eagerly without a reported break, with
                these calls.
            CaptureError: if the capture did not go through torch.compile.
            ValueError: if `within` is neither a path nor a package.
        """
        compilation.assert_graph_breaks(self, 0, None, allow, within)

    def assert_graph_breaks(
        self,
        count: Any = None,
        max: Any = None,
        allow: str | Sequence[str] = (),
        within: Any = None,
    ) -> None:
        """Assert the number of distinct graph breaks; see `assert_no_graph_breaks`.

        `assert_graph_breaks(max=2)` fails on the third break. Breaks with the same file, line and
        kind count once.

        Args:
            count: an int, a `(min, max)` pair with `None` for no limit, or a mapping of these by
                device type.
            max: the maximum number.
            allow, within: see `assert_no_graph_breaks`. Tolerated breaks do not count.

        Raises:
            AssertionError, CaptureError, ValueError: see `assert_no_graph_breaks`.
            TypeError: if neither `count` nor `max` is given, or if they allow any number. For a
                watch, any number is valid and asserts that something was compiled.
        """
        compilation.assert_graph_breaks(self, count, max, allow, within)

    def assert_no_recompiles(self, *, allow: str | Sequence[str] = ()) -> None:
        """Assert that nothing was recompiled.

        The check needs code that could have been recompiled: compiled code that ran twice, or that
        was compiled before the watch.

        Args:
            allow: regular expressions for tolerated `EagerCall`s of a watch, searched in
                `"kind: reason"`.

        Raises:
            AssertionError: if code was recompiled, with each recompilation and its reasons; if
                calls ran eagerly, with these calls; or if no recompilation was possible.
            CaptureError: if the capture did not go through torch.compile.
        """
        compilation.assert_recompiles(self, 0, None, allow)

    def assert_recompiles(
        self, count: Any = None, max: Any = None, *, allow: str | Sequence[str] = ()
    ) -> None:
        """Assert the number of recompilations. Reaching Dynamo's recompile limit always fails.

        Args:
            count: an int, a `(min, max)` pair with `None` for no limit, or a mapping of these by
                device type.
            max: the maximum number.
            allow: tolerated eager calls; see `assert_no_recompiles`.

        Raises:
            AssertionError, CaptureError: see `assert_no_recompiles`.
            TypeError: if neither `count` nor `max` is given.
        """
        compilation.assert_recompiles(self, count, max, allow)

    def assert_single_backward_graph(self) -> None:
        """Assert that compiled autograd captured the whole backward as one graph, and that it ran.

        There must be one capture, compiled to one graph without graph breaks.

        Raises:
            AssertionError: if there is not exactly one capture and one graph, with the reason for
                each additional capture; if a graph broke; or if the backward did not run.
            CaptureError: if the capture did not go through torch.compile.
        """
        compilation.assert_single_backward_graph(self)

    def assert_no_syncs(self, allow: str | Sequence[str] = (), *, phase: str | None = None) -> None:
        """Assert that Python never waits for the device; see `syncs` for the limits of the record.

        For a watch, only compiled code is checked, so an optimizer must not step in it, unless it
        is compiled. `graph_capture(step, ..., updates=(model, optimizer))` sees the whole step. The
        step counts that torch's optimizers keep on the CPU are no syncs.

        Args:
            allow: regular expressions, or literal parts, for tolerated host syncs. They are
                searched in a text of two lines: `"file:line in function: code"`, then `"kind: op"`.
                If Dynamo cannot resume after a graph break, the first line is
                `"after line N of file in function"`.
            phase: see `OpChecks`.

        Raises:
            AssertionError: if Python waits, with each place, its code and the cause of the wait; if
                the record is incomplete, with the graph breaks; or if nothing was captured or
                compiled.
            CaptureError: if the capture cannot record syncs.
        """
        kernels.assert_no_events("host syncs", self, self._syncs_in(phase), allow)
        kernels.need_seen_updates(self)

    def assert_updated(self, allow: str | Sequence[str] = ()) -> None:
        """Assert that a training step updates each parameter of the named modules once.

        Each parameter that requires a gradient must get one in this step, be in an optimizer, and
        be written by the update exactly once: by one step of an optimizer, or by one line. No
        gradient from before the step may be added to.

        Args:
            allow: regular expressions, or literal parts, searched in the names of parameters that
                need not be updated.

        Raises:
            AssertionError: with each of the other parameters, what is wrong, and the lines; if no
                parameter is left to check.
            CaptureError: without `updates=`.
        """
        from ..checks import training

        training.assert_updated(self, self._training, allow)

    def assert_nothing_frozen(self, allow: str | Sequence[str] = ()) -> None:
        """Assert that no number that changes from step to step is a constant of a compiled graph.

        Args:
            allow: regular expressions, or literal parts, searched in the names of the numbers, such
                as `optimizer.param_groups.0.lr`.

        Raises:
            AssertionError: with each number, its values, the graph and the line.
            CaptureError: see `Capture.frozen`.
        """
        from ..checks import training

        training.assert_nothing_frozen(self, allow)

    def assert_no_transfers(self, allow: str | Sequence[str] = ()) -> None:
        """Assert that nothing is copied between devices; see `transfers` for its limits.

        Args:
            allow: regular expressions, or literal parts, for tolerated copies. They are searched in
                a text of two lines: `"file:line in function: code"`, then `"from cuda to cpu: op"`.

        Raises:
            AssertionError: if something is copied, with each place, its code and the devices; if
                the record is incomplete, with the graph breaks; or if nothing was captured or
                compiled.
            CaptureError: if the capture cannot record transfers.
        """
        kernels.assert_no_events("transfers between devices", self, self.transfers, allow)

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
