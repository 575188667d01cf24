"""`diff`: differences of graphs, captures, ranks, stored files and directories.

`diff` turns each side into a `Program` and compares both, except for two paths (`_diff_paths`),
which also report the names of files, and one directory of artifacts (`_diff_artifacts`). A file of
torch's becomes a capture first (`_diff_read`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import GraphFormatError, TorchGraphError, only_counts_error
from ..graph.diff import (
    FilesDiff,
    GraphDiff,
    diff_files,
    diff_graphs,
    diff_programs,
    merge_edits,
    merge_ranks,
    whole,
)
from ..graph.equality import as_captured
from ..graph.model import Graph, Result
from ..graph.program import Program
from ..graph.text import Header, parse_file, read_text
from ..words import grouped, one_line
from .many_ranks import NO_RANKS, are_ranks
from .torch_files import Truncated, captures_in, kind_of

if TYPE_CHECKING:
    from .result import Capture

SUFFIX = ".tgraph"
# Version, up to two lines of origin and mesh, ranks, and the first line of a graph.
_DOCUMENT = re.compile(r"torchgraph \d+\n(?:.+\n){0,2}\n(?:ranks? .*\n\n)?.*\{\n")
_ORIGIN = re.compile(r"\btorch [^\s,]+(?:, )?|\bvia [^\s,]+(?:, )?")


def diff(a: Any, b: Any = None, *, truncated: Truncated = "refuse") -> GraphDiff:
    """Return the difference from `a` to `b`, as the public `diff` does, except of saved runs."""
    if b is None:
        return _diff_artifacts(a)
    if _is_path(a) and _is_path(b):
        return _diff_paths(Path(a), Path(b), truncated)
    if _is_path(a) or _is_path(b):
        path, live = (a, b) if _is_path(a) else (b, a)
        if (found := captures_in(Path(path), truncated)) is not None:
            if are_ranks(live):
                raise TypeError(f"{path} has no ranks of a mesh: compare one rank, ranks[0]")
            capture = _only(found, Path(path), "the other side")
            return diff(*((capture, b) if _is_path(a) else (a, capture)))
        program = _program_beside(Path(path), live)
        a, b = (program, b) if _is_path(a) else (a, program)
    old, new = _program(a), _program(b)
    if bool(old.sections) != bool(new.sections):  # only programs of ranks have sections
        other_type = type(b if old.sections else a).__name__
        raise TypeError(
            f"ranks can only be compared with ranks, not with a {other_type}: to compare one rank, "
            "pass ranks[0]"
        )
    # Without this, watches of code that was compiled before them would be equal.
    for side in (a, b):
        if getattr(side, "watched", None) is not None:
            from ..checks.compilation import need_recorded

            need_recorded(side.watched)
    if not (old.graphs or new.graphs):
        from ..checks.compilation import need_graphs

        need_graphs(a)
    if getattr(a, "watched", None) is not None and getattr(b, "watched", None) is not None:
        from .record_differences import diff_records

        return _with_releases(diff_records(a, b), a.header.torch, b.header.torch)
    if len(old.graphs) == len(new.graphs) == 1 and not old.sections:
        before, after = _comparable(old.graphs[0], new.graphs[0])
        return diff_graphs((before,), (after,))
    difference, _ = diff_programs(old, new)
    assert difference is not None
    return difference


def _with_releases(difference: GraphDiff, *torch: str) -> GraphDiff:
    """Return a difference that names the releases of torch if they differ."""
    if not all(torch) or torch[0] == torch[1]:
        return difference
    files = difference.files or FilesDiff((), of_directories=False)
    return replace(difference, files=replace(files, releases={"torch": (torch[0], torch[1])}))


def _is_path(side: Any) -> bool:
    return isinstance(side, str | os.PathLike)


def _program_beside(path: Path, live: Any) -> Program:
    """Read the file to compare with a graph, a capture or ranks."""
    if path.is_dir():
        raise TypeError(
            f"{path} is a directory, but a {type(live).__name__} can only be compared with a "
            f"{SUFFIX} file or a log of torch, which a process writes only if it compiles"
        )
    program = parse_file(read_text(path), path)
    if bool(program.sections) != are_ranks(live):
        kinds = ("ranks", "one capture")
        kind_of_live, kind_of_file = kinds if are_ranks(live) else kinds[::-1]
        one_rank = "ranks[0]" if are_ranks(live) else f"load({str(path)!r})[0]"
        raise TypeError(
            f"{path} contains the graphs of {kind_of_file}, but the other side has the graphs of "
            f"{kind_of_live}: to compare one rank, pass {one_rank}"
        )
    if not program.graphs:
        raise only_counts_error(path)
    return program


def _program(side: Any) -> Program:
    """Return the graphs of one side. Equal ranks become one section, with their common graphs."""
    if isinstance(side, Program):
        return side
    if isinstance(side, Graph):
        return Program(Header(), (side,))
    if not are_ranks(side):
        from .existing import graphs_of

        return Program(Header(), graphs_of(side))
    if not side.ranks:
        raise TorchGraphError(f"nothing to compare: {NO_RANKS}")
    # Captures are equal, and have equal hashes, if their graphs are.
    classes = grouped(
        (capture, rank)
        for rank, capture in sorted(zip(side.ranks, side, strict=True), key=lambda item: item[0])
    )
    sections = [
        (ranks, Program(Header(), first_capture.program))
        for first_capture, ranks in classes.items()
    ]
    return Program.of_ranks(side.mesh, sections)


# -- graphs without shapes -------------------------------------------------------------------------


def _comparable(a: Graph, b: Graph) -> tuple[Graph, Graph]:
    """Remove the results from two graphs, and from subgraphs, if only one of the two has any.

    A torch.fx graph has no dtypes and shapes before a pass has written them into its meta.
    """
    if _has_results(a) != _has_results(b):
        # In a captured graph, aliases such as `detach` are autograd's and count as no-ops.
        if not (a.given and b.given):
            a, b = as_captured(a), as_captured(b)
        a, b = _without_results(a), _without_results(b)
    if not a.subgraphs or not b.subgraphs:
        return a, b
    bodies_a = dict(a.subgraphs_by_name)
    bodies_b = dict(b.subgraphs_by_name)
    for name in bodies_a.keys() & bodies_b.keys():
        bodies_a[name], bodies_b[name] = _comparable(bodies_a[name], bodies_b[name])
    a = replace(a, subgraphs=tuple(bodies_a.values()))
    return a, replace(b, subgraphs=tuple(bodies_b.values()))


def _has_results(graph: Graph) -> bool:
    """Return True if any node has a result, except attributes, whose results need no pass."""
    return any(_is_known(node.result) for node in graph.nodes if node.kind != "get_attr")


def _is_known(result: Result) -> bool:
    return any(map(_is_known, result)) if isinstance(result, tuple) else result is not None


def _without_results(graph: Graph) -> Graph:
    """Remove the results of all nodes, except those that `_has_results` ignores."""
    nodes = [
        node
        if graph.given and node.kind == "get_attr"
        else replace(node, result=() if isinstance(node.result, tuple) else None)
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


# -- files and directories -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """The difference of two files.

    Attributes:
        diff: difference of their graphs.
        counts: differing lines of op counts, if a file holds only op counts.
        releases: releases of torch, if they differ.
        renamed: True if the texts differ but the graphs are equal.
    """

    diff: GraphDiff = field(default_factory=lambda: GraphDiff(()))
    counts: tuple[str, ...] = ()
    releases: tuple[str, str] | None = None
    renamed: bool = False


def _diff_read(before: Path, after: Path, truncated: Truncated) -> GraphDiff | None:
    """Compare two files of torch's, or one with a stored graph; `None` if neither is torch's."""
    sides = [captures_in(path, truncated) for path in (before, after)]
    if sides == [None, None]:
        return None
    old, new = sides
    if old is None or new is None:  # a stored graph, which `diff` reads
        if old is None:
            return diff(before, _only(new or [], after, str(before)))
        return diff(_only(old, before, str(after)), after)
    if len(old) == len(new) == 1:
        return diff(old[0], new[0])
    by_rank = [{capture.rank: capture for capture in side} for side in (old, new)]
    if by_rank[0].keys() != by_rank[1].keys():
        ranks = [", ".join(map(str, sorted(map(str, side)))) for side in by_rank]
        raise TorchGraphError(f"the logs have different ranks: {ranks[0]} and {ranks[1]}")
    # A process without a rank, one at most on each side, counts as rank 0.
    parts = [
        ((rank or 0,), diff(capture, by_rank[1][rank])) for rank, capture in by_rank[0].items()
    ]
    return _with_releases(merge_ranks(parts), old[0].header.torch, new[0].header.torch)


def _only(captures: Sequence[Capture], path: Path, other: str) -> Capture:
    """Return the only capture in a file.

    Raises:
        GraphFormatError: if there are several.
    """
    if len(captures) != 1:
        raise GraphFormatError(
            f"several processes compiled graphs: compare load({str(path)!r})[0] with {other}",
            path=str(path),
        )
    return captures[0]


def _diff_paths(before: Path, after: Path, truncated: Truncated) -> GraphDiff:
    """Compare two files or two directories, stored graphs or files of torch's."""
    if before.is_dir() != after.is_dir():
        for path in (before, after):
            path.stat()  # raises with the missing path
        kinds = ("a directory", "a file") if before.is_dir() else ("a file", "a directory")
        raise TypeError(
            f"{before} is {kinds[0]}, but {after} is {kinds[1]}: compare two files or two "
            "directories"
        )
    if (difference := _diff_read(before, after, truncated)) is not None:
        return difference
    if before.is_dir():
        return _diff_directories(_files(before), _files(after), f"in {before} or {after}")
    name = one_line(after.name)
    pair = _compare_files(before, after)
    findings = tuple(replace(finding, files=(name,)) for finding in pair.diff.findings)
    files = replace(_files_diff({name: pair}), of_directories=False)
    return replace(pair.diff, findings=findings, files=files)


