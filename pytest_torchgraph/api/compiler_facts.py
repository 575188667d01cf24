"""What the compiler did in a capture, and where Python waits for the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import CaptureError
from .captured_graphs import CapturedGraphs

if TYPE_CHECKING:
    from ..syncs.found import Seen
    from ..syncs.model import Sync, Transfer
    from ..watching.breaks import GraphBreak
    from ..watching.cudagraphs import CudagraphSkip
    from ..watching.graphs import Graphs
    from ..watching.recompiles import Recompile
    from ..watching.record import Record


class CompilerFacts(CapturedGraphs):
    """What is known beside the graphs: the part of `Capture` that reads what the compiler did."""

    def record(self, asked: str) -> Record:
        """What was compiled and run, which is what is told of here.

        Args:
            asked: what is asked for, for the message.

        Raises:
            CaptureError: if nothing went through torch.compile.
        """
        found = self._record if self._read is None else self._read().record
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
    def recompiles(self) -> tuple[Recompile, ...]:
        """What was compiled again, with the guards that had failed, in order.

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

    # -- what waits for the device ----------------------------------------------------------------

    @property
    def syncs(self) -> tuple[Sync, ...]:
        """The places at which Python waits for the device, one for each line, op and cause.

        What would wait on another device counts on the CPU as well. A capture via `dispatch` knows
        each op that ran, and calls of `tolist`, `cpu` and `repr`; one through torch.compile the ops
        in its graphs and what breaks them. Where code ran at a graph break of which nobody knows
        what it does, the place is there with `certain=False`. A watch knows nothing of code outside
        of compiled functions, and nobody of what an operator of one's own or a tensor subclass does
        inside.

        Raises:
            CaptureError: for a capture that cannot know.
        """
        from ..syncs import found

        if self._seen is not None:
            return found.seen_syncs(self._calls(self._seen))
        record = self._compiled("syncs")
        if record is None:
            return found.compiled_syncs(self.graphs, (), None)
        from ..watching.graphs import Graphs

        read = Graphs(record)
        return found.compiled_syncs(self.graphs, record.breaks, read, self._traced(record))

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The copies from one device to another, one for each line, op and pair of devices.

        What a CPU run does not copy is not there: `tensor.cpu()` of a tensor on the CPU is among
        the `syncs` alone, and `tensor.to(device)` of one that is on that device is nowhere.

        Raises:
            CaptureError: for a capture that cannot know.
        """
        from ..syncs import found

        if self._seen is not None:
            return found.seen_transfers(self._calls(self._seen))
        record = self._compiled("transfers")
        if record is None:
            return found.compiled_transfers(self.graphs, ())
        return found.compiled_transfers(self.graphs, record.breaks, self._traced(record))

    def _calls(self, seen: Seen) -> Seen:
        """The calls that ran, which are worked out together with the graphs."""
        self.graphs  # noqa: B018
        return seen

    def _compiled(self, asked: str) -> Record | None:
        """What was compiled; None where the graphs are all that can run."""
        found = self._record if self._read is None else self._read().record
        exported = self.via == "export" and self._has_output
        if found is None and not exported:
            raise CaptureError(
                f"a capture via {self.via!r}{'' if self._has_output else ' from a file'} knows no "
                f"{asked}: use via='dispatch', which sees what runs, 'aot', 'dynamo', 'inductor', "
                "'compiled_autograd' or 'export', or graph_capture.watch()"
            )
        if self.via == "compiled_autograd" and not self.forwards:
            raise CaptureError(
                f"the forward ran eagerly, so nothing is known of its {asked}: use "
                "CompiledAutograd(forward='aot'), or via='dispatch', which sees what runs"
            )
        return found

    def _traced(self, record: Record) -> Graphs | None:
        """What Dynamo made of a captured backward, which it traced as far as its first break."""
        if self.via != "compiled_autograd":
            return None
        from ..watching.graphs import Graphs

        inner = [each for each in record.compiled if each.id and each.id.autograd is not None]
        return Graphs(replace(record, compiled=tuple(inner)))
