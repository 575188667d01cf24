"""Limits from the marker and the ini file.

This module does not import torch, because every run of every project reads these settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .options import MARKER


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one test.

    Attributes:
        min_graphs: the minimum number of graphs.
        max_graphs, max_graph_breaks, max_recompiles: the maximum number; `None` for no limit. If a
            marker or `max_recompiles` sets a limit, reaching Dynamo's recompile limit is never
            allowed.
        within: a path or package, or several; graph breaks and recompiles elsewhere are ignored.
            `None` includes all code.
        allow: regular expressions or literal parts of the `"kind: reason"` of graph breaks and
            eager calls to ignore.
        asked_by: maps each argument to the marker or ini option that set the limit, in words.
            Without a marker, `min_graphs` maps to all options, because each of them needs compiled
            code.
        own_within: True if a marker sets `within`, so that code in these places must have been
            compiled.
    """

    min_graphs: int = 1
    max_graphs: int | None = None
    max_graph_breaks: int | None = 0
    max_recompiles: int | None = 0
    within: Any = None
    allow: tuple[str, ...] = ()
    asked_by: Mapping[str, str] = field(default_factory=dict, compare=False)
    own_within: bool = field(default=False, compare=False)


def check_argument(name: str, value: Any, source: str, base: Path) -> Any:
    """Check an argument of the marker and return it in the form used by `Limits`.

    Args:
        name: one of `NAMES`.
        value: the value of the argument.
        source: the marker or ini option that the argument belongs to, for messages.
        base: the directory that paths are relative to.

    Raises:
        pytest.UsageError: for a number that is not an int or is negative, a `within` that is
            neither an existing path nor a package, and an `allow` that is not a regular expression
            or matches everything.
    """
    from .paths import patterns

    try:
        if name == "within":
            return None if value is None else _places(value, base)
        if name == "allow":
            return tuple(pattern.pattern for pattern in patterns(value))
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{source}: {error}") from None
    optional = name != "min_graphs"
    if value is None and optional:
        return None
    # A bool is an int: refuse `max_graphs=True`.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        kind = "an int of at least 0, or None" if optional else "an int of at least 0"
        raise pytest.UsageError(f"{source}: {name}={value!r} must be {kind}")
    return value


def _places(value: Any, base: Path) -> tuple[str, ...]:
    """Return the places of a `within`; paths become absolute, because tests may change directory.

    Raises:
        ValueError: for a place that is neither an existing path nor a package.
    """
    from .paths import places, roots

    place_texts = []
    for place_or_package in places(value):
        # pytest's root directory or the ini file's, and the directory where pytest was started.
        paths = [start / str(place_or_package) for start in (base, Path.cwd())]
        existing = next((path for path in paths if path.exists()), None)
        if existing is None:
            roots(place_or_package)  # raises if it is not a package either
        place_texts.append(str(place_or_package if existing is None else existing.absolute()))
    return tuple(place_texts)


def from_ini(name: str, lines: list[str], base: Path) -> Any:
    """Check an ini option and return its value in the form used by `Limits`.

    Args:
        name: one of `INI`.
        lines: the lines of the option in the file. Commas or lines separate the places of `within`;
            lines separate the patterns of `allow`. Other options are a number, or "none" for no
            limit.
        base: the directory of the file.

    Raises:
        pytest.UsageError: for any other value.
    """
    source = f"{MARKER}_{name} in the ini file"
    if name == "within":
        places = [part.strip() for line in lines for part in line.split(",")]
        return check_argument(name, [place for place in places if place], source, base)
    if name == "allow":
        return check_argument(name, lines, source, base)
    text = " ".join(lines).strip()
    if text.lower() == "none":
        return None
    try:
        value = int(text)
    except ValueError:
        raise pytest.UsageError(f"{source}: must be a number or none, got {text!r}") from None
    return check_argument(name, value, source, base)
