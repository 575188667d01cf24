"""Assertions on the recomputed ops of a backward and the saved values of a forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import CaptureError
from ..graph.census import OpCall
from ..graph.checks import bounds, format_bounds, need_a_limit
from ..graph.cost import (
    KeptStorage,
    Recomputed,
    StepStorages,
    kept,
    need_backward,
    producer_of,
    total_flops,
)
from ..graph.diff import abridged
from ..graph.find import find_calls
from ..graph.higher_order import executed
from ..graph.model import Graph, Node, phase_of
from ..graph.select import inside, selection
from ..graph.step import joined
from ..ops.impossible import pattern_name
from ..ops.matching import matches
from ..words import amount, first_lines

MOST = 8
"""Maximum number of places in a failure message."""

_BY = {
    "checkpoint": "recomputed by a checkpoint",
    "partitioner": "recomputed by torch.compile's partitioner",
    "function": "recomputed by the backward of an autograd.Function or by a hook",
    "": "recomputed for an unknown reason, because the capture was loaded from a file",
}
_NO_REASONS = (
    "The file does not store why an op is recomputed, so ops that autograd's formulas recompute "
    "are counted too."
)


def assert_recomputed(
    graphs: Sequence[Graph],
    entries: Sequence[Recomputed],
    expected: Mapping[Any, Any],
    module: str | None,
    exact: bool,
    device: str,
) -> None:
    """See `Capture.assert_recomputed`."""
    if not isinstance(expected, Mapping):
        raise TypeError(f"expected a mapping from op to count, not {type(expected).__name__}")
    if not expected and not exact:
        raise TypeError("assert_recomputed({}) checks nothing: name at least one op")
    limits = {op: bounds(count, device) for op, count in expected.items()}
    if not exact:
        need_a_limit("assert_recomputed", limits.values())
    # A step that is divided into several graphs is checked as a whole, as the entries are.
    graphs = joined(graphs).graphs
    entries_of_module = _entries_of_module(graphs, entries, module)
    problems: list[str] = []
    for op, (low, high) in limits.items():
        _calls(graphs, op)  # raises for patterns that cannot match anything
        matched = [entry for entry in entries_of_module if matches(entry.op, pattern_name(op))]
        count = _total_times(matched)
        if count < low or (high is not None and count > high):
            problems.append(
                f"  {pattern_name(op)}: expected {format_bounds(low, high)}, found {count}"
            )
            problems += _places(matched)
    if exact:
        patterns = [pattern_name(op) for op in expected]
        unmatched = [
            entry for entry in entries_of_module if not any(matches(entry.op, p) for p in patterns)
        ]
        if unmatched:
            problems.append(f"  ops that match no pattern (exact=True): {_total_times(unmatched)}")
            problems += _places(unmatched)
    if problems:
        title = f"ops recomputed in the backward differ{_in_module(module)}:"
        counts: Counter[str] = Counter()
        for entry in entries_of_module:
            counts[entry.op] += entry.times
        count_lines = [f"  {count:4} {op}" for op, count in counts.most_common()] or ["  nothing"]
        lines = [title, *problems, "recomputed:", *count_lines, *_notes(entries)]
        raise AssertionError("\n".join(lines))


def assert_not_recomputed(
    graphs: Sequence[Graph],
    entries: Sequence[Recomputed],
    ops: Sequence[Any],
    module: str | None,
) -> None:
    """See `Capture.assert_not_recomputed`."""
    _need_ops("assert_not_recomputed", ops, module)
    graphs = joined(graphs).graphs
    _need_op_calls(graphs, ops, module, "so the backward cannot recompute it")
    patterns = [pattern_name(op) for op in ops] or ["*"]
    unexpected = [
        entry
        for entry in _entries_of_module(graphs, entries, module)
        if any(matches(entry.op, pattern) for pattern in patterns)
    ]
    if unexpected:
        expectation = f"none of {', '.join(patterns)}" if ops else "nothing"
        location = f"the backward{_in_module(module)}"
        lines = [
            f"unexpected recomputation in {location}: expected {expectation}, "
            f"found {_total_times(unexpected)}{_format_share(unexpected, graphs)}",
            *_places(unexpected),
        ]
        modules = {entry.original.module for entry in unexpected}
        saved_ops = Counter(_op_of(s) for s in kept(graphs) if s.node.module in modules)
        saved_texts = [
            f"{op} ({count} times)" if count > 1 else op for op, count in saved_ops.most_common()
        ]
        lines.append(
            "  already saved for the backward in the same modules: "
            f"{', '.join(saved_texts[:MOST]) or 'nothing'}"
        )
        if any(entry.by == "checkpoint" for entry in unexpected):
            lines.append(
                "  To save an op instead, name it in "
                "torch.utils.checkpoint.create_selective_checkpoint_contexts."
            )
        raise AssertionError("\n".join([*lines, *_notes(entries)]))


def assert_saved(graphs: Sequence[Graph], ops: Sequence[Any], module: str | None) -> None:
    """See `Capture.assert_saved`."""
    _need_ops("assert_saved", ops, module)
    need_backward(graphs)
    graphs = joined(graphs).graphs
    _need_op_calls(graphs, ops, module, "so there is nothing to save")
    saved = {(id(s.graph), s.node.name) for s in kept(graphs)}
    results = _produced_storages(graphs, ops, module)
    missing = [node for key, node in results.items() if key not in saved]
    if missing:
        ops_text = ", ".join(map(pattern_name, ops)) or "every op"
        lines = [
            f"expected every result of {ops_text}{_in_module(module)} to be saved for the "
            f"backward, but {len(missing)} {'is' if len(missing) == 1 else 'are'} not saved:",
            *_lines((node, node.op, 1, "") for node in missing),
        ]
        raise AssertionError("\n".join(lines))


def assert_not_saved(
    graphs: Sequence[Graph], ops: Sequence[Any], module: str | None, max_bytes: int
) -> None:
    """See `Capture.assert_not_saved`."""
    _need_ops("assert_not_saved", ops, module)
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
        raise ValueError(
            f"max_bytes={max_bytes!r} is not a valid number of bytes: pass an int of at least 0"
        )
    need_backward(graphs)
    graphs = joined(graphs).graphs
    _need_op_calls(graphs, ops, module, "so there is nothing to save")
    results = _produced_storages(graphs, ops, module)
    saved_values = [s for s in kept(graphs) if (id(s.graph), s.node.name) in results]
    size = sum(saved_value.bytes for saved_value in saved_values)
    if size > max_bytes:
        ops_text = ", ".join(map(pattern_name, ops)) or "any op"
        largest = sorted(saved_values, key=lambda saved_value: -saved_value.bytes)
        lines = [
            f"saved for the backward{_in_module(module)}: expected at most "
            f"{amount(max_bytes, 'B')} of {ops_text}, found {amount(size, 'B')}:",
            *_lines(
                (saved_value.node, _op_of(saved_value), 1, saved_value.bytes)
                for saved_value in largest
            ),
        ]
        raise AssertionError("\n".join(lines))


def flops_of(entries: Iterable[Recomputed]) -> int:
    """Return the FLOPs of all recomputed ops, without ops that autograd's formulas run again.

    Raises:
        CaptureError: if the FLOPs of an op are unknown.
    """
    total = 0
    for entry in entries:
        if entry.counts:  # False for an op that autograd's formulas run again
            if entry.cost.flops is None:
                raise CaptureError(
                    f"recomputed FLOPs are unknown: torch has no formula for {entry.op}, or a size "
                    f"of %{entry.node.name} is symbolic. Register a formula with "
                    "torch.utils.flop_counter.register_flop_formula, or capture with fixed sizes"
                )
            total += entry.cost.flops
    return total


def limit_in_flops(limit: Any, graphs: Sequence[Graph]) -> Any:
    """Convert a limit to FLOPs. A percentage such as `"10%"` is a share of the forward's FLOPs.

    Raises:
        AssertionError: if the forward has no FLOPs.
        ValueError: if a text is not a percentage.
    """
    if isinstance(limit, tuple | list):
        return type(limit)(limit_in_flops(element, graphs) for element in limit)
    if isinstance(limit, Mapping):
        return {device: limit_in_flops(element, graphs) for device, element in limit.items()}
    if not isinstance(limit, str):
        return limit
    try:
        # -1 stands for a text that is no percentage.
        share = float(limit.removesuffix("%")) if limit.endswith("%") else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise ValueError(
            f'{limit!r} is not a valid limit: pass a percentage such as "10%", or a number of FLOPs'
        )
    forward = _forward_flops(graphs)
    if not forward:
        raise AssertionError(
            f"recomputed_flops={limit!r}: the forward has no FLOPs to take a share of. Pass a "
            "number, or use assert_not_recomputed"
        )
    return int(forward * share / 100)


# -- selecting entries and ops ---------------------------------------------------------------------


def _forwards(graphs: Sequence[Graph]) -> list[Graph]:
    return [graph for graph in graphs if phase_of(graph) == "forward"]


def _forward_flops(graphs: Sequence[Graph]) -> int:
    return total_flops(_forwards(graphs), times_run=True, unknown="ignore")


def _entries_of_module(
    graphs: Sequence[Graph], entries: Sequence[Recomputed], module: str | None
) -> list[Recomputed]:
    """Return the entries with `counts` set, restricted to `module` if given."""
    selected = selection(_forwards(graphs), None, module)  # refuses a module without an op
    return [
        entry
        for entry in entries
        if entry.counts and (not selected.module or inside(entry.original.module, selected.module))
    ]


def _need_ops(name: str, ops: Sequence[Any], module: str | None) -> None:
    """Refuse a call that names neither an op nor a module."""
    if not ops and module is None:
        raise TypeError(f"{name}() checks nothing: pass an op, or module=")


def _calls(graphs: Sequence[Graph], op: Any, module: str | None = None) -> list[OpCall]:
    """Return the forward calls whose op matches a pattern.

    Raises:
        CaptureError: if a call is inside a higher-order op, whose saved and recomputed values are
            unknown.
        ValueError: if the pattern cannot match anything, or the module has no op.
    """
    forwards = _forwards(graphs)
    calls = find_calls(forwards, op, selection(forwards, None, module))
    for call in calls:
        # The graph of a body is none of the forwards.
        if not any(call.graph is graph for graph in forwards):
            raise CaptureError(
                f"{call.op} runs inside a higher-order op ({call.graph.name}), where saved and "
                "recomputed values are unknown: select other modules with module=..., or, for ops "
                "without control flow, capture via 'dispatch'"
            )
    return calls


def _need_op_calls(
    graphs: Sequence[Graph], ops: Sequence[Any], module: str | None, consequence: str
) -> None:
    """Fail if the forward runs none of the ops, because the check would be vacuous."""
    # Looks up every op, because `_calls` raises for a pattern that cannot match anything.
    calls_of_ops = [_calls(graphs, op, module) for op in ops or ["*"]]
    if not any(calls_of_ops):
        ops_text = ", ".join(map(pattern_name, ops)) or "any op"
        raise AssertionError(
            f"the forward does not run {ops_text}{_in_module(module)}, {consequence}"
        )


def _produced_storages(
    graphs: Sequence[Graph], ops: Sequence[Any], module: str | None
) -> dict[tuple[int, str], Node]:
    """Map each storage that forward calls produce, as (graph id, node name), to one result.

    For an op with several results, only used results count. Views of inputs and parameters have no
    storage of their own.

    Raises:
        AssertionError: if there are no storages, because the check would be vacuous.
    """
    storages = StepStorages(graphs)
    calls = [call for op in ops or ["*"] for call in _calls(graphs, op, module)]
    wanted_results = {(id(call.graph), call.node.name) for call in calls}
    storages_found: dict[tuple[int, str], Node] = {}
    for graph in _forwards(graphs):
        # The op of each projection. This op is left out, because its projections are the results.
        producers = {node.name: producer_of(graph, node) for node in graph.nodes if node.is_call}
        producers_of_results = {
            producer.name for producer in producers.values() if producer is not None
        }
        for name, producer in producers.items():
            producer_name = name if producer is None else producer.name
            if (id(graph), producer_name) in wanted_results and name not in producers_of_results:
                # The node whose memory the result uses; for a view its base, perhaps an input.
                base_graph, owner = storages.bases(graph)[name]
                if owner.is_call:
                    storages_found.setdefault((id(base_graph), owner.name), graph.by_name[name])
    if not storages_found:
        ops_text = ", ".join(map(pattern_name, ops)) or "every op"
        raise AssertionError(
            f"nothing to check, because {ops_text}{_in_module(module)} only returned views of "
            "inputs or parameters, which use no memory of their own: name an op that computes"
        )
    return storages_found


# -- texts of messages -----------------------------------------------------------------------------


def _total_times(entries: Iterable[Recomputed]) -> int:
    return sum(entry.times for entry in entries)


def _in_module(module: str | None) -> str:
    return "" if module is None else f" (in module {module!r})"


def _op_of(saved_value: KeptStorage) -> str:
    """Return the op that computed a saved value."""
    return executed(producer_of(saved_value.graph, saved_value.node) or saved_value.node).op


def _format_share(entries: Sequence[Recomputed], graphs: Sequence[Graph]) -> str:
    """Return the FLOPs of recomputed ops for a message, "" if none are known."""
    flops = sum(entry.cost.flops or 0 for entry in entries)
    forward = _forward_flops(graphs)
    if not flops or not forward:
        return ""
    return f" ({amount(flops, 'FLOP')}, {flops / forward:.1%} of the forward)"


def _notes(entries: Sequence[Recomputed]) -> list[str]:
    return [_NO_REASONS] if any(entry.by == "" for entry in entries) else []


def _places(entries: Sequence[Recomputed]) -> list[str]:
    return _lines((entry.original, entry.op, entry.times, _BY[entry.by]) for entry in entries)


def _lines(places: Iterable[tuple[Node, str, int, str | int]]) -> list[str]:
    """Return a line for each source line's ops, with their modules.

    Args:
        places: node, op, number of calls, and note or bytes of each call.
    """
    times: Counter[tuple[str, str, str | int]] = Counter()
    modules: dict[tuple[str, str, str | int], list[str]] = {}
    for node, op, count, note in places:
        source = f"  {node.source}: {node.source.code}" if node.source is not None else ""
        key = (op, source, note)
        times[key] += count
        modules.setdefault(key, []).append(node.module)
    lines = []
    for key, paths in modules.items():
        op, source, note = key
        modules_text = abridged(dict.fromkeys(filter(None, paths))) or "(no module)"
        if isinstance(note, int):
            note = amount(note, "B") + " each" * (times[key] > 1)
        # Notes stand before the source line, because after it they read as part of the code.
        notes = [f"{times[key]} times"] * (times[key] > 1) + [note] * bool(note)
        notes_text = f" ({', '.join(notes)})" if notes else ""
        lines.append(f"      {modules_text}: {op}{notes_text}{source}")
    return first_lines(lines, MOST, "place")
