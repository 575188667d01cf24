"""The baseline of an audit: a JSON file with one line per compiled function and per test.

The file has one section per torch release. All lines are sorted, so recording twice writes the same
bytes, and two branches that each add a test change different lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import TorchGraphError
from ..files import decode, parse_json, read_bytes
from .facts import TestFacts

VERSION = 2
_MARK = "torchgraph-audit"
_END = "end"
"""Key of the last line, which never changes. Without it, appending a test would change two lines,
because JSON allows no comma after the last entry.
"""
_DOCUMENT = {"torch": dict[str, dict[str, dict[str, Any]]]}
_E = TypeVar("_E")


class BaselineError(TorchGraphError):
    """The file is not a valid baseline. The message names the position and the remedy."""


class OldBaselineError(BaselineError):
    """The file is a baseline of pytest-torchgraph 0.2, which compared only tests."""


@dataclass(frozen=True, slots=True)
class Function:
    """A compiled function in the baseline, merged over all tests; see `FunctionFacts`.

    Attributes:
        ops, backends, backward, nested: as in `FunctionFacts`.
    """

    ops: tuple[int, ...] = ()
    backends: tuple[str, ...] = ()
    backward: bool = False
    nested: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values, without empty values."""
        return {name: value for name, value in asdict(self).items() if value}

    def __or__(self, other: Function) -> Function:
        return Function(
            tuple(sorted({*self.ops, *other.ops})),
            tuple(sorted({*self.backends, *other.backends})),
            self.backward or other.backward,
            self.nested or other.nested,
        )


def functions_of(facts: Iterable[TestFacts]) -> dict[str, Function]:
    """Merge the facts of all tests about each function."""
    functions: dict[str, Function] = {}
    for test in facts:
        for function in test.functions:
            entry = Function(function.ops, function.backends, function.backward, function.nested)
            functions[function.key] = functions.get(function.key, Function()) | entry
    return functions


