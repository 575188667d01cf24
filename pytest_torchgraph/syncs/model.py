"""`Sync` and `Transfer`: a host sync or a copy at one place in the user's code."""

from __future__ import annotations

from dataclasses import dataclass

from ..watching.breaks import SKIPPED

# Kinds of syncs.
READS = "reads a value back"
SIZES = "has a size that depends on data"
MASKS = "indexes by a bool mask"
COPIES = "copies between host and device"
BREAKS = "ran eagerly at a graph break"
"""The kind of code that ran in no graph: whether it waits for the device is not known."""
THREADS = "ran in another thread"
"""The kind of code that a dispatch mode does not see: likewise."""
STARTS = "threading.Thread.start"
"""`op` where a thread was started."""


@dataclass(frozen=True, kw_only=True)
class Located:
    """A place in the user's code at which a sync or a transfer was seen.

    Attributes:
        file, line: the innermost frame outside torch and the standard library, as in `GraphBreak`;
            "" and 0 where it is not known.
        code: the line itself.
        function: name of the function that the line is in.
        module: path of the module, "" where it is not known.
        certain: False where code ran unseen, of which it is not known what it did.
        occurrences: how often it was seen: executed, where each op was seen as it ran; else in how
            many places of the graphs.
    """

    file: str
    line: int
    code: str
    function: str
    module: str
    certain: bool = True
    occurrences: int = 1


@dataclass(frozen=True)
class Sync(Located):
    """A place at which Python waits for the device, or would if the tensors were on one.

    On a CPU run nobody waits; the same ops are found.

    Attributes:
        kind: why it waits: "reads a value back", "has a size that depends on data", "indexes by a
            bool mask", "copies between host and device", "ran eagerly at a graph break", or "ran in
            another thread".
        op: the op or method that does it, as `aten.nonzero.default` or `Tensor.tolist`; for a graph
            break behind which anything may have run, the kind of the break.
        seen: how it was seen: `forward` for an op in the graph of that name, `call` for a call that
            reaches no graph, `graph break`.
        file, line, code, function, module, certain, occurrences: see `Located`.
    """

    kind: str
    op: str
    seen: str

    def __str__(self) -> str:
        return _behind(self) or f"{place_of(self)}\n{self.kind}: {self.op}"


@dataclass(frozen=True)
class Transfer(Located):
    """A place at which a tensor is copied from one device to another.

    Attributes:
        source, target: device types, with a number for the second device of a type: `cpu`, `cuda`,
            `cuda:1`; "" for both where it is not known whether anything was copied.
        op: the op that copies; for a graph break behind which anything may have run, its kind.
        blocking: whether Python waits for it.
        seen: as in `Sync`.
        file, line, code, function, module, certain, occurrences: see `Located`.
    """

    source: str
    target: str
    op: str
    blocking: bool
    seen: str

    def __str__(self) -> str:
        unseen = THREADS if self.op == STARTS else BREAKS
        way = f"from {self.source} to {self.target}" if self.certain else unseen
        return _behind(self) or f"{place_of(self)}\n{way}: {self.op}"


def _behind(each: Sync | Transfer) -> str:
    """The text for everything behind a break, "" for anything else.

    `op` begins with `SKIPPED` there. The text has neither the code of the line nor the op that
    broke: an `allow` for these must not allow what comes behind.
    """
    if each.certain or not each.op.startswith(SKIPPED):
        return ""
    return f"behind line {each.line} of {each.file} in {each.function}\n{BREAKS}"


def place_of(each: Located) -> str:
    """File, line, function and code, in one line."""
    if not each.file:
        return f"(no line known) module {each.module}" if each.module else "(no line known)"
    return f"{each.file}:{each.line} in {each.function}: {each.code}"
