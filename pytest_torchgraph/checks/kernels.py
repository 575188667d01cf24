"""Assertions on kernels, input sizes, and host syncs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..graph.checks import bounds, device_of, format_bounds, need_a_limit
from ..graph.model import Graph, Node, Symbol, TensorMeta
from ..settings.paths import allows, patterns
from ..syncs.model import BREAKS, STARTS, THREADS, Sync, Transfer
from ..words import listed
from .compilation import need_graphs

if TYPE_CHECKING:
    from ..watching.kernels import Kernel
    from .subject import Subject


MOST = 4
"""Maximum number of ops, modules and lines per kernel in a failure message."""
MOST_LISTED = 12
"""Maximum number of kernels and library calls in a failure message."""


def assert_kernel_count(capture: Subject, n: Any, extern: Any, launches: Any) -> None:
    """See `Capture.assert_kernel_count`."""
    __tracebackhide__ = True
    kernels = capture.kernels
    generated = [each for each in kernels if not each.is_extern]
    libraries = [each for each in kernels if each.is_extern]
    counts = (
        ("generated kernels", n, len(generated)),
        ("library calls", extern, sum(each.launches for each in libraries)),
        ("launches of generated kernels", launches, sum(each.launches for each in generated)),
    )
    device = device_of(capture.graphs, capture.device)
    asked = [
        (word, *bounds(expected, device), found)
        for word, expected, found in counts
        if expected is not None
    ]
    need_a_limit("assert_kernel_count", [(low, high) for _, low, high, _ in asked])
    wrong, kinds = [], set()
    for word, low, high, found in asked:
        if found < low or (high is not None and found > high):
            wrong.append(f"  {word}: expected {format_bounds(low, high)}, found {found}")
            kinds.add(word == "library calls")
    if wrong:
        there = [each for each in kernels if each.is_extern in kinds]
        lines = [
            "kernel count differs:",
            *wrong,
            "kernels launched, in the order of the generated code:",
        ]
        raise AssertionError("\n".join([*lines, *(f"  {line}" for line in _listed(there))]))


def _listed(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Return the launched kernels, equal library calls of a graph once, up to the maximum."""
    groups: dict[tuple[str, ...], list[Kernel]] = {}
    for each in kernels:
        groups.setdefault((each.graph, each.name, each.device), []).append(each)
    for group in [*groups.values()][:MOST_LISTED]:
        yield from described(group)
    if rest := [*groups.values()][MOST_LISTED:]:
        count = sum(len(group) for group in rest)
        yield f"... and {count} more; to see all, with their ops: print(capture.kernels)"
    if not groups:
        yield "none"


