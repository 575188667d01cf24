"""`@pytest.mark.torchgraph(...)`: limits on what a test compiles, without rewriting the test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from .settings.limits import Limits, checked
from .settings.options import MARKER, NAMES, SIGNATURE

if TYPE_CHECKING:
    from .api.result import Capture

NOTHING_ASKED = {"min_graphs": 0, "max_graph_breaks": None, "max_recompiles": None}
COMPILED = pytest.StashKey[bool]()
"""Stash key: True if a watched test ran anything compiled."""
MAXIMA = ("max_graphs", "max_graph_breaks", "max_recompiles")


def limits_of(item: pytest.Item, defaults: Mapping[str, Any]) -> Limits | None:
    """Return the limits of a test. The closest marker wins for each argument.

    Args:
        item: the test.
        defaults: limits from the ini file. They fill in what a marker omits. Without a marker they
            require no graph, and limit only what they name a number for.

    Returns:
        `None` if there are no limits.

    Raises:
        pytest.UsageError: for a positional or unknown argument, or an invalid value.
    """
    given: dict[str, Any] = {}
    words: list[str] = []
    marks = list(_closest_first(item))
    named = [name for name in MAXIMA if defaults.get(name) is not None]
    if not marks and not named:
        return None
    for mark in marks:
        if mark.args:
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.{MARKER} takes keyword arguments only, got "
                f"{mark.args!r}: write {SIGNATURE}"
            )
        for name, value in mark.kwargs.items():
            if name not in NAMES:
                raise pytest.UsageError(
                    f"{item.nodeid}: @pytest.mark.{MARKER} has no argument "
                    f"{name!r}{_meant(name)}: write {SIGNATURE}"
                )
            where = f"{item.nodeid}: @pytest.mark.{MARKER}"
            known = checked(name, value, where, item.config.rootpath)
            if name not in given:
                given[name] = known
                words.append(f"{name}={value!r}")
    options = {name: f"{MARKER}_{name}={defaults[name]!r}" for name in named if name not in given}
    if marks:
        asked_by = dict.fromkeys(NAMES, f"@pytest.mark.{MARKER}({', '.join(words)})") | options
    else:
        asked_by = {"min_graphs": " and ".join(options.values())} | options
    limits = Limits(
        **{**({} if marks else NOTHING_ASKED), **defaults, **given},
        asked_by=asked_by,
        own_within="within" in given,
    )
    if limits.max_graphs is not None and limits.max_graphs < limits.min_graphs:
        raise pytest.UsageError(
            f"{item.nodeid}: max_graphs={limits.max_graphs} is less than "
            f"min_graphs={limits.min_graphs}"
        )
    if marks and not limits.min_graphs and all(getattr(limits, name) is None for name in MAXIMA):
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.{MARKER}({', '.join(words)}) checks nothing: give a "
            f"limit, as in {SIGNATURE}"
        )
    return limits


def _meant(name: str) -> str:
    """Return the argument most similar to a name, as a question; "" if there is none."""
    import difflib

    close = difflib.get_close_matches(name, NAMES, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _closest_first(item: pytest.Item) -> Iterator[pytest.Mark]:
    """Return the markers of a test, the closest first.

    Not `iter_markers`, which returns markers of a base class before those of the class itself.
    """
    for node in reversed(item.listchain()):
        own = [mark for mark in node.own_markers if mark.name == MARKER]
        if isinstance(node, pytest.Class):
            own.reverse()
        parameters = getattr(getattr(node, "callspec", None), "marks", ())
        yield from (mark for mark in parameters if mark.name == MARKER)
        yield from own


@contextmanager
def watched(item: pytest.Item, limits: Limits) -> Iterator[None]:
    """Watch the compilations inside, and check the limits unless an exception propagates.

    Args:
        item: the test, whose stash gets `COMPILED`.
        limits: the limits of the test.

    Raises:
        pytest.fail.Exception: with every exceeded limit.
    """
    from .api.watch import Watch

    watch = Watch(passive=True)
    with watch as capture:
        yield
    item.stash[COMPILED] = bool(capture.graphs or capture.record("graphs").executions)
    problems = list(problems_of(capture, limits))
    if problems:
        from .graph.failures import shown_by, with_picture

        errors = [error for _, error in problems]
        asked = dict.fromkeys(limits.asked_by[name] for name, _ in problems)
        message = "\n".join([*map(str, errors), f"required by {' and '.join(asked)}"])
        shows = next((each for each in map(shown_by, errors) if each is not None), None)
        raise with_picture(pytest.fail.Exception(message, pytrace=False), shows)


def problems_of(capture: Capture, limits: Limits) -> Iterator[tuple[str, AssertionError]]:
    """Return an error for each exceeded limit, with the name of the limit.

    Also returns an error if code that should be compiled ran eagerly, if no graph is on the device
    of `graph_device`, and if nothing in a marker's `within` was compiled.
    """
    from .checks import compilation as checks
    from .graph.failures import failed

    record = capture.record("graphs")
    graphs = capture.graphs
    if len(graphs) < limits.min_graphs:
        if graphs:
            message = f"graphs: expected at least {limits.min_graphs}, found {len(graphs)}"
            yield "min_graphs", AssertionError(message)
        else:
            yield from _problem("min_graphs", checks.need_graphs, capture, allow=limits.allow)
    elif limits.max_graphs is not None and len(graphs) > limits.max_graphs:
        names = ", ".join(graph.name for graph in graphs)
        message = f"graphs: expected at most {limits.max_graphs}, found {len(graphs)}: {names}"
        yield "max_graphs", AssertionError(message)
    if graphs or (record.callables and not record.disabled and limits.min_graphs == 0):
        yield from _problem("min_graphs", checks.need_compiled, record, allow=limits.allow)
        yield from _problem("min_graphs", checks.need_device, capture)
    if limits.max_graph_breaks is not None:
        breaks = checks.counted_breaks(record, limits.allow, limits.within)
        if len(breaks) > limits.max_graph_breaks:
            every = len(record.breaks)
            message = checks.breaks_in_words(breaks, 0, limits.max_graph_breaks, every)
            yield "max_graph_breaks", failed(message, checks.UnexpectedBreaks(capture))
    if graphs and limits.own_within and limits.min_graphs:
        yield from _problem("within", checks.need_code_within, record, limits.within)
    recompiles = [each for each in record.recompiles if checks.is_inside(each, limits.within)]
    most = limits.max_recompiles
    asked = "max_recompiles" in limits.asked_by
    limit = [each for each in recompiles if each.limit_hit and asked]
    if limit or (most is not None and len(recompiles) > most):
        yield "max_recompiles", AssertionError(checks.recompiles_in_words(recompiles, 0, most))


def _problem(
    name: str, check: Any, *values: Any, **options: Any
) -> Iterator[tuple[str, AssertionError]]:
    """Return the error that a check raises, or `None`."""
    try:
        check(*values, **options)
    except AssertionError as error:
        yield name, error
