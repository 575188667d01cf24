"""Every private name of torch that the package touches, each with what it is for and a probe.

torch makes no promise for these. A name that is missing makes the feature that needs it
unavailable, with a message that says so; it never makes a check pass. `probe()` says what is
missing, and the test suite runs it on every supported release.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import logging
import os
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import TorchGraphError

__all__ = ["TorchDispatchMode"]


@dataclass(frozen=True)
class Private:
    """One private name.

    Attributes:
        path: `module:attribute`.
        since: the first torch release that has it in this form.
        purpose: what needs it.
    """

    path: str
    since: str
    purpose: str


NAMES = {
    "counters": Private("torch._dynamo.utils:counters", "2.0", "leaving Dynamo's counters alone"),
    "reset": Private("torch._dynamo:reset", "2.0", "captures through Dynamo"),
    "callbacks": Private(
        "torch._dynamo.callback:callback_handler", "2.3", "keeping compilation callbacks"
    ),
    "stance": Private("torch._dynamo.eval_frame:_stance", "2.6", "saying why nothing compiled"),
    "config": Private("torch._dynamo:config", "2.0", "saying why nothing compiled"),
    "optimized": Private("torch._dynamo.eval_frame:OptimizedModule", "2.0", "capture by dispatch"),
    "entry": Private(
        "torch._dynamo.eval_frame:_callback_from_stance", "2.6", "capture by dispatch"
    ),
    "modes": Private(
        "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
        "2.0",
        "saying why nothing compiled",
    ),
    "ignore": Private(
        "torch.utils._python_dispatch:TorchDispatchMode.ignore_compile_internals",
        "2.9",
        "capture by dispatch",
    ),
    "sequence": Private(
        "torch._C:_autograd._get_sequence_nr", "1.13", "module paths of backward ops"
    ),
    "node": Private("torch._C:_current_autograd_node", "1.13", "module paths of backward ops"),
    "storage": Private(
        "torch.multiprocessing.reductions:StorageWeakRef", "1.8", "capture by dispatch"
    ),
    "aot": Private("torch._dynamo.backends.common:aot_autograd", "2.0", "capture by aot"),
    "boxed": Private("functorch.compile:make_boxed_func", "2.0", "capture by aot"),
    "default_partition": Private(
        "torch._functorch.partitioners:default_partition", "2.0", "capture.joint"
    ),
    "min_cut": Private(
        "torch._functorch.partitioners:min_cut_rematerialization_partition",
        "2.0",
        "Aot(partition='min_cut')",
    ),
    "decompositions": Private(
        "torch._inductor.decomposition:select_decomp_table",
        "2.0",
        "Aot(decompositions='inductor')",
    ),
    "compile_fx": Private("torch._inductor.compile_fx:compile_fx", "2.0", "capture by inductor"),
    "compile_inner": Private(
        "torch._inductor.compile_fx:compile_fx_inner", "2.0", "capture by inductor"
    ),
    "post_grad_passes": Private(
        "torch._inductor.compile_fx:_recursive_post_grad_passes", "2.4", "capture by inductor"
    ),
    "mode_options": Private("torch._inductor:list_mode_options", "2.0", "capture by inductor"),
    "inductor_config": Private("torch._inductor:config", "2.0", "capture by inductor"),
    "functorch_config": Private("torch._functorch:config", "2.0", "capture by inductor"),
    "fake_mode": Private("torch._subclasses.fake_tensor:FakeTensorMode", "2.0", "fake=True"),
    "fake_tensor": Private("torch._subclasses.fake_tensor:FakeTensor", "2.0", "fake=True"),
    "compiled_autograd": Private(
        "torch._dynamo.compiled_autograd:_enable", "2.6", "capture by compiled_autograd"
    ),
    "compiled_autograd_enabled": Private(
        "torch._dynamo.compiled_autograd:compiled_autograd_enabled",
        "2.1",
        "leaving compiled autograd as it was",
    ),
    "autograd_compiler": Private(
        "torch._C:_dynamo.compiled_autograd.set_autograd_compiler",
        "2.1",
        "leaving compiled autograd as it was",
    ),
    "engine": Private(
        "torch.autograd:_engine_run_backward", "2.3", "module paths under compiled autograd"
    ),
    "tracing": Private(
        "torch._guards:TracingContext.try_get", "2.1", "capture by compiled_autograd"
    ),
    "unwrap_size": Private(
        "torch._dynamo.external_utils:unwrap_maybe_dynamic_int",
        "2.7",
        "capture by compiled_autograd",
    ),
    "accumulate_grad": Private(
        "torch._dynamo.external_utils:call_accumulate_grad", "2.8", "capture by compiled_autograd"
    ),
    "call_hook": Private(
        "torch._dynamo.external_utils:call_hook", "2.1", "capture by compiled_autograd"
    ),
    "backend_failed": Private(
        "torch._dynamo.exc:BackendCompilerFailed",
        "2.0",
        "CompiledAutograd(backward_fullgraph=True)",
    ),
    "set_versions": Private(
        "torch._C:_autograd._unsafe_set_version_counter", "2.5", "putting values back"
    ),
    "higher_order": Private("torch._ops:_higher_order_ops", "2.0", "judging op patterns"),
    "ops": Private("torch._C:_dispatch_get_all_op_names", "1.10", "judging op patterns"),
    "kernel": Private(
        "torch._C:_dispatch_has_kernel_for_dispatch_key", "1.8", "judging op patterns"
    ),
    "precision": Private("torch._C:_get_fp32_precision_getter", "2.9", "isolating tests"),
    "assign_precision": Private("torch._C:_set_fp32_precision_setter", "2.9", "isolating tests"),
    "cache_dir": Private(
        "torch._inductor.runtime.runtime_utils:default_cache_dir", "2.5", "isolating tests"
    ),
    "compiling": Private("torch._guards:_TLS", "2.1", "isolating tests"),
    "compiler_config": Private("torch.compiler:config", "2.6", "isolating tests"),
    "fx_config": Private("torch.fx.experimental:_config", "2.0", "isolating tests"),
    "log_state": Private("torch._logging._internal:log_state", "2.0", "isolating tests"),
    "init_logs": Private("torch._logging._internal:_init_logs", "2.0", "isolating tests"),
    "cleanups": Private(
        "torch._dynamo.utils:CleanupManager", "2.0", "counting the runs of compiled graphs"
    ),
    "original_code": Private(
        "torch._dynamo.utils:orig_code_map", "2.0", "counting the runs of compiled graphs"
    ),
    "cache_entries": Private(
        "torch._C:_dynamo.eval_frame._debug_get_cache_entry_list",
        "2.0",
        "counting the runs of compiled graphs",
    ),
    "unsafe_stance": Private(
        "torch._dynamo.eval_frame:_is_skip_guard_eval_unsafe_stance",
        "2.6",
        "seeing that compiled code is entered",
    ),
    "skip_reason": Private(
        "torch._dynamo.convert_frame:add_skip_reason", "2.13", "saying why a frame was skipped"
    ),
    "skip_code": Private(
        "torch._dynamo.eval_frame:set_code_exec_strategy",
        "2.7",
        "keeping Dynamo away from our own code",
    ),
    "frame_strategy": Private(
        "torch._dynamo.eval_frame:FrameExecStrategy", "2.7", "keeping Dynamo away from our own code"
    ),
    "frame_action": Private(
        "torch._dynamo.eval_frame:FrameAction", "2.7", "keeping Dynamo away from our own code"
    ),
    "collapse": Private(
        "torch._dynamo.symbolic_convert:collapse_resume_frames",
        "2.9",
        "the whole stack at a graph break",
    ),
    "guard_hook": Private(
        "torch._C:_dynamo.eval_frame.set_guard_complete_hook",
        "2.9",
        "seeing that compiled code is served from the cache",
    ),
    "end_capture": Private(
        "torch._dynamo.compiled_autograd:AutogradCompilerInstance.end_capture",
        "2.1",
        "counting the runs of compiled autograd's graphs",
    ),
    "autograd_logger": Private(
        "torch._C:_dynamo.compiled_autograd.set_verbose_logger",
        "2.4",
        "saying why compiled autograd captured again",
    ),
    "autograd_verbose": Private(
        "torch._dynamo.compiled_autograd:snapshot_verbose_logging_enabled",
        "2.4",
        "leaving compiled autograd's log as it was",
    ),
    "autograd_reset": Private(
        "torch._dynamo.compiled_autograd:reset",
        "2.1",
        "saying why compiled autograd captured again",
    ),
    "wrap_inline": Private(
        "torch._dynamo.external_utils:wrap_inline", "2.1", "the names of compiled modules"
    ),
    "mode_count": Private(
        "torch._C:_len_torch_dispatch_stack", "2.0", "saying why nothing compiled"
    ),
    "attempted": Private(
        "torch._dynamo.convert_frame:input_codes", "2.0", "saying why nothing compiled"
    ),
}


def get(name: str) -> Any:
    """The object behind one of `NAMES`.

    Raises:
        TorchGraphError: if this torch does not have it; the message names what needs it.
    """
    known = NAMES[name]
    module, _, attributes = known.path.partition(":")
    try:
        value: Any = sys.modules.get(module)
        if value is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = importlib.import_module(module)
        for attribute in attributes.split("."):
            value = getattr(value, attribute)
    except (ImportError, AttributeError):
        raise TorchGraphError(
            f"torch {torch.__version__} has no {known.path.replace(':', '.')} (there since "
            f"{known.since}), which pytest-torchgraph needs for {known.purpose}: that is "
            "unavailable with this release"
        ) from None
    return value


@contextlib.contextmanager
def replaced(name: str, value: Any) -> Iterator[None]:
    """Put `value` in the place of one of `NAMES`, and put back what was there."""
    before = get(name)
    module, _, attributes = NAMES[name].path.partition(":")
    *path, last = attributes.split(".")
    owner: Any = sys.modules[module]
    for attribute in path:
        owner = getattr(owner, attribute)
    setattr(owner, last, value)
    try:
        yield
    finally:
        setattr(owner, last, before)


def probe() -> dict[str, str]:
    """The names that this torch lacks, each with the message that a user would see."""
    missing = {}
    for name in NAMES:
        try:
            get(name)
        except TorchGraphError as error:
            missing[name] = str(error)
    return missing


# -- Dynamo's state --------------------------------------------------------------------------------


@contextlib.contextmanager
def counters_restored() -> Iterator[None]:
    """Put Dynamo's counters back as they were."""
    counters = get("counters")
    before = {key: Counter(value) for key, value in counters.items()}
    try:
        yield
    finally:
        for key in list(counters):
            if key in before:
                counters[key].clear()
                counters[key].update(before[key])
            else:
                del counters[key]


