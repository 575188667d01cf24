"""Assertions on inductor: a pass changed what it should, and caches serve every graph."""

from __future__ import annotations

from collections.abc import Sequence

from ..settings.paths import allows, patterns
from ..words import counted, first_lines, listed
from .compilation import need_graphs
from .subject import Subject

_MAX_RUNS = 10
"""Maximum number of runs that a message lists."""


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


class PassChecks(Subject):
    """Assertions on inductor; see `Capture`."""

    def assert_pass(self, name: str, times: int | None = None) -> None:
        """Assert that a graph pass of inductor changed something.

            capture = graph_capture(model, x, via=Inductor(passes={"post_grad": [MyFusion()]}))
            capture.assert_pass("MyFusion", times=3)

        A pass that never ran fails, whatever `times`.

        Args:
            name: name of the pass; see `PassRun.name`.
            times: exact number of matches that a `PatternMatcherPass` replaced; for other passes,
                of graphs that the pass changed. 0: it ran and changed nothing. `None`: at least 1.

        Raises:
            AssertionError: with the runs of the pass; with all passes that ran, if it never ran.
            CaptureError: if the capture has no passes: use `Inductor(passes=True)`.
        """
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is not the name of a pass: capture.passes lists the names")
        if times is not None and (isinstance(times, bool) or not isinstance(times, int)):
            raise TypeError(f"times={times!r} is not an int")
        if times is not None and times < 0:
            raise ValueError(f"times={times} is negative")
        passes = self.passes
        # Without the runs inside a run of the same pass.
        runs = [run for run in passes if run.name == name and run.parent != name]
        if not runs:
            names = dict.fromkeys(run.name for run in passes)
            ran = f"passes that ran: {listed(names, None)}" if names else _why_none(self)
            raise AssertionError(f"the pass {name!r} never ran; {ran}")
        # Only a `PatternMatcherPass` counts its matches.
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

    def assert_cacheable(self, allow: str | Sequence[str] = ()) -> None:
        """Assert that torch.compile's caches can serve every graph at the next start.

        The check compiles nothing. `graph_capture.restart` makes an actual second start.

        Args:
            allow: regular expressions, or literal parts, for tolerated `CacheBypass`es, searched in
                `"op: reason"`.

        Raises:
            AssertionError: if a graph is not cacheable, with each `CacheBypass`, its module, line
                and remedy; or if no graph was compiled or no cache was consulted, with the cause.
            CaptureError: see `cache_bypasses`.
        """
        record = self.watched
        need_graphs(self)
        # A capture tests its graphs itself. A watch knows only what torch reported of its lookups.
        if record is not None and not any(
            compilation.lookups or compilation.cache_off for compilation in record.compiled
        ):
            raise AssertionError(
                "no cache was used, because only the inductor backend has caches: pass "
                "backend='inductor' to torch.compile"
            )
        tolerated = patterns(allow)
        bypasses_left = [
            b for b in self.cache_bypasses if not allows(tolerated, f"{b.op}: {b.reason}")
        ]
        if bypasses_left:
            graphs = counted(len({bypass.graph for bypass in bypasses_left}), "graph")
            lines = [f"not cacheable: every process compiles {graphs} again"]
            lines += [f"  {line}" for bypass in bypasses_left for line in str(bypass).splitlines()]
            raise AssertionError("\n".join(lines))
