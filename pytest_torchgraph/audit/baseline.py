"""The baseline of an audit: a JSON file with one line for each test that calls compiled code.

It has a section for each release of torch, and every line is sorted, so that recording twice gives
the same bytes and two branches that each add a test change different lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import TorchGraphError
from .facts import TestFacts

VERSION = 1
_MARK = "torchgraph-audit"
_END = "end"
"""The key of the last line, which never changes: else a test behind the last one changed two."""


class BaselineError(TorchGraphError):
    """A file is no baseline. The message says where, and what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the baseline has about one test; see `TestFacts`.

    Attributes:
        graphs, ops, backwards, backends, shared: as there.
        compiles, nested: as there.
        causes: how often each cause happened, by what identifies it.
    """

    graphs: int = 0
    ops: int = 0
    backwards: int = 0
    backends: tuple[str, ...] = ()
    shared: bool = False
    compiles: bool = False
    nested: bool = False
    causes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: TestFacts) -> Entry:
        """The entry of a test."""
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
        )

    def to_json(self) -> dict[str, Any]:
        """As it is written: what is zero or empty is left out, but for the graphs."""
        values = {
            "graphs": self.graphs,
            "ops": self.ops,
            "backwards": self.backwards,
            "backends": list(self.backends),
            "shared": self.shared,
            "compiles": self.compiles and not self.graphs,
            "nested": self.nested,
            "causes": dict(self.causes),
        }
        return {name: value for name, value in values.items() if value or name == "graphs"}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Entry:
        """The entry that was written.

        Raises:
            TypeError, ValueError: for anything else.
        """
        known = {
            *("graphs", "ops", "backwards", "backends"),
            *("shared", "compiles", "nested", "causes"),
        }
        if unknown := values.keys() - known:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        graphs = int(values["graphs"])
        return cls(
            graphs,
            int(values.get("ops", 0)),
            int(values.get("backwards", 0)),
            tuple(map(str, values.get("backends", ()))),
            bool(values.get("shared", False)),
            bool(values.get("compiles", graphs > 0)),
            bool(values.get("nested", False)),
            {str(key): int(count) for key, count in values.get("causes", {}).items()},
        )


Section = dict[str, Entry]
"""The entries of one release of torch, by the id of the test."""
Baseline = dict[str, Section]
"""The sections, by release as `major.minor`."""


def read(path: Path, *, pytest: str = "pytest") -> Baseline:
    """Read a baseline.

    Args:
        path: the file.
        pytest: the command that starts the run whose baseline it is.

    Raises:
        BaselineError: where there is no file, or it is not a baseline.
    """
    from ..snapshot.files import read_bytes

    try:
        text = read_bytes(path).decode("utf-8")
    except FileNotFoundError:
        raise BaselineError(
            f"{path}: there is no baseline; {pytest} --torchgraph-audit=record makes one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"{path}: {error}") from error
    if conflict := _conflict(text):
        raise BaselineError(f"{path}:{conflict}: a merge conflict; resolve it, or record anew")
    try:
        document = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{path}: {error}; record it anew") from error
    if not isinstance(document, dict) or _MARK not in document:
        raise BaselineError(f"{path}: not a baseline of --torchgraph-audit")
    if document[_MARK] != VERSION:
        raise BaselineError(
            f"{path}: version {document[_MARK]!r}, and this pytest-torchgraph reads {VERSION}"
        )
    try:
        return {
            str(release): {
                str(test): Entry.from_json(entry) for test, entry in section.items() if test != _END
            }
            for release, section in document["torch"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BaselineError(f"{path}: {error!r}; record it anew") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the file. A merge that keeps both sides may leave a test twice.

    Raises:
        ValueError: for a key that is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice} is there twice")
    return found


def _conflict(text: str) -> int:
    """The first line that git wrote into it, 0 for none."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if line.startswith("<<<<<<< ")), 0)


def to_text(baseline: Baseline) -> str:
    """The text of a baseline: the same for equal ones."""
    lines = [f'{{"{_MARK}": {VERSION},', '"torch": {']
    sections = sorted(baseline.items(), key=lambda item: [*map(int, item[0].split("."))])
    for number, (release, section) in enumerate(sections):
        lines.append(f"{json.dumps(release)}: {{")
        lines += [
            f"{json.dumps(test)}: {json.dumps(entry.to_json(), ensure_ascii=False)},"
            for test, entry in sorted(section.items())
        ]
        lines.append(f'"{_END}": 0}}' + ("," if number < len(sections) - 1 else ""))
    return "\n".join([*lines, "}}"]) + "\n"


def merge(shards: Sequence[Baseline], base: Baseline | None = None) -> Baseline:
    """The baseline of a run that several CI shards shared.

    Each shard has recorded the tests that it ran, and kept all others as they were in the base. So
    an entry that differs from the base is new, and a test that one of them has no more is gone. Of
    two shards that recorded the same test, the last one counts.

    Args:
        shards: what each of them recorded.
        base: the baseline from which all of them began; None where there was none.
    """
    merged: Baseline = {}
    for release in {release for shard in shards for release in shard}:
        before = (base or {}).get(release, {})
        sections = [shard[release] for shard in shards if release in shard]
        section = {test: entry for each in sections for test, entry in each.items()}
        for each in sections:
            section.update((t, entry) for t, entry in each.items() if before.get(t) != entry)
            for test in before.keys() - each.keys():
                if section.get(test) == before[test]:
                    del section[test]
        merged[release] = section
    return merged
