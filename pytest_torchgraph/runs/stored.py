"""A saved run as files and as values.

    run.json             the environment, and whether every collected test ended (`RunInfo`)
    facts/WORKER.jsonl   a line for each test or fixture of wider scope (`SavedRecord`)
    graphs/KEY.tgraph    the graphs of a test or a capture; KEY is a digest of both files
    graphs/KEY.json      the source lines of their nodes

Nothing is trusted that is read: a file that is a link, has another digest than its name, or belongs
to another run that wrote into the same directory, makes the run damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..audit.facts import Cause
from ..errors import GraphFormatError, TorchGraphError
from ..files import append, decode, parse_json, read_bytes, write
from ..graph.events import GraphBreak
from ..graph.model import Graph, Source
from ..graph.program import Program
from ..graph.text import parse_file
from ..words import one_line

FORMAT = 1
RUN = "run.json"
_KIND = "pytest-torchgraph run"
_FACTS, _GRAPHS = "facts", "graphs"
_NAMES = {
    _FACTS: re.compile(r"[\w.@-]+\.jsonl"),
    _GRAPHS: re.compile(r"[0-9a-f]{32}\.(?:tgraph|json)"),
}
"""The names of files in each directory of a saved run."""
_KEY = re.compile(r"[0-9a-f]{32}|")
"""A key of graphs; "" stands for no graphs."""


@dataclass(frozen=True)
class RunInfo:
    """A run as a whole.

    Attributes:
        id: random, also in each line of the facts, so that two runs in one directory are noticed.
        complete: True if every collected test ended.
        problem: why the run is not complete; "" if it is, or if it did not end.
        isolated: True if each test started without code that others compiled.
        torch, versions: the version of torch, and of each installed package.
    """

    id: str
    torch: str
    versions: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    problem: str = ""
    isolated: bool = True
    format: int = FORMAT
    kind: str = _KIND


@dataclass(frozen=True)
class Repeat:
    """A recompile; see `watching.recompiles.Recompile`. `source` is the line of the first guard."""

    function: str
    file: str
    line: int
    reasons: tuple[str, ...]
    limit_hit: bool = False
    source: Source | None = None


@dataclass(frozen=True)
class SavedCapture:
    """A capture by a test.

    Attributes:
        graphs: the key of its graphs; "" if it has none.
        share: its `compiled_share`; `None` if unknown.
        breaks: its graph breaks.
        problem: why it has no graphs.
    """

    graphs: str = ""
    share: float | None = None
    breaks: tuple[GraphBreak, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class SavedRecord:
    """What a test, or a fixture of wider scope, compiled and captured.

    Attributes:
        outcome: the outcome of the test; "" for a fixture.
        compiles: True if anything was compiled, or ran compiled.
        graphs: the key of the compiled graphs; "" if there are none.
        captures: the captures, in order.
        breaks, recompiles: graph breaks and recompiles outside captures.
        eager: calls of compiled callables that ran eagerly, also past a recompile limit ("limit"),
            and why nothing was compiled.
        shared: True if code ran that another test had compiled.
        fixtures: the labels of the fixtures of wider scope that the test uses.
    """

    outcome: str = ""
    compiles: bool = False
    graphs: str = ""
    captures: tuple[SavedCapture, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Repeat, ...] = ()
    eager: tuple[Cause, ...] = ()
    shared: bool = False
    fixtures: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing was compiled, called or captured."""
        return not (self.compiles or self.captures or self.breaks or self.eager)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all graphs."""
        return (self.graphs, *(capture.graphs for capture in self.captures))


@dataclass(frozen=True)
class _Line:
    """A line of the facts.

    Attributes:
        run: the id of the run.
        name: the id of the test, or the label of the fixture.
        record: what it compiled and captured.
        fixture: True for a fixture.
    """

    run: str
    name: str
    record: SavedRecord
    fixture: bool = False


class RunWriter:
    """Writes into the directory of a run, from any process.

    Args:
        directory: the directory.
        info: the run.
        worker: name of the file with the facts of this process.
    """

    def __init__(self, directory: Path, info: RunInfo, worker: str = "main") -> None:
        self.directory, self.info, self.worker = directory.resolve(), info, worker
        self._written: set[str] = set()

    @property
    def _root(self) -> Path:
        """The directory. A test may put a link in its place, which must not lead elsewhere."""
        if (now := self.directory.resolve()) != self.directory:
            raise TorchGraphError(f"cannot write {self.directory}: it leads to {now}")
        return self.directory

    def prepare(self) -> None:
        """Remove an older run, and begin this one. Other files are refused.

        Raises:
            TorchGraphError: if the directory is a file, or has anything but a saved run.
        """
        old = _old_files(self.directory)
        # First, so that what is left of the older run is never taken for whole.
        self.write_info(self.info)
        for path in old:
            write(path, None, root=self._root)

    def write_info(self, info: RunInfo) -> None:
        """Write `run.json`.

        Raises:
            TorchGraphError: if another run has replaced this one.
        """
        if info != self.info and read_info(self.directory).id != info.id:
            raise TorchGraphError(f"another run was saved in {self.directory} at the same time")
        self.info = info
        text = f"{json.dumps(asdict(info), indent=1)}\n"
        write(self.directory / RUN, text, root=self._root)

    def write_record(self, name: str, record: SavedRecord, *, fixture: bool = False) -> None:
        """Write the line of a test, by its id, or of a fixture, by its label."""
        line = json.dumps(asdict(_Line(self.info.id, name, record, fixture)))
        path = self.directory / _FACTS / f"{self.worker}.jsonl"
        append(path, f"{line}\n", root=self._root)

    def write_graphs(self, program: Program) -> str:
        """Write graphs with the source lines of their nodes, and return their key."""
        program = program.canonical()
        text = f"{program.to_text('dataflow').rstrip()}\n"
        return self.write_texts(text, json.dumps(_sources(program)))

    def write_texts(self, text: str, sources: str) -> str:
        """Write graphs as text, and their sources, and return their key."""
        key = _key(text, sources)
        if key not in self._written:
            for suffix, content in (("json", sources), ("tgraph", text)):
                path = self.directory / _GRAPHS / f"{key}.{suffix}"
                write(path, content, root=self._root, sync=False)
            self._written.add(key)
        return key


def _key(text: str, sources: str) -> str:
    return hashlib.sha256(f"{text}\0{sources}".encode()).hexdigest()[:32]


def _old_files(directory: Path) -> list[Path]:
    """Return the facts and graphs of an older run, empty if there is none.

    Raises:
        TorchGraphError: if anything else is in the directory, which must not be removed.
    """
    if not os.path.lexists(directory):
        return []
    if not directory.is_dir():
        raise TorchGraphError(f"{str(directory)!r} is not a directory")
    found: list[Path] = []
    paths = [*directory.iterdir()]
    for path in paths:
        names = _NAMES.get(path.name)
        if names is not None and path.is_dir() and not path.is_symlink():
            inner = [*path.iterdir()]
            foreign = [each for each in inner if not names.fullmatch(each.name)]
            found += inner
        else:
            foreign = [] if path.name == RUN and path.is_file() else [path]
        if foreign:
            raise TorchGraphError(
                f"{str(directory)!r} has files that are no saved run, such as "
                f"{foreign[0].name!r}: choose a new or empty directory"
            )
    if not paths:
        return []
    read_info(directory, any_format=True)  # raises if `run.json` is missing, or of another program
    return found


def _sources(program: Program) -> dict[str, Any]:
    """Return the lines of the user's code, and for each graph the number of each node's line.

    The nodes are in the order of their names. A node without a line has -1.
    """
    lines: dict[tuple[Any, ...], int] = {}
    graphs: list[list[int]] = []
    for graph in _parts(program):
        numbers: list[int] = []
        for _, node in sorted(graph.by_name.items()):
            source = node.source
            if source is None:
                numbers.append(-1)
                continue
            line = (source.file, source.line, source.code, source.function, source.direct)
            numbers.append(lines.setdefault(line, len(lines)))
        graphs.append(numbers)
    return {"lines": [*map(list, lines)], "graphs": graphs}


def _parts(program: Program) -> Iterator[Graph]:
    for graph in program.graphs:
        yield from graph.walk()


# -- reading ---------------------------------------------------------------------------------------


def is_run(path: Any) -> bool:
    """Return True if a path is a directory with a saved run, whole or damaged."""
    return isinstance(path, str | os.PathLike) and os.path.isfile(os.path.join(path, RUN))


def read_info(directory: Path, *, any_format: bool = False) -> RunInfo:
    """Return the run as a whole.

    Args:
        directory: the directory of the run.
        any_format: True to read only what all versions have.

    Raises:
        GraphFormatError: if the file is damaged, or of another version.
    """
    path = directory / RUN
    data = _json(_read(path), path)
    if not isinstance(data, dict) or data.get("kind") != _KIND:
        raise GraphFormatError("not a saved run", path=str(path))
    if (version := data.get("format")) != FORMAT:
        if any_format:
            return RunInfo("", "")
        raise GraphFormatError(
            f"a saved run of format {one_line(str(version)[:20])}, but this version of "
            f"pytest-torchgraph reads format {FORMAT}: save both runs with one version",
            path=str(path),
        )
    info: RunInfo = _decoded(RunInfo, data, path)
    return info


@dataclass(frozen=True)
class SavedRun:
    """A saved run, as read from its directory.

    Attributes:
        directory: its directory.
        info: the run as a whole.
        tests: the last record of each test, by id.
        fixtures: the record of each fixture of wider scope, by label.
        orders: the ids of the tests, as each process ran them.
    """

    directory: Path
    info: RunInfo
    tests: Mapping[str, SavedRecord]
    fixtures: Mapping[str, SavedRecord]
    orders: Mapping[str, tuple[str, ...]]

    @cached_property
    def _texts(self) -> dict[str, tuple[str, str]]:
        """The files that were read so far, by key. Cached, so it is always the same dict."""
        return {}

    def texts(self, key: str) -> tuple[str, str]:
        """Return graphs as text, and their source lines; "" for the key "".

        Raises:
            GraphFormatError: if the files are not what was written.
        """
        if not key:
            return "", ""
        if key not in self._texts:
            path = self.directory / _GRAPHS / f"{key}.tgraph"
            texts = _read(path), _read(path.with_suffix(".json"))
            if _key(*texts) != key:
                raise GraphFormatError("damaged: this is not what was written", path=str(path))
            self._texts[key] = texts
        return self._texts[key]

    def program(self, key: str) -> Program:
        """Return the graphs of a key, with their source lines.

        Raises:
            GraphFormatError: if the files are damaged.
        """
        path = self.directory / _GRAPHS / f"{key}.tgraph"
        text, sources = self.texts(key)
        program = parse_file(text, path)
        hints = {"lines": list[tuple[str, int, str, str, bool]], "graphs": list[list[int]]}
        data = _decoded(hints, _json(sources, path), path)
        lines = [replace(Source(*line[:4]), direct=line[4]) for line in data["lines"]]
        numbers = iter(data["graphs"])
        try:
            graphs = tuple(_with_sources(graph, lines, numbers) for graph in program.graphs)
        except (IndexError, StopIteration, ValueError) as error:
            raise GraphFormatError(f"damaged source lines: {error}", path=str(path)) from None
        return replace(program, graphs=graphs)


def _with_sources(graph: Graph, lines: list[Source], numbers: Iterator[list[int]]) -> Graph:
    """Return a graph with source lines; see `_sources`.

    Args:
        graph: the graph, with its subgraphs.
        lines: all lines.
        numbers: yields the numbers for each graph, in the order of `Graph.walk`.
    """
    own = dict(zip(sorted(graph.by_name), next(numbers), strict=True))
    nodes = [
        replace(node, source=lines[own[node.name]]) if own[node.name] >= 0 else node
        for node in graph.nodes
    ]
    subgraphs = [_with_sources(each, lines, numbers) for each in graph.subgraphs]
    return replace(graph, nodes=tuple(nodes), subgraphs=tuple(subgraphs))


def read_run(directory: Path) -> SavedRun:
    """Read a saved run.

    Raises:
        GraphFormatError: if it is damaged, or of another version.
        OSError: if a file cannot be read.
    """
    info = read_info(directory)
    tests: dict[str, SavedRecord] = {}
    fixtures: dict[str, SavedRecord] = {}
    orders: dict[str, tuple[str, ...]] = {}
    for path in _facts_files(directory):
        text = _read(path)
        if text and not text.endswith("\n"):
            raise GraphFormatError("damaged: its last line is not whole", path=str(path))
        names: list[str] = []
        for number, row in enumerate(text.split("\n")[:-1], 1):
            line: _Line = _decoded(_Line, _json(row, path, number), path, number)
            if line.run != info.id:
                raise GraphFormatError("written by two runs at the same time", path=str(path))
            if not all(map(_KEY.fullmatch, line.record.keys)):
                raise GraphFormatError("not a key of graphs", number, path=str(path))
            # A test that ran again has several lines: the last one counts.
            (fixtures if line.fixture else tests)[line.name] = line.record
            names += [] if line.fixture else [line.name]
        orders[path.stem] = tuple(dict.fromkeys(names))
    return SavedRun(directory, info, tests, fixtures, orders)


def merge_runs(directories: Sequence[Path], output: Path) -> SavedRun:
    """Join the saved runs of shards, write the result, and return it.

    Raises:
        TorchGraphError: for a test in two runs, and for runs of different environments; if the
            output has anything but a saved run, or is one of the runs.
        OSError: if a file cannot be read.
    """
    runs = [*map(read_run, directories)]
    first = runs[0].info
    tests: dict[str, Path] = {}
    for run in runs:
        if run.directory.resolve() == output.resolve():
            raise TorchGraphError(f"{output} is one of the runs: choose another output")
        # All else must be equal: versions and isolation.
        environment = replace(run.info, id=first.id, complete=first.complete, problem=first.problem)
        if environment != first:
            raise TorchGraphError(
                f"{runs[0].directory} and {run.directory} were saved with different versions of "
                "packages, or with different isolation"
            )
        for name in run.tests:
            if name in tests:
                raise TorchGraphError(
                    f"{one_line(name)} is in two runs, {tests[name]} and {run.directory}"
                )
            tests[name] = run.directory
    problems = [run.info.problem or "the run did not end" for run in runs if not run.info.complete]
    info = replace(first, id=os.urandom(8).hex(), complete=False, problem="")
    writer = RunWriter(output, info)
    writer.prepare()
    for number, run in enumerate(runs):
        records = [*run.tests.items(), *run.fixtures.items()]
        for key in sorted({key for _, record in records for key in record.keys if key}):
            writer.write_texts(*run.texts(key))
        for worker, order in run.orders.items():
            # Two shards may have workers of one name.
            writer.worker = f"{number}-{worker}"
            for name in order:
                writer.write_record(name, run.tests[name])
        for label, record in run.fixtures.items():
            writer.write_record(label, record, fixture=True)
    writer.write_info(replace(info, complete=not problems, problem="; ".join(problems)))
    return read_run(output)


def _facts_files(directory: Path) -> list[Path]:
    """Return the files with facts, empty if no test was saved.

    Raises:
        GraphFormatError: if a directory of the run is a link.
    """
    folder = directory / _FACTS
    for each in (folder, directory / _GRAPHS):
        if each.is_symlink():
            raise GraphFormatError("a link, not a directory of a saved run", path=str(each))
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _read(path: Path) -> str:
    """Return the text of a file of a saved run.

    Raises:
        GraphFormatError: if it is a link, missing, or not UTF-8.
    """
    if path.is_symlink():
        raise GraphFormatError("a link, not a file of a saved run", path=str(path))
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise GraphFormatError(f"not UTF-8: {error.reason}", path=str(path)) from None
    except FileNotFoundError:
        raise GraphFormatError("missing in this saved run", path=str(path)) from None


def _json(text: str, path: Path, line: int = 1) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        raise GraphFormatError("damaged: not JSON", line, path=str(path)) from None


def _decoded(hint: Any, data: Any, path: Path, line: int = 1) -> Any:
    """Return JSON data as a value of a type; see `files.decode`.

    Args:
        hint: the type, or a dict of types by key.
        data: the data.
        path, line: where it was read, for the message.

    Raises:
        GraphFormatError: if the data has another form.
    """
    try:
        return decode(hint, data)
    except (TypeError, ValueError, KeyError) as error:
        raise GraphFormatError(one_line(f"damaged: {error}"), line, path=str(path)) from None
