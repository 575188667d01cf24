"""Recompilations, with their failed guards described in words."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..convert.source_lines import is_torch_file, relative
from .compilations import Compilation
from .guard_text import sizes_in
from .guards import FailedGuard, details, failed_guard, observe_guard, reasons
from .observe import CountedGraph

FIRST_DYNAMIC = "; the size became dynamic in compilation "
"""Suffix of a recompile reason for a size that became dynamic."""
_WRAPPERS = (("_dynamo",), ("nn", "modules"))
"""Parts of torch with its modules, and with the functions that wrap compiled callables."""
_ID = re.compile(r"(?:\s*(!?\d+(?:/\d+)*):\s*)?(.*)", re.DOTALL)
"""A cache miss as torch writes it: the id of the capture, and the reason why it does not fit."""
_SYMBOLIC = re.compile(r'"(?:Sym\(|[a-z]\w*\[[^\]"]*\bs\d+)')
"""A symbolic size in a graph that Dynamo printed."""
_CHANGED_NODE = re.compile(r"new autograd node: .*previous key sizes=\[\d")
"""Part of a cache miss because of a node that earlier captures had at this position too."""
_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)
"""Hint in the reason with which Dynamo refuses to compile."""


@dataclass(frozen=True)
class Recompile:
    """Code that Dynamo compiled again, or refused to, or a backward that was captured again.

    Attributes:
        function: name of the function; `backward` for a capture by compiled autograd.
        file, line: start of its code; the file as in `GraphBreak`; "" and 0 for a backward.
        reasons: each failed guard in words, starting with the guard of the latest compilation.
        compile_id: id of the new compilation.
        limit_hit: True if Dynamo refused to compile the code again, because of the recompile limit.
            The code then silently runs eagerly.
        path: the file as Dynamo names it, "" for a backward.
        failed_guards: each failed guard, in the order of `reasons`, with the line that created it,
            the old and the new value, torch's hint and the stack.
        hint: torch's advice if it refused to compile, else "".
    """

    function: str
    file: str
    line: int
    reasons: tuple[str, ...]
    compile_id: str
    limit_hit: bool
    path: str = ""
    failed_guards: tuple[FailedGuard, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        location = f" ({self.file}:{self.line})" if self.file else ""
        lines = [f"{self.compile_id} {self.function}{location}: {reasons(self.failed_guards)}"]
        lines += details(self.failed_guards)
        lines += [f"    hint: {line}" for line in self.hint.splitlines()]
        lines += ["    recompile limit reached, so later calls run eagerly"] * self.limit_hit
        return "\n".join(lines)


def recompiles_of(
    compiled: Sequence[Compilation], ran_earlier: Sequence[CountedGraph]
) -> tuple[Recompile, ...]:
    """Return the recompilations among compilations, in order.

    Args:
        compiled: the compilations.
        ran_earlier: graphs that ran, but were compiled before them.
    """
    after_reset = _compiled_after_reset(compiled, ran_earlier)
    recompiles = []
    for number, compilation in enumerate(compiled):
        if compilation.is_recompilation:
            earlier = compiled[:number]
            recompiles.append(
                _describe_recapture(compilation)
                if compilation.is_capture
                else _describe_recompile(compilation, earlier)
            )
        elif number in after_reset:
            recompiles.append(_recompile_after_reset(compilation, after_reset[number]))
    return tuple(recompiles)


def _compiled_after_reset(
    compiled: Sequence[Compilation], ran_earlier: Sequence[CountedGraph]
) -> dict[int, str]:
    """Map compilations that repeat work done before a reset of Dynamo to the reset, by index."""
    resets, highest = 0, -1
    # The first compilation of each code, with the number of resets before it.
    first: dict[tuple[object, ...], tuple[int, Compilation]] = {}
    after = {}
    for number, compilation in enumerate(compiled):
        # Only the first compilation of a frame. A later one is an ordinary recompilation.
        if compilation.id is None or compilation.id.frame is None or compilation.id.compile:
            continue
        # Dynamo numbers code in the order of first compilation, starting at 0 after a reset. If a
        # number is not higher than the number before it, there was a reset.
        resets += compilation.id.frame <= highest
        highest = compilation.id.frame
        if compilation.failure or not compilation.ops:
            continue
        # With `own_resets` in the key, resets by this package, for example in a capture, do not
        # count: only resets by the user's code are reported.
        key = (
            hash(compilation.code_ref),
            compilation.file,
            compilation.line,
            compilation.function,
            compilation.own_resets,
        )
        period, earlier = first.setdefault(key, (resets, compilation))
        if period < resets:
            after[number] = "torch._dynamo.reset()"
            continue
        before: list[Compilation | CountedGraph] = [earlier, *ran_earlier]
        if any(
            one is not compilation
            and one.code_ref is compilation.code_ref is not None
            and one.own_resets == compilation.own_resets
            for one in before
        ):
            # Only code whose cache was cleared gets another number. Equal code is not the same.
            after[number] = "torch._dynamo.reset_code() or reset()"
    return after


def _recompile_after_reset(compiled: Compilation, reset: str) -> Recompile:
    """Describe a compilation that repeats earlier work. No guard failed, so the reset is named."""
    words = f"{reset} cleared the earlier compilations"
    path = compiled.file
    return Recompile(
        compiled.function,
        relative(path) if path else "",
        compiled.line,
        (words,),
        str(compiled.id),
        limit_hit=False,
        path=path,
        failed_guards=(FailedGuard("", words, ""),),
    )


def _describe_recapture(compiled: Compilation) -> Recompile:
    """Describe a backward that compiled autograd captured again."""
    # torch repeats the reasons for earlier captures.
    own_misses = [miss for miss in compiled.cache_misses if miss.startswith(f"{compiled.id}:")]
    guards = tuple(map(_describe_cache_miss, own_misses or compiled.cache_misses))
    words = tuple(guard.words for guard in guards)
    id_ = str(compiled.id)
    return Recompile("backward", "", 0, words, id_, limit_hit=False, failed_guards=guards)


def _describe_cache_miss(miss: str) -> FailedGuard:
    """Describe why a backward in compiled autograd's cache does not fit, as a failed guard."""
    (compile_id, text), *_ = _ID.findall(miss)
    words = text.strip().removeprefix("Cache miss due to ")
    if _CHANGED_NODE.match(words):
        words += (
            ": a .grad went from None to a tensor or back, a hook was added or removed, or a saved "
            "tensor changed"
        )
    return FailedGuard(compile_id, words, "")


