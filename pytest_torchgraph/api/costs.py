"""What a capture costs: figures of all its graphs, from ops and shapes alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graph.cost.cost import Cost
    from ..graph.model import Graph


class Costs:
    """The figures; computed when they are asked for."""

    if TYPE_CHECKING:

        @property
        def program(self) -> tuple[Graph, ...]:
            """All graphs of the step."""
            ...

    @property
    def flops(self) -> int:
        """The floating-point operations of the step, by torch's formulas.

        All graphs of the `program` count, as often as they ran; of one loaded from a file compiled
        graphs count once.

        Raises:
            CaptureError: see `Graph.flops`.
        """
        from ..graph.cost.flops import total

        return total(self.program, times_run=True)

    @property
    def saved_bytes(self) -> int:
        """The bytes that the step keeps for its backward, as often as its graphs ran.

        Storages count once, and a view keeps that of its base; what parameters, buffers and inputs
        hold is left out. Values that are also outputs count. Via "dispatch" it is what eager
        autograd keeps and its backward uses, via "aot" what the partitioned graphs keep.

        Raises:
            CaptureError: for a capture that does not know what is saved, as via "dynamo", and for a
                size that is a symbol.
        """
        from ..graph.cost.saved import saved_bytes

        return saved_bytes(self.program)

    @property
    def peak_bytes(self) -> int:
        """An estimate of the most bytes that the step's own tensors take at one time.

        Parameters, buffers and inputs do not count, nor does the workspace of kernels; see
        `graph.cost.peak` for when a tensor is taken to be freed.

        Raises:
            CaptureError: see `saved_bytes`.
        """
        from ..graph.cost.peak import peak_bytes

        return peak_bytes(self.program)

    def by_module(self, depth: int | None = None) -> Mapping[str, Cost]:
        """What the step costs, by the path of the module in which the ops are.

        Args:
            depth: how many parts of a path tell modules apart: 1 is one entry for each child of
                the model, with all below it; None the innermost modules, each without those below.

        Raises:
            CaptureError: see `Graph.flops`; ops without a formula are left out.
            ValueError: for a depth that is none.
        """
        from ..graph.cost.by_module import by_module

        return by_module(self.program, depth)