CONFIGS = ("config", "inductor_config", "functorch_config", "fx_config", "compiler_config")


@contextlib.contextmanager
def configs_restored() -> Iterator[None]:
    """Put the configs of Dynamo, inductor, functorch and torch.fx back as they were.

    And that of torch.compiler, where some of inductor's entries are kept since torch 2.8.

    An entry holds what was assigned to it: in a ContextVar since torch 2.13, so that it is only of
    this thread, in an attribute before. One that was deleted is hidden: the monkeypatch of pytest
    9.2 does that when it undoes an assignment.
    """
    before = [
        (module, name, entry, _copied(_override(entry)), entry.hide)
        for module in map(get, CONFIGS)
        for name, entry in module._config.items()
        if hasattr(entry, "user_override")
    ]
    try:
        yield
    finally:
        for module, name, entry, value, hidden in before:
            entry.hide = hidden
            if not _same(_override(entry), value):
                _assign_override(module, name, entry, value)


def _override(entry: Any) -> Any:
    value = entry.user_override
    return value.get() if isinstance(value, ContextVar) else value


def _copied(value: Any) -> Any:
    if not isinstance(value, list | dict | set):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # of something in it that cannot be copied
        return copy.copy(value)


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and bool(a == b))


_PLAIN = (bool, int, float, str, list, dict, set, tuple, type(None))