def _describe_recompile(compiled: Compilation, earlier: Sequence[Compilation]) -> Recompile:
    """Describe a frame that Dynamo compiled again, or refused to."""
    assert compiled.id is not None
    same_frame = [
        compilation
        for compilation in earlier
        if compilation.id is not None
        and (compilation.id.autograd, compilation.id.frame)
        == (compiled.id.autograd, compiled.id.frame)
    ]
    # A log of torch names no code if Dynamo refused to compile it again.
    located = next((candidate for candidate in [compiled, *same_frame] if candidate.file), compiled)
    fixed = {**compiled.fixed_before, str(compiled.id): compiled.fixed}
    # A size that was fixed was dynamic before, even if no graph shows it.
    was_dynamic = any(map(_is_dynamic, same_frame)) or any(
        sizes_in(source) for sizes in compiled.fixed_before.values() for source in sizes
    )
    since = f"{FIRST_DYNAMIC}{compiled.id}" * (_is_dynamic(compiled) and not was_dynamic)
    in_backward = compiled.id.autograd is not None
    graphs = compiled.texts("dynamo")
    # A log has only torch's reasons.
    observations = compiled.observations or tuple(
        observe_guard(reason, None) for reason in compiled.failed_guards
    )
    guards = []
    for observation in observations:
        # The sizes that the guard's own compilation fixed, then those of the latest compilation.
        own = fixed.get(observation.text.compile_id, {})
        sizes = ChainMap(own, *list(fixed.values())[::-1])
        guard = failed_guard(observation, observations, graphs, sizes)
        is_size = "size of dim " in guard.words
        guards.append(replace(guard, words=guard.words + since * is_size))
    # torch wraps callables without Python code of their own, such as torch.nn modules.
    wrapped = bool(located.callable_name) and any(
        is_torch_file(located.file, *p) for p in _WRAPPERS
    )
    nowhere = in_backward or wrapped or not located.file
    return Recompile(
        "backward" if in_backward else located.callable_name if wrapped else located.function,
        "" if nowhere else relative(located.file),
        0 if nowhere else located.line,
        tuple(guard.words for guard in guards),
        str(compiled.id),
        compiled.limit_hit,
        "" if in_backward else located.file,
        tuple(guards),
        "\n".join(_HINT.findall(compiled.reason)) if compiled.limit_hit else "",
    )


def _is_dynamic(compiled: Compilation) -> bool:
    """Return True if a graph of Dynamo's has a symbolic size."""
    return any(_SYMBOLIC.search(text) for text in compiled.texts("dynamo"))
