"""Records of torch's structured trace, parsed into typed events.

Only the trace reports every compilation, for any backend, thread or cache. It is text, so no event
keeps a tensor or a graph of the user's alive.

The format is not public. `torch._logging._internal.trace_structured` writes it.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, NoneType
from typing import Any, Literal, NamedTuple

from ...convert.refused_nodes import RefusedOp
from ..guard_text import GuardLine, without_scope
from ..guards import GuardObservation

ONLY_TRACED = "pytest-torchgraph only had this traced"
"""Text of the exception with which a backend of ours ends a compilation after Dynamo's tracing."""


RECOMPILE_LIMIT = "recompile limit"
"""Words in Dynamo's reason for refusing to recompile code."""


def is_recompile_limit(failure: str, reason: str) -> bool:
    """Return True if Dynamo refused to compile this code again, because of the recompile limit.

    Args:
        failure, reason: as in `CompilationFinished`. torch 2.9 to 2.11 raise a dedicated error.
    """
    return bool(failure) and (failure == "RecompileLimitExceeded" or RECOMPILE_LIMIT in reason)


@dataclass(frozen=True, slots=True)
class CompileId:
    """A compile id, as torch writes it: `1/0`, or `!0/1/0` inside a captured backward.

    Attributes:
        autograd: number of the enclosing compiled-autograd capture, `None` outside a capture.
        frame: number of the frame (a code object); `None` for the capture itself.
        compile: number of earlier compilations of the frame.
    """

    autograd: int | None = None
    frame: int | None = None
    compile: int | None = None

    def __str__(self) -> str:
        parts = [] if self.autograd is None else [f"!{self.autograd}"]
        if self.frame is not None:
            parts += [str(self.frame), str(self.compile)]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class Event:
    """A record of the trace, about one compilation.

    Attributes:
        id: the compilation, `None` if the trace names none, as for AOTAutograd without Dynamo.
        attempt: number of earlier attempts of this compilation; Dynamo restarts at a graph break.
    """

    id: CompileId | None
    attempt: int


@dataclass(frozen=True, slots=True)
class CompilationStarted(Event):
    """Dynamo began to trace a frame.

    Attributes:
        function, file, line: name, file and first line of the code; the file only from a log.
        callable_name: name of the compiled callable that was entered last.
        code_ref: a reference to the code object, which keeps its hash; `None` if unknown.
        own_resets: number of resets of Dynamo by this package so far.
    """

    function: str
    line: int
    file: str = ""
    callable_name: str = ""
    code_ref: weakref.ref[CodeType] | None = None
    own_resets: int = 0


@dataclass(frozen=True, slots=True)
class GraphPrinted(Event):
    """A graph was printed.

    Attributes:
        stage: `dynamo`, `joint`, `forward`, `backward`, `inference`, `compiled_autograd` or
            `post_grad`.
        text: the graph, as Python code.
        files: files of the functions that Dynamo traced, for Dynamo's own graph.
        shape_env: torch's record of its dynamic sizes, for Dynamo's own graph.
    """

    stage: str
    text: str
    files: frozenset[str] = frozenset()
    shape_env: Any = None


@dataclass(frozen=True, slots=True)
class CodeGenerated(Event):
    """Inductor generated code for one graph.

    Attributes:
        code: a Python module.
    """

    code: str


@dataclass(frozen=True, slots=True)
class GraphBreakEvent(Event):
    """Dynamo reported a graph break.

    Attributes:
        report: Dynamo's report: location, reason, hints, the user's stack.
        hand_over: True for a call of `backward` that compiled autograd captures, so that no op is
            missing from the graphs. With compiled autograd, Dynamo always reports a break there.
        stack: file, line, function and code of each frame, outermost first, including torch's;
            empty if unknown. The stack in the report omits a `forward` that calls a `forward`.
        module: Dynamo's name of the module whose code broke, such as `L['self'].layers.0`; "" for
            the compiled module itself, or outside modules.
    """

    report: str
    hand_over: bool = False
    stack: tuple[tuple[str, int, str, str], ...] = ()
    module: str = ""


@dataclass(frozen=True, slots=True)
class SizeFixed(Event):
    """The code required a number of a dynamic size or int.

    Attributes:
        sources: Dynamo's sources of the value; several if equal sizes share a symbol.
        value: the number.
        stack: the lines that required it, outermost first, including torch's; empty if none did.
    """

    sources: tuple[str, ...]
    value: str
    stack: tuple[GuardLine, ...] = ()


FixedSizes = dict[str, dict[str, SizeFixed]]
"""Fixed sizes, by compile id and Dynamo's source."""


