"""From a record of torch's structured trace to an event.

The format is not promised by torch; it is what `torch._logging._internal.trace_structured` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ... import torch_private
from .events import (
    CacheMissEvent,
    CompileId,
    CudagraphsSkipped,
    Event,
    Finished,
    Generated,
    GraphBreakEvent,
    GuardsFailed,
    Printed,
    Started,
)

STAGES = {
    "dynamo_output_graph": "dynamo",
    "aot_joint_graph": "joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
    "compiled_autograd_graph": "compiled_autograd",
    "inductor_post_grad_graph": "post_grad",
}
HAND_OVER = "Unsupported Tensor.backward() call"
_UNKNOWN_LINE = 0


def read(metadata: Mapping[str, Any], payload: str) -> Event | None:
    """The event that a record tells of, None for those that do not matter here."""
    artifact = metadata.get("artifact")
    if isinstance(artifact, Mapping):
        name, told = str(artifact.get("name")), artifact
    else:
        name = next((key for key in metadata if key in _READERS), "")
        told = metadata.get(name) or {}
    reader = _READERS.get(name)
    if reader is None:
        return None
    attempt = metadata.get("attempt")
    return reader(
        _id(metadata), attempt if isinstance(attempt, int) else 0, metadata, told, payload
    )


def _id(metadata: Mapping[str, Any]) -> CompileId | None:
    found = CompileId(
        metadata.get("compiled_autograd_id"),
        metadata.get("frame_id"),
        metadata.get("frame_compile_id"),
    )
    return None if found == CompileId() else found


_Reader = Callable[[CompileId | None, int, Mapping[str, Any], Any, str], Event | None]


def _printed(stage: str) -> _Reader:
    return lambda of, attempt, metadata, told, payload: Printed(of, attempt, stage, payload)


def _started(
    of: CompileId | None, attempt: int, metadata: Mapping[str, Any], told: Any, payload: str
) -> Event:
    stack = metadata.get("stack") or told.get("stack") or [{}]
    return Started(of, attempt, str(stack[-1].get("name", "")), int(stack[-1].get("line", 0)))


def _broke(
    of: CompileId | None, attempt: int, metadata: Mapping[str, Any], told: Any, payload: str
) -> Event:
    handed = HAND_OVER in payload and torch_private.compiled_autograd_is_on()
    return GraphBreakEvent(of, attempt, payload, handed)


def _generated(
    of: CompileId | None, attempt: int, metadata: Mapping[str, Any], told: Any, payload: str
) -> Event:
    return Generated(of, attempt, payload)


def _guards(
    of: CompileId | None, attempt: int, metadata: Mapping[str, Any], told: Any, payload: str
) -> Event:
    return GuardsFailed(of, attempt, _texts(payload))


def _missed(
    of: CompileId | None, attempt: int, metadata: Mapping[str, Any], told: Any, payload: str
) -> Event:
    return CacheMissEvent(of, attempt, _texts(payload))


def _texts(payload: str) -> tuple[str, ...]:
    """Several reasons are a json list; a single one is printed as it is."""
    try:
        found = json.loads(payload)
    except ValueError:
        return (payload,)
    return tuple(map(str, found)) if isinstance(found, list) else (payload,)


def _finished(
    of: CompileId | None, attempt: int, metadata: Mapping[str, Any], told: Any, payload: str
) -> Event:
    return Finished(
        of,
        attempt,
        str(told.get("co_name") or ""),
        str(told.get("co_filename") or ""),
        int(told.get("co_firstlineno") or _UNKNOWN_LINE),
        str(told.get("fail_type") or ""),
        str(told.get("fail_reason") or ""),
        str(told.get("fail_user_frame_filename") or ""),
        int(told.get("fail_user_frame_lineno") or _UNKNOWN_LINE),
        str(told.get("cudagraph_skip_reason") or ""),
    )


def _backward_finished(
    of: CompileId | None, attempt: int, metadata: Mapping[str, Any], told: Any, payload: str
) -> Event | None:
    reason = told.get("cudagraph_skip_reason")
    return CudagraphsSkipped(of, attempt, str(reason)) if reason else None


_READERS: dict[str, _Reader] = {
    **{name: _printed(stage) for name, stage in STAGES.items()},
    "dynamo_start": _started,
    "dynamo_graph_break_reason": _broke,
    "inductor_output_code": _generated,
    "recompile_reasons": _guards,
    "compiled_autograd_compile_reasons": _missed,
    "compilation_metrics": _finished,
    "bwd_compilation_metrics": _backward_finished,
}

NAMES = frozenset(_READERS)
"""The records that `read` makes events of; torch need not write others for us."""
