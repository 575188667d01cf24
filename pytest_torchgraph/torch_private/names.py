"""The table of private names: what each is for, and a probe."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import TorchGraphError


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
    "tolerances": Private(
        "torch.testing._comparison:default_tolerances", "1.9", "assert_matches_eager(rtol=...)"
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
    "convert": Private(
        "torch._dynamo.convert_frame:CatchErrorsWrapper.__call__",
        "2.0",
        "saying that a frame was skipped",
    ),
    "in_skipfiles": Private(
        "torch._dynamo.trace_rules:check", "2.2", "saying why a frame was skipped"
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
    "rest_left": Private(
        "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step_graph_break",
        "2.0",
        "captures through Dynamo",
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


def has(name: str) -> bool:
    """Whether this torch has one of `NAMES`, for what can be done without."""
    try:
        get(name)
    except TorchGraphError:
        return False
    return True


def probe() -> dict[str, str]:
    """The names that this torch lacks, each with the message that a user would see."""
    missing = {}
    for name in NAMES:
        try:
            get(name)
        except TorchGraphError as error:
            missing[name] = str(error)
    return missing