def _diff_artifacts(directory: Any) -> GraphDiff:
    """Compare the stored with the received texts in an artifacts directory."""
    if not _is_path(directory):
        raise TypeError(f"diff takes two sides, or one directory, not a {type(directory).__name__}")
    path = Path(directory)
    path.stat()  # raises for a missing path
    if not path.is_dir():
        raise TypeError(f"{directory} is a file: pass a second file to compare it with")
    files = _files(path)
    expected, received = (
        {name.removesuffix(end): path for name, path in files.items() if name.endswith(end)}
        for end in (f".expected{SUFFIX}", f".received{SUFFIX}")
    )
    where = f"in {directory}: run pytest --torchgraph-artifacts=DIR, which saves failed comparisons"
    return _diff_directories(expected, received, where)


def _diff_directories(
    files: Mapping[str, Path], new_files: Mapping[str, Path], where: str
) -> GraphDiff:
    """Compare the files with equal names on both sides.

    Args:
        files, new_files: the old and the new files, by name.
        where: text about the searched location, for the error if there are no files.
    """
    if not files and not new_files:
        raise TorchGraphError(f"no {SUFFIX} file {where}")
    pairs: dict[str, _Pair] = {}
    compared_texts: dict[tuple[str, str], _Pair] = {}
    unreadable: dict[str, str] = {}
    in_both = tuple(name for name in files if name in new_files)
    for name in in_both:
        try:
            pairs[name] = _compare_files(files[name], new_files[name], compared_texts)
        except GraphFormatError as error:
            unreadable[name] = str(error)
        except Exception as error:  # whatever the texts of a stranger contain
            reason = getattr(error, "strerror", None) or error
            unreadable[name] = one_line(f"{name}: {reason}")
    listed = replace(
        _files_diff(pairs),
        compared=in_both,
        added=tuple(name for name in new_files if name not in files),
        removed=tuple(name for name in files if name not in new_files),
        unreadable=unreadable,
    )
    items = [(name, finding) for name, pair in pairs.items() for finding in pair.diff.findings]
    raw = tuple(graphs for pair in pairs.values() for graphs in pair.diff.graphs)
    return GraphDiff(merge_edits(items, upgraded=listed.releases.keys()), raw, listed)


