"""Events of a program besides its graphs: eager ops, graph breaks, and the schedule of collectives.

`watching.breaks` reads graph breaks from Dynamo's reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..ops.collectives import packet_of
from .collectives import Collective

if TYPE_CHECKING:
    from .model import Source


class EagerOp(NamedTuple):
    """One run of one op outside every compiled graph.

    Attributes:
        op: its qualified name, as in a `Node`.
        graph: name of its eager graph.
        module: path of the running module, "" at the top level.
        source: the user's line; in a backward, the line of the corresponding forward op. `None` if
            unknown.
        by_engine: True if the autograd engine ran it to pass gradients between compiled
            graphs: a zero
            for an unused output, the sum of several gradients, the backward of an output that
            AOTAutograd made a view.
        follows: in a backward, the corresponding forward op; `None` if unknown, and for an
            op with a
            source line of its own, as in a hook.
        cause: graph break or skipped frame that kept it out of every compiled graph; `None` if
            unknown.
    """

    op: str
    graph: str
    module: str = ""
    source: Source | None = None
    by_engine: bool = False
    follows: EagerOp | None = None
    cause: GraphBreak | None = None


class StackFrame(NamedTuple):
    """One frame of the stack at a graph break, outermost first.

    Attributes:
        file: relative to pytest's rootdir, or to the directory on the import path that contains it.
        line: line number.
        function: name of the function.
        code: source text of the line.
    """

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.code}"


@dataclass(frozen=True)
class GraphBreak:
    """A place where a graph ended early, or a frame that Dynamo did not compile.

    Attributes:
        kind: Dynamo's class of graph breaks, as in its registry; `frame skipped: ...` if
            the rest of
            the function, or all of it, was not compiled, because Dynamo cannot resume there.
        reason: Dynamo's explanation.
        hint: Dynamo's advice, "" if it has none.
        file, line: innermost frame outside torch and the standard library; the file is relative to
            pytest's rootdir, or to the directory on the import path that contains it.
        code: source text of the line.
        function: name of the function that contains the line.
        stack: frames outside torch, the standard library and pytest, outermost first.
        module: path of the module that contains the code, as called from the compiled function:
            `layers.0` in the `forward` of a model, `model.layers.0` in a function that
            calls `model`.
            "" for the compiled module itself, for code outside every module, and for a
            module called
            after another graph break, whose name Dynamo does not know.
        compile_id: id of the compilation that met it first.
        occurrences: number of times it was met: again inside a caller, and at each recompilation.
        path: the file as named by Dynamo.
    """

    kind: str
    reason: str
    hint: str
    file: str
    line: int
    code: str
    function: str
    stack: tuple[StackFrame, ...]
    module: str
    compile_id: str
    occurrences: int = 1
    path: str = ""

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line} in {self.function}: {self.code}\n{self.kind}: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A collective as generated code runs it.

    Attributes:
        op: its qualified name.
        group: as `Collective.group`, "" if the code does not record it.
        node: name of the node that it runs, "" if unknown.
        distance: number of kernels and library calls launched between its start and its
            wait; `None`
            if there is no wait.
        overlap: names of the launches that compute.
    """

    op: str
    group: str
    node: str
    distance: int | None
    overlap: tuple[str, ...] = ()


def in_schedule(
    collectives: Iterable[Collective], calls: Sequence[ScheduledCall]
) -> tuple[Collective, ...]:
    """Return the collectives of a graph in the order of its code, with the distances in the code.

    Collectives that are not recognised in the code come last, without a distance; none is dropped.

    Args:
        collectives: collectives in the order of the graph.
        calls: calls of the generated code.
    """
    parts: dict[int, list[Collective]] = {}  # one op may be several sends and receives
    for collective in collectives:
        parts.setdefault(id(collective.node), []).append(collective)
    remaining = list(parts.values())
    known_groups = {call.node for call in calls if call.node}
    placed: list[Collective] = []
    for call in calls:
        fitting = [
            collective for collective in remaining if _fits(collective[0], call, known_groups)
        ]
        if fitting:
            remaining = [collective for collective in remaining if collective is not fitting[0]]
            placed += (
                replace(collective, distance=call.distance, overlap=call.overlap)
                for collective in fitting[0]
            )
    lost = (
        replace(collective, distance=None, overlap=())
        for several in remaining
        for collective in several
    )
    return (*placed, *lost)


def _fits(collective: Collective, call: ScheduledCall, known_groups: set[str]) -> bool:
    if call.node:
        return collective.node.name == call.node
    return (
        collective.node.name not in known_groups
        and packet_of(collective.node.op) == packet_of(call.op)
        and call.group in ("", collective.group)
    )