def _assign_override(module: Any, name: str, entry: Any, value: Any) -> None:
    if isinstance(entry.user_override, ContextVar):
        entry.user_override.set(value)
        module._hash_dirty_var.set(True)
        module._mark_get_dict_dirty(name)
    else:
        entry.user_override = value
        module._is_dirty = True


@contextlib.contextmanager
def stance_restored() -> Iterator[None]:
    """Put back the stance of `torch.compiler.set_stance`."""
    with replaced("stance", get("stance")):
        yield


@contextlib.contextmanager
def logs_restored() -> Iterator[None]:
    """Put back what `torch._logging.set_logs` set, and the levels of torch's loggers."""
    state = get("log_state")
    before = dict(state.log_qname_to_level), set(state.artifact_names)
    levels = {logger: logger.level for logger in _loggers()}
    try:
        yield
    finally:
        if before != (state.log_qname_to_level, state.artifact_names):
            state.clear()
            state.log_qname_to_level.update(before[0])
            state.artifact_names.update(before[1])
            get("init_logs")()
        for logger, level in levels.items():
            if logger.level != level:
                logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict
    return [
        logger
        for name, logger in list(known.items())
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger)
    ]


@contextlib.contextmanager
def matmul_precision_restored() -> Iterator[None]:
    """Put back `torch.set_float32_matmul_precision`, and `fp32_precision` of `torch.backends`."""
    general, each = _matmul_precision(), _precisions()
    try:
        yield
    finally:
        for tried in ("highest", "high", "medium") if general is None else (general,):
            if (_matmul_precision(), _precisions()) == (general, each):
                break
            torch.set_float32_matmul_precision(tried)
            _assign_precisions(each)


