"""Assertions on kernels, input sizes, and host syncs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..convert.placeholders import source_to_fqn
from ..errors import CaptureError
from ..graph.model import Graph, Node, Result, Symbol, TensorMeta
from ..settings.paths import allows, patterns
from ..syncs.model import BREAKS, CALL, STARTS, THREADS, Sync, Transfer
from ..watching.guard_text import sizes_in
from ..watching.guards import fixed_at, made_at
from ..words import grouped, listed
from .compilation import need_graphs, record_of_compiler, wrong_counts
from .subject import Subject

if TYPE_CHECKING:
    from ..watching.kernels import Kernel


_LARGEST = 2**30
"""Largest size that `assert_dynamic` tries without a limit."""
MOST = 4
"""Maximum number of ops, and of modules and lines, per kernel in a failure message."""
MOST_LISTED = 12
"""Maximum number of kernels and library calls in a failure message."""


def _lines_of_kernels(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yield lines for the launched kernels, with one entry for equal library calls of a graph."""
    groups = grouped(((kernel.graph, kernel.name, kernel.device), kernel) for kernel in kernels)
    for group in [*groups.values()][:MOST_LISTED]:
        yield from describe_kernels(group)
    if omitted := [*groups.values()][MOST_LISTED:]:
        count = sum(len(group) for group in omitted)
        yield f"... and {count} more. To see all kernels with their ops: print(capture.kernels)"
    if not groups:
        yield "none"


