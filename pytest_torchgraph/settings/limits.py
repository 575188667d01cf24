"""What a test may compile: the limits of the marker and of the ini file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    pass

NAME = "torchgraph"


SIGNATURE = (
    "torchgraph(min_graphs=1, max_graphs=None, max_graph_breaks=0, max_recompiles=0, within=None, "
    "allow=())"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a test may compile.

    Attributes:
        min_graphs: how many graphs at least.
        max_graphs, max_graph_breaks, max_recompiles: how many at most; None is no limit. Where a
            marker or `max_recompiles` asks, reaching Dynamo's recompile limit is never allowed.
        within: a path or package, or several: breaks and recompilations elsewhere do not count.
        allow: regular expressions, searched in a break's `"kind: reason"`, for breaks that do not
            count.
        asked_by: for each argument that limits something the marker or the ini option that asked
            for it, in words; for `min_graphs` all that need evidence.
        own_within: whether a marker says `within`, so that code of there must have been compiled.
    """

    min_graphs: int = 1
    max_graphs: int | None = None
    max_graph_breaks: int | None = 0
    max_recompiles: int | None = 0
    within: Any = None
    allow: tuple[str, ...] = ()
    asked_by: Mapping[str, str] = field(default_factory=dict, compare=False)
    own_within: bool = field(default=False, compare=False)


NAMES = tuple(each.name for each in fields(Limits) if each.compare)


INI = tuple(name for name in NAMES if name != "min_graphs")


def checked(name: str, value: Any, where: str, base: Path) -> Any:
    """An argument in the form that `Limits` has.

    Args:
        base: what a path is relative to.

    Raises:
        pytest.UsageError: for a value that means nothing.
    """
    from .within import patterns

    if name == "within":
        try:
            return None if value is None else _places(value, base)
        except ValueError as error:
            raise pytest.UsageError(f"{where}: {error}") from None
    if name == "allow":
        try:
            return tuple(pattern.pattern for pattern in patterns(value))
        except (TypeError, ValueError) as error:
            raise pytest.UsageError(f"{where}: {error}") from None
    optional = name != "min_graphs"
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        kind = "an int of at least 0, or None" if optional else "an int of at least 0"
        raise pytest.UsageError(f"{where}: {name}={value!r} must be {kind}")
    return value


def _places(value: Any, base: Path) -> tuple[str, ...]:
    """Packages as they are, and paths made absolute: the test may change the directory."""
    from .within import places, roots

    found = []
    for place in places(value):
        paths = [start / str(place) for start in (base, Path.cwd())]
        there = next((path for path in paths if path.exists()), None)
        if there is None:
            roots(place)
        found.append(str(place if there is None else there.absolute()))
    return tuple(found)


def from_ini(name: str, lines: list[str], base: Path) -> Any:
    """The value that an ini file gives for one of `INI`.

    Args:
        base: the directory of the file.

    Raises:
        pytest.UsageError: for lines that mean nothing.
    """
    where = f"{NAME}_{name} in the ini file"
    if name == "within":
        places = [part.strip() for line in lines for part in line.split(",")]
        return checked(name, [place for place in places if place], where, base)
    if name == "allow":
        return checked(name, lines, where, base)
    text = " ".join(lines).strip()
    if text.lower() == "none":
        return None
    try:
        value = int(text)
    except ValueError:
        raise pytest.UsageError(f"{where}: {text!r} is neither a number nor none") from None
    return checked(name, value, where, base)