_PRECISIONS = (
    ("generic", "all"),
    *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")),
)


def _matmul_precision() -> str | None:
    """None where `fp32_precision` was set, of which torch cannot tell this one."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _precisions() -> dict[tuple[str, str], str]:
    precision = get("precision")
    return {key: precision(*key) for key in _PRECISIONS}


def _assign_precisions(values: dict[tuple[str, str], str]) -> None:
    assign = get("assign_precision")
    for key, value in values.items():
        for candidate in ("none", value):  # "none": the one that holds for all of the backend
            if _precisions()[key] != value:
                assign(*key, candidate)


def leave_compilation() -> None:
    """Forget a compilation that was left by an exception.

    Where compiled autograd fails to capture, torch keeps its id, and gives it to all that is
    compiled afterwards; a reset does not help.
    """
    get("compiling").compile_context = None


def reset_dynamo() -> None:
    """Reset Dynamo, keeping the compilation callbacks, which the reset would drop."""
    handler = get("callbacks")
    start, end = list(handler.start_callbacks), list(handler.end_callbacks)
    get("reset")()
    handler.start_callbacks[:] = start
    handler.end_callbacks[:] = end


@contextlib.contextmanager
def fresh_dynamo() -> Iterator[None]:
    """Reset Dynamo before and after, and let go of what it would keep for ever.

    Dynamo's guards watch the objects that they depend on with `weakref.finalize`. For the functions
    and modules of torch that is until the process ends, and each holds the fake tensors of its
    compilation: about 250 kB for a small model. After a reset there is nothing left to invalidate.
    """
    reset_dynamo()
    registry: Any = getattr(weakref.finalize, "_registry", {})
    before = set(registry)
    try:
        yield
    finally:
        reset_dynamo()
        for finalizer in [each for each in registry if each not in before]:
            alive = finalizer.peek()
            bound = getattr(alive[1], "func", None) if alive else None
            if type(getattr(bound, "__self__", None)).__name__ == "CheckFunctionManager":
                finalizer.detach()


def stance() -> str:
    """The stance that `torch.compiler.set_stance` set; "default" lets things compile."""
    return str(get("stance").stance)


def compile_is_disabled() -> str:
    """What switches `torch.compile` off for the whole process, or ""."""
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(variable, "0") == "1":
            return f"the environment variable {variable}=1"
    return "torch._dynamo.config.disable" if get("config").disable else ""


def is_compiled(target: Any) -> bool:
    """Whether a target has been through `torch.compile` already."""
    if isinstance(target, get("optimized")):
        return True
    if isinstance(target, torch.nn.Module):
        return getattr(target, "_compiled_call_impl", None) is not None
    return hasattr(target, "_torchdynamo_orig_callable")


@contextlib.contextmanager
def on_compiled_region(entered: Callable[[Any], None]) -> Iterator[None]:
    """Call `entered(function)` whenever a compiled function is entered, before any of it runs.

    Every entry calls the wrapped global, from the frame `compile_wrapper` for a compiled function.
    """
    original = get("entry")
    module = sys.modules["torch._dynamo.eval_frame"]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == "compile_wrapper":
            entered(caller.f_locals.get("fn"))
        return original(*args, **kwargs)

    module._callback_from_stance = wrapped  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module._callback_from_stance = original  # type: ignore[attr-defined]


def frames_seen() -> int:
    """How many frames Dynamo looked at since its counters were cleared."""
    return sum(get("counters")["frames"].values())


def modes_that_stop_compilation() -> list[str]:
    """Names of the active dispatch modes under which Dynamo compiles nothing, outermost first."""
    get("ignore")
    return [
        type(mode).__name__ for mode in get("modes")() if not type(mode).ignore_compile_internals()
    ]


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is fake: it has a shape and no memory."""
    return isinstance(tensor, get("fake_tensor"))


