"""Search for nodes whose op matches a pattern."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import CaptureError
from ..ops.collectives import calls_python, is_autograd_node
from ..ops.impossible import pattern_name, refuse_impossible
from ..ops.matching import ATEN_LEVELS, Level, matches
from ..ops.registry import matching as registered_ops
from ..words import listed
from .census import OpCall, calls, calls_of, hiding_calls
from .higher_order import HIGHER_ORDER, WRAPPERS
from .model import Graph, Node
from .select import Selection, tensors_of


def find(graphs: Sequence[Graph], op: Any, selected: Selection | None = None) -> tuple[Node, ...]:
    """Return the nodes whose op matches a pattern, in all graphs and their bodies, each once.

    Projections (see `model.is_projection`) and ops that wrap another op are usually left out. A
    pattern that matches no other call finds projections if it names `getitem`, and wrappers if it
    matches no other higher-order op.

    Args:
        op: see `ops.impossible.pattern_name`.
        selected: an additional filter of the nodes; `None` for no filter.

    Raises:
        CaptureError: if an op runs code outside every graph, or if the op cannot match at the level
            of some compiled graphs of a watch.
        ValueError: if no node matches, and no op at the level of the compiled graphs can match (of
            all graphs, if none is compiled). Also if `selected` filters by dtype or device, but no
            match has a tensor.
    """
    matching = find_calls(graphs, op, selected)
    return tuple({id(call.node): call.node for call in matching}.values())


def count(graphs: Sequence[Graph], op: Any, selected: Selection | None = None) -> int:
    """Return the number of runs of matching ops. `find` defines matches and errors."""
    return times(find_calls(graphs, op, selected), selected)


def times(op_calls: Sequence[OpCall], selected: Selection | None = None) -> int:
    """Return the number of runs of calls."""
    return sum(selected.times(call) if selected else call.times for call in op_calls)


def find_calls(graphs: Sequence[Graph], op: Any, selected: Selection | None) -> list[OpCall]:
    """Return the calls whose op matches a pattern; see `find`."""
    pattern = pattern_name(op)
    refuse_hidden(graphs, pattern)
    matching = list(calls_of(graphs, lambda op: matches(op, pattern)))
    if not matching and ("getitem" in pattern or _names_wrappers(pattern)):
        matching = [call for call in calls(graphs, uncounted=True) if matches(call.op, pattern)]
    compiled = [graph for graph in graphs if not graph.eager] or graphs
    levels = {graph.level for graph in compiled}
    if not matching:
        refuse_impossible(
            op,
            levels,
            traced=any(graph.classes for graph in graphs),  # a user's graph has no classes
            decomposed=any(graph.decomposed or graph.level == "post_grad" for graph in compiled),
        )
    if "dynamo" in levels and levels & ATEN_LEVELS:
        # In a watch, a backend without AOTAutograd leaves Dynamo's graphs beside aten graphs.
        _refuse_mixed(op, levels)
    if matching and selected and (selected.dtype or selected.device):
        _refuse_without_tensors(matching, op, selected)
    return [call for call in matching if call in selected] if selected else matching


def _refuse_mixed(op: Any, levels: Iterable[Level]) -> None:
    """Reject a pattern that can match at some of the levels only.

    Raises:
        CaptureError: if the graphs of another level may run the op under another name.
    """
    for level in sorted(levels):
        try:
            refuse_impossible(op, (level,), traced=True)
        except ValueError:
            raise CaptureError(
                f"the graphs have different levels ({listed(sorted(levels))}), and at level "
                f"{level!r}, {pattern_name(op)!r} has another name, if it occurs: select the "
                "functions of one level with capture.only(function=...)"
            ) from None


def _refuse_without_tensors(matching: Sequence[OpCall], op: Any, selected: Selection) -> None:
    """Reject a dtype or device filter for calls that neither return nor write a tensor.

    Raises:
        ValueError: if no call has a tensor, so that nothing could be selected.
    """
    if not any(tensors_of(call) for call in matching):
        raise ValueError(
            f"{selected} can match no {pattern_name(op)}, which neither returns nor writes a "
            "tensor: omit dtype= and device="
        )


def _names_wrappers(pattern: str) -> bool:
    """Return True if a pattern matches ops that wrap another op, and no other higher-order op."""
    names = {op for op in HIGHER_ORDER if matches(op, pattern)}
    return bool(names) and names <= WRAPPERS


def refuse_hidden(graphs: Sequence[Graph], pattern: str = "") -> None:
    """Reject graphs with a call that runs code outside every graph.

    Args:
        graphs: the graphs.
        pattern: the pattern that the user searches for. Python calls that match it are allowed, and
            nodes of autograd if it matches no registered op, which only such a node could run. ""
            allows all nodes of autograd.

    Raises:
        CaptureError: with the op and its place.
    """
    for graph, node, op in hiding_calls(graphs):
        is_node = is_autograd_node(op)
        if is_node:
            is_allowed = not registered_ops(pattern)
        else:
            is_allowed = matches(op, pattern) and calls_python(op)
        if is_allowed:
            continue
        location = f" ({node.source})" if node.source is not None else ""
        problem = "is a node of autograd" if is_node else "calls code that is not traced"
        is_traced_later = is_node or calls_python(op)
        remedy = "via 'aot' or 'dispatch'" if is_traced_later else "the called function by itself"
        raise CaptureError(
            f"{graph.name} does not contain the ops that {op} runs, because %{node.name}{location} "
            f"{problem}: capture {remedy}"
        )