def describe_kernels(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yield lines about a kernel or library call, with its ops and their source lines.

    Args:
        kernels: the calls of this kernel in the generated code.
    """
    first_kernel, launches = kernels[0], sum(kernel.launches for kernel in kernels)
    word = "library call" if first_kernel.is_extern else f"{first_kernel.kind} kernel"
    times = f", {launches} times" if launches != 1 else ""
    device_text = f" on {first_kernel.device}" if first_kernel.device else ""
    yield f"{first_kernel.graph}: {first_kernel.name} ({word}{device_text}{times})"
    ops = dict.fromkeys(op for kernel in kernels for op in kernel.ops)
    if ops and not first_kernel.is_extern:
        yield f"    {listed(ops, MOST)}"
    if modules := dict.fromkeys(path for kernel in kernels for path in kernel.modules):
        yield f"    in {listed(modules, MOST)}"
    if lines := dict.fromkeys(f"{line}: {line.code}" for k in kernels for line in k.lines):
        yield f"    at {listed(lines, MOST)}"


def _assert_sizes(
    capture: Subject, name: str, dim: int | Sequence[int], limits: tuple[int, int | None] | None
) -> None:
    """See `Capture.assert_dynamic` and, if `limits` is `None`, `Capture.assert_static`."""
    dynamic = limits is not None
    low, high = limits or (0, None)
    high = _LARGEST if high is None else high
    if not 0 <= low <= high:
        raise ValueError(f"sizes={limits!r} is not a range: pass the smallest and largest size")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if any(isinstance(dimension, bool) or not isinstance(dimension, int) for dimension in dims):
        raise TypeError(f"dim={dim!r} is not a dimension: pass an int or a sequence of ints")
    if not dims:
        raise TypeError(f"dim={dim!r} checks nothing: pass at least one dimension")
    problems: list[str] = []
    wrong: set[int] = set()  # dimensions that are not marked as they should be
    fixes = _find_fixes(capture) if dynamic else {}
    for graph, node in _inputs(capture.forwards, name):
        result = node.result
        if not isinstance(result, TensorMeta):
            raise ValueError(f"input {name!r} is not a tensor, so it has no sizes")
        for dimension in dims:
            rank = len(result.shape)
            if not -rank <= dimension < rank:
                raise ValueError(
                    f"dim={dimension} is out of range: input {name!r} has {rank} dimensions"
                )
            size, number = result.shape[dimension], dimension % rank
            prefix = f"  {graph.name}: {name} is [{_format_sizes(result)}]: dim {dimension} "
            if isinstance(size, Symbol) != dynamic:
                fix = fixes.get((name, number, str(size)))
                if not fix:
                    wrong.add(number)
                problems.append(prefix + (fix or f"is not a {'symbol' if dynamic else 'number'}"))
            elif dynamic:
                broken = _broken_guards(capture, graph, (name, number), low, high)
                problems += [prefix + text for text in broken]
    # Guards of code after a break are on values that follow from the size in unknown ways.
    record = record_of_compiler(capture) if dynamic else None
    breaks = record.breaks if record is not None else ()
    for graph_break in breaks:
        where = f"{graph_break.file}:{graph_break.line} ({graph_break.kind})"
        problems.append(f"  code after the graph break at {where} may compile again for a size")
    if problems:
        word = "dynamic" if dynamic else "static"
        mark = f"call torch._dynamo.mark_{word}({name}, {sorted(wrong)}) before the model"
        mark += ". If code needs a fixed size, torch raises an error with its line" * dynamic
        remedy = _remedy_for_sizes(capture.via, mark * bool(wrong), broke=bool(breaks))
        raise AssertionError("\n".join([f"sizes of {name} are not {word}:", *problems, remedy]))


def _remedy_for_sizes(via: str, mark: str, *, broke: bool) -> str:
    """Return the remedy for sizes that are not as a check expects.

    Args:
        via: the mechanism of the capture.
        mark: the advice to mark dimensions, "" if no dimension only lacks a mark.
        broke: True if there was a graph break.
    """
    if via == "export":
        return "pass other dynamic_shapes: via=Export(dynamic_shapes=...)"
    if via in ("dispatch", "fx"):
        return f"sizes are static via {via!r}: capture via 'aot'"
    if mark or broke:
        return mark or "remove the graph break"
    return (
        "change the code at these lines, so that it works for all sizes, or pass the sizes that "
        "occur: sizes=(2, 64)"
    )


def _find_fixes(capture: Subject) -> dict[tuple[str, int, str], str]:
    """Return where code fixed dynamic sizes, by input, dimension and size."""
    record = record_of_compiler(capture)
    return {
        (source_to_fqn(tensor), dim, fix.value): fixed_at(fix)
        for compilation in (record.compiled if record is not None else ())
        for source, fix in compilation.fixed.items()
        for tensor, _, dim in sizes_in(source)
    }


def _broken_guards(
    capture: Subject, forward: Graph, place: tuple[str, int], low: int, high: int
) -> Iterator[str]:
    """Yield the guards that a size between `low` and `high` does not meet.

    Args:
        capture: the checked capture.
        forward: the graph whose input is checked.
        place: name of the input, and dimension.
        low, high: the smallest and largest size.

    Raises:
        CaptureError: if no recorded graph has the size.
    """
    from .. import torch_private

    record = record_of_compiler(capture)
    compiled = record.compiled if record is not None else ()
    found = capture.via == "export"  # an exported program has no guards to find
    for graph in (graph for c in compiled if not c.failure for graph in c.printed):
        env = graph.shape_env
        symbols = {
            (source_to_fqn(name), dim): symbol
            for source, symbol in getattr(env, "source_to_var", {}).items()
            for name, kind, dim in sizes_in(source)
            if kind == "size"
        }
        # torch wraps callables without Python code of their own, such as torch.nn modules: to the
        # wrapper, the inputs are `args.0`, `args.1`, ...
        given = [*dict.fromkeys(name for name, _ in symbols)]
        dynamic = [node.name for node in forward.inputs if _has_symbol(node.result)]
        if len(given) == len(dynamic) and all(name.startswith("args.") for name in given):
            known = dict(zip(given, dynamic, strict=True))
            symbols = {(known[name], dim): symbol for (name, dim), symbol in symbols.items()}
        if place in symbols:
            found = True
            for text, line in torch_private.broken_guards(env, symbols, place, low, high):
                yield text + made_at(line)
    if not found:
        raise CaptureError(
            f"the guards on input {place[0]!r} are not recorded: check a live capture, not a file"
        )


def _has_symbol(result: Result) -> bool:
    """Return True for a tensor with a dynamic size."""
    return isinstance(result, TensorMeta) and any(isinstance(n, Symbol) for n in result.shape)


def _inputs(graphs: Sequence[Graph], name: str) -> list[tuple[Graph, Node]]:
    """Return the inputs with this name.

    Raises:
        ValueError: if no graph has the input.
    """
    inputs = [(graph, node) for graph in graphs for node in graph.inputs if node.name == name]
    if not inputs:
        input_names = dict.fromkeys(
            node.name for graph in graphs for node in graph.inputs if node.op == "input"
        )
        raise ValueError(
            f"no forward graph has an input {name!r}; inputs: {', '.join(input_names) or 'none'}"
        )
    return inputs


def _format_inputs(graph: Graph) -> list[str]:
    return [
        f"{node.name} [{_format_sizes(node.result)}]"
        for node in graph.inputs
        if node.op == "input" and isinstance(node.result, TensorMeta)
    ]


def _format_sizes(tensor: TensorMeta) -> str:
    return ", ".join(str(size.expr if isinstance(size, Symbol) else size) for size in tensor.shape)


_REMEDY = (
    "Remove the break, capture via='dispatch', or tolerate the break with allow='at a graph break'"
)
_UNKNOWN = f"Ops that ran at a graph break are in no graph, so they are unknown. {_REMEDY}"
_UNKNOWN_BUT_OPS = (
    "At a graph break, ops are checked. Calls of tolist, cpu and print are not, and neither is "
    f"anything in another thread. {_REMEDY}"
)
_IN_THREADS = (
    "Other threads are not recorded: run this code in the main thread, or tolerate it with "
    "allow='in another thread'"
)

_RAN_EAGERLY = (
    "Code that you compiled ran eagerly, and may wait or copy less when it is compiled. Capture "
    "via='aot' to see that"
)


def _need_seen_updates(capture: Subject) -> None:
    """Fail for a watch in which an optimizer stepped outside compiled code."""
    record = capture.watched
    if record is not None and record.stepped:
        raise AssertionError(
            f"{listed(record.stepped)} stepped outside compiled code, and a watch does not see "
            "host syncs there. Capture the whole step: graph_capture(step, ..., updates=(model, "
            "optimizer)).assert_no_syncs()"
        )


def _format_event(number: int, event: Sync | Transfer) -> str:
    """Return the lines about a sync or a copy. One that is not certain only may have happened."""
    seen = "outside every graph" if event.seen == CALL else f"in graph {event.seen!r}"
    if not event.certain:
        description = f"{THREADS if event.op == STARTS else BREAKS}: {event.op}"
    elif isinstance(event, Transfer):
        waits = "" if event.blocking else " (Python does not wait)"
        description = f"from {event.source} to {event.target}: {event.op} ({seen}){waits}"
    else:
        description = f"the waiting op {event.kind}: {event.op} ({seen})"
    location = str(event).partition("\n")[0]
    lines = [f"  {number}. {location}", f"     {description}"]
    if event.module and event.file:
        lines.append(f"     module {event.module}")
    if event.occurrences > 1:
        lines.append(f"     {event.occurrences} times")
    return "\n".join(lines)


class KernelChecks(Subject):
    """Assertions on kernels, sizes, host syncs and copies; see `Capture`."""

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
        need_graphs(self)
        kernels = self.kernels
        generated = [kernel for kernel in kernels if not kernel.is_extern]
        libraries = [kernel for kernel in kernels if kernel.is_extern]
        problems = wrong_counts(
            self,
            ("generated kernels", n, len(generated)),
            ("library calls", extern, sum(kernel.launches for kernel in libraries)),
            (
                "launches of generated kernels",
                launches,
                sum(kernel.launches for kernel in generated),
            ),
            limit_for="assert_kernel_count",
        )
        if problems:
            # Show library calls, generated kernels, or both: those whose count is wrong.
            is_extern_shown = {words == "library calls" for words in problems}
            shown_kernels = [kernel for kernel in kernels if kernel.is_extern in is_extern_shown]
            lines = [
                "kernel count differs:",
                *problems.values(),
                "kernels launched, in the order of the generated code:",
            ]
            raise AssertionError(
                "\n".join([*lines, *(f"  {line}" for line in _lines_of_kernels(shown_kernels))])
            )

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
        need_graphs(self)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise TypeError(f"{count!r} is not a valid number of graphs: pass an int of at least 1")
        groups: list[list[Graph]] = []  # of equal graphs
        for graph in self.graphs:
            equal_group = next((group for group in groups if group[0] == graph), None)
            if equal_group is None:
                groups.append([graph])
            else:
                equal_group.append(graph)
        if len(groups) != count:
            lines = [f"distinct graphs: expected {count}, found {len(groups)}"]
            for group in groups:
                example = group[0]
                names = listed((graph.name for graph in group), 8)
                inputs = ", ".join(_format_inputs(example)[:6])
                lines.append(
                    f"  {names}: {example.kind}, {len(example.nodes)} nodes, inputs {inputs}"
                )
                # Compare with the first group of the same kind, unless this is it.
                first = next(g for g, *_ in groups if g.kind == example.kind)
                if first is not example:
                    from ..graph.diff import diff_graphs

                    heading = diff_graphs([first], group[:1]).heading()
                    lines.append(f"      differs from {first.name}: {heading}")
            raise AssertionError("\n".join(lines))

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
        need_graphs(self)
        _assert_sizes(self, name, dim, sizes)

    def assert_static(self, name: str, *, dim: int | Sequence[int]) -> None:
        """Assert that sizes of an input are constant in every forward graph that has the input.

        Args:
            name, dim: see `assert_dynamic`.

        Raises:
            AssertionError: if a size is symbolic, with each graph in which it is.
            TypeError, ValueError: see `assert_dynamic`.
        """
        need_graphs(self)
        _assert_sizes(self, name, dim, None)

    def _assert_no_events(
        self, kind: str, events: Sequence[Sync | Transfer], allow: str | Sequence[str]
    ) -> None:
        """See `Capture.assert_no_syncs` and `Capture.assert_no_transfers`.

        Args:
            kind: name of the events in the message.
            events: the syncs or transfers of the capture.
            allow: see `Capture.assert_no_syncs`.
        """
        allowed = patterns(allow)
        refused = [event for event in events if not allows(allowed, str(event))]
        if refused:
            tolerated = len(events) - len(refused)
            certain = sum(event.certain for event in refused)
            unknown = len(refused) - certain
            count_text = f"{certain} certain and {unknown} possible" if unknown else f"{certain}"
            head = f"{kind}: expected none, found {count_text}"
            head += f" (and {tolerated} that allow= permits)" if tolerated else ""
            lines = [_format_event(number, event) for number, event in enumerate(refused, 1)]
            at_breaks = _UNKNOWN_BUT_OPS if self.watched is None else _UNKNOWN
            uncertain = [event for event in refused if not event.certain]
            lines += [at_breaks] * any(event.op != STARTS for event in uncertain)
            lines += [_IN_THREADS] * any(event.op == STARTS for event in uncertain)
            lines += [_RAN_EAGERLY] * self._ran_eagerly
            raise AssertionError("\n".join([head, *lines]))
        need_graphs(self, unreported=True)

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
        self._assert_no_events("host syncs", self._syncs_in(phase), allow)
        _need_seen_updates(self)

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
        self._assert_no_events("transfers between devices", self.transfers, allow)