# -- what Dynamo compiled --------------------------------------------------------------------------


def compiled_code() -> list[tuple[CodeType, list[tuple[dict[str, Any], str]]]]:
    """The bytecode that Dynamo made, as far as it is still in use.

    Returns:
        the code, and the globals that it needs, each with the dict that it is in.
    """
    manager = get("cleanups").instance
    found = []
    for key, hooks in list(manager.values.items()):
        reference = manager.refs.get(key)
        code = None if reference is None else reference()
        if code is not None:
            globals_ = [(hook.scope, hook.name) for hook in hooks if hook.name in hook.scope]
            found.append((code, globals_))
    return found


def origin_of(code: CodeType) -> tuple[str, CodeType | None]:
    """The id of the compilation that made this bytecode, and the user's code that it is of.

    "" and None where it is no longer in use.
    """
    try:
        original: CodeType = get("original_code")[code]
    except KeyError:
        return "", None
    for entry in get("cache_entries")(original):
        if entry.code is code:
            return str(entry.compile_id), original
    return "", original


def aot_autograd_functions() -> list[Any]:
    """The autograd functions in which AOTAutograd keeps a forward with its backward."""
    return [
        each
        for each in torch.autograd.Function.__subclasses__()
        if each.__name__ == "CompiledFunction" and hasattr(each, "_aot_id")
    ]


def autograd_functions_behind(call: Any) -> list[Any]:
    """Those of `aot_autograd_functions` that a compiled function calls.

    Goes through closures, partial objects and the globals of generated code.
    """
    wanted = set(aot_autograd_functions())
    found: list[Any] = []
    todo, seen = [call], {id(call)}
    while todo and len(seen) < 10_000:
        here = todo.pop()
        if isinstance(here, type):
            if here in wanted:
                found.append(here)
            continue
        for each in _behind(here):
            if id(each) not in seen:
                seen.add(id(each))
                todo.append(each)
    return found


def _behind(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        generated = value.__globals__.get("__name__") not in sys.modules
        return [*cells, *vars(value).values(), *([value.__globals__] if generated else [])]
    if isinstance(value, MethodType):
        owner = value.__self__
        inner: list[Any] = [owner] if isinstance(owner, type) else []
        if type(owner).__module__.startswith("torch._functorch"):
            inner += list(vars(owner).values())
        return [value.__func__, *inner]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return list(value.values()) if len(value) < 1000 else []
    if isinstance(value, tuple | list):
        return list(value) if len(value) < 1000 else []
    if type(value).__module__.startswith(("torch._functorch", "functools")):
        return list(getattr(value, "__dict__", {}).values())
    return []


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def inlined(call: Any) -> Any:
    """The callable that torch.compile wrapped because it has no Python code of its own."""
    if not isinstance(call, FunctionType) or call.__code__ is not get("wrap_inline")(len).__code__:
        return None
    inner = dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=False)).get("fn")
    return None if inner is None else inner.cell_contents


def is_compiled_code(code: CodeType) -> bool:
    """Whether Dynamo has anything that it compiled of this code."""
    return bool(get("cache_entries")(code))


def recompiled_to_the_limit() -> list[CodeType]:
    """The code that Dynamo will not compile again, because it did so too often."""
    limit = get("config").recompile_limit
    found = []
    for reference in list(get("attempted").seen):
        code = reference()
        if code is not None and len(get("cache_entries")(code)) >= limit:
            found.append(code)
    return found


# -- observers of compiled code --------------------------------------------------------------------


