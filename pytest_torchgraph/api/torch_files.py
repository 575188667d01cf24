"""Files that torch writes, as captures: logs (`TORCH_TRACE`), exported programs, printed graphs.

`captures_in` finds out what a file is (`kind_of`), and reads it with one of `_of_logs`,
`_of_program` and `_of_printed`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import GraphFormatError
from ..graph.text import read_text
from ..watching.log_records import is_record

if TYPE_CHECKING:
    from ..ops.matching import Level
    from .result import Capture

Truncated = Literal["refuse", "allow"]
"""What to do with a log that ends inside a record or a compilation."""
_HEAD = 2**20
"""Bytes at the beginning of a file that show what it is."""
_PRINTED = re.compile(r"class .+\((?:torch\.)?nn\.Module\):")
_TGRAPH = b"torchgraph "
_GZIP, _ZIP, _PICKLE = b"\x1f\x8b", b"PK\x03\x04", b"\x80"
_TO_A_GRAPH = (
    "in the process that has the graph module `gm`, write `from pytest_torchgraph import from_fx` "
    'and `Path("graph.tgraph").write_text(from_fx(gm).to_text())`'
)
_OTHERS = (
    (r"(?m)^\s*(?:strict )?digraph\b", "a Graphviz drawing"),
    (r"(?m)^class Repro\(|^def load_args\(", "fx_graph_runnable.py, which runs a graph"),
    (r"(?m)^graph\(\):", "the text of a torch.fx.Graph, without dtypes and shapes"),
    (r"(?m)^module (?:@|attributes|\{)", "MLIR"),
)
"""Patterns of the texts that are no graphs that can be read, and what they are."""


def kind_of(path: Path, *, strict: bool = True) -> str:
    """Return what a file is by its content: "log", "pt2", "printed"; "" for all else.

    Args:
        path: the file.
        strict: False for a file among others, which then is no error.

    Raises:
        GraphFormatError: if it surely holds no graph that can be read, with the way to get one.
        OSError: if the file cannot be read.
    """
    try:
        return _kind_of(path)
    except (GraphFormatError, OSError):
        if strict:
            raise
        return ""


def _kind_of(path: Path) -> str:
    """See `kind_of`, with `strict`."""
    if not path.is_file():  # a FIFO can be read only once
        return ""
    with open(path, "rb") as file:
        head = file.read(len(_TGRAPH))
        if head == _TGRAPH:  # most files: not worth reading more
            return ""
        head += file.read(_HEAD)
    if head.startswith(_GZIP):  # a log may be compressed
        with open(path, "rb") as file:
            try:
                head = gzip.GzipFile(fileobj=file).read(_HEAD)
            except (EOFError, OSError, zlib.error):
                return "log"  # which says that it is damaged
    if head.startswith(_ZIP):
        return "pt2"
    if head.startswith(_PICKLE):
        raise _refused("a pickle, which is not loaded because that runs code", path)
    if any(map(is_record, head.split(b"\n"))):
        return "log"
    text = head.decode("utf-8", "replace")
    for pattern, what in _OTHERS:
        if re.search(pattern, text):
            raise _refused(what, path)
    return "printed" if _PRINTED.search(text) else ""


def _refused(what: str, path: Path) -> GraphFormatError:
    return GraphFormatError(f"this is {what}: {_TO_A_GRAPH}", path=str(path))


def captures_in(path: Path, truncated: Truncated = "refuse") -> list[Capture] | None:
    """Return the captures in a file that torch wrote, or in a directory of logs.

    Returns:
        one for each process of a log, with `rank`; `None` if the file is none of torch's.

    Raises:
        GraphFormatError: if the file is truncated, damaged, or holds no graph that can be read.
        OSError: if the file cannot be read.
        ValueError: for another value of `truncated`.
    """
    if truncated not in ("refuse", "allow"):
        raise ValueError(f'truncated={truncated!r}: pass "refuse" or "allow"')
    if path.is_dir():
        files = sorted(path.rglob("*"))
        if any(file.suffix == ".tgraph" for file in files):  # a directory holds one kind
            return None
        logs = [file for file in files if kind_of(file, strict=False) == "log"]
        return _of_logs(logs, truncated) if logs else None
    readers: dict[str, Callable[[], list[Capture]]] = {
        "log": lambda: _of_logs([path], truncated),
        "pt2": lambda: _of_program(path),
        "printed": lambda: _of_printed(path),
    }
    kind = kind_of(path)
    return readers[kind]() if kind else None


def _of_logs(paths: Sequence[Path], truncated: Truncated) -> list[Capture]:
    """Return a capture for each process of some logs, by rank.

    Processes that compiled nothing are left out, unless all did.
    """
    from ..graph.text import Header
    from ..watching.graphs import PrintedGraphs
    from ..watching.record import record_of_process
    from ..watching.trace_log import read_log
    from .contents import Contents
    from .result import Capture

    processes = [
        process
        for path in paths
        for process in read_log(path, allow_truncated=truncated == "allow")
    ]
    if any(process.has_facts for process in processes):
        processes = [process for process in processes if process.has_facts]
    numbers = [process.log.rank for process in processes]
    # Several processes need distinct ranks. If their logs have none, they are numbered.
    if len(processes) > 1 and (None in numbers or len({*numbers}) < len(numbers)):
        numbers = [*range(len(processes))]
    else:
        processes.sort(key=lambda process: process.log.rank or 0)
        numbers = [process.log.rank for process in processes]
    captures = []
    for process, rank in zip(processes, numbers, strict=True):
        contents = Contents.of_watch(PrintedGraphs(record_of_process(process)))
        header = Header("trace", process.log.torch)
        captures.append(Capture(replace(contents, rank=rank), header))
    return captures


def _of_program(path: Path) -> list[Capture]:
    """Return the capture of a file of `torch.export.save`."""
    from ..convert.exported_program import Name, read_program
    from ..graph.model import Ref
    from ..graph.text import Header
    from ..mechanisms.protocol import leaves_of, output_of
    from .contents import Contents
    from .result import Capture

    program = read_program(path)
    graph, returned = program.converted.graph, program.returned
    # If the containers are of an unknown class, the output is the values in order.
    if program.structure is not None:
        leaves = leaves_of(_filled(program.structure, returned), lambda name: name, Name)
        values = [Ref(value) if isinstance(value, Name) else value for value in returned]
        graph = replace(graph, output=output_of(leaves, values, Ref, exact=True))
    return [Capture(Contents.of_program((graph,)), Header("export", program.torch))]


def _filled(structure: Any, values: Sequence[Any]) -> Any:
    """Return nested containers with `values[n]` in place of each number n."""
    if isinstance(structure, dict):
        return {key: _filled(item, values) for key, item in structure.items()}
    if isinstance(structure, list):
        return [_filled(item, values) for item in structure]
    return values[structure]


def _of_printed(path: Path) -> list[Capture]:
    """Return the capture of a text with graphs that torch printed.

    The graphs are those of a log (`TORCH_LOGS`), each with its compile id and stage, or, without
    any of these, texts of `print_readable`.
    """
    from ..convert.from_fx import convert
    from ..convert.printed import PrintedGraphError, read_printed
    from ..graph.module_paths import numbered
    from ..graph.text import Header
    from ..ops.matching import LEVELS
    from ..watching.compilations import compilations
    from ..watching.graphs import PrintedGraphs
    from ..watching.printed_logs import events_of, printed_blocks
    from ..watching.record import record_of_process
    from ..watching.trace_log import Log, Process
    from .contents import Contents
    from .result import Capture

    blocks = [*printed_blocks(read_text(path, only_files=True))]
    events = [*events_of(blocks)]
    try:
        if not events:
            graphs = numbered(
                convert(read_printed(block.text), level=_level(block.text), kind="forward").graph
                for block in blocks
            )
            return [Capture(Contents.of_program(graphs), Header(graphs[0].level))]
        # Without a joint or backward graph of the same compile id, it is a graph of an inference.
        with_backward = {event.id for event in events if event.stage in ("joint", "backward")}
        events = [
            replace(event, stage="inference")
            if event.stage == "forward" and event.id not in with_backward
            else event
            for event in events
        ]
        process = Process(Log("", 0, None), tuple(compilations(events)))
        printed = PrintedGraphs(record_of_process(process))
        levels = {level: printed.at(level) for level in LEVELS if printed.at(level)}
        # The log of one stage may lack those of which `printed.graphs` consists.
        graphs = printed.graphs or next(iter(levels.values()), ())
        if not graphs:
            raise GraphFormatError("the text has no whole graph of a forward", path=str(path))
        whole = replace(
            Contents.of_program(graphs), by_level=levels, build_joints=lambda: printed.joints
        )
        return [Capture(whole, Header(graphs[0].level))]
    except PrintedGraphError as error:
        raise GraphFormatError(error.problem, error.line, path=str(path)) from None


def _level(text: str) -> Level:
    """Return the level of a printed graph, by the ops that it names."""
    return "aot" if "torch.ops.aten." in text or "torch.ops.prims." in text else "fx"