def _files_diff(pairs: Mapping[str, _Pair]) -> FilesDiff:
    """Return the names of the files of pairs, by what differs in them."""
    return FilesDiff(
        compared=tuple(pairs),
        changed=tuple(name for name, pair in pairs.items() if pair.diff or pair.counts),
        renamed=tuple(name for name, pair in pairs.items() if pair.renamed),
        counts={name: pair.counts for name, pair in pairs.items() if pair.counts},
        releases={name: pair.releases for name, pair in pairs.items() if pair.releases},
    )


def _files(directory: Path) -> dict[str, Path]:
    """Return the files below a directory by relative path, sorted."""
    files: dict[str, Path] = {}
    found = [path for path in sorted(directory.rglob("*")) if not path.is_dir()]
    # A directory holds one kind: without stored graphs, all else that holds graphs is compared.
    stored = [path for path in found if path.suffix == SUFFIX]
    for path in stored or found:
        if stored or kind_of(path, strict=False):
            name = os.fsencode(path.relative_to(directory).as_posix())
            shown = one_line(name.decode("utf-8", "backslashreplace"))
            while shown in files:  # no file hides another one
                shown = f"?{shown}"
            files[shown] = path
    return dict(sorted(files.items()))


def _compare_files(
    before: Path, after: Path, compared_texts: dict[tuple[str, str], _Pair] | None = None
) -> _Pair:
    """Compare two files.

    Args:
        before, after: the files.
        compared_texts: for directories, the results for texts that were already compared, because
            many tests may store the same graphs. Updated.
    """
    if (difference := _diff_read(before, after, "refuse")) is not None:
        releases = difference.files.releases.get("torch") if difference.files else None
        return _without_graphs(_Pair(difference, releases=releases))
    # In a directory of a stranger, a link may lead to a device.
    texts = read_text(before, only_files=True), read_text(after, only_files=True)
    # Any other text is parsed even if both are equal, because it may be malformed.
    if _is_document(texts[0]) and _comparable_text(texts[0]) == _comparable_text(texts[1]):
        return _Pair()
    if compared_texts is None:
        return _compare_texts(texts, before, after)
    if texts not in compared_texts:
        compared_texts[texts] = _without_graphs(_compare_texts(texts, before, after))
    return compared_texts[texts]


