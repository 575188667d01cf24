"""Every private name of torch that the package touches, each with what it is for and a probe.

torch makes no promise for these. A name that is missing makes the feature that needs it
unavailable, with a message that says so; it never makes a check pass. `probe()` says what is
missing, and the test suite runs it on every supported release.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
}


def get(name: str) -> Any:
    """The object behind one of `NAMES`.

    Raises:
        TorchGraphError: if this torch does not have it; the message names what needs it.
    """
    known = NAMES[name]
    module, _, attributes = known.path.partition(":")
    try:
        with warnings.catch_warnings():
            if module not in sys.modules:
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
def on_compiled_region(entered: Callable[[str], None]) -> Iterator[None]:
    """Call `entered(name)` whenever a compiled function is entered, before any of it runs.

    Every entry calls the wrapped global, from the frame `compile_wrapper` for a compiled function.
    """
    original = get("entry")
    module = sys.modules["torch._dynamo.eval_frame"]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == "compile_wrapper":
            entered(getattr(caller.f_locals.get("fn"), "__qualname__", ""))
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
def structured_trace(emit: Callable[[dict[str, Any], str], None]) -> Iterator[None]:
    """Call `emit(metadata, payload)` for each record of torch's structured trace (since 2.3).

    The records' format is not promised either; `torch._logging._internal` writes them.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            emit(getattr(record, "metadata", {}), getattr(record, "payload", None) or "")

    logger = logging.getLogger("torch.__trace")
    handler = Handler(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