@dataclass(frozen=True, slots=True)
class GuardsFailed(Event):
    """Guards failed, so a frame has to be recompiled.

    Attributes:
        reasons: each failed guard, in torch's words.
        observations: details of each guard, observed while torch reported it.
        fixed: fixed sizes of the earlier compilations that were observed, by compile id and source.
    """

    reasons: tuple[str, ...]
    observations: tuple[GuardObservation, ...] = ()
    fixed: FixedSizes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheMissEvent(Event):
    """Compiled autograd found no fitting backward in its cache, and captures a new one.

    Attributes:
        reasons: torch's words, including those for earlier captures.
    """

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompilationFinished(Event):
    """A compilation ended, successfully or with an exception.

    Attributes:
        function, file, line: the compiled code; empty if the trace does not name it.
        failure: type of the exception that ended it, "" if it succeeded.
        reason: text of the exception.
        failed_file, failed_line: the user's line that raised it; "" and 0 if the trace does not
            name it.
        cudagraphs: reason why one of its graphs has no CUDA graph, "" if torch reports none.
        ops: number of ops in Dynamo's graph, 0 without a graph.
        seconds: duration, including the backend.
        lowered: True if inductor compiled one of its graphs.
        cache_off: the setting that kept torch from asking its caches, "" if none did.
    """

    function: str
    file: str
    line: int
    failure: str
    reason: str
    failed_file: str = ""
    failed_line: int = 0
    cudagraphs: str = ""
    ops: int = 0
    seconds: float = 0.0
    lowered: bool = False
    cache_off: str = ""


@dataclass(frozen=True, slots=True)
class CudagraphsSkipped(Event):
    """A backward that was compiled at its first run got no CUDA graph.

    Attributes:
        reason: torch's words.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CacheEvent(Event):
    """One of torch.compile's caches looked up a graph, or did not save it.

    Attributes:
        cache: "aot" for AOTAutograd's cache, "inductor" for inductor's.
        state: lookup result, or "unsaved" for compiled code that AOTAutograd did not save because a
            graph has no op.
        backward: True for a backward graph.
        reason: torch's words for a bypass, or for an entry that could not be pickled.
        key: the cache key; "" for a bypass.
        components: the parts of the key, each with its hash, if the recorder keeps keys.
        refused: the ops that caused a bypass.
    """

    cache: Literal["aot", "inductor"]
    state: Literal["hit", "miss", "bypass", "unsaved"]
    backward: bool = False
    reason: str = ""
    key: str = ""
    components: tuple[str, ...] = ()
    refused: tuple[RefusedOp, ...] = ()


STAGES = {
    "dynamo_output_graph": "dynamo",
    "aot_joint_graph": "joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
    "compiled_autograd_graph": "compiled_autograd",
    "inductor_post_grad_graph": "post_grad",
}
"""`GraphPrinted.stage` for each record that holds a printed graph."""
HAND_OVER = "Unsupported Tensor.backward() call"
"""Kind of the graph break at which compiled autograd, if enabled, takes over the backward."""


class _TraceRecord(NamedTuple):
    """A parsed record of the trace.

    Attributes:
        id, attempt: as in `Event`.
        metadata: the whole record.
        fields: the part of the metadata under the record's name.
        payload: the accompanying text.
    """

    id: CompileId | None
    attempt: int
    metadata: Mapping[str, Any]
    fields: Any
    payload: str


def name_of(metadata: Mapping[str, Any]) -> str:
    """Return the name of a record in `NAMES`, "" for other records.

    A record is written either under its own name, or as an `artifact` with a name in it. For
    inductor's post-grad graph it depends: as an artifact after a compilation, under its own name
    after a cache hit.
    """
    artifact = metadata.get("artifact")
    if isinstance(artifact, Mapping):
        name = str(artifact.get("name"))
        return name if name in _READERS else ""
    return next((key for key in metadata if key in _READERS), "")


def read_event(metadata: Mapping[str, Any], payload: str) -> Event | None:
    """Return the event for a record, `None` for a record that is not used.

    It contains only what the record says: `Hub` adds what it sees in the live process.

    Args:
        metadata: the record, which torch writes as a line of json.
        payload: the accompanying text.
    """
    name = name_of(metadata)
    if not name:
        return None
    # An artifact's name is no key of the record. Under its own name, a record may have no fields.
    fields = metadata.get(name) or metadata.get("artifact") or {}
    attempt = metadata.get("attempt")
    attempt = attempt if isinstance(attempt, int) else 0
    return _READERS[name](_TraceRecord(_id(metadata), attempt, metadata, fields, payload))


def _id(metadata: Mapping[str, Any]) -> CompileId | None:
    """Return the compile id of a record, `None` if it names none."""
    numbers = [
        metadata.get(name) for name in ("compiled_autograd_id", "frame_id", "frame_compile_id")
    ]
    # A damaged log may have anything here. (A bool is an int to `isinstance`.)
    if any(type(number) not in (int, NoneType) for number in numbers):
        raise TypeError(f"compile id {numbers}")
    compile_id = CompileId(*numbers)
    # Without Dynamo, AOTAutograd writes records without any of the three numbers.
    return None if compile_id == CompileId() else compile_id


_REPEATED = "WON'T CONVERT"
"""Prefix of a report of a failed backend that contains only a traceback. The graph break that makes
its code run eagerly has its own report, which follows."""
_Reader = Callable[[_TraceRecord], Event | None]
"""Returns the event for a record, `None` if it is not used."""


def _printed(stage: str) -> _Reader:
    return lambda record: GraphPrinted(record.id, record.attempt, stage, record.payload)


def _started(record: _TraceRecord) -> Event:
    """Return that Dynamo began to trace a frame. Releases of torch place the stack differently."""
    stack = record.metadata.get("stack") or record.fields.get("stack") or [{}]
    frame = stack[-1]  # the frame that Dynamo traces
    function, line = str(frame.get("name", "")), int(frame.get("line", 0))
    file = frame.get("filename")
    # torch interns file names: a number that an earlier record explains.
    file = file if isinstance(file, str) else ""
    return CompilationStarted(record.id, record.attempt, function, line, file)


def _broke(record: _TraceRecord) -> Event | None:
    if record.payload.startswith(_REPEATED):
        return None
    return GraphBreakEvent(record.id, record.attempt, record.payload)


def _line(frame: Mapping[str, Any]) -> GuardLine:
    """Return a frame in a record as a line of code."""
    code = str(frame.get("loc") or "").strip()
    return GuardLine(str(frame["filename"]), frame.get("line") or 0, str(frame["name"]), code)


def _reasons(payload: str) -> tuple[str, ...]:
    """Parse the reasons: torch writes several as a json list, a single one as plain text."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        return (payload,)
    return tuple(map(str, reasons)) if isinstance(reasons, list) else (payload,)


