"""`Sync` and `Transfer`: a host sync or a device copy at one place in the user's code."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.events import SKIPPED

# Kinds of syncs.
READS = "reads a value back"
SIZES = "has a size that depends on data"
MASKS = "indexes by a bool mask"
COPIES = "copies between host and device"
BREAKS = "ran eagerly at a graph break"
"""Kind for unrecorded code that ran outside every graph, and may wait for the device."""
THREADS = "ran in another thread"
"""Kind for code that a dispatch mode does not see, and that may wait for the device."""
CALL = "call"
"""Value of `seen` for a call outside every graph."""
STARTS = "threading.Thread.start"
"""The `op` of a thread's start."""


@dataclass(frozen=True, kw_only=True)
class SourceLocation:
    """A place in the user's code with a sync or a transfer.

    Attributes:
        file, line: the innermost frame outside torch and the standard library, as in `GraphBreak`;
            "" and 0 if unknown.
        code: source line.
        function: name of the function that contains the line.
        module: path of the module, "" if unknown.
        certain: False if unrecorded code ran here, which may or may not sync or copy.
        occurrences: number of executions if ops were recorded as they ran, otherwise the number of
            nodes in the graphs.
    """

    file: str
    line: int
    code: str
    function: str
    module: str
    certain: bool = True
    occurrences: int = 1


@dataclass(frozen=True)
class Sync(SourceLocation):
    """A place where Python waits for the device, or would wait if the tensors were on one.

    A run on the CPU does not wait, but reports the same ops.

    Attributes:
        kind: reason for the wait: "reads a value back", "has a size that depends on data", "indexes
            by a bool mask", "copies between host and device", "ran eagerly at a graph break", or
            "ran in another thread".
        op: the op or method, such as `aten.nonzero.default` or `Tensor.tolist`. For unrecorded code
            after a graph break, the kind of the break.
        seen: where it was recorded: the name of the graph, such as `forward`; `call` for a call
            outside every graph; or `graph break`.
        file, line, code, function, module, certain, occurrences: see `SourceLocation`.
    """

    kind: str
    op: str
    seen: str

    def __str__(self) -> str:
        return _rest_of_frame_text(self) or f"{place_of(self)}\n{self.kind}: {self.op}"


@dataclass(frozen=True)
class Transfer(SourceLocation):
    """A place where a tensor is copied from one device to another.

    Attributes:
        source, target: device types, with an index for the second device of a type: `cpu`, `cuda`,
            `cuda:1`; both "" if unknown code may have copied.
        op: the copying op. For unrecorded code after a graph break, the kind of the break.
        blocking: True if Python waits for the copy.
        seen: see `Sync`.
        file, line, code, function, module, certain, occurrences: see `SourceLocation`.
    """

    source: str
    target: str
    op: str
    blocking: bool
    seen: str

    def __str__(self) -> str:
        unseen = THREADS if self.op == STARTS else BREAKS
        direction = f"from {self.source} to {self.target}" if self.certain else unseen
        return _rest_of_frame_text(self) or f"{place_of(self)}\n{direction}: {self.op}"


def _rest_of_frame_text(event: Sync | Transfer) -> str:
    """Return the text for all code after a break, "" for anything else.

    Such an event has an `op` that starts with `SKIPPED`. Its text contains neither the source line
    nor the op at the break, so an `allow` for them does not allow the code after the break.
    """
    if event.certain or not event.op.startswith(SKIPPED):
        return ""
    return f"after line {event.line} of {event.file} in {event.function}\n{BREAKS}"


def place_of(event: SourceLocation) -> str:
    """Return file, line, function and code on one line."""
    if not event.file:
        return f"(unknown line) module {event.module}" if event.module else "(no line known)"
    return f"{event.file}:{event.line} in {event.function}: {event.code}"
