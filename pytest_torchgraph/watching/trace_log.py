"""Read the logs that torch writes with `TORCH_TRACE=DIR`, as events like those of a watch.

The records of several processes may be interleaved. `log_records` splits a file into records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..convert.refused_nodes import RefusedOp, clean
from ..convert.source_lines import is_user_file, localizer
from ..errors import GraphFormatError
from ..words import listed
from .compilations import Compilation, compilations
from .log_records import LogRecord, log_records
from .observe import (
    HAND_OVER,
    CacheEvent,
    CompilationFinished,
    CompilationStarted,
    Event,
    GraphBreakEvent,
    GraphPrinted,
    name_of,
    read_event,
)

_FILE = re.compile(r"^\s*# File: (.*?):\d+ in ", re.MULTILINE)
_WITH_RELEASE = ("torch_version", "fx_graph_runnable")
"""Artifacts that name torch's release. Torch 2.11 writes only the second, and only via inductor."""
_RELEASE = re.compile(rb'(?m)^(?:\s*"pytorch_version": "|# torch version: )([\w.]+)')
_STACKS = ("stack", "user_stack")
"""Fields of a record with frames, whose file names are numbers."""


@dataclass(frozen=True)
class Log:
    """The origin of a capture that was read from a log of torch.

    Attributes:
        torch: the release of torch that wrote the log; "" if the log does not name it.
        pid: id of the process.
        rank: its rank; `None` outside a process group.
        truncated: what the log lacks, "" if it is whole.
    """

    torch: str
    pid: int
    rank: int | None
    truncated: str = ""


class Process(NamedTuple):
    """What a log says about one process.

    Attributes:
        log: origin of the compilations.
        compiled: its compilations.
    """

    log: Log
    compiled: tuple[Compilation, ...]

    @property
    def has_facts(self) -> bool:
        """True if a graph was compiled, or could not be; not so in a process that starts others."""
        return any(c.printed or c.breaks or c.failure for c in self.compiled)


@dataclass
class _WritingProcess:
    """One process that wrote records.

    Attributes:
        events: its events, each with the rank in its record.
        torch: release of torch.
        files: names of files by number.
        local: returns a text with the paths of this machine's torch and Python.
    """

    events: list[tuple[int | None, Event]] = field(default_factory=list)
    torch: str = ""
    files: dict[int, str] = field(default_factory=dict)
    local: Callable[[str], str] = str


def read_log(path: Path, *, allow_truncated: bool) -> list[Process]:
    """Return the processes in a log, in the order of their first records.

    Args:
        path: the file, plain or compressed by gzip.
        allow_truncated: True to return what is whole of a truncated log.

    Raises:
        GraphFormatError: if the log is truncated or damaged, or has no record.
        OSError: if the file cannot be read.
    """
    damage: list[str] = []
    writers: dict[int, _WritingProcess] = {}
    for record in log_records(path, damage):
        writer = writers.setdefault(record.pid, _WritingProcess())
        try:
            _add(writer, record)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            name = next(iter(record.metadata), "")
            damage.append(f"a record {name!r:.60} is not as torch writes it")
    if not writers and not damage:
        raise GraphFormatError("no record of torch's trace", path=str(path))
    processes = []
    for pid, writer in writers.items():
        ranks = {rank for rank, _ in writer.events}
        if len(ranks) == 2:  # records before the process group exists name no rank
            ranks.discard(None)
        # A process has several ranks if it opened several process groups, one after the other. A
        # process without events is returned too.
        for rank in sorted(ranks, key=lambda rank: -1 if rank is None else rank) or [None]:
            events = [event for of, event in writer.events if of == rank or len(ranks) == 1]
            compiled = tuple(compilations(_complete(events)))
            unfinished = [c for c in compiled if c.started and not c.finished]
            damage += [
                f"the compilation {c.id} of {c.function} ({c.file}:{c.line}) did not end"
                for c in unfinished
            ]
            kept = tuple(c for c in compiled if c not in unfinished)
            processes.append(Process(Log(writer.torch, pid, rank), kept))
    if damage and not allow_truncated:
        raise GraphFormatError(
            f'the log is truncated: {listed(damage, 2)}. Pass truncated="allow", on the command '
            "line --allow-truncated, to read the rest: a check of it may miss what is not there",
            path=str(path),
        )
    truncated = listed(damage, 2)
    return [Process(replace(log, truncated=truncated), compiled) for log, compiled in processes]


