"""`EagerOp`: an op that ran outside of every compiled graph, as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .graph_break import GraphBreak
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
