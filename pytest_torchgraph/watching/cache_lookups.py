"""Lookups in torch.compile's caches, and graphs that no cache can serve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..convert.refused_nodes import RefusedOp
from ..convert.source_lines import from_line
from ..graph.model import Source
from .compilations import Compilation
from .observe import BACKWARD, CacheEvent

NO_OP = "a graph without an op is never saved"
"""Bypass reason of a forward or backward without any op."""
NO_OP_BACKWARD = f"{NO_OP}; the forward is traced again with it"
"""Bypass reason of a backward without any op."""
SWITCHED_OFF = "the cache is disabled by "
"""Prefix of the bypass reason if a setting disables torch's cache."""


@dataclass(frozen=True)
class CacheLookup:
    """A lookup of one graph in one of torch.compile's caches.

    Attributes:
        graph: compile id of the graph, such as `0/0`; for a backward `0/0 backward`.
        cache: "aot" for AOTAutograd's cache, "inductor" for inductor's.
        state: "hit", "miss" or "bypass"; a bypass is permanent.
        reason: the cause of a miss or bypass; "" for a hit.
        source: line of the op that caused a bypass, else of the compiled function.
    """

    graph: str
    cache: Literal["aot", "inductor"]
    state: Literal["hit", "miss", "bypass"]
    reason: str = ""
    source: Source | None = None

    def __str__(self) -> str:
        location = f"  {self.source}: {self.source.code}" if self.source is not None else ""
        return f"{self.graph}, {self.cache}: {self.state}: {self.reason}{location}".rstrip(": ")