def _finished(record: _TraceRecord) -> Event:
    # A field that torch does not know is missing or null.
    fields = record.fields

    def text(name: str) -> str:
        return str(fields.get(name) or "")

    return CompilationFinished(
        record.id,
        record.attempt,
        function=text("co_name"),
        file=text("co_filename"),
        line=int(fields.get("co_firstlineno") or 0),
        failure=text("fail_type"),
        reason=text("fail_reason"),
        failed_file=text("fail_user_frame_filename"),
        failed_line=int(fields.get("fail_user_frame_lineno") or 0),
        cudagraphs=text("cudagraph_skip_reason"),
        ops=int(fields.get("graph_op_count") or 0),
        seconds=float(fields.get("entire_frame_compile_time_s") or 0),
        lowered=bool(fields.get("inductor_cumulative_compile_time_us")),
    )


def _backward_finished(record: _TraceRecord) -> Event | None:
    # The forward's metrics are written before a lazily compiled backward has a reason.
    reason = record.fields.get("cudagraph_skip_reason")
    return CudagraphsSkipped(record.id, record.attempt, str(reason)) if reason else None


def _looked_up(cache: Any, state: Any) -> _Reader:
    """Return the reader of a lookup; see `CacheEvent` for `cache` and `state`."""

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
    """Return a bypass: torch looked the graph up, but can never save what it compiled."""
    fields = json.loads(record.payload or "{}")
    reason = f"cannot be saved: {fields.get('error')}"
    field = fields.get("field")
    reason += f" (in {field})" if field else ""
    return CacheEvent(record.id, record.attempt, "aot", "bypass", reason=reason)


_CACHES = {"aotautograd_cache": "aot", "fx_graph_cache": "inductor"}
"""`CacheEvent.cache` by the prefix of torch's records about a cache."""

_READERS: dict[str, _Reader] = {
    **{name: _printed(stage) for name, stage in STAGES.items()},
    "dynamo_start": _started,
    "dynamo_graph_break_reason": _broke,
    "inductor_output_code": lambda record: CodeGenerated(record.id, record.attempt, record.payload),
    "recompile_reasons": lambda record: GuardsFailed(
        record.id, record.attempt, _reasons(record.payload)
    ),
    "symbolic_shape_specialization": lambda record: SizeFixed(
        record.id,
        record.attempt,
        tuple(map(without_scope, record.fields["sources"])),
        str(record.fields["value"]),
        tuple(map(_line, record.fields.get("user_stack") or ())),
    ),
    "compiled_autograd_compile_reasons": lambda record: CacheMissEvent(
        record.id, record.attempt, _reasons(record.payload)
    ),
    "compilation_metrics": _finished,
    "bwd_compilation_metrics": _backward_finished,
    **{
        f"{prefix}_{state}": _looked_up(cache, state)
        for prefix, cache in _CACHES.items()
        for state in ("hit", "miss", "bypass")
    },
    "aotautograd_cache_pickle_failure": _not_pickled,
}
"""The reader of each record, by torch's name of the record."""

NAMES = frozenset(_READERS)
"""Records that `read_event` turns into events. torch need not write any others."""

NAMES_WITHOUT_GRAPHS = NAMES - STAGES.keys() - {"inductor_output_code"}
"""Records in `NAMES` without graphs and code, which are a few short lines per compilation."""
