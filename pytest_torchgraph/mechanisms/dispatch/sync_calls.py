"""The recorded calls that may wait for the device or copy between devices, dead ones included."""

from __future__ import annotations

from typing import Any

from ...convert import source_lines
from ...convert.effects import schema
from ...ops.qualified import op_name
from ...syncs.calls import SyncCall, may_sync_or_copy
from ...syncs.detect import RecordedCalls
from ..recording.mode import Value
from ..recording.replay import Replay
from .recorder import DispatchRecorder


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