def _add(writer: _WritingProcess, record: LogRecord) -> None:
    """Add what a record says to its process. Changes the record: files get the paths of here."""
    metadata = record.metadata
    if "str" in metadata:  # torch writes each file name once, and then its number
        file, number = metadata["str"]
        writer.files[number] = file
        if "torch" in file:  # each log names a file of Dynamo
            writer.local = localizer(file, writer.local)
        return
    artifact = metadata.get("artifact")
    if isinstance(artifact, Mapping) and artifact.get("name") in _WITH_RELEASE:
        if found := _RELEASE.search(record.payload):
            writer.torch = found[1].decode()
        return
    name = name_of(metadata)
    if not name:
        return
    fields = metadata.get(name)
    for stacks in (metadata, fields if isinstance(fields, dict) else {}):
        for key in _STACKS:
            for frame in stacks.get(key) or ():
                file = writer.files.get(frame["filename"], "")
                frame["filename"] = writer.local(file) if file else "<unknown>"
    if name == "compilation_metrics":
        release = str(metadata[name].get("pytorch_version", ""))  # not in torch 2.9
        writer.torch = writer.torch or release.partition("+")[0]
        for key in ("co_filename", "fail_user_frame_filename", "fail_reason"):
            if isinstance(text := metadata[name].get(key), str):
                metadata[name][key] = writer.local(text)
    text = writer.local(record.payload.decode("utf-8", "surrogateescape"))
    event = read_event(metadata, text)
    rank = metadata.get("rank")  # a record outside a process group has none
    if event is not None:
        writer.events.append((rank if isinstance(rank, int) else None, event))


def _complete(events: list[Event]) -> Iterator[Event]:
    """Yield the events, with what `Hub` adds in a live process as far as the log shows it."""
    # Over all events, because a record may come before the graph that explains it.
    printed = [event for event in events if isinstance(event, GraphPrinted)]
    captures = any(event.stage == "compiled_autograd" for event in printed)
    with_backward = {event.id for event in printed if event.stage == "backward"}
    # Where torch 2.14 ends the capture of a backward, before it compiles the captured graph, it
    # compiles functions of `inspect`, without a graph. `Hub` omits them.
    ends_capture = False
    of_torch: set[int | None] = set()
    looked_up: set[Any] = set()  # ids of the compilations whose forward inductor has looked up
    codes: dict[Any, CompilationFinished] = {}  # the first end of a compilation of each frame
    for event in events:
        if event.id and event.id.autograd is not None:
            ends_capture = isinstance(event, GraphPrinted) and event.stage == "compiled_autograd"
        elif event.id and ends_capture:
            if isinstance(event, CompilationStarted) and not is_user_file(event.file):
                of_torch.add(event.id.frame)
            if event.id.frame in of_torch:
                continue
        match event:
            case CompilationStarted():
                looked_up.discard(event.id)
            case CompilationFinished():
                # torch names no code when it refuses to compile a frame again.
                frame = event.id and (event.id.autograd, event.id.frame)
                code = codes.setdefault(frame, event)
                if not event.file:
                    event = replace(event, function=code.function, file=code.file, line=code.line)
            case GraphPrinted(stage="dynamo"):
                event = replace(event, files=frozenset(_FILE.findall(event.text)))
            case GraphBreakEvent():
                event = replace(event, hand_over=captures and HAND_OVER in event.report)
            case CacheEvent():
                if event.cache == "inductor":
                    # Inductor looks up the forward first.
                    event = replace(event, backward=event.id in looked_up & with_backward)
                    looked_up.add(event.id)
                if event.state == "bypass":
                    refused = RefusedOp("", clean(event.reason))
                    event = replace(event, reason=refused.reason, refused=(refused,))
        yield event
