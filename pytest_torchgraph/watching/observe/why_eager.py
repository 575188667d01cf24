"""Why a call of a compiled callable ran eagerly."""

from __future__ import annotations

from typing import Any

from ... import torch_private
from ...convert.source_lines import is_user_file, original_name, relative
from .callables import CallKind, CodeKey, CompiledCallable, EagerCause, code_key
from .events import is_recompile_limit

EAGER_STANCES = frozenset(
    {"force_eager", "eager_on_recompile", "eager_then_compile", "aot_eager_then_compile"}
)
"""The stances under which a call may run eagerly; `fail_on_recompile` raises instead."""
_BACKEND_FAILED = "BackendCompilerFailed"
_NO_TENSOR_OPS = ("No ops traced for the FX graph", "no tensor-related objects found in frame")
"""Dynamo's reasons for leaving a frame alone in which there is nothing to compile."""
_DISABLED = "torch.compiler.disable"
PRECOMPILED = "torch.compiler.precompile compiled it, and no graph of it is known"
"""The reason of a call of a precompiled module: it ran compiled code, but not Dynamo's."""
_NO_GRAPH = "Dynamo compiled no graph of it"
_NEVER_LOOKED_AT = (
    "Dynamo did not even look at it. Its code was marked as skipped earlier in this process, by a "
    "dispatch mode that was active, the recompile limit, an error, or (modules of torch.nn share "
    "the code) a layer without tensor operation; torch._dynamo.reset() clears that"
)


class Reasons:
    """How Dynamo's latest attempt to compile each function ended."""

    def __init__(self) -> None:
        self.without_graph: set[CodeKey] = set()
        self.failures: dict[CodeKey, EagerCause] = {}

    def compiled(self, key: CodeKey, *, has_graph: bool) -> None:
        """Take note that Dynamo compiled a function, into no graph if it has no tensor op."""
        (self.without_graph.discard if has_graph else self.without_graph.add)(key)
        self.failures.pop(key, None)

    def failed(self, key: CodeKey, failure: str, reason: str) -> EagerCause:
        """Return why a function runs eagerly that Dynamo failed to compile.

        Args:
            key: the function.
            failure, reason: the type and the text of the exception.
        """
        kind: CallKind = "backend" if failure == _BACKEND_FAILED else "skipped"
        if is_recompile_limit(failure, reason):
            kind = "limit"
        self.failures[key] = EagerCause(kind, first_line(reason) or failure, *key)
        return self.failures[key]

    def why_unseen(self, callee: CompiledCallable, *, missed: bool) -> EagerCause | None:
        """Return why Dynamo left a call alone; None if there is nothing to compile in it.

        Args:
            callee: the callable.
            missed: whether Dynamo has compiled code for it, but none that fitted.
        """
        if callee.code is None:
            return EagerCause("skipped", _NEVER_LOOKED_AT, earlier=True)
        key = code_key(callee.code)
        if key in self.failures:
            return self.failures[key]
        if key in self.without_graph or callee.without_ops:
            return None
        if missed or torch_private.is_at_recompile_limit(callee.code):
            words = (
                "the recompile limit had been reached before: Dynamo compiles this code no more. "
                "torch._dynamo.reset() clears it"
            )
            return EagerCause("limit", words, *key, earlier=True)
        last = torch_private.last_compilation(*key)
        if last is not None and last.failure:
            kind: CallKind = "backend" if last.failure == _BACKEND_FAILED else "skipped"
            words = f"Dynamo gave it up earlier in this process: {first_line(last.reason)}"
            return EagerCause(kind, words, *key, earlier=True)
        if last is not None and last.ops is None:
            return None
        return EagerCause("skipped", _NEVER_LOOKED_AT, earlier=True)


def why_partly(stance: str) -> EagerCause:
    """Return why a frame inside a call ran eagerly, though Dynamo had compiled its code before."""
    if stance in EAGER_STANCES:
        return under_stance(stance)
    codes = torch_private.code_at_recompile_limit()
    names = [
        f"{original_name(code.co_name)} ({relative(code.co_filename)}:{code.co_firstlineno})"
        for code in codes
        if is_user_file(code.co_filename)
    ]
    words = "a part of it ran eagerly, since the recompile limit had been reached before"
    return EagerCause("limit", f"{words}: {', '.join(names)}" if names else words, earlier=True)


def switched_off(setting: str) -> EagerCause:
    """The cause where a setting keeps all code from being compiled."""
    return EagerCause("disabled", f"torch.compile is switched off by {setting}")


def under_stance(stance: str) -> EagerCause:
    """The cause where a stance lets code run eagerly."""
    return EagerCause("stance", f"torch.compiler.set_stance({stance!r}) is in force")


def has_no_ops(reason: str) -> bool:
    """Return True if Dynamo left a frame alone because there is nothing to compile."""
    return any(text in reason for text in _NO_TENSOR_OPS)


def disabled_at(report: str) -> str:
    """The reason of a call that is cut at a `torch.compiler.disable`d function; "" for others.

    Args:
        report: Dynamo's report of the graph break.
    """
    lines = (line.strip() for line in report.splitlines() if _DISABLED in line)
    line = next(lines, "")
    return line and f"{_NO_GRAPH}: {line}"


def disabled_inside(call: Any) -> str:
    """The reason of a call of which Dynamo has compiled code without a graph; "" if unknown."""
    name = "" if call is None else torch_private.disabled_in(call)
    return name and f"{_NO_GRAPH}: {name} is under {_DISABLED}"


def first_line(text: str) -> str:
    """The first line that is not blank, "" for none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
