"""What a capture costs: figures of all its graphs, from ops and shapes alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graph.cost.cost import Cost
    from ..graph.cost.recomputed import Recomputed
    from ..graph.cost.step import Received
    from ..graph.model import Graph


class Costs:
    """The figures; computed when they are asked for."""

    if TYPE_CHECKING:

        @property
        def program(self) -> tuple[Graph, ...]:
            """All graphs of the step."""
            ...

        def _need_whole(self) -> None:
            """Refuse a watch that has no graph, or in which graphs broke."""
            ...

        @property
        def _received(self) -> Received:
            """Which inputs of its compiled graphs others made."""
            ...

        @property
        def _split(self) -> tuple[Graph, ...]:
            """The graphs of the step as autograd or AOTAutograd made them."""
            ...

    @property
    def flops(self) -> int:
        """The floating-point operations of the step, by torch's formulas.

        All graphs of the `program` count, as often as they ran; of one loaded from a file compiled
        graphs count once.

        Raises:
            CaptureError: see `Graph.flops`; and of a watch in which graphs broke, for what runs
                between them is in none.
        """
        from ..graph.cost.flops import total

        self._need_whole()
        return total(self.program, times_run=True)

    @property
    def saved_bytes(self) -> int:
        """The bytes that the step keeps for its backward, as often as its graphs ran.

        Storages count once, and a view keeps that of its base; what parameters, buffers and inputs
        hold is left out. Values that are also outputs count. Via "dispatch" it is what eager
        autograd keeps and its backward reads (not what it keeps for a shape alone), via "aot" what
        the partitioned graphs keep, and what runs eagerly between them. A file and a
        watch do not say which inputs of a graph an earlier graph made: there they are left out.

        Raises:
            CaptureError: for a capture that does not know what is saved, as via "dynamo", or what
                runs between graphs that broke (see `flops`); and for a size that is a symbol.
        """
        from ..graph.cost.step import saved_bytes

        self._need_whole()
        return saved_bytes(self.program, self._received)

    @property
    def peak_bytes(self) -> int:
        """An estimate of the most bytes that the step's own tensors take at one time.

        Parameters, buffers and inputs do not count, nor does the workspace of kernels; see
        `pytest_torchgraph.graph.cost.peak` for when a tensor is taken to be freed.

        Raises:
            CaptureError: see `saved_bytes`.
        """
        from ..graph.cost.peak import peak_bytes

        self._need_whole()
        return peak_bytes(self.program, self._received)

    @property
    def recomputed(self) -> tuple[Recomputed, ...]:
        """The ops of the forward that the backward runs again, by checkpointing for instance.

        One entry for each op of the forward; `Recomputed.times` says how often, and `by` why. Views
        and values that depend on constants alone are left out. Via "inductor" it is what
        AOTAutograd's graphs say, before inductor's passes.

        That a recomputed dropout draws what the forward drew is taken for granted:
        `checkpoint(..., preserve_rng_state=False)` looks the same here. `assert_matches_eager`
        sees it.

        Raises:
            CaptureError: for a step without a backward; via "dynamo", "fx" and "export", whose
                graphs have none; of a stored capture via "inductor"; and as `flops`.
        """
        from ..graph.cost.recomputed import recomputed

        self._need_whole()
        return recomputed(self._split, self._received)

    @property
    def recomputed_flops(self) -> int:
        """The FLOPs of what the backward computes again, without autograd's own formulas.

        Raises:
            CaptureError: as `recomputed` and `flops`.
        """
        from ..checks.recomputation import flops_of

        return flops_of(self.recomputed)

    def cost_table(self, depth: int | None = None) -> str:
        """What the step costs as a table: a row for each module, with all that is below it.

        There are columns for the FLOPs of each direction, their sum, its share of the whole, and
        the bytes that are kept for the backward; the last is left out where that is not known. A
        last line names the ops that torch has no formula for, which count nothing.

        Args:
            depth: how many parts the path of a module has at most; None (the default) for any
                number.

        Raises:
            CaptureError: see `Graph.flops`.
            ValueError: for a depth that is none.
        """
        from ..graph.cost.table import format_cost_table

        return format_cost_table(self.program, self.by_module(depth), depth)

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

        self._need_whole()
        return by_module(self.program, depth, received=self._received)