@dataclass(frozen=True, slots=True)
class Entry:
    """A test in the baseline; see `TestFacts`.

    Attributes:
        graphs, ops, backwards, backends, shared: as in `TestFacts`.
        compiles, nested: as in `TestFacts`.
        causes: the count of each cause, by `Cause.key`.
        calls: the keys of the compiled callables that the test itself called, sorted.
    """

    graphs: int = 0
    ops: int = 0
    backwards: int = 0
    backends: tuple[str, ...] = ()
    shared: bool = False
    compiles: bool = False
    nested: bool = False
    causes: Mapping[str, int] = field(default_factory=dict)
    calls: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: TestFacts) -> Entry:
        """Return the entry for the facts of a test."""
        causes = {cause.key: cause.count for cause in facts.causes}
        return cls(
            facts.graphs,
            facts.ops,
            facts.backwards,
            facts.backends,
            facts.shared,
            facts.compiles,
            facts.nested,
            dict(sorted(causes.items())),
            tuple(sorted(facts.called)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values, without zeros and empty values; `graphs` is always included."""
        values = asdict(self)
        values["compiles"] = self.compiles and not self.graphs  # a graph implies it
        return {name: value for name, value in values.items() if value or name == "graphs"}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str) -> Entry:
        """Restore the entry from `to_json`.

        Raises:
            ValueError: if the values are malformed.
        """
        entry: Entry = decode(cls, values, where)
        return replace(entry, compiles=entry.compiles or entry.graphs > 0)


@dataclass
class ReleaseSection:
    """The section of the baseline for one torch release.

    Attributes:
        tests: the entries of tests, by test id.
        functions: the entries of compiled functions, by key.
    """

    tests: dict[str, Entry] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


Baseline = dict[str, ReleaseSection]
"""Sections by torch release, as `major.minor`."""


def read(path: Path, *, pytest: str = "pytest") -> Baseline:
    """Read a baseline.

    Args:
        path: the file.
        pytest: the command that runs the baseline's tests, for messages.

    Raises:
        BaselineError: if the file does not exist or is not a valid baseline.
        OldBaselineError: if release 0.2 recorded the file.
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except FileNotFoundError:
        raise BaselineError(
            f"{path}: no baseline exists. To create it: {pytest} --torchgraph-audit=record"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BaselineError(f"{path}: cannot be read: {reason}") from error
    remedy = f"record it again: {pytest} --torchgraph-audit=record"
    # Check before parsing, because `json` would report a conflict marker only as a syntax error.
    if conflict := _conflict(text):
        raise BaselineError(f"{path}:{conflict}: merge conflict: resolve it, or {remedy}")
    try:
        document = parse_json(text, _without_repetition)
    except ValueError as error:
        raise BaselineError(f"{path}: invalid baseline ({error}); {remedy}") from error
    if not isinstance(document, dict) or _MARK not in document:
        raise BaselineError(
            f"{path}: not a baseline written by --torchgraph-audit: delete the file, or set "
            "torchgraph_audit_file to another path"
        )
    if document[_MARK] == 1:
        raise OldBaselineError(
            f"{path}: recorded by pytest-torchgraph 0.2, which compared no functions; {remedy}"
        )
    if document[_MARK] != VERSION:
        raise BaselineError(
            f"{path}: version {document[_MARK]!r}, but this release of pytest-torchgraph reads "
            f"{VERSION}; {remedy}"
        )
    try:
        sections = decode(_DOCUMENT, document, "file")["torch"]
        return {
            release: ReleaseSection(
                _entries(section["tests"], Entry.from_json),
                _entries(section["functions"], partial(decode, Function)),
            )
            for release, section in sections.items()
            # Raises for another release than `2.13`: `to_text` sorts by these numbers.
            if [*map(int, release.split("."))]
        }
    except (KeyError, TypeError, ValueError) as error:
        missing = "missing key " if isinstance(error, KeyError) else ""
        raise BaselineError(f"{path}: invalid baseline ({missing}{error}); {remedy}") from error


def _entries(values: Mapping[str, Any], read_entry: Callable[[Any, str], _E]) -> dict[str, _E]:
    """Return the entries of a part of the file, without its last line.

    Args:
        values: the JSON values of the entries, by key.
        read_entry: converts the values of an entry. Takes the key as well, for messages.
    """
    return {key: read_entry(entry, key) for key, entry in values.items() if key != _END}


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of the file, refusing duplicate keys.

    A merge that keeps both sides may leave a test twice.

    Raises:
        ValueError: if a key occurs twice.
    """
    # `json` keeps only the last of two equal keys, without an error.
    entries = dict(pairs)
    if len(entries) < len(pairs):
        (repeated_key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"{repeated_key} occurs twice")
    return entries


def _conflict(text: str) -> int:
    """Return the line number of the first conflict marker of git; 0 if there is none."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if line.startswith("<<<<<<< ")), 0)


def to_text(baseline: Baseline) -> str:
    """Return the text of a baseline. Equal baselines have equal texts.

    Each entry has a line of its own with a comma, so that two branches that add entries change
    different lines.
    """
    lines = [f'{{"{_MARK}": {VERSION},', '"torch": {']
    # Sort releases as numbers, because as text 2.10 would come before 2.9.
    sections = sorted(baseline.items(), key=lambda item: [*map(int, item[0].split("."))])
    for number, (release, section) in enumerate(sections):
        lines.append(f'{json.dumps(release)}: {{"functions": {{')
        lines += _lines(section.functions)
        lines.append(f'"{_END}": 0}}, "tests": {{')
        lines += _lines(section.tests)
        lines.append(f'"{_END}": 0}}}}' + ("," if number < len(sections) - 1 else ""))
    text = "\n".join([*lines, "}}"]) + "\n"
    # A lone surrogate of a stranger's baseline cannot be encoded; this escape is that of JSON.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _lines(entries: Mapping[str, Entry | Function]) -> Iterator[str]:
    """Yield the line of each entry, with a comma, because `_END` follows."""
    for key, entry in sorted(entries.items()):
        yield f"{json.dumps(key)}: {json.dumps(entry.to_json(), ensure_ascii=False)},"


def merge(shards: Sequence[Baseline], base: Baseline | None = None) -> Baseline:
    """Merge the baselines recorded by several CI shards of one run.

    Each shard recorded the tests that it ran, and kept all other entries of the base. Therefore, an
    entry that differs from the base is new, and an entry that any shard lacks is gone. If two
    shards recorded the same test, the last shard wins.

    Args:
        shards: the baselines recorded by the shards.
        base: the baseline that all shards started from; `None` if there was none.
    """
    merged: Baseline = {}
    for release in {release for shard in shards for release in shard}:
        before = (base or {}).get(release, ReleaseSection())
        sections = [shard[release] for shard in shards if release in shard]
        tests = [section.tests for section in sections]
        functions = [section.functions for section in sections]
        merged[release] = ReleaseSection(
            # A test runs in one shard, so a second entry replaces the first. Tests of several
            # shards can compile one function, so the entries of a function are joined.
            _merge_entries(tests, before.tests, lambda _, entry: entry),
            _merge_entries(functions, before.functions, lambda recorded, entry: recorded | entry),
        )
    return merged


def _merge_entries(
    shards: Sequence[Mapping[str, _E]],
    before: Mapping[str, _E],
    merge_changed: Callable[[_E, _E], _E],
) -> dict[str, _E]:
    """Merge the entries of shards.

    Args:
        shards: the entries of each shard.
        before: the entries of the baseline from which all shards started.
        merge_changed: merges the entry so far and that of a further shard, if both were changed.
    """
    # All entries first, of any shard. Changed ones replace them below, whatever the order.
    merged = {key: entry for shard in shards for key, entry in shard.items()}
    changed: set[str] = set()
    for shard in shards:
        for key, entry in shard.items():
            if before.get(key) != entry:
                merged[key] = merge_changed(merged[key], entry) if key in changed else entry
                changed.add(key)
        for key in before.keys() - shard.keys():
            # This shard removed the entry, so remove it unless another shard changed it.
            if merged.get(key) == before[key]:
                del merged[key]
    return merged
