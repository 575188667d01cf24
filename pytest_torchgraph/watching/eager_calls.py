"""`EagerCall`: calls of a compiled callable that ran eagerly, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..convert.source_lines import is_user_file, relative
from .observe.callables import CallKind, CompiledCallable, EagerCause
from .observe.why_eager import PRECOMPILED
from .recompiles import Recompile

_IN_TORCH = "skipfiles"
"""A word of Dynamo's reason for leaving code of torch's to the interpreter."""


@dataclass(frozen=True)
class EagerCall:
    """Calls of a compiled callable that ran eagerly, for one reason.

    Attributes:
        function: name of the function, or of the module's class.
        file, line: where it begins; the file as in `GraphBreak`; "" and 0 if it has no code.
        kind: "stance" (`torch.compiler.set_stance`), "limit" (a recompile limit), "disabled"
            (`torch.compiler.disable` or `torch._dynamo.config.disable`), "skipped" (Dynamo gave the
            frame up, or a mode, a transform or a trace was active; also a call of what
            `torch.compiler.precompile` made, which runs unseen) or "backend" (it raised under
            `torch._dynamo.config.suppress_errors`).
        reason: Dynamo's words, or ours.
        count: how many calls.
        calls: how often the function was called, compiled or not.
    """

    function: str
    file: str
    line: int
    kind: CallKind
    reason: str
    count: int
    calls: int

    def __str__(self) -> str:
        known = self.file and not self.file.startswith("<")
        place = f" ({self.file}:{self.line})" if known else ""
        times = f"{self.count} of {self.calls} calls" if self.calls > 1 else "its call"
        how = "unseen" if self.reason == PRECOMPILED else "eagerly"
        return f"{self.function}{place}: {times} ran {how}: {self.reason}"


def eager_calls_of(
    callables: Iterable[CompiledCallable], recompiles: Iterable[Recompile]
) -> Iterator[tuple[EagerCall, EagerCause | None]]:
    """The calls that ran eagerly, each with its cause as it was observed.

    Args:
        callables: those that were called.
        recompiles: the recompilations. Code that reached a limit outside of every call, as in a
            captured backward, is known from them alone, and has no cause.
    """
    limits = {(each.path, each.line): each for each in recompiles if each.limit_hit}
    told = set()
    for callee in callables:
        file = relative(callee.file) if callee.file else ""
        for cause, count in callee.uncompiled.items():
            limit = limits.get((cause.file, cause.line)) if cause.kind == "limit" else None
            if limit is not None:
                told.add((cause.file, cause.line))
                cause = cause._replace(reason=_limit_in_words(limit))
            reason, calls = _in_words(cause, callee), callee.entries
            yield EagerCall(callee.name, file, callee.line, cause.kind, reason, count, calls), cause
    for key, limit in limits.items():
        if key not in told:
            words = _limit_in_words(limit)
            yield EagerCall(limit.function, limit.file, limit.line, "limit", words, 1, 1), None


def _limit_in_words(recompile: Recompile) -> str:
    return (
        "the recompile limit was reached, and from then on it ran eagerly (compile "
        f"{recompile.compile_id}: {next(iter(recompile.reasons), 'no guard is named')})"
    )


def _in_words(cause: EagerCause, callee: CompiledCallable) -> str:
    """A cause, with the frame that it is about if that is not the callable's own."""
    if _IN_TORCH in cause.reason and not is_user_file(cause.file):
        return (
            f"{cause.reason}: a module of torch's own is not compiled by itself; compile a module "
            "or function of yours that calls it"
        )
    other = cause.function and (cause.file, cause.line) != (callee.file, callee.line)
    other = other and not cause.file.startswith("<")
    where = f" ({cause.function} at {relative(cause.file)}:{cause.line})" if other else ""
    return f"{cause.reason}{where}"
