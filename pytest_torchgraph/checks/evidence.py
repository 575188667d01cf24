"""Why nothing was compiled, or why what was compiled is not all that ran.

A check on what a watch saw holds only if there was something to check. The functions here give the
causes why there was not, in words; "" or an empty list means that there was.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..settings.within import allows, patterns
from ..watching.eager_calls import EagerCall, eager_calls_of
from ..watching.record import WatchRecord
from ..words import listed


def switched_off(setting: str) -> str:
    """The cause where a setting keeps all code from being compiled."""
    return f"torch.compile is switched off by {setting}"


def why_no_graph(record: WatchRecord) -> str:
    """Why a watch has no graph: a line for each cause.

    Args:
        record: what the watch saw.
    """
    about = f" for {record.part}" if record.part else ""
    if not record.opened:
        return "the watch was never entered: use `with graph_capture.watch() as capture:`"
    causes = []
    if record.disabled:
        causes.append(switched_off(record.disabled))
    causes += map(str, record.eager_calls)
    causes += [f"{each.kind}: {each.reason} ({each.file}:{each.line})" for each in record.breaks]
    if causes:
        return "\n".join(f"  {cause}" for cause in dict.fromkeys(causes))
    ran = ", ".join(f"{run} {n} times" for run, n in record.executions.items())
    if ran and record.warmed_up:
        return (
            f"  compiled code ran{about} ({ran}), and nothing was compiled after the warm-up, so "
            "there is no graph, and no graph break is known: look at these with a "
            "graph_capture.watch() around the first call, and here at assert_no_recompiles()"
        )
    if ran:
        return (
            f"  compiled code ran{about} ({ran}), but it had been compiled before and was served "
            "from Dynamo's cache. Graphs and graph breaks are known of what is compiled inside the "
            "watch: watch from the first call, or call torch._dynamo.reset() before. Of warm calls "
            "assert_no_recompiles() is the check"
        )
    if record.compiled:
        functions = ", ".join(dict.fromkeys(each.function or "?" for each in record.compiled))
        return f"  Dynamo found no tensor operation in {functions}"
    if record.callables:
        names = ", ".join(dict.fromkeys(callee.name for callee in record.callables))
        return f"  {names} was called and served from Dynamo's cache, but it has no graph"
    if record.compiled_in_all:
        there = listed(dict.fromkeys(record.compiled_in_all))
        return (
            f"  no compiled function or module was called{about} inside the watch: compiled was "
            f"{there}. What such a function calls is in its graph: name "
            "the function itself"
        )
    return (
        f"  no compiled function or module was called{about} inside the watch: torch.compile(...) "
        "alone compiles nothing, the first call of what it returns does"
    )


def what_ran_uncompiled(
    record: WatchRecord, *, allow: str | Sequence[str] = (), unreported: bool = False
) -> list[EagerCall]:
    """The calls of compiled callables that ran eagerly, though other code ran compiled.

    Args:
        record: what the watch saw.
        allow: regular expressions, searched in `"kind: reason"` of a call: it is left out.
        unreported: leave out frames that are among the graph breaks.
    """
    reported = {
        (each.function, each.file, each.line)
        for each in record.compiled
        if unreported and each.failure and not each.limit_hit
    }
    disabled = unreported and any("torch.compiler.disable" in each.kind for each in record.breaks)
    allowed = patterns(allow)
    return [
        call
        for call, cause in eager_calls_of(record.callables, record.recompiles)
        if not allows(allowed, f"{call.kind}: {call.reason}")
        and not (cause is not None and cause[2:5] in reported)
        and not (disabled and call.kind == "disabled")
    ]


def why_no_recompile_possible(record: WatchRecord) -> str:
    """Why no recompilation could have happened: no compiled code was called again.

    Args:
        record: what the watch saw.
    """
    again = [frame for frame, count in record.frames.items() if count > 1]
    tried = [each for each in record.compiled if each.is_recompilation]
    if again or tried or record.ran_earlier:
        return ""
    called = ", ".join(f"{run} once" for run in record.executions)
    return (
        f"nothing could have been compiled again: no compiled code was entered twice ({called}), "
        "and none had been compiled before. Call it a second time inside the watch, or warm it up "
        "before"
    )
