"""Stored graphs compared with stored graphs: two files, or all files of two directories."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import GraphFormatError, TorchGraphError
from ..graph.diff.cause_table import cause_lines, some
from ..graph.diff.causes import Cause, causes_of
from ..graph.diff.counts import differing_counts
from ..graph.diff.described import CauseInWords, cause_in_words
from ..graph.diff.findings import GraphDiff
from ..graph.diff.ranks import diff_of_ranks, same_ranks
from ..graph.diff.report import diff_graphs
from ..graph.text.files import parse_any_file, read_text
from ..graph.text.parse import Document
from ..words import counted, format_ranks

SUFFIX = ".tgraph"
MAX_FILES = 10
"""How many files that came, went or cannot be read are named."""
_DOCUMENT = re.compile(r"torchgraph \d+\n(?:.+\n){0,2}\n(?:ranks? .*\n\n)?.*\{\n")
_ORIGIN = re.compile(r"\btorch [^\s,]+(?:, )?|\bvia [^\s,]+(?:, )?")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What distinguishes two sets of stored graphs; false where nothing does.

    Files are called by their paths relative to the directories, as `tests/__snapshots__/a.tgraph`.

    Attributes:
        causes: one for each edit with all the files that it is found in, those in most files first.
        compared: the files that both sides have.
        added: the files that only the new side has.
        removed: the files that only the old side has.
        counts: the lines that differ between files of which one holds op counts alone.
        renamed: files of which the texts differ and the graphs do not: in names, strides or
            devices alone, which is no difference.
        unreadable: for each file that cannot be read or is malformed, on either side, why.
        releases: for each file whose two sides were captured by different releases of torch, these.
    """

    causes: tuple[Cause, ...]
    compared: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    counts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    releases: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.causes or self.added or self.removed or self.counts or self.unreadable)

    @property
    def changed(self) -> tuple[str, ...]:
        """The files that both sides have and that differ, in the order of `compared`."""
        differ = {file for cause in self.causes for file in cause.files} | self.counts.keys()
        return tuple(file for file in self.compared if file in differ)

    def in_words(self) -> list[CauseInWords]:
        """The causes in words."""
        return [cause_in_words(cause) for cause in self.causes]

    def files_by_counts(self) -> dict[tuple[str, ...], list[str]]:
        """The files whose op counts differ, by the lines that differ."""
        found: dict[tuple[str, ...], list[str]] = {}
        for file, lines in self.counts.items():
            found.setdefault(lines, []).append(file)
        return found

    def heading(self) -> str:
        """What differs, counted, in one line: `14 of 200 files differ by 1 cause; 1 file added`."""
        parts = []
        if self.changed:
            verb = "differs" if len(self.changed) == 1 else "differ"
            causes = f" by {counted(len(self.causes), 'cause')}" if self.causes else ""
            total = counted(len(self.compared), "file")
            parts.append(f"{len(self.changed):,} of {total} {verb}{causes}")
        for word, files in (("added", self.added), ("removed", self.removed)):
            if files:
                parts.append(f"{counted(len(files), 'file')} {word}")
        if self.unreadable:
            parts.append(f"{counted(len(self.unreadable), 'file')} cannot be read")
        return "; ".join(parts) or f"no difference in {counted(len(self.compared), 'file')}"

    def to_text(self, limit: int | None = MAX_FILES) -> str:
        """The heading, the causes, and the files that stand on one side alone or cannot be read.

        Args:
            limit: how many causes are listed, and how many of the other files; None for all.
        """
        lines = [self.heading()]
        if releases := dict.fromkeys(self.releases.values()):
            pairs = [f"{old} -> {new}" for old, new in releases]
            lines.append(f"torch {some(pairs, limit)}")
        lines += cause_lines(self.in_words(), limit=limit)
        for differing, named in [*self.files_by_counts().items()][:limit]:
            lines += [f"~ op counts: {some(differing, limit)}", f"    in {some(named, limit)}"]
        for sign, word, files in (
            ("+", "added", self.added),
            ("-", "removed", self.removed),
            ("=", "other names, strides or devices alone", self.renamed),
        ):
            if files:
                lines.append(f"{sign} {word}: {some(files, limit)}")
        lines += [f"! {problem}" for problem in self.unreadable.values()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


def compare(old: str | os.PathLike[str], new: str | os.PathLike[str] | None = None) -> Comparison:
    """What distinguishes two files, or all `.tgraph` files of two directories, without torch.

    In directories, and those below them, files of the same relative path are compared; one that
    only one side has is listed, and so is one that cannot be read. Of two files an error is raised.

    Args:
        old, new: both files, or both directories. Without `new`, `old` is a directory that
            `--torchgraph-artifacts` wrote: what was stored is compared with what was captured.

    Raises:
        GraphFormatError: if one of two files is malformed, with line and column.
        TorchGraphError: for a file and a directory, and for two directories without any `.tgraph`
            file: nothing would have been compared.
        OSError: for a path that is not there or cannot be read.
    """
    if new is None:
        return _compare_directories(
            *_artifacts(Path(old)), f"in {old}: no test left its texts there"
        )
    before, after = Path(old), Path(new)
    if before.is_dir() != after.is_dir():
        for path in (before, after):
            path.stat()  # says which one is not there
        kinds = ("a directory", "a file") if before.is_dir() else ("a file", "a directory")
        raise TorchGraphError(
            f"{before} is {kinds[0]} and {after} is {kinds[1]}: compare two files, or two "
            "directories"
        )
    if not before.is_dir():
        pair = _compare_files(before, after, {})
        return _comparison({after.name: pair})
    return _compare_directories(_files(before), _files(after), f"in {before}, nor in {after}")


def _compare_directories(
    files: Mapping[str, Path], others: Mapping[str, Path], where: str
) -> Comparison:
    """Compare the files of two sides that have the same name.

    Args:
        files, others: the old files and the new ones, by their names.
        where: where they were looked for, to say that there are none.
    """
    if not files and not others:
        raise TorchGraphError(f"there is no {SUFFIX} file {where}")
    pairs: dict[str, _Pair] = {}
    known: dict[tuple[str, str], _Pair] = {}
    unreadable: dict[str, str] = {}
    for name in files:
        if name not in others:
            continue
        try:
            pairs[name] = _compare_files(files[name], others[name], known)
        except GraphFormatError as error:
            unreadable[name] = str(error)
        except OSError as error:
            unreadable[name] = f"{error.filename or name}: {error.strerror or error}"
    found = _comparison(pairs)
    return replace(
        found,
        compared=tuple(name for name in files if name in others),
        added=tuple(name for name in others if name not in files),
        removed=tuple(name for name in files if name not in others),
        unreadable=unreadable,
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """What distinguishes two files.

    Attributes:
        diff: the difference of their graphs; None where their texts are the same, or one holds op
            counts alone.
        counts: the lines that differ of op counts.
        releases: the releases of torch, where they differ.
        renamed: whether the texts differ and the graphs do not.
    """

    diff: GraphDiff | None = None
    counts: tuple[str, ...] = ()
    releases: tuple[str, str] | None = None
    renamed: bool = False


def _comparison(pairs: Mapping[str, _Pair]) -> Comparison:
    releases = {name: pair.releases for name, pair in pairs.items() if pair.releases is not None}
    diffs = [(name, pair.diff) for name, pair in pairs.items() if pair.diff]
    causes = sorted(causes_of(diffs, upgraded=releases.keys()), key=lambda each: -len(each.files))
    return Comparison(
        tuple(causes),
        compared=tuple(pairs),
        counts={name: pair.counts for name, pair in pairs.items() if pair.counts},
        renamed=tuple(name for name, pair in pairs.items() if pair.renamed),
        releases=releases,
    )


def _files(directory: Path) -> dict[str, Path]:
    """The files below a directory by their paths relative to it, sorted by these."""
    found = (path for path in directory.rglob(f"*{SUFFIX}") if not path.is_dir())
    named = {_shown(path.relative_to(directory).as_posix()): path for path in found}
    return dict(sorted(named.items()))


def _artifacts(directory: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """The stored and the captured texts of a directory of artifacts, by their common names."""
    if not directory.is_dir():
        directory.stat()
        raise TorchGraphError(f"{directory} is a file: say what to compare it with")
    every = _files(directory)
    expected, received = (
        {name.removesuffix(end): path for name, path in every.items() if name.endswith(end)}
        for end in (f".expected{SUFFIX}", f".received{SUFFIX}")
    )
    return expected, received


def _shown(path: str) -> str:
    """A path that can be printed: bytes in it that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _compare_files(before: Path, after: Path, known: dict[tuple[str, str], _Pair]) -> _Pair:
    """Compare two files.

    Args:
        before, after: the files.
        known: texts that were compared, for tests that store the same graphs; updated.
    """
    texts = read_text(before), read_text(after)
    if _is_document(texts[0]) and _comparable(texts[0]) == _comparable(texts[1]):
        return _Pair()
    if texts not in known:
        known[texts] = _compare_texts(texts, before, after)
    return known[texts]


def _compare_texts(texts: tuple[str, str], before: Path, after: Path) -> _Pair:
    old, new = parse_any_file(texts[0], before), parse_any_file(texts[1], after)
    torch = old.header.torch, new.header.torch
    releases = torch if all(torch) and torch[0] != torch[1] else None
    if isinstance(old, Document) and isinstance(new, Document):
        return replace(_compare_programs(old, new), releases=releases)
    if isinstance(old, Document) or isinstance(new, Document):
        one, ranks = (before, after) if isinstance(old, Document) else (after, before)
        problem = f"the graphs of one capture, and {ranks} has those of ranks"
        raise GraphFormatError(problem, path=str(one))
    try:
        pairs = [
            (ranks, _compare_programs(one, other)) for ranks, one, other in same_ranks(old, new)
        ]
    except TorchGraphError as error:
        raise GraphFormatError(str(error), path=str(after)) from None
    found = diff_of_ranks((ranks, pair.diff) for ranks, pair in pairs)
    counts = [f"{format_ranks(ranks)}: {line}" for ranks, pair in pairs for line in pair.counts]
    return _Pair(found or None, tuple(counts), releases, renamed=not found and not counts)


def _compare_programs(old: Document, new: Document) -> _Pair:
    if (old.counts or new.counts) and not (old.graphs and new.graphs):
        return _Pair(counts=tuple(differing_counts(old, new)))
    diff = diff_graphs(old.graphs, new.graphs)
    for finding in diff.findings:
        _ = finding.cost  # which lets go of all nodes that were matched: there may be many files
    return _Pair(diff, renamed=not diff)


def _is_document(text: str) -> bool:
    """Whether a text looks like stored graphs: then it need not be read to be equal to another."""
    return _DOCUMENT.match(text) is not None and "\n<<<<<<< " not in text


def _comparable(text: str) -> tuple[str, str]:
    """A document without its origin, the mechanism and the release of torch."""
    header, _, body = text.partition("\n\n")
    return _ORIGIN.sub("", header).rstrip(" ,\n"), body
