"""`@pytest.mark.torchgraph(...)`: limits on what a test compiles, without rewriting the test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from .settings.limits import Limits, check_argument
from .settings.options import MARKER, NAMES, SIGNATURE

if TYPE_CHECKING:
    from .api.result import Capture

# Defaults for a test without a marker, in place of those of `Limits`.
NO_LIMITS = {"min_graphs": 0, "max_graph_breaks": None, "max_recompiles": None}
COMPILED = pytest.StashKey[bool]()
"""Stash key: True if a watched test ran anything compiled."""
MAXIMA = ("max_graphs", "max_graph_breaks", "max_recompiles")


def limits_of(item: pytest.Item, defaults: Mapping[str, Any]) -> Limits | None:
    """Return the limits of a test. The closest marker wins for each argument.

    Args:
        item: the test.
        defaults: limits from the ini file. They replace arguments that a marker omits. Without a
            marker, no graph is required, and arguments without a default have no limit.

    Returns:
        `None` if there are no limits.

    Raises:
        pytest.UsageError: for a positional or unknown argument, or an invalid value.
    """
    marks = list(_markers_closest_first(item))
    limit_names = [name for name in MAXIMA if defaults.get(name) is not None]
    if not marks and not limit_names:  # `within` and `allow` alone limit nothing
        return None
    marker_values, words = _values_of_markers(item, marks)
    options = {
        name: f"{MARKER}_{name}={defaults[name]!r}"
        for name in limit_names
        if name not in marker_values
    }
    if marks:
        asked_by = dict.fromkeys(NAMES, f"@pytest.mark.{MARKER}({', '.join(words)})") | options
    else:
        asked_by = {"min_graphs": " and ".join(options.values())} | options
    limits = Limits(
        **{**({} if marks else NO_LIMITS), **defaults, **marker_values},
        asked_by=asked_by,
        own_within="within" in marker_values,
    )
    if limits.max_graphs is not None and limits.max_graphs < limits.min_graphs:
        raise pytest.UsageError(
            f"{item.nodeid}: max_graphs={limits.max_graphs} is less than "
            f"min_graphs={limits.min_graphs}"
        )
    # Limits of the ini file alone always check something: one of the maxima.
    if marks and not limits.min_graphs and all(getattr(limits, name) is None for name in MAXIMA):
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.{MARKER}({', '.join(words)}) checks nothing: give a "
            f"limit, as in {SIGNATURE}"
        )
    return limits


def _values_of_markers(
    item: pytest.Item, marks: Iterable[pytest.Mark]
) -> tuple[dict[str, Any], list[str]]:
    """Return the checked arguments of a test's markers, and each as the user wrote it.

    Args:
        item: the test.
        marks: its markers, the closest first.

    Raises:
        pytest.UsageError: see `limits_of`.
    """
    marker_values: dict[str, Any] = {}
    words: list[str] = []
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
                    f"{name!r}{_suggest_argument(name)}: write {SIGNATURE}"
                )
            source = f"{item.nodeid}: @pytest.mark.{MARKER}"
            # Check a value even if a closer marker overrides it: otherwise a mistake shows only
            # after the closer marker is removed.
            checked_value = check_argument(name, value, source, item.config.rootpath)
            if name not in marker_values:
                marker_values[name] = checked_value
                words.append(f"{name}={value!r}")
    return marker_values, words


def _suggest_argument(name: str) -> str:
    """Return the argument most similar to a name, as a question; "" if there is none."""
    import difflib

    suggestions = difflib.get_close_matches(name, NAMES, n=1)
    return f" (did you mean {suggestions[0]!r}?)" if suggestions else ""


def _markers_closest_first(item: pytest.Item) -> Iterator[pytest.Mark]:
    """Return the markers of a test, the closest first.

    `iter_markers` would return the markers of a base class before the markers of the class itself.
    """
    for node in reversed(item.listchain()):
        own_markers = [mark for mark in node.own_markers if mark.name == MARKER]
        if isinstance(node, pytest.Class):
            # pytest lists the markers of a base class before those of the class itself.
            own_markers.reverse()
        parameters = getattr(getattr(node, "callspec", None), "marks", ())
        yield from (mark for mark in parameters if mark.name == MARKER)
        yield from own_markers


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
    # Also code that another test compiled, whose graphs this watch does not have.
    item.stash[COMPILED] = bool(capture.graphs or capture.record("graphs").executions)
    problems = list(find_problems(capture, limits))
    if problems:
        from .graph.failures import shown_by, with_picture

        errors = [error for _, error in problems]
        requirements = dict.fromkeys(limits.asked_by[name] for name, _ in problems)
        message = "\n".join([*map(str, errors), f"required by {' and '.join(requirements)}"])
        picture = next((failure for failure in map(shown_by, errors) if failure is not None), None)
        # No traceback: it would end in the plugin, not at a line of the test.
        raise with_picture(pytest.fail.Exception(message, pytrace=False), picture)


def find_problems(capture: Capture, limits: Limits) -> Iterator[tuple[str, AssertionError]]:
    """Yield an error for each exceeded limit, with the name of the limit.

    Also yield an error if code that should be compiled ran eagerly, if no graph is on the device
    of `graph_device`, and if nothing in a marker's `within` was compiled.
    """
    from .checks import compilation as checks
    from .graph.failures import failed

    record = capture.record("graphs")
    graphs = capture.graphs
    # Too few graphs are too few compilations, or, without any, a reason that `need_graphs` finds.
    if len(graphs) < limits.min_graphs:
        if graphs:
            message = f"graphs: expected at least {limits.min_graphs}, found {len(graphs)}"
            yield "min_graphs", AssertionError(message)
        else:
            yield from _problem("min_graphs", checks.need_graphs, capture, allow=limits.allow)
    elif limits.max_graphs is not None and len(graphs) > limits.max_graphs:
        head = f"graphs: expected at most {limits.max_graphs}, found {len(graphs)}:"
        lines = [head, *checks.describe_graphs(capture)]
        yield "max_graphs", AssertionError("\n".join(lines))
    # A test of the ini file's limits may compile nothing. If it calls compiled code, this must run
    # compiled; `need_graphs` has reported a marked test without a graph.
    if graphs or (record.callables and not record.disabled and limits.min_graphs == 0):
        yield from _problem("min_graphs", checks.need_compiled, record, allow=limits.allow)
        yield from _problem("min_graphs", checks.need_device, capture)
        # Not the defaults of the ini file, nor limits only on recompiles.
        if "within" in limits.asked_by and (
            limits.min_graphs or limits.max_graph_breaks is not None
        ):
            yield from _problem("min_graphs", checks.need_recorded, record, allow=limits.allow)
    if limits.max_graph_breaks is not None:
        breaks = checks.select_breaks(record, limits.allow, limits.within)
        if len(breaks) > limits.max_graph_breaks:
            total = len(record.breaks)
            message = checks.format_breaks(breaks, 0, limits.max_graph_breaks, total)
            yield "max_graph_breaks", failed(message, checks.UnexpectedBreaks(capture))
    if graphs and limits.own_within and limits.min_graphs:
        yield from _problem("within", checks.need_code_within, record, limits.within)
    recompiles = [
        recompile
        for recompile in record.recompiles
        if checks.is_recompile_within(recompile, limits.within)
    ]
    maximum = limits.max_recompiles
    is_limited = "max_recompiles" in limits.asked_by
    # From the limit on, Dynamo runs the function eagerly. Reaching the limit fails even without a
    # maximum. If only the ini file sets limits, they must include recompiles for this failure.
    limit_hits = [recompile for recompile in recompiles if recompile.limit_hit and is_limited]
    if limit_hits or (maximum is not None and len(recompiles) > maximum):
        yield "max_recompiles", AssertionError(checks.format_recompiles(recompiles, 0, maximum))


def _problem(
    name: str, check: Any, *values: Any, **options: Any
) -> Iterator[tuple[str, AssertionError]]:
    """Yield the error that a check raises, if any, with the name of the limit."""
    try:
        check(*values, **options)
    except AssertionError as error:
        yield name, error