@contextlib.contextmanager
def on_entry(observer: Callable[[Callable[[], Any]], Callable[[], Any]]) -> Iterator[None]:
    """Put `observer(original)` in the place of a function without arguments that torch calls, from
    the frame `compile_wrapper`, whenever a compiled callable is called, before any of it runs.

    The frame's local `fn` is what was compiled.
    """
    with replaced("unsafe_stance", observer(get("unsafe_stance"))):
        yield


def current_stance() -> Callable[[str], Any]:
    """A function, in C, that gives a global of the module that keeps the stance, `_stance`."""
    get("stance")
    return vars(sys.modules["torch._dynamo.eval_frame"]).__getitem__


_left_alone: set[str] = set()


def leave_alone(package: str) -> None:
    """Keep Dynamo from looking at the code of one of our packages, and at this module's.

    With compiled autograd the observers run inside compiled regions.
    """
    for name, module in list(sys.modules.items()):
        if name not in _left_alone and (name == __name__ or name.startswith(package)):
            _left_alone.add(name)
            for value in vars(module).values():
                _skip_code_of(value)


def _skip_code_of(value: Any) -> None:
    if isinstance(value, FunctionType) and value.__module__.startswith(__package__):
        _skip_code(inspect.unwrap(value).__code__)
    elif isinstance(value, type) and value.__module__.startswith(__package__):
        for each in vars(value).values():
            function = getattr(each, "fget", getattr(each, "__func__", each))
            if isinstance(function, FunctionType):
                _skip_code(inspect.unwrap(function).__code__)


def _skip_code(code: CodeType) -> None:
    """Keep Dynamo from a function, and from what it calls but for the calls of torch's own."""
    action = get("frame_action")
    calls = action.DEFAULT if code.co_name in _CALLING_TORCH else action.SKIP
    get("skip_code")(code, get("frame_strategy")(action.SKIP, calls))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _skip_code(constant)


_CALLING_TORCH = frozenset({"entered", "observed", "armed_again"})
"""Functions that stand in for one of torch's, and call it."""


