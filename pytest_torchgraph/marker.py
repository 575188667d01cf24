"""`@pytest.mark.torchgraph(...)`: checks on whatever a test compiles, without rewriting it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .capturing.result import Capture

NAME = "torchgraph"
SIGNATURE = (
    "torchgraph(min_graphs=1, max_graphs=None, max_graph_breaks=0, max_recompiles=0, within=None, "
    "allow=())"
)
DESCRIPTION = (
    f"{SIGNATURE}: watch what the test compiles, and fail it where there are fewer or more graphs, "
    "graph breaks or recompilations; None is no limit"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a test may compile.

    Attributes:
        min_graphs: how many graphs at least.
        max_graphs, max_graph_breaks, max_recompiles: how many at most; None is no limit. Reaching
            Dynamo's recompile limit is never allowed.
        within: a path or package, or several: breaks and recompilations elsewhere do not count.
        allow: regular expressions, searched in a break's `"kind: reason"`, for breaks that do not
            count.
        asked_by: the markers and ini options that say so, in words.
        own_within: whether a marker says `within`, so that code of there must have been compiled.
    """

    min_graphs: int = 1
    max_graphs: int | None = None
    max_graph_breaks: int | None = 0
    max_recompiles: int | None = 0
    within: Any = None
    allow: tuple[str, ...] = ()
    asked_by: str = field(default="", compare=False)
    own_within: bool = field(default=False, compare=False)


NAMES = tuple(each.name for each in fields(Limits) if each.compare)
INI = tuple(name for name in NAMES if name != "min_graphs")


def limits_of(item: pytest.Item, defaults: Mapping[str, Any]) -> Limits | None:
    """What the markers of a test ask for; the closest one counts for each argument.

    Args:
        item: the test.
        defaults: from the ini file, which on their own ask for no graph.

    Raises:
        pytest.UsageError: for arguments that mean nothing.
    """
    given: dict[str, Any] = {}
    words: list[str] = []
    marks = list(_closest_first(item))
    if not marks and not defaults:
        return None
    for mark in marks:
        if mark.args:
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.{NAME} takes named arguments only, as in "
                f"{SIGNATURE}: got {mark.args!r}"
            )
        for name, value in mark.kwargs.items():
            if name not in NAMES:
                raise pytest.UsageError(
                    f"{item.nodeid}: @pytest.mark.{NAME} has no argument {name!r}: {SIGNATURE}"
                )
            where = f"{item.nodeid}: @pytest.mark.{NAME}"
            known = checked(name, value, where, item.config.rootpath)
            if name not in given:
                given[name] = known
                words.append(f"{name}={value!r}")
    asked = [f"@pytest.mark.{NAME}({', '.join(words)})"] if marks else []
    asked += [f"{NAME}_{name}={defaults[name]!r}" for name in defaults if name not in given]
    limits = Limits(
        **{**({} if marks else {"min_graphs": 0}), **defaults, **given},
        asked_by=" and ".join(asked),
        own_within="within" in given,
    )
    if limits.max_graphs is not None and limits.max_graphs < limits.min_graphs:
        raise pytest.UsageError(
            f"{item.nodeid}: max_graphs={limits.max_graphs} is less than "
            f"min_graphs={limits.min_graphs}"
        )
    return limits


def _closest_first(item: pytest.Item) -> Iterator[pytest.Mark]:
    """The markers of a test; `iter_markers` has those of a base class before the class's own."""
    for node in reversed(item.listchain()):
        own = [mark for mark in node.own_markers if mark.name == NAME]
        if isinstance(node, pytest.Class):
            own.reverse()
        parameters = getattr(getattr(node, "callspec", None), "marks", ())
        yield from (mark for mark in parameters if mark.name == NAME)
        yield from own


def misused(items: Iterable[Any], defaults: Mapping[str, Any]) -> str:
    """What is wrong with the markers of these tests, "" if nothing is."""
    wrong: dict[str, list[str]] = {}
    for item in items:
        if isinstance(item, pytest.Item):
            try:
                limits_of(item, defaults)
            except pytest.UsageError as error:
                message = str(error).removeprefix(f"{item.nodeid}: ")
                wrong.setdefault(message, []).append(item.nodeid)
    return "\n".join(f"{', '.join(tests)}: {message}" for message, tests in wrong.items())


def checked(name: str, value: Any, where: str, base: Path) -> Any:
    """An argument in the form that `Limits` has.

    Args:
        base: what a path is relative to.

    Raises:
        pytest.UsageError: for a value that means nothing.
    """
    from .watching.within import patterns

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
    from .watching.within import places, roots

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


@contextmanager
def watched(limits: Limits) -> Iterator[None]:
    """Watch what happens inside, and check it where that raised nothing.

    Raises:
        pytest.fail.Exception: with everything that the limits do not allow.
    """
    from .watching.watch import Watch

    watch = Watch(passive=True)
    with watch as capture:
        yield
    problems = list(problems_of(capture, limits))
    if problems:
        from .failures import showing, shown_by

        message = "\n".join([*map(str, problems), f"asked for by {limits.asked_by}"])
        shows = next((each for each in map(shown_by, problems) if each is not None), None)
        raise showing(pytest.fail.Exception(message, pytrace=False), shows)


def problems_of(capture: Capture, limits: Limits) -> Iterator[AssertionError]:
    """Everything that the limits do not allow."""
    from . import compiled_checks as checks
    from .failures import Broken, failed

    record = capture.record("graphs")
    graphs = capture.graphs
    if len(graphs) < limits.min_graphs:
        if graphs:
            message = f"graphs: expected at least {limits.min_graphs}, found {len(graphs)}"
            yield AssertionError(message)
        else:
            yield from _problem(checks.need_graphs, capture)
    elif limits.max_graphs is not None and len(graphs) > limits.max_graphs:
        names = ", ".join(graph.name for graph in graphs)
        message = f"graphs: expected at most {limits.max_graphs}, found {len(graphs)}: {names}"
        yield AssertionError(message)
    if graphs or (record.regions and not record.disabled and limits.min_graphs == 0):
        yield from _problem(checks.need_compiled, record)
        yield from _problem(checks.need_device, capture)
    if limits.max_graph_breaks is not None:
        breaks = checks.counted_breaks(record, limits.allow, limits.within)
        if len(breaks) > limits.max_graph_breaks:
            every = len(record.breaks)
            message = checks.breaks_in_words(breaks, 0, limits.max_graph_breaks, every)
            yield failed(message, Broken(capture))
    if graphs and limits.own_within and limits.min_graphs:
        yield from _problem(checks.need_code_within, record, limits.within)
    recompiles = [each for each in record.recompiles if checks.is_inside(each, limits.within)]
    limit = [each for each in recompiles if each.limit_hit]
    most = limits.max_recompiles
    if limit or (most is not None and len(recompiles) > most):
        yield AssertionError(checks.recompiles_in_words(recompiles, 0, most))


def _problem(check: Any, *values: Any) -> Iterator[AssertionError]:
    try:
        check(*values)
    except AssertionError as error:
        yield error
