"""Assertions that torch.compile's caches serve every graph at the next start."""

from __future__ import annotations

from collections.abc import Sequence

from ..settings.paths import allows, patterns
from ..watching.cache_lookups import CacheLookup
from ..watching.record import WatchRecord
from ..words import counted
from .compilation import need_graphs
from .eager import why_no_graph
from .subject import Subject


def assert_warm(
    cold: WatchRecord,
    warm: WatchRecord,
    lookups: Sequence[CacheLookup],
    max_misses: int,
    allow: str | Sequence[str],
) -> None:
    """See `Restart.assert_warm`."""
    if isinstance(max_misses, bool) or not isinstance(max_misses, int) or max_misses < 0:
        raise ValueError(
            f"max_misses={max_misses!r} is not a valid number of misses: pass an int of at least 0"
        )
    if not any(compilation.ops and not compilation.failure for compilation in cold.compiled):
        raise AssertionError(f"no graph was compiled:\n{why_no_graph(cold)}")
    if not lookups:
        raise AssertionError(
            "the second start used no cache, because only the inductor backend has caches: compile "
            "the target with backend='inductor'"
        )
    cold_lookups = [event for compilation in cold.compiled for event in compilation.lookups]
    missed = {event.key for event in cold_lookups if event.state == "miss"}
    early_hits = [e for e in cold_lookups if e.state == "hit" and e.key not in missed]
    if early_hits:
        raise AssertionError(
            f"the first start was already warm: {counted(len(early_hits), 'lookup')} hit in an "
            "empty cache directory, so a remote cache served them. Disable it: set "
            "torch._inductor.config.fx_graph_remote_cache and "
            "torch._functorch.config.enable_remote_autograd_cache to False"
        )
    tolerated = patterns(allow)
    misses = [m for m in lookups if m.state != "hit" and not allows(tolerated, m.reason)]
    if len(misses) > max_misses:
        lines = [
            f"not warm: {len(misses)} of {counted(len(lookups), 'lookup')} missed, expected at "
            f"most {max_misses}",
            *(f"  {lookup}" for lookup in misses),
            "  to see each cause and its remedy: graph_capture(target, ...).assert_cacheable()",
        ]
        raise AssertionError("\n".join(lines))


class CacheChecks(Subject):
    """The assertion that caches serve every graph; see `Capture`."""

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