def _compare_texts(texts: tuple[str, str], before: Path, after: Path) -> _Pair:
    """Compare the texts of two stored files.

    Raises:
        GraphFormatError: for a malformed text, and for files that cannot be compared.
    """
    old, new = parse_file(texts[0], before), parse_file(texts[1], after)
    torch = old.header.torch, new.header.torch
    releases = torch if all(torch) and torch[0] != torch[1] else None
    if bool(old.sections) != bool(new.sections):
        single, ranks = (after, before) if old.sections else (before, after)
        problem = (
            f"this file stores a single capture, but {ranks} stores several ranks: to compare one "
            f"rank, pass load({str(ranks)!r})[0]"
        )
        raise GraphFormatError(problem, path=str(single))
    try:
        diff, counts = diff_files(old, new)
    except TorchGraphError as error:
        raise GraphFormatError(str(error), path=str(after)) from None
    renamed = diff is not None and not diff and not counts
    return _Pair(diff or GraphDiff(()), tuple(counts), releases, renamed)


def _without_graphs(pair: _Pair) -> _Pair:
    """Return a difference without its graphs, which would need much memory for many files."""
    graphs: Iterable[Any] = (
        replace(graph_diff, before=None, after=None) for graph_diff in pair.diff.graphs
    )
    return replace(pair, diff=GraphDiff(tuple(map(whole, pair.diff.findings)), tuple(graphs)))


def _is_document(text: str) -> bool:
    """Return True if a text is surely a list of graphs, so that equal texts need no parsing."""
    return _DOCUMENT.match(text) is not None and "\n<<<<<<< " not in text


def _comparable_text(text: str) -> tuple[str, str]:
    """Return a document without its origin: the mechanism and the torch release."""
    header, _, body = text.partition("\n\n")
    return _ORIGIN.sub("", header).rstrip(" ,\n"), body
