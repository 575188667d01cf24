"""Capture by a TorchDispatchMode: forward and backward as they ran, in aten ops."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ... import torch_private
from ...convert import source_lines
from ...convert.canonical_names import CanonicalNames
from ...convert.effects import schema
from ...errors import CaptureError
from ...graph.model import Arg, Graph, Ref
from ...ops.levels import Level
from ...ops.qualified import op_name
from ...syncs.detect import RecordedCalls
from ...syncs.methods import on_method_call
from ...syncs.model import STARTS
from ...syncs.op_calls import SyncCall, may_sync_or_copy
from ..protocol import Built, Captured
from ..recording.collector import collector_paused
from ..recording.mode import Value
from ..recording.replay import Replay
from ..recording.unfilled import Unfilled, refuse_unfilled
from ..recording.unseen import precompiled_noted, refuse_unseen, threads_started
from ..returned import UNKNOWN_TENSOR, Leaf, leaves_of, numbers_are_exact, output_of
from ..step.named_tensors import NamedTensors
from ..step.step import Step, output_leaves
from .recorder import DispatchRecorder
from .replay import DispatchReplay

_REFUSED = (
    "a region compiled by torch.compile runs inside the target: what it runs would be a hole in a "
    "graph of dispatched ops. Capture the eager function, or use via='aot'"
)


@dataclass(frozen=True)
class Dispatch:
    """A TorchDispatchMode that records each op which reaches the dispatcher below autograd.

    Args:
        keep_dead: whether ops whose results nothing uses are kept in the graph.
    """

    keep_dead: bool = False

    name: ClassVar[str] = "dispatch"
    level: ClassVar[Level] = "dispatch"

    def capture(
        self, step: Step, canon: CanonicalNames, *, keep_constants: bool = False
    ) -> Captured:
        """Run the step under the mode.

        Args:
            keep_constants: keep the tensors of constants, so that the graphs can run again.
        """
        named = step.invocation.named
        compiled = _compiled_modules(step.invocation.target, named)
        if compiled:
            raise CaptureError(f"{_REFUSED} ({compiled})")
        recorder = DispatchRecorder(named, step.saved)
        recorder.kept = {} if keep_constants else None
        seen = RecordedCalls()

        def note(method: str, owner: Any) -> None:
            if method == STARTS:
                step.saved.copy_all()
            note_method(seen, recorder, method, owner)

        @contextlib.contextmanager
        def forward() -> Iterator[None]:
            for name, tensor in named.inputs:
                recorder.introduce(tensor, "input", name)
            with recorder.recording(backward=False), on_method_call(note):
                yield

        @contextlib.contextmanager
        def backward() -> Iterator[None]:
            for number, cotangent in step.cotangents:
                recorder.introduce(cotangent, "tangent", f"tangent.{number}")
            with recorder.recording(backward=True), on_method_call(note):
                yield

        with (
            precompiled_noted(recorder),
            _no_compiled_region(),
            threads_started(recorder) as threads,
        ):
            step.run(None, forward, backward)
        tensors = output_leaves(step.output)
        outputs = [recorder.number_of(tensor) for tensor in tensors]
        positions = {id(tensor): position for position, tensor in enumerate(tensors)}
        leaves = leaves_of(step.output, lambda tensor: positions.get(id(tensor)))
        number = len(tensors)
        del tensors  # none may outlive the step
        outputs += [recorder.number_of(buffer) for buffer in step.saved.replaced_buffers()]
        grads = [recorder.number_of(leaf.grad) for leaf in step.leaves if leaf.grad is not None]
        refuse_unseen(recorder, threads)
        unfilled = Unfilled(recorder)
        for record in (*recorder.forward, *recorder.backward):
            unfilled.ran(record)
        unfilled.read([*outputs, *grads])
        refuse_unfilled(unfilled)
        ran_backward, keep_dead = step.ran_backward, self.keep_dead
        if not ran_backward:  # the target may have run a backward of its own
            outputs += grads

        def build() -> Built:
            replay = DispatchReplay(recorder, canon, keep_dead)
            with collector_paused():
                graphs = replay.graphs(outputs, grads if ran_backward else None)
            graphs[0] = _with_output(graphs[0], leaves, number)
            note_calls(seen, recorder, replay, backward=ran_backward)
            if ran_backward and not any(node.is_call for node in graphs[1].nodes):
                raise CaptureError(
                    "the backward ran, but no op of it leads to a gradient of a leaf: does a hook "
                    "clear .grad?"
                )
            return Built(graphs, seen, replay.kept_by_name)

        # Working out the graphs takes about as long as recording, so it waits until they are read,
        # unless it takes that to see whether there is anything in them.
        computed = any(value not in recorder.origin for value in outputs)
        return Captured(build if computed and (grads or not ran_backward) else build())


def _with_output(graph: Graph, leaves: Sequence[Leaf], tensors: int) -> Graph:
    """The forward with what the target returned.

    Args:
        graph: returns the tensors of the output, and then what else the step gives.
        leaves: those of the output, with the position of each tensor.
        tensors: how many tensors there are.
    """
    values = [Ref(node.name) for node in graph.outputs]

    def value_of(position: int | None) -> Arg:
        return UNKNOWN_TENSOR if position is None else values[position]

    exact = numbers_are_exact((graph,))
    returned = values[:tensors]
    return replace(graph, output=output_of(leaves, returned, value_of, exact=exact))


def _compiled_modules(target: Any, named: NamedTensors) -> str:
    if torch_private.is_compiled(target):
        return "the target itself"
    for path, module in named.all_modules:
        if torch_private.is_compiled(module):
            return f"module {path or type(module).__name__}"
    return ""


@contextlib.contextmanager
def _no_compiled_region() -> Iterator[None]:
    """Refuse as soon as a compiled function is entered."""
    loaded = "torch._dynamo" in sys.modules
    with torch_private.on_compiled_region(_refuse) if loaded else contextlib.nullcontext():
        yield
    if not loaded and "torch._dynamo" in sys.modules and torch_private.frames_seen():
        _refuse(None)


def _refuse(function: Any) -> None:
    name = getattr(function, "__qualname__", "")
    if str(getattr(function, "__module__", "")).startswith("torch."):
        raise CaptureError(
            f"torch's {name.partition('.')[0]} compiles itself where it runs eagerly: what it runs "
            "would be a hole in a graph of dispatched ops. Use via='aot', where its bodies are "
            "subgraphs"
        )
    raise CaptureError(f"{_REFUSED} ({name})" if name else _REFUSED)


def note_calls(
    seen: RecordedCalls, recorder: DispatchRecorder, replay: Replay, *, backward: bool
) -> None:
    """Add what a replayed recorder has to `seen`; then nothing needs the recorder any more.

    Args:
        seen: where the calls go.
        recorder, replay: of one step.
        backward: whether its backward ran apart from the forward.
    """

    def described(value: Any) -> Any:
        if type(value) is Value:
            return replay.meta(value)
        if type(value) is tuple:
            return tuple([described(item) for item in value])
        return replay.canon.constant(value)

    for records, name in (
        (recorder.forward, "forward" if backward else "inference"),
        (recorder.backward, "backward"),
    ):
        for record in records:
            op = schema.facts(record.op).name or op_name(record.op)
            if isinstance(record.op, str):  # `note_method` has it
                continue
            if may_sync_or_copy(op):
                module, source = replay.place(record)
                kwargs = {key: described(value) for key, value in record.kwargs.items()}
                result = replay.result(record.output)
                call = SyncCall(op, described(record.args), kwargs, result)
                seen.calls.append((call, name, module, source))


def note_method(seen: RecordedCalls, recorder: DispatchRecorder, method: str, owner: Any) -> None:
    """Add the call of a method that is being made, of a tensor or a thread."""
    recorder.read(method, owner)
    line = source_lines.current()
    source = None if line is None else source_lines.from_line(*line)
    seen.methods.append((method, recorder.module, source))
