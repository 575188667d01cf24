"""Why nothing was compiled, or why what was compiled is not all that ran.

A check on what a watch saw holds only if something was there to check. Each function here answers
with the causes, and "" or nothing means that there is evidence.
"""

from __future__ import annotations

from .. import torch_private
from ..convert.source_lines import is_user_file, relative
from ..watching.observe.entries import SILENT, Note, Region
from ..watching.record import WatchRecord

_IN_TORCH = "skipfiles"
_CHOSEN = "torch.compiler.set_stance"


def why_no_graph(record: WatchRecord) -> str:
    """Why a watch has no graph: the cause, in words, for each callable that was called."""
    about = f" for {record.part}" if record.part else ""
    if not record.opened:
        return "the watch was never entered: use `with graph_capture.watch() as capture:`"
    causes = []
    if record.disabled:
        causes.append(f"torch.compile is switched off by {record.disabled}")
    causes += [line for region in record.regions for line in _causes(region)]
    causes += [f"{each.kind}: {each.reason} ({each.file}:{each.line})" for each in record.breaks]
    causes += _limits(record)
    if causes:
        return "\n".join(f"  {cause}" for cause in dict.fromkeys(causes))
    ran = ", ".join(f"{run} {n} times" for run, n in record.executions.items())
    if ran:
        return (
            f"  compiled code ran{about} ({ran}), but it had been compiled before and was served "
            "from Dynamo's cache: watch from the first call, or call torch._dynamo.reset() before"
        )
    if record.compiled:
        functions = ", ".join(dict.fromkeys(each.function or "?" for each in record.compiled))
        return f"  Dynamo found no tensor operation in {functions}"
    if record.regions:
        names = ", ".join(dict.fromkeys(region.name for region in record.regions))
        return f"  {names} was called and served from Dynamo's cache, but it has no graph"
    return (
        f"  no compiled function or module was called{about} inside the watch: torch.compile(...) "
        "alone compiles nothing, the first call of what it returns does"
    )


def what_ran_uncompiled(record: WatchRecord, *, unreported: bool = False) -> list[str]:
    """What should have run compiled and did not, though other code did.

    Only what nobody chose: a stance that the test set itself is no accident.

    Args:
        record: what a watch saw.
        unreported: leave out what is among the graph breaks.
    """
    if record.disabled:
        return [f"torch.compile is switched off by {record.disabled}"]
    reported = {
        (each.function, each.file, each.line)
        for each in record.compiled
        if unreported and each.failure and not each.limit_hit
    }
    lines = [
        line
        for region in record.regions
        for note in region.uncompiled
        if not note.reason.startswith(_CHOSEN) and note[1:] not in reported
        for line in [_line(region, note)]
    ]
    return [*lines, *_limits(record)]


def why_no_recompile_possible(record: WatchRecord) -> str:
    """Why no recompilation could have shown: nothing compiled was entered again."""
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


def _causes(region: Region) -> list[str]:
    return [_line(region, note) for note in region.uncompiled]


def _line(region: Region, note: Note) -> str:
    times = region.uncompiled[note]
    known = region.file and not region.file.startswith("<")
    place = f" ({relative(region.file)}:{region.line})" if known else ""
    count = f"{times} of {region.entries} calls" if region.entries > 1 else "its call"
    return f"{region.name}{place}: {count} ran eagerly: {_why(region, note)}"


def _why(region: Region, note: Note) -> str:
    if note == SILENT:
        return _silent(region)
    if _IN_TORCH in note.reason and not is_user_file(note.file):
        return (
            f"{note.reason}: a module of torch's own is not compiled by itself; compile a module "
            "or function of yours that calls it"
        )
    other = note.function and (note.file, note.line) != (region.file, region.line)
    other = other and not note.file.startswith("<")
    where = f" ({note.function} at {relative(note.file)}:{note.line})" if other else ""
    return f"{note.reason}{where}"


def _silent(region: Region) -> str:
    if region.code is not None and region.code in torch_private.code_at_recompile_limit():
        return (
            "the recompile limit had been reached before: Dynamo compiles this code no more. "
            "torch._dynamo.reset() clears it"
        )
    return (
        "Dynamo did not even look at it. Its code was marked as skipped earlier in this process, "
        "by a dispatch mode that was active, the recompile limit, an error, or because it had no "
        "tensor operation; torch._dynamo.reset() clears it"
    )
