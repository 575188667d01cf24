"""Inductor: observers of the code that it writes and of its graph passes, and a way to stop early.

torch runs a pass inside a `GraphTransformObserver`, by `apply_graph_pass`, `apply_gm_pass` or
`with`. Patterns are replaced by `PatternMatcherPass.apply`, which has an observer of its own.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from torch import fx

from .private_names import get, has, replaced

_INDUCTOR = "torch._inductor"
_MAPPING_ONLY = 2
"""Level of provenance tracking at which no pass is observed."""


@contextlib.contextmanager
def on_kernel_call(observer: Callable[[str, list[Any]], None]) -> Iterator[None]:
    """Call `observer(name, nodes)` for each kernel or library call that inductor writes.

    Inductor reports each such call to a function of its own. This function is replaced in all
    modules that have imported it, and restored afterwards, also in modules imported inside the
    context. torch 2.9 calls it only if provenance tracking is enabled, so this is enabled. It only
    adds comments to the code.

    Args:
        observer: receives the name in the generated code, and the computed nodes of the post-grad
            graph or of a subgraph in it.
    """
    original = get("kernel_provenance")

    def observed(scheduled: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name:
            observer(name, _nodes(scheduled))
        return original(scheduled, name, *args, **kwargs)

    config = get("inductor_config")
    level = config.trace.provenance_tracking_level
    is_called = hasattr(get("scheduling"), "codegen_comment") or level
    _replace_everywhere(original, observed)
    try:
        with config.patch({} if is_called else {"trace.provenance_tracking_level": _MAPPING_ONLY}):
            yield
    finally:
        _replace_everywhere(observed, original)


def _replace_everywhere(old: Any, new: Any) -> None:
    """Replace torch's function by ours, or ours by torch's, in all modules that imported it."""
    # The name is that of torch's function, whichever of the two it is.
    name = old.__name__ if old.__module__.startswith(_INDUCTOR) else new.__name__
    for module in list(sys.modules):
        if module.startswith(_INDUCTOR) and vars(sys.modules[module]).get(name) is old:
            setattr(sys.modules[module], name, new)


def _nodes(scheduled: Any) -> list[Any]:
    """Return the fx nodes of a scheduled library call, or of a list of scheduler nodes."""
    if not isinstance(scheduled, list):
        exact = getattr(scheduled, "origin_node", None)
        return [exact] if exact is not None else list(getattr(scheduled, "origins", ()))
    buffers = [getattr(scheduler_node, "node", None) for scheduler_node in scheduled]
    return [node for buffer in buffers for node in getattr(buffer, "origins", ())]


@contextlib.contextmanager
def code_written_only(on_code: Callable[[str], None]) -> Iterator[None]:
    """Stop inductor after it has written the code of a graph, and compile or store nothing.

    Calling inductor's result for the graph raises an error. Triton kernels are not sent to worker
    processes. Inductor does not test which vector instructions the C++ compiler supports.

    Args:
        on_code: receives the code of each graph.
    """

    def compile_to_module(graph: Any) -> Any:
        write = graph.codegen_with_cpp_wrapper if graph.cpp_wrapper else graph.codegen
        on_code(write()[0].value)
        graph.cache_key = graph.cache_path = ""
        graph.cache_linemap = []
        return SimpleNamespace(call=_never_compiled, __file__="")

    with (
        replaced("compile_to_module", compile_to_module),
        get("inductor_config").patch(compile_threads=1),
        _vector_instructions_assumed(),
    ):
        yield


@contextlib.contextmanager
def _vector_instructions_assumed() -> Iterator[None]:
    """Assume that the compiler supports all vector instructions of the processor.

    To find out, inductor compiles and loads a small program for each instruction set, ten on a new
    Xeon. The assumption ends with the context, because code that is really compiled must not use an
    instruction that the compiler lacks. If inductor has already found out, nothing is assumed.
    """
    detected = get("vector_instructions")
    if detected.cache_info().currsize:
        yield
        return
    try:
        with replaced("check_vector_instructions", lambda _instructions, _code: True):
            yield
    finally:
        detected.cache_clear()
        for kind in _with_subclasses(get("vector_instruction_set")):
            for value in vars(kind).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and all classes that derive from it."""
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


def _never_compiled(_args: Any) -> Any:
    """Take the place of a graph's compiled code."""
    raise AssertionError("the generated code was not compiled, so it cannot run")


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
    functions: dict[int, Any] = {}  # the pass of each torch observer, until `on_enter` takes it

    def applying(method: Any) -> Any:
        """Wrap `apply_graph_pass` or `apply_gm_pass`, which enter and leave torch's observer."""

        def apply_pass(self: Any, pass_fn: Any) -> Any:
            """Run a pass, unless it is disabled or the observer skips it."""
            # torch would report a disabled pass like one that changed nothing.
            names = getattr(get("inductor_config"), "disabled_passes", "")  # not in torch 2.9
            disabled = self.passname.upper() in names.upper()  # as torch tests it
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
    """Runs several passes as one, each inside an observer.

    Attributes:
        passes: the passes, in order.
        hook: the setting of inductor that holds this object.
    """

    passes: Sequence[Any] = ()
    hook = ""

    def __call__(self, graph: fx.Graph, is_inference: bool = False) -> None:
        # torch's name of the group of passes, such as "joint_graph_passes".
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