def described(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Describe a kernel or library call, with its ops and their source lines.

    Args:
        kernels: the calls of this kernel in the code.
    """
    first, launches = kernels[0], sum(each.launches for each in kernels)
    word = "library call" if first.is_extern else f"{first.kind} kernel"
    times = f", {launches} times" if launches != 1 else ""
    on = f" on {first.device}" if first.device else ""
    yield f"{first.graph}: {first.name} ({word}{on}{times})"
    if not first.is_extern and (ops := list(dict.fromkeys(o for k in kernels for o in k.ops))):
        yield f"    {listed(ops, MOST)}"
    if modules := list(dict.fromkeys(path for each in kernels for path in each.modules)):
        yield f"    in {listed(modules, MOST)}"
    if lines := dict.fromkeys(f"{line}: {line.code}" for k in kernels for line in k.lines):
        yield f"    at {listed(lines, MOST)}"


def assert_sizes(capture: Subject, name: str, dim: int | Sequence[int], *, dynamic: bool) -> None:
    """See `Capture.assert_dynamic` and `Capture.assert_static`."""
    __tracebackhide__ = True
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if any(isinstance(each, bool) or not isinstance(each, int) for each in dims):
        raise TypeError(f"dim={dim!r} is not a dimension: pass an int or a sequence of ints")
    if not dims:
        raise TypeError(f"dim={dim!r} checks nothing: pass at least one dimension")
    wanted = "a symbol" if dynamic else "a number"
    wrong: list[str] = []
    for graph, node in _inputs(capture.forwards, name):
        result = node.result
        if not isinstance(result, TensorMeta):
            raise ValueError(f"{name!r} of {graph.name} is not a tensor, so it has no sizes")
        for dim in dims:
            if not -len(result.shape) <= dim < len(result.shape):
                raise ValueError(
                    f"dim={dim} is out of range: {name!r} of {graph.name} has {len(result.shape)} "
                    "dimensions"
                )
            size = result.shape[dim]
            if isinstance(size, Symbol) != dynamic:
                shown = ", ".join(
                    each.expr if isinstance(each, Symbol) else str(each) for each in result.shape
                )
                wrong.append(f"  {graph.name}: {name} is [{shown}]: dim {dim} is not {wanted}")
    if wrong:
        word = "dynamic" if dynamic else "static"
        raise AssertionError("\n".join([f"sizes of {name} are not {word}:", *wrong]))


def _inputs(graphs: Sequence[Graph], name: str) -> list[tuple[Graph, Node]]:
    """Return the inputs with this name.

    Raises:
        ValueError: if no graph has the input.
    """
    found = [(graph, node) for graph in graphs for node in graph.inputs if node.name == name]
    if not found:
        there = dict.fromkeys(
            node.name for graph in graphs for node in graph.inputs if node.op == "input"
        )
        raise ValueError(
            f"no forward graph has an input {name!r}; inputs: {', '.join(there) or 'none'}"
        )
    return found


def assert_distinct_graphs(capture: Subject, count: int) -> None:
    """See `Capture.assert_distinct_graphs`."""
    __tracebackhide__ = True
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise TypeError(f"{count!r} is not a number of graphs: pass an int of at least 1")
    groups: list[list[Graph]] = []
    for graph in capture.graphs:
        same = next((group for group in groups if group[0] == graph), None)
        if same is None:
            groups.append([graph])
        else:
            same.append(graph)
    if len(groups) != count:
        lines = [f"distinct graphs: expected {count}, found {len(groups)}"]
        for group in groups:
            names = listed((graph.name for graph in group), 8)
            inputs = ", ".join(_input_words(group[0])[:6])
            lines.append(f"  {group[0].kind} of {len(group[0].nodes)} nodes: {names}")
            lines.append(f"      {inputs}")
        raise AssertionError("\n".join(lines))


def _input_words(graph: Graph) -> list[str]:
    words = []
    for node in graph.inputs:
        if node.op == "input" and isinstance(node.result, TensorMeta):
            sizes = ", ".join(
                size.expr if isinstance(size, Symbol) else str(size) for size in node.result.shape
            )
            words.append(f"{node.name} [{sizes}]")
    return words


_UNKNOWN = (
    "Ops that ran at a graph break are in no graph, so they are unknown. Remove the break, capture "
    "via='dispatch', or tolerate it with allow="
)
_UNKNOWN_BUT_OPS = (
    "Ops that ran at a graph break were checked, but calls of tolist, cpu and print there, and "
    "other threads, were not. Remove the break, capture via='dispatch', or tolerate it with "
    "allow="
)
_IN_THREADS = (
    "Other threads are not recorded: run this code in the main thread, or tolerate it with allow="
)


def assert_no_syncs(capture: Subject, allow: str | Sequence[str]) -> None:
    """See `Capture.assert_no_syncs`."""
    __tracebackhide__ = True
    _assert_none("host syncs", capture, capture.syncs, allow)


def assert_no_transfers(capture: Subject, allow: str | Sequence[str]) -> None:
    """See `Capture.assert_no_transfers`."""
    __tracebackhide__ = True
    _assert_none("transfers between devices", capture, capture.transfers, allow)


def _assert_none(
    kind: str,
    capture: Subject,
    found: Sequence[Sync | Transfer],
    allow: str | Sequence[str],
) -> None:
    __tracebackhide__ = True
    allowed = patterns(allow)
    wrong = [each for each in found if not allows(allowed, str(each))]
    if wrong:
        tolerated = len(found) - len(wrong)
        certain = sum(each.certain for each in wrong)
        unknown = len(wrong) - certain
        some = f"{certain} certain and {unknown} possible" if unknown else f"{certain}"
        head = f"{kind}: expected none, found {some}"
        head += f" ({tolerated} more are allowed)" if tolerated else ""
        lines = [_shown(number, each) for number, each in enumerate(wrong, 1)]
        at_breaks = _UNKNOWN_BUT_OPS if capture.watched is None else _UNKNOWN
        unseen = [each for each in wrong if not each.certain]
        lines += [at_breaks] * any(each.op != STARTS for each in unseen)
        lines += [_IN_THREADS] * any(each.op == STARTS for each in unseen)
        raise AssertionError("\n".join([head, *lines]))
    need_graphs(capture, unreported=True)


def _shown(number: int, each: Sync | Transfer) -> str:
    if not each.certain:
        how = f"{THREADS if each.op == STARTS else BREAKS}: {each.op}"
    elif isinstance(each, Transfer):
        waits = "" if each.blocking else " (Python does not wait)"
        how = f"from {each.source} to {each.target}: {each.op} ({each.seen}){waits}"
    else:
        how = f"{each.kind}: {each.op} ({each.seen})"
    place = str(each).partition("\n")[0]
    lines = [f"  {number}. {place}", f"     {how}"]
    if each.module and each.file:
        lines.append(f"     module {each.module}")
    if each.occurrences > 1:
        lines.append(f"     {each.occurrences} times")
    return "\n".join(lines)
