"""What is known of a capture beside its graphs: what the compiler did, where Python waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import CaptureError
from .syncs import syncs_of, transfers_of

if TYPE_CHECKING:
    from ..graph.graph_break import GraphBreak
    from ..graph.model import Graph
    from ..syncs.model import Sync, Transfer
    from ..watching.cudagraphs import CudagraphSkip
    from ..watching.eager_calls import EagerCall
    from ..watching.recompiles import Recompile
    from ..watching.record import WatchRecord
    from .contents import Contents


class Observed:
    """The records of a capture; what was not recorded is an error, not a nothing."""

    if TYPE_CHECKING:
        via: str
        _contents: Contents

        @property
        def graphs(self) -> tuple[Graph, ...]:
            """The graphs, at the capture's level."""
            ...

    @property
    def watched(self) -> WatchRecord | None:
        """The record of a watch; None for a capture that was not made by one."""
        return self._contents.record if self._contents.is_watch else None

    def record(self, asked: str) -> WatchRecord:
        """The record of the compiler: compilations, graph breaks, recompilations, runs.

        Args:
            asked: what is asked for, for the message.

        Raises:
            CaptureError: if nothing went through torch.compile.
        """
        found = self._contents.record
        if found is None:
            raise CaptureError(
                f"a capture via {self.via!r} knows no {asked}: they are Dynamo's, so use "
                "via='aot', 'dynamo', 'inductor' or 'compiled_autograd', or graph_capture.watch()"
            )
        return found

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks, one for each distinct file, line and kind, in order.

        Also the frames that Dynamo skipped or gave up, whose kind says so. Where compiled autograd
        takes over at `loss.backward()`, which Dynamo reports as a break, there is none.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("graph breaks").breaks

    @property
    def eager_calls(self) -> tuple[EagerCall, ...]:
        """The calls of compiled callables that ran eagerly, one for each callable and reason.

        Every other call inside the watch ran compiled code or was compiled, or Dynamo found no
        tensor operation in it, or it raised.

        Raises:
            CaptureError: for a capture that was not made by `watch()` or `steady(...)`.
        """
        if not self._contents.is_watch:
            raise CaptureError(
                f"eager_calls is available on captures of watch() and steady(...), not via "
                f"{self.via!r}: capture.eager has what ran eagerly via 'aot', 'inductor', 'dynamo' "
                "and 'compiled_autograd'"
            )
        return self.record("calls").eager_calls

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """The recompilations, with the guards that had failed, in order.

        Also each capture of compiled autograd but the first.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("recompilations").recompiles

    @property
    def cudagraph_skips(self) -> tuple[CudagraphSkip, ...]:
        """The graphs that run without a CUDA graph though one was asked for, and torch's reasons.

        That is under `mode="reduce-overhead"` or `"max-autotune"`. On the CPU each graph is one,
        for which torch gives no reason.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("CUDA graphs").cudagraph_skips

    @property
    def executions(self) -> Mapping[str, int]:
        """How often each compiled graph ran, by compile id (`0/1`), what was compiled before too.

        The backward that AOTAutograd made of a graph is `0/1 backward`; the backward that compiled
        autograd captured is `!0`, and what Dynamo made of that `!0/2/0`.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("executions").executions

    @property
    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """The change of `torch._dynamo.utils.counters` meanwhile, by group.

        Raises:
            CaptureError: for a capture that did not go through torch.compile.
        """
        return self.record("counters").counters

    @property
    def syncs(self) -> tuple[Sync, ...]:
        """The places at which Python waits for the device, one for each line, op and cause.

        What would wait on another device counts on the CPU as well. A capture via `dispatch` knows
        each op that ran, and calls of `tolist`, `cpu` and `repr`; one through torch.compile the ops
        in its graphs and what breaks them, and each op that ran eagerly; a watch the former alone.
        Where code ran at a graph break of which not all is known, the place is there with
        `certain=False`. A watch knows nothing of code outside of compiled functions, and nobody of
        what an operator of one's own or a tensor subclass does inside.

        Raises:
            CaptureError: for a capture that cannot know.
        """
        return syncs_of(self._contents, self.via, self.graphs)

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The copies from one device to another, one for each line, op and pair of devices.

        What a CPU run does not copy is not there: `tensor.cpu()` of a tensor on the CPU is among
        the `syncs` alone, and `tensor.to(device)` of one that is on that device is nowhere.

        Raises:
            CaptureError: for a capture that cannot know.
        """
        return transfers_of(self._contents, self.via, self.graphs)
