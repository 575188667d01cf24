"""What a program has beside its graphs: eager ops, graph breaks, and the schedule of collectives.

How one is read from what Dynamo reports is in `watching.breaks`.
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
    """One run of one op, outside of every compiled graph.

    Attributes:
        op: its qualified name, as in a `Node`.
        graph: name of the eager graph that has it.
        module: path of the module that was running, "" at the top.
        source: the user's line; in a backward that of the forward op it is for. None where none is
            known.
        by_engine: whether the autograd engine ran it to pass gradients on between compiled graphs:
            a zero for an output that nothing used, the sum of several gradients, the way back
            through an output that AOTAutograd made a view of.
        follows: in a backward, the op of the forward that it is for; None where none is known, and
            for an op of a line of its own, as in a hook.
        cause: the graph break or skipped frame because of which it is in no compiled graph; None
            where none is known.
    """

    op: str
    graph: str
    module: str = ""
    source: Source | None = None
    by_engine: bool = False
    follows: EagerOp | None = None
    cause: GraphBreak | None = None


class StackFrame(NamedTuple):
    """One frame of the stack at a break, outermost first.

    Attributes:
        file: relative to pytest's rootdir, or to the directory on the import path that has it.
        line: its number.
        function: name of the function.
        code: the line itself.
    """

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.code}"


@dataclass(frozen=True)
class GraphBreak:
    """A place at which a graph ended early, or a frame that Dynamo left to the interpreter.

    Attributes:
        kind: Dynamo's class of breaks, as in its registry; `frame skipped: ...` where the rest of
            the function was not compiled, or nothing of it, because Dynamo cannot resume there.
        reason: Dynamo's explanation.
        hint: what Dynamo advises, "" where it has no advice.
        file, line: the innermost frame outside torch and the standard library; the file is relative
            to pytest's rootdir, or to the directory on the import path that has it.
        code: the line itself.
        function: name of the function that the line is in.
        stack: the frames outside torch, the standard library and pytest, outermost first.
        module: path of the module whose code it is, as it is called from the function that Dynamo
            compiled: `layers.0` in the `forward` of a model, `model.layers.0` in a function that
            calls `model`. "" for the module that was compiled itself, for code of no module, and
            for a module called behind another break, of which Dynamo knows no name.
        compile_id: of the compilation that met it first.
        occurrences: how often it was met: again inside a caller, and at each recompilation.
        path: the file as Dynamo names it.
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
        group: as `Collective.group`, "" where the code does not say it.
        node: name of the node that it runs, "" where that is not known.
        distance: how many kernels and library calls are launched between its start and its wait;
            None where there is no wait.
        overlap: those of them that compute, by name.
    """

    op: str
    group: str
    node: str
    distance: int | None
    overlap: tuple[str, ...] = ()


def in_schedule(
    found: Iterable[Collective], calls: Sequence[ScheduledCall]
) -> tuple[Collective, ...]:
    """The collectives of a graph in the order of its code, with the distances in there.

    One that is not recognised in the code comes last, and of it no distance is known: none is lost.

    Args:
        found: the collectives, in the order of the graph.
        calls: what its code runs.
    """
    parts: dict[int, list[Collective]] = {}  # one op may be several sends and receives
    for each in found:
        parts.setdefault(id(each.node), []).append(each)
    left = list(parts.values())
    known = {call.node for call in calls if call.node}
    placed: list[Collective] = []
    for call in calls:
        fitting = [each for each in left if _fits(each[0], call, known)]
        if fitting:
            left = [each for each in left if each is not fitting[0]]
            placed += (
                replace(each, distance=call.distance, overlap=call.overlap) for each in fitting[0]
            )
    lost = (replace(each, distance=None, overlap=()) for several in left for each in several)
    return (*placed, *lost)


def _fits(each: Collective, call: ScheduledCall, known: set[str]) -> bool:
    if call.node:
        return each.node.name == call.node
    return (
        each.node.name not in known
        and packet_of(each.node.op) == packet_of(call.op)
        and call.group in ("", each.group)
    )
