"""Events of a program besides its graphs: eager ops, graph breaks, and the schedule of collectives.

`watching.breaks` reads graph breaks from Dynamo's reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..ops.collectives import packet_of
from ..words import grouped
from .collectives import Collective

if TYPE_CHECKING:
    from .model import Node, Source


class EagerOp(NamedTuple):
    """One run of one op outside every compiled graph.

    Attributes:
        op: qualified name of the op, as in a `Node`.
        graph: name of the eager graph.
        module: path of the running module, "" at the top level.
        source: the user's line; in a backward, the line of the corresponding forward op. `None` if
            unknown.
        by_engine: True if the autograd engine ran the op to pass gradients between compiled graphs:
            a zero for an unused output, the sum of several gradients, or the backward of an output
            that AOTAutograd made a view.
        follows: in a backward, the corresponding forward op; `None` if unknown, or if the op has
            its own source line, for example in a hook.
        cause: graph break or skipped frame that kept the op out of every compiled graph; `None` if
            unknown.
        reads_step_count: True if the op reads a step count that an optimizer keeps on the CPU.
    """

    op: str
    graph: str
    module: str = ""
    source: Source | None = None
    by_engine: bool = False
    follows: EagerOp | None = None
    cause: GraphBreak | None = None
    reads_step_count: bool = False


SKIPPED = "frame skipped: "
"""Prefix of the kind of a break after which Dynamo cannot resume. At least the rest of the function
after an earlier point, or the whole function, is not compiled."""


class StackFrame(NamedTuple):
    """One frame of the stack at a graph break.

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
        kind: Dynamo's class of graph breaks, as in Dynamo's registry. `frame skipped: ...` if
            Dynamo cannot resume after the break, so that the rest of the function, or all of it,
            was not compiled.
        reason: Dynamo's explanation.
        hint: Dynamo's advice, "" if it has none.
        file, line: place in the innermost frame outside torch and the standard library. The file is
            relative to pytest's rootdir, or to the directory on the import path that contains it.
        code: source text of the line.
        function: name of the function that contains the line.
        stack: frames outside torch, the standard library and pytest, outermost first.
        module: path of the module that contains the code, as called from the compiled function:
            `layers.0` in the `forward` of a model, `model.layers.0` in a function that calls
            `model`. "" for the compiled module itself, and for code outside every module. Also ""
            for a module called after another graph break, because Dynamo does not know its name.
        compile_id: id of the first compilation with the break.
        occurrences: how often Dynamo met the break. Compiling a caller or recompiling meets it
            again. The sum over all breaks is what torch counts in
            `torch._dynamo.utils.counters["graph_break"]`, plus all frames that Dynamo skipped,
            wholly or from a break on (`frame skipped: ...`), which this counter omits.
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
    """A collective in generated code.

    Attributes:
        op: qualified name of the op.
        group: see `Collective.group`; "" if the code does not record it.
        node: name of the node that the code runs; "" if unknown.
        distance: number of kernels and library calls launched between start and wait; `None` if
            there is no wait.
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

    Collectives that are not recognised in the code come last, without a distance.

    Args:
        collectives: collectives in the order of the graph.
        calls: calls of the generated code.
    """
    # A single op can be several sends and receives, which stay together.
    by_node = grouped((id(collective.node), collective) for collective in collectives)
    named_nodes = {call.node for call in calls if call.node}
    placed: list[Collective] = []
    for call in calls:
        fitting = (key for key, parts in by_node.items() if _fits(parts[0], call, named_nodes))
        placed += (
            replace(collective, distance=call.distance, overlap=call.overlap)
            for collective in by_node.pop(next(fitting, 0), ())  # 0 is the `id` of no node
        )
    unplaced = (collective for parts in by_node.values() for collective in parts)
    return *placed, *(replace(collective, distance=None, overlap=()) for collective in unplaced)


def _fits(collective: Collective, call: ScheduledCall, named_nodes: set[str]) -> bool:
    """Return True if a call can be the collective: by the node's name, or else by op and group.

    Args:
        named_nodes: nodes that some call names. A call without a name cannot be one of them.
    """
    if call.node:
        return collective.node.name == call.node
    return (
        collective.node.name not in named_nodes
        and packet_of(collective.node.op) == packet_of(call.op)
        and call.group in ("", collective.group)
    )


class UpdatedParameter(NamedTuple):
    """What a training step did to a parameter that requires a gradient.

    Attributes:
        name: name of the parameter.
        got_gradient: whether a backward of the step made or changed its gradient.
        is_held: whether a named optimizer holds it.
        writes: the lines of the writes by the update, one for each step of an optimizer.
        stale: the line of a backward that added to a gradient from before the step, or `None`.
    """

    name: str
    got_gradient: bool
    is_held: bool
    writes: tuple[Source | None, ...]
    stale: Source | None


@dataclass(frozen=True)
class Frozen:
    """A number that changes from step to step, and is a constant of a compiled graph.

    Attributes:
        name: name of the number, such as `optimizer.param_groups.0.lr`; of the first one that
            explains the constant, or of the first one that changes; a text if none does.
        value, next_value: the number in this step and in the next one.
        graph: name of the graph.
        node: the op with the constant.
        source: the user's line of the op, `None` if unknown.
    """

    name: str
    value: float
    next_value: float
    graph: str
    node: Node
    source: Source | None

    def __str__(self) -> str:
        place = "" if self.source is None else f" at {self.source}: {self.source.code}"
        return (
            f"{self.name} ({self.value:g}, then {self.next_value:g}) is a constant of "
            f"{self.node.op} in {self.graph}{place}"
        )
