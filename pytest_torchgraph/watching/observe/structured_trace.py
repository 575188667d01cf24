"""Read the records of torch's structured trace into events.

The format is not promised by torch; it is what `torch._logging._internal.trace_structured` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ... import torch_private
from .events import (
    CacheEvent,
    CacheMissEvent,
    CodeGenerated,
    CompilationFinished,
    CompilationStarted,
    CompileId,
    CudagraphsSkipped,
    Event,
    GraphBreakEvent,
    GraphPrinted,
    GuardsFailed,
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
"""The records that hold a printed graph, with the `GraphPrinted.stage` of each."""
_UNKNOWN_LINE = 0
_HAND_OVER = "Unsupported Tensor.backward() call"
"""The kind of break at which compiled autograd, where it is on, takes the backward over."""


class _TraceRecord(NamedTuple):
    """A record of the trace, taken apart.

    Attributes:
        id, attempt: as in `Event`.
        metadata: the whole record.
        fields: what is under its name there.
        payload: the text that came with it.
    """

    id: CompileId | None
    attempt: int
    metadata: Mapping[str, Any]
    fields: Any
    payload: str


def read(metadata: Mapping[str, Any], payload: str) -> Event | None:
    """The event for a record, None for a record of no interest.

    Args:
        metadata: the record, as torch writes it into a line of json.
        payload: the text that comes with it.
    """
    artifact = metadata.get("artifact")
    if isinstance(artifact, Mapping):
        name, fields = str(artifact.get("name")), artifact
    else:
        name = next((key for key in metadata if key in _READERS), "")
        fields = metadata.get(name) or {}
    reader = _READERS.get(name)
    if reader is None:
        return None
    attempt = metadata.get("attempt")
    attempt = attempt if isinstance(attempt, int) else 0
    return reader(_TraceRecord(_id(metadata), attempt, metadata, fields, payload))


def _id(metadata: Mapping[str, Any]) -> CompileId | None:
    compile_id = CompileId(
        metadata.get("compiled_autograd_id"),
        metadata.get("frame_id"),
        metadata.get("frame_compile_id"),
    )
    return None if compile_id == CompileId() else compile_id


REPEATED = "WON'T CONVERT"
"""Beginning of a report that is a traceback alone, where a backend failed; the break because of
which its code runs eagerly has its own report behind it."""
_Reader = Callable[[_TraceRecord], Event | None]


def _printed(stage: str) -> _Reader:
    return lambda record: GraphPrinted(record.id, record.attempt, stage, record.payload)


def _started(record: _TraceRecord) -> Event:
    stack = record.metadata.get("stack") or record.fields.get("stack") or [{}]
    function, line = str(stack[-1].get("name", "")), int(stack[-1].get("line", _UNKNOWN_LINE))
    return CompilationStarted(record.id, record.attempt, function, line)


def _broke(record: _TraceRecord) -> Event | None:
    if record.payload.startswith(REPEATED):
        return None
    hand_over = _HAND_OVER in record.payload and torch_private.compiled_autograd_is_on()
    return GraphBreakEvent(record.id, record.attempt, record.payload, hand_over)


def _generated(record: _TraceRecord) -> Event:
    return CodeGenerated(record.id, record.attempt, record.payload)


def _guards_failed(record: _TraceRecord) -> Event:
    return GuardsFailed(record.id, record.attempt, _reasons(record.payload))


def _cache_missed(record: _TraceRecord) -> Event:
    return CacheMissEvent(record.id, record.attempt, _reasons(record.payload))


def _reasons(payload: str) -> tuple[str, ...]:
    """Several reasons are a json list; a single one is printed as it is."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        return (payload,)
    return tuple(map(str, reasons)) if isinstance(reasons, list) else (payload,)


def _finished(record: _TraceRecord) -> Event:
    fields = record.fields
    return CompilationFinished(
        record.id,
        record.attempt,
        str(fields.get("co_name") or ""),
        str(fields.get("co_filename") or ""),
        int(fields.get("co_firstlineno") or _UNKNOWN_LINE),
        str(fields.get("fail_type") or ""),
        str(fields.get("fail_reason") or ""),
        str(fields.get("fail_user_frame_filename") or ""),
        int(fields.get("fail_user_frame_lineno") or _UNKNOWN_LINE),
        str(fields.get("cudagraph_skip_reason") or ""),
        int(fields.get("graph_op_count") or 0),
        float(fields.get("entire_frame_compile_time_s") or 0),
        bool(fields.get("inductor_cumulative_compile_time_us")),
    )


def _backward_finished(record: _TraceRecord) -> Event | None:
    reason = record.fields.get("cudagraph_skip_reason")
    return CudagraphsSkipped(record.id, record.attempt, str(reason)) if reason else None


def _looked_up(cache: Any, state: Any) -> _Reader:
    def reader(record: _TraceRecord) -> Event:
        fields = json.loads(record.payload or "{}")
        return CacheEvent(
            record.id,
            record.attempt,
            cache,
            state,
            reason=str(fields.get("cache_bypass_reason") or ""),
            key=str(fields.get("key") or ""),
            components=tuple(map(str, fields.get("components") or ())),
        )

    return reader


def _not_pickled(record: _TraceRecord) -> Event:
    fields = json.loads(record.payload or "{}")
    reason = f"cannot be saved: {fields.get('error')}"
    field = fields.get("field")
    reason += f" (in {field})" if field else ""
    return CacheEvent(record.id, record.attempt, "aot", "bypass", reason=reason)


_CACHES = {"aotautograd_cache": "aot", "fx_graph_cache": "inductor"}

_READERS: dict[str, _Reader] = {
    **{name: _printed(stage) for name, stage in STAGES.items()},
    "dynamo_start": _started,
    "dynamo_graph_break_reason": _broke,
    "inductor_output_code": _generated,
    "recompile_reasons": _guards_failed,
    "compiled_autograd_compile_reasons": _cache_missed,
    "compilation_metrics": _finished,
    "bwd_compilation_metrics": _backward_finished,
    **{
        f"{prefix}_{state}": _looked_up(cache, state)
        for prefix, cache in _CACHES.items()
        for state in ("hit", "miss", "bypass")
    },
    "aotautograd_cache_pickle_failure": _not_pickled,
}

NAMES = frozenset(_READERS)
"""The records that `read` makes events of; torch need not write others for us."""

NAMES_WITHOUT_GRAPHS = NAMES - STAGES.keys() - {"inductor_output_code"}
"""Those of them that hold no graph and no code: a few short lines for each compilation."""
