"""Why nothing was compiled, or why what was compiled is not all that ran.

A check on what a watch saw holds only if there was something to check. The functions here give the
causes why there was not, in words; "" or an empty list means that there was.
"""

from __future__ import annotations

from .. import torch_private
from ..convert.source_lines import is_user_file, relative
from ..watching.observe.callables import UNKNOWN_CAUSE, CompiledCallable, EagerCause
from ..watching.record import WatchRecord

MOST = 5
"""How many functions are named that were compiled."""
_IN_TORCH = "skipfiles"
"""A word of Dynamo's reason for leaving code of torch's to the interpreter."""
_CHOSEN = "torch.compiler.set_stance"
"""Beginning of the cause that the test chose itself, by a stance."""


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
        causes.append(f"torch.compile is switched off by {record.disabled}")
    causes += [_line(callee, cause) for callee in record.callables for cause in callee.uncompiled]
    causes += [f"{each.kind}: {each.reason} ({each.file}:{each.line})" for each in record.breaks]
    causes += _limits(record)
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
        there = dict.fromkeys(record.compiled_in_all)
        more = f" and {len(there) - MOST} more" if len(there) > MOST else ""
        return (
            f"  no compiled function or module was called{about} inside the watch: compiled was "
            f"{', '.join([*there][:MOST])}{more}. What such a function calls is in its graph: name "
            "the function itself"
        )
    return (
        f"  no compiled function or module was called{about} inside the watch: torch.compile(...) "
        "alone compiles nothing, the first call of what it returns does"
    )


def what_ran_uncompiled(record: WatchRecord, *, unreported: bool = False) -> list[str]:
    """The compiled callables that ran eagerly, with the causes, though other code ran compiled.

    Calls under a stance are left out: the test chose it.

    Args:
        record: what the watch saw.
        unreported: leave out the frames that are among the graph breaks.
    """
    if record.disabled:
        return [f"torch.compile is switched off by {record.disabled}"]
    reported = {
        (each.function, each.file, each.line)
        for each in record.compiled
        if unreported and each.failure and not each.limit_hit
    }
    lines = [
        _line(callee, cause)
        for callee in record.callables
        for cause in callee.uncompiled
        if not cause.reason.startswith(_CHOSEN) and cause[1:] not in reported
    ]
    return [*lines, *_limits(record)]


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


def _limits(record: WatchRecord) -> list[str]:
    return [
        f"{each.function} ({each.file}:{each.line}): the recompile limit was reached, and from "
        f"then on it ran eagerly (compile {each.compile_id}: {each.reasons[0]})"
        for each in record.recompiles
        if each.limit_hit
    ]


def _line(callee: CompiledCallable, cause: EagerCause) -> str:
    """How often a callable ran eagerly for one cause."""
    times = callee.uncompiled[cause]
    known = callee.file and not callee.file.startswith("<")
    place = f" ({relative(callee.file)}:{callee.line})" if known else ""
    count = f"{times} of {callee.entries} calls" if callee.entries > 1 else "its call"
    return f"{callee.name}{place}: {count} ran eagerly: {_in_words(cause, callee)}"


def _in_words(cause: EagerCause, callee: CompiledCallable) -> str:
    """A cause, with the frame that it is about where that is not the callable's own."""
    if cause == UNKNOWN_CAUSE:
        return _never_looked_at(callee)
    if _IN_TORCH in cause.reason and not is_user_file(cause.file):
        return (
            f"{cause.reason}: a module of torch's own is not compiled by itself; compile a module "
            "or function of yours that calls it"
        )
    other = cause.function and (cause.file, cause.line) != (callee.file, callee.line)
    other = other and not cause.file.startswith("<")
    where = f" ({cause.function} at {relative(cause.file)}:{cause.line})" if other else ""
    return f"{cause.reason}{where}"


def _never_looked_at(callee: CompiledCallable) -> str:
    """The likely cause where Dynamo gives none."""
    if callee.code is not None and callee.code in torch_private.code_at_recompile_limit():
        return (
            "the recompile limit had been reached before: Dynamo compiles this code no more. "
            "torch._dynamo.reset() clears it"
        )
    return (
        "Dynamo did not even look at it. Its code was marked as skipped earlier in this process, "
        "by a dispatch mode that was active, the recompile limit, an error, or because it had no "
        "tensor operation; torch._dynamo.reset() clears it"
    )
