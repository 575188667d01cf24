"""When the code that inductor wrote for a graph starts collectives, and when it waits for them.

Inductor orders what it launches after the last pass over the graph: to overlap collectives with
computation (`reorder_for_compute_comm_overlap`), and to need less memory. Its code has the result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..graph.schedule import ScheduledCall
from ..ops.collectives import WAITS, is_functional
from .kernels import Origin, places
from .output_code import LibraryCall, dotted, follow

_OPS = "torch.ops."


@dataclass
class _Run:
    """One run of a collective.

    Attributes:
        call: the place in the code.
        group: torch's name of its group, "" where the code does not say it.
        start: how many launches there were before.
        wait: how many there were when it is first waited for, None where it is not.
    """

    call: LibraryCall
    group: str
    start: int
    wait: int | None = None


def schedule_of(
    code: str, origins: Iterable[Origin] = (), groups: Mapping[str, str] | None = None
) -> list[ScheduledCall]:
    """The collectives of inductor's code for a graph, in the order in which they are started.

    One that runs several times, in a body that several calls share, is there once: with the run
    that computes least meanwhile.

    Args:
        code: the Python module that inductor wrote.
        origins: what the launches compute, in the order in which inductor wrote them.
        groups: names of process groups by torch's names of them.

    Raises:
        UnreadableCodeError: for code of another kind, such as that of the C++ wrapper.
    """
    reader = follow(code)
    nodes = {
        id(each): next((origin.collective for origin in found), "")
        for each, found in zip(reader.launched, places(reader.launched, origins), strict=True)
    }
    launched: list[tuple[str, bool]] = []  # name, and whether it computes
    runs: list[_Run] = []
    pending: dict[str, _Run] = {}  # by variable
    values: dict[ast.expr, _Run | None] = {}
    for node, launch in reader.executed:
        if isinstance(node, ast.Assign):
            run = values[node.value] if node.value in values else _held(node.value, pending)
            for name in _names(*node.targets):
                pending.pop(name, None)
                if run is not None:
                    pending[name] = run
        elif dotted(node.func, reader.scope.aliases).removeprefix(_OPS) in WAITS:
            run = _held(node, pending)
            if run is not None and run.wait is None:
                run.wait = len(launched)
        elif launch is not None:
            sends = isinstance(launch, LibraryCall) and (
                is_functional(launch.op) or bool(nodes[id(launch)])
            )
            values[node] = None
            if isinstance(launch, LibraryCall) and sends:
                values[node] = run = _Run(launch, _last_text(node), len(launched))
                runs.append(run)
                if launch.op.split(".")[1].endswith(("_", "_out")):
                    pending.update((name, run) for name in _written(node))
            launched.append((launch.name, not sends))
    by_call: dict[int, list[ScheduledCall]] = {}
    for run in runs:
        between = [] if run.wait is None else launched[run.start + 1 : run.wait]
        by_call.setdefault(id(run.call), []).append(
            ScheduledCall(
                run.call.op,
                (groups or {}).get(run.group, ""),
                nodes[id(run.call)],
                None if run.wait is None else len(between),
                tuple(name for name, computes in between if computes),
            )
        )
    return [min(each, key=lambda call: len(call.overlap)) for each in by_call.values()]


def _names(*nodes: ast.expr) -> Iterator[str]:
    """The variables in expressions."""
    for node in nodes:
        yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _held(value: ast.expr, pending: Mapping[str, _Run]) -> _Run | None:
    """The run whose result a value is, or is a view or a part of."""
    return next((pending[name] for name in _names(value) if name in pending), None)


def _written(call: ast.Call) -> Iterator[str]:
    """The variables that a collective writes into: its `out`, else its first argument."""
    out = [each.value for each in call.keywords if each.arg == "out"]
    return _names(*(out or call.args[:1]))


def _last_text(call: ast.Call) -> str:
    """The last text among the arguments: of a collective, torch's name of its group."""
    given = [*call.args, *(each.value for each in call.keywords)]
    texts = [each.value for each in given if isinstance(each, ast.Constant)]
    return next((text for text in reversed(texts) if isinstance(text, str)), "")
