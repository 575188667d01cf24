"""`assert_pass`: a pass of inductor ran, and changed what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..words import first_lines, listed

if TYPE_CHECKING:
    from .subject import Subject

_MAX_RUNS = 10
"""Maximum number of runs that a message lists."""


def assert_pass(capture: Subject, name: str, times: int | None) -> None:
    """See `Capture.assert_pass`."""
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not the name of a pass: capture.passes lists the names")
    if times is not None and (isinstance(times, bool) or not isinstance(times, int)):
        raise TypeError(f"times={times!r} is not an int")
    if times is not None and times < 0:
        raise ValueError(f"times={times} is negative")
    passes = capture.passes
    runs = [run for run in passes if run.name == name and run.parent != name]
    if not runs:
        names = dict.fromkeys(run.name for run in passes)
        ran = f"passes that ran: {listed(names, None)}" if names else _why_none(capture)
        raise AssertionError(f"the pass {name!r} never ran; {ran}")
    matches = [run.matches for run in runs if run.matches is not None]
    found = sum(matches) if matches else sum(run.changed for run in runs)
    if found if times is None else found == times:
        return
    unit = "matches" if matches else "changed graphs"
    expected = "at least one" if times is None else str(times)
    lines = first_lines([f"  {run}" for run in runs], _MAX_RUNS)
    raise AssertionError(
        "\n".join([f"the pass {name!r}: {found} {unit}, expected {expected}", *lines])
    )


def _why_none(capture: Subject) -> str:
    """Return why inductor ran no pass."""
    hits = [
        f"{group}: {key}"
        for group, counts in capture.counters.items()
        for key, count in counts.items()
        if key.endswith("cache_hit") and count
    ]
    if hits:
        return f"no pass ran, because a cache served the graph ({listed(hits)})"
    return "no pass ran, because inductor compiled no graph"