@dataclass(frozen=True)
class CacheBypass:
    """A reason why a graph is compiled again in every process.

    Attributes:
        graph: name of the graph; in a watch its compile id, such as `0/0` or `0/0 backward`.
        op: qualified name of the op that AOTAutograd's cache refuses; "" if no op is the cause.
        reason: torch's words, without addresses and absolute paths.
        module: path of the module that runs the op, "" if unknown.
        source: the user's line, `None` if unknown.
        hint: remedy, "" if there is none.
    """

    graph: str
    op: str
    reason: str
    module: str = ""
    source: Source | None = None
    hint: str = ""

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        lines = [f"{self.graph}: {self.op or self.reason}{where}"]
        if self.source is not None:
            lines[0] += f"  {self.source}: {self.source.code}"
        if self.op:
            lines.append(f"  {self.reason}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


_HINTS = (
    (
        ("_autocast",),
        # 2.9 and 2.11 cached it, as does 2.14: measured in docs/measured/warm-start.md.
        "torch 2.12 and 2.13 do not cache it: enter autocast around the call to the compiled "
        "function, or use torch 2.14",
    ),
    (
        ("_backend_from_string", "sdpa_kernel"),
        "enter sdpa_kernel around the call to the compiled function",
    ),
    (
        ("autograd_function_apply", "FunctionCtx"),
        "set torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True if the "
        "result of the function depends only on its arguments",
    ),
    (("context_fn",), 'set context_fn.cache_hash = "name-and-version"'),
    (
        ("unpicklable type", "Failed to pickle"),
        "the cache key pickles this object: define it as a module-level function or "
        "class, not as a functools.partial, lambda or generator",
    ),
    (
        ("custom pass", "Unsupported post grad", "Unsupported pre grad", "custom partitioner"),
        "subclass torch._inductor.custom_graph_pass.CustomGraphPass and return the version of the "
        "pass from uuid()",
    ),
    (("freezing",), "set torch._inductor.config.freezing = False"),
    (("FX graph cache is not enabled",), "set torch._inductor.config.fx_graph_cache = True"),
    (("enable_autograd_cache",), "set torch._functorch.config.enable_autograd_cache = True"),
    (("force_disable_caches",), "set torch._inductor.config.force_disable_caches = False"),
    (
        (NO_OP_BACKWARD,),
        "return something that needs an op in the backward, such as x * 1.0 instead of x, or "
        f'tolerate the bypass with allow=["{NO_OP}"]',
    ),
    ((NO_OP,), f'it compiles quickly: tolerate the bypass with allow=["{NO_OP}"]'),
    (
        ("tag_activation_checkpoint",),
        "before torch 2.11, no checkpoint with a context_fn is cached",
    ),
    (
        ("higher_order.", "HigherOrderOperator"),
        "no release of torch caches this op: rewrite the code without it",
    ),
    (
        ("Unsupported call_function target",),
        "register the function with torch.library.custom_op, or, to vouch for it, set "
        "torch._inductor.config.unsafe_marked_cacheable_functions",
    ),
)
"""Parts of an op's name or of torch's reason, with the remedy. The first match counts."""


def describe_bypass(graph: str, refused: RefusedOp) -> CacheBypass:
    """Return the bypass caused by a refused op."""
    text = f"{refused.op} {refused.reason}"
    hint = next((hint for parts, hint in _HINTS if any(part in text for part in parts)), "")
    if hint and "unsafe_marked" in hint and refused.op:  # the setting, with the function as key
        hint += f'["{refused.op}"] = "1"'
    return CacheBypass(graph, refused.op, refused.reason, refused.module, refused.source, hint)


def bypasses_of(compiled: Iterable[Compilation]) -> tuple[CacheBypass, ...]:
    """Return the reasons why AOTAutograd's cache can never serve these compilations."""
    return tuple(
        describe_bypass(_graph_name(event), refused)
        for compilation in compiled
        if not compilation.failure  # it has no code that a cache could serve
        for event in (*compilation.lookups, *_skipped_lookups(compilation))
        for refused in _refused_ops(compilation, event)
    )


def _refused_ops(compilation: Compilation, event: CacheEvent) -> tuple[RefusedOp, ...]:
    """Return the ops that make an event a permanent bypass; without op, if no op is the cause."""
    function = source_of(compilation)
    if event.state == "unsaved":  # a graph without an op, which torch never saves
        reason = NO_OP_BACKWARD if event.backward else NO_OP
        return (RefusedOp("", reason, "", function),)
    # Only what AOTAutograd's cache refuses.
    if event.cache != "aot" or event.state != "bypass":
        return ()
    return tuple(op if op.source else op._replace(source=function) for op in event.refused)


def _skipped_lookups(compilation: Compilation) -> Iterator[CacheEvent]:
    """Yield a bypass for code of inductor that torch did not look up in AOTAutograd's cache."""
    is_looked_up = any(event.cache == "aot" for event in compilation.lookups)
    if compilation.cache_off and not is_looked_up and compilation.lowered:
        reason = f"{SWITCHED_OFF}{compilation.cache_off}"
        refused = (RefusedOp("", reason),)
        yield CacheEvent(compilation.id, 0, "aot", "bypass", reason=reason, refused=refused)


def source_of(compilation: Compilation) -> Source | None:
    """Return the first line of the compiled function, `None` if unknown."""
    if not compilation.file:
        return None
    return from_line(compilation.file, compilation.line, compilation.function)


def _graph_name(event: CacheEvent) -> str:
    return f"{event.id} {BACKWARD}" if event.backward else str(event.id)


def lookups_of(
    compiled: Iterable[Compilation], before: Iterable[Compilation]
) -> tuple[CacheLookup, ...]:
    """Return every lookup in order. A bypass that several ops cause is returned once per op.

    Args:
        compiled: the compilations.
        before: the compilations of the cold run, which explain misses of a warm run.
    """
    cold = list(before)
    cold_events = [event for compilation in cold for event in compilation.lookups]
    lookups: list[CacheLookup] = []
    for compilation in compiled:
        function = source_of(compilation)
        for event in (*compilation.lookups, *_skipped_lookups(compilation)):
            if event.state == "unsaved":
                continue
            name = _graph_name(event)
            if event.state == "bypass":
                lookups += [
                    CacheLookup(name, event.cache, "bypass", op.reason, op.source or function)
                    for op in event.refused
                ]
                continue
            reason = ""
            if event.state == "miss":
                reason = _explain_miss(event, cold_events) if cold else _NOTHING_CACHED
            lookups.append(CacheLookup(name, event.cache, event.state, reason, function))
    return tuple(lookups)


_NOTHING_CACHED = "nothing is in the cache yet"


def _explain_miss(event: CacheEvent, cold_events: Sequence[CacheEvent]) -> str:
    """Return why a lookup was a miss, although the cold run has compiled.

    Args:
        event: the lookup.
        cold_events: the cache events of the cold run.
    """
    same_id = [cold_event for cold_event in cold_events if cold_event.id == event.id]
    unsaved = next((cold_event for cold_event in same_id if cold_event.state == "unsaved"), None)
    if unsaved is not None and event.cache == "aot":
        graph = "backward" if unsaved.backward else "forward"
        return f"{NO_OP}: the {graph} has none"
    if event.key and event.key in {cold_event.key for cold_event in cold_events}:
        # AOTAutograd saves the forward only together with its backward.
        if event.cache == "aot" and not any(cold_event.backward for cold_event in same_id):
            return (
                "the graph was not saved, because its backward did not run, or its cache entry "
                "cannot be pickled"
            )
        return "the graph was not saved, although its key is the same"
    for cold_event in same_id:
        if (cold_event.cache, cold_event.backward) == (event.cache, event.backward):
            return f"the key differs{_describe_key_difference(cold_event, event)}"
    return "the first run did not compile this graph"


def _describe_key_difference(before: CacheEvent, now: CacheEvent) -> str:
    """Name the parts of the key that differ, as part of a sentence; "" if torch names none."""
    parts_before = set(map(_split_component, before.components))
    changed = [
        name
        for part, name in map(_split_component, now.components)
        if (part, name) not in parts_before
    ]
    return f" in {', '.join(dict.fromkeys(filter(None, changed)))}" if changed else ""


def _split_component(component: str) -> tuple[str, str]:
    """Return the hash and the name of a part of a key, without its text, which has addresses."""
    part, _, text = component.partition("] ")
    return part, text.partition(":")[0]
