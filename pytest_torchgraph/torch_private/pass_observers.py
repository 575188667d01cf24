"""Observes and installs the graph passes of inductor.

torch runs a pass inside a `GraphTransformObserver`, by `apply_graph_pass`, `apply_gm_pass` or
`with`. Patterns are replaced by `PatternMatcherPass.apply`, which has an observer of its own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import fx

from .private_names import get, has, replaced

HOOKS = {
    "pre_grad": "pre_grad_custom_pass",
    "joint_pre": "joint_custom_pre_pass",
    "joint_post": "joint_custom_post_pass",
    "post_grad_pre": "post_grad_custom_pre_pass",
    "post_grad_post": "post_grad_custom_post_pass",
    "post_grad": "post_grad_custom_post_pass",
}
"""Inductor's settings for passes of a user, by the keys of `Inductor(passes=...)`."""


@contextlib.contextmanager
def on_passes(observer: Any) -> Iterator[None]:
    """Tell an observer about each pass that inductor runs inside the context.

    Args:
        observer: has these methods. `skips(function, name)` returns True if a pass must not run.
            `enter(gm, name, subsystem, function)` is called before a pass; `function` is `None` if
            it is unknown. `leave(failed)` is called after it. `matching(apply)` calls a function
            that replaces matches of patterns, and returns its result, the number of matches.
    """
    enter, leave, apply_patterns = get("pass_enter"), get("pass_exit"), get("pattern_apply")
    functions: dict[int, Any] = {}

    def applying(method: Any) -> Any:
        def apply_pass(self: Any, pass_fn: Any) -> Any:
            # torch would report a disabled pass like one that changed nothing.
            names = getattr(get("inductor_config"), "disabled_passes", "")  # not in torch 2.9
            disabled = self.passname.upper() in names.upper()
            if disabled or observer.skips(pass_fn, self.passname):
                return None
            functions[id(self)] = pass_fn
            return method(self, pass_fn)

        return apply_pass

    def on_enter(self: Any) -> Any:
        gm = self.gm if isinstance(self.gm, fx.GraphModule) else self.gm.owning_module
        observer.enter(gm, self.passname, self.subsystem or "", functions.pop(id(self), None))
        return enter(self)

    def on_exit(self: Any, *error: Any) -> Any:
        result = leave(self, *error)
        observer.leave(failed=any(error))
        return result

    def on_apply(self: Any, gm: Any) -> int:
        if observer.skips(self.apply, self.pass_name or "pattern_matcher"):
            return 0
        count: int = observer.matching(functools.partial(apply_patterns, self, gm))
        return count

    with (
        replaced("pass_enter", on_enter),
        replaced("pass_exit", on_exit),
        replaced("apply_graph_pass", applying(get("apply_graph_pass"))),
        replaced("apply_gm_pass", applying(get("apply_gm_pass"))),
        replaced("pattern_apply", on_apply),
    ):
        yield


def unwrapped_pass(function: Any) -> Any:
    """Return the pass inside a `functools.partial`, or the owner of a method that runs it."""
    while isinstance(function, functools.partial):
        function = function.func
    if getattr(function, "__name__", "") in ("apply", "__call__"):
        return getattr(function, "__self__", function)
    return function


def is_own_pass(function: Any) -> bool:
    """Return True if a pass is torch's own."""
    owner = function if hasattr(function, "__name__") else type(function)
    return str(getattr(owner, "__module__", "")).startswith("torch._inductor")


def _inference_aware() -> tuple[Any, ...]:
    """Return the class of passes to which torch passes `is_inference`, if it has one."""
    return (get("inference_aware_pass"),) if has("inference_aware_pass") else ()


class _InOrder:
    """Runs several passes as one, each inside an observer."""

    passes: Sequence[Any] = ()
    hook = ""

    def __call__(self, graph: fx.Graph, is_inference: bool = False) -> None:
        group = self.hook.partition("_custom")[0].replace("joint", "joint_graph")
        for function in self.passes:
            run = function if callable(function) else function.apply  # of a PatternMatcherPass
            if isinstance(function, _inference_aware()):
                run = functools.partial(function, is_inference=is_inference)
            observer = get("pass_observer")(graph.owning_module, self.hook, f"{group}_passes")
            observer.apply_graph_pass(run)

    def uuid(self) -> None:
        """Return `None`, so that no cache stores the graph."""


def runs_others(function: Any) -> bool:
    """Return True if a pass only runs other passes, each inside an observer."""
    return isinstance(unwrapped_pass(function), _InOrder)


def with_passes(
    passes: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]
) -> dict[str, Callable[..., None]]:
    """Return settings of inductor that run the passes, after those that are already set.

    Args:
        passes: passes by key of `HOOKS`.
        settings: further settings of inductor that apply.
    """
    by_hook: dict[str, list[Any]] = {}
    for key, added in passes.items():
        by_hook.setdefault(HOOKS[key], []).extend(added)
    changed = {}
    for hook, added in by_hook.items():
        own = settings.get(hook, getattr(get("inductor_config"), hook))
        before = [] if own is None else [*own] if isinstance(own, list | tuple) else [own]
        # torch passes `is_inference` only to this kind of pass, and lists only since torch 2.13.
        kind = type("_InOrder", (_InOrder, *_inference_aware()), {})
        changed[hook] = kind()
        changed[hook].passes, changed[hook].hook = [*before, *added], hook
    return changed