@contextlib.contextmanager
def on_skip(skipped: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `skipped(reason, frame)` for each frame that Dynamo leaves to the interpreter."""
    original = get("skip_reason")

    def observed(reason: str, frame: Any) -> Any:
        skipped(reason, frame)
        return original(reason, frame)

    with replaced("skip_reason", observed):
        yield


@contextlib.contextmanager
def on_break_stack(reported: Callable[[Any], None]) -> Iterator[None]:
    """Call `reported(frames)` with the stack that Dynamo is about to report a break with.

    The report itself has it after `collapse_resume_frames`, which takes every call between two
    functions of one name for the rest of the first: of a `forward` that calls a `forward` it shows
    the inner one alone.
    """
    original = get("collapse")

    def observed(frames: Any) -> Any:
        reported(frames)
        return original(frames)

    with replaced("collapse", observed):
        yield


@contextlib.contextmanager
def on_capture(captured: Callable[[int, Any], Any]) -> Iterator[None]:
    """Let `captured(number, call)` replace what compiled autograd will call for a capture."""
    original = get("end_capture")

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call, *rest = original(self, *args, **kwargs)
        return (captured(self.id, call), *rest)

    with replaced("end_capture", observed):
        yield


@contextlib.contextmanager
def guard_hook(hook: Callable[[bool], Any]) -> Iterator[None]:
    """Call `hook(found)` whenever Dynamo has looked for compiled code.

    A hook that is there already decides: then ours is called first, and its answer dropped.
    """
    install = get("guard_hook")
    before = install(None)
    install(hook if before is None else lambda found: (bool(hook(found)), before(found))[1])
    try:
        yield
    finally:
        install(before)


class _Silent:
    """A logger for compiled autograd: that there is one makes it trace its reasons."""

    def debug(self, *args: Any) -> None:
        """Take a message."""


_silent = _Silent()
"""Kept for ever: torch borrows the pointer."""


@contextlib.contextmanager
def autograd_reasons() -> Iterator[None]:
    """Have compiled autograd put the reason for each capture into the structured trace."""
    if get("autograd_verbose")():
        yield
        return
    install, reset = get("autograd_logger"), get("autograd_reset")

    def armed_again() -> None:
        reset()
        install(_silent)

    install(_silent)
    try:
        with replaced("autograd_reset", armed_again):
            yield
    finally:
        install(None)


def compiled_autograd_is_on() -> bool:
    """Whether compiled autograd takes over the backward at this moment."""
    return bool(get("compiled_autograd_enabled"))


# -- autograd and storages -------------------------------------------------------------------------


def accumulating_leaves(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward from `roots` accumulates a gradient into.

    Walks autograd's nodes (`grad_fn.next_functions`, since 1.0); AccumulateGrad has `variable`.
    """
    found: list[torch.Tensor] = []
    todo: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    found += [root for root in roots if root.grad_fn is None and root.requires_grad]
    seen = set(todo)
    while todo:
        node = todo.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and type(node).__name__ == "AccumulateGrad":
            found.append(variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return found


def sequence_number() -> Callable[[], int]:
    """The function that gives the number of this thread's next autograd node."""
    return get("sequence")  # type: ignore[no-any-return]


def current_autograd_node() -> Callable[[], Any]:
    """The function that gives the autograd node which is running its backward."""
    return get("node")  # type: ignore[no-any-return]


def storage_ref() -> type[Any]:
    """`StorageWeakRef`: pins the identity of a storage, not its memory."""
    return get("storage")  # type: ignore[no-any-return]


# -- AOTAutograd -----------------------------------------------------------------------------------


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """A Dynamo backend that runs AOTAutograd with these compilers."""
    return get("aot")(**compilers)  # type: ignore[no-any-return]


def boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A callable in the boxed calling convention."""
    return get("boxed")(call)  # type: ignore[no-any-return]


# -- the dispatcher --------------------------------------------------------------------------------


def registered_ops() -> list[str]:
    """All registered ops, as `aten::add.Tensor`."""
    return list(get("ops")())


def is_composite(schema_name: str) -> bool:
    """Whether an op is taken apart before it is dispatched (CompositeImplicitAutograd)."""
    return bool(get("kernel")(schema_name, "CompositeImplicitAutograd"))


# -- logging and warnings --------------------------------------------------------------------------


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings that torch raises about itself while it compiles.

    Under `-W error` they would end the compilation of code that is fine. Warnings about the code of
    the user are attributed to that code, and stay.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch(\.|$)")
        yield


@contextlib.contextmanager
def structured_trace(
    emit: Callable[[dict[str, Any], str], None], names: Container[str] | None = None
) -> Iterator[None]:
    """Call `emit(metadata, payload)` for each record of torch's structured trace (since 2.3).

    The records' format is not promised either; `torch._logging._internal` writes them.

    Args:
        names: the records that are wanted, artifacts by their own name; None for all. Others are
            not even made where nobody else listens: what torch writes about the guards and inputs
            of a BERT takes a tenth of the time in which Dynamo traces it.
    """
    logger = logging.getLogger("torch.__trace")
    handler = _TraceHandler(emit, names)
    if not isinstance(logger.handlers, _TraceHandlers):
        logger.handlers = _TraceHandlers(logger.handlers)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        if not any(isinstance(each, _TraceHandler) for each in logger.handlers):
            logger.handlers = list(logger.handlers)


class _TraceHandler(logging.Handler):
    """Hands on the records that are wanted."""

    def __init__(
        self, emit: Callable[[dict[str, Any], str], None], names: Container[str] | None
    ) -> None:
        super().__init__(logging.DEBUG)
        self.hand_on = emit
        self.names = names

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", {})
        if self.names is not None:
            artifact = metadata.get("artifact")
            told = (artifact.get("name"),) if isinstance(artifact, dict) else metadata
            if not any(name in self.names for name in told):
                return
        self.hand_on(metadata, getattr(record, "payload", None) or "")


class _TraceHandlers(list[logging.Handler]):
    """The trace's handlers, which count as none for a record that none of them wants.

    `trace_structured` asks whether there are handlers before it makes a record.
    """

    def __bool__(self) -> bool:
        caller = sys._getframe(1)
        if caller.f_code.co_name != "trace_structured":
            return len(self) > 0
        name = caller.f_locals.get("name")
        if name == "artifact":
            name = caller.f_locals["metadata_fn"]().get("name")
        return any(
            not isinstance(each, _TraceHandler) or each.names is None or name in each.names
            for each in self
        )
