"""The table of torch's private names, and access to their objects.

`NAMES` states for each name its path, the first release that has it, and the feature that needs it.
`get` returns the object, `replaced` swaps it for another, `has` and `probe` report missing names.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import TorchGraphError


@dataclass(frozen=True)
class PrivateName:
    """A private name of torch.

    Attributes:
        path: `module:attribute`, where the attribute may be dotted.
        since: first torch release that has the name in this form.
        purpose: feature that needs it. If the name is missing, the message quotes it after
            "which pytest-torchgraph needs for".
    """

    path: str
    since: str
    purpose: str


NAMES = {
    # Dynamo: its settings and its state.
    "counters": PrivateName("torch._dynamo.utils:counters", "2.0", "restoring Dynamo's counters"),
    "reset": PrivateName("torch._dynamo:reset", "2.0", "captures via Dynamo"),
    "callback_handler": PrivateName(
        "torch._dynamo.callback:callback_handler", "2.3", "keeping compilation callbacks"
    ),
    "config": PrivateName("torch._dynamo:config", "2.0", "explaining why nothing compiled"),
    "stance": PrivateName(
        "torch._dynamo.eval_frame:_stance", "2.6", "explaining why nothing compiled"
    ),
    "optimized_module": PrivateName(
        "torch._dynamo.eval_frame:OptimizedModule", "2.0", "detecting code that is already compiled"
    ),
    "tracing_context": PrivateName(
        "torch._guards:TracingContext.try_get",
        "2.1",
        "captures via compiled_autograd, and tensors saved under activation checkpointing",
    ),
    "module_stack_node": PrivateName(
        "torch.fx.experimental.proxy_tensor:_ModuleStackTracer.create_node",
        "2.5",
        "source lines of functions in a non-strict export",
    ),
    "guards_tls": PrivateName("torch._guards:_TLS", "2.1", "isolating tests"),
    # Tensors and groups of several ranks.
    "dtensor_local": PrivateName(
        "torch.distributed.tensor:DTensor._local_tensor", "2.5", "the local ops of DTensor"
    ),
    "without_modes": PrivateName(
        "torch.utils._python_dispatch:_disable_current_modes",
        "2.1",
        "the values of constants",
    ),
    "pending_result": PrivateName(
        "torch.distributed._functional_collectives:AsyncCollectiveTensor.elem",
        "2.1",
        "collectives with implicit waits",
    ),
    "process_groups": PrivateName(
        "torch.distributed.distributed_c10d:_world.pg_names", "2.1", "the names of process groups"
    ),
    "precompiled_call": PrivateName(
        "torch._precompile:PrecompiledModule.__call__", "2.15", "detecting precompiled code"
    ),
    "aot_compiled_call": PrivateName(
        "torch._dynamo.aot_compile:AOTCompiledFunction.__call__",
        "2.9",
        "detecting code of aot_compile",
    ),
    "custom_op": PrivateName(
        "torch._library.custom_ops:CustomOpDef", "2.4", "patterns given as a custom op"
    ),
    "fx_wrapped": PrivateName(
        "torch.fx._symbolic_trace:_wrapped_fns_to_patch",
        "1.8",
        "patterns of functions in captures via fx",
    ),
    "sharding_cache": PrivateName(
        "torch.distributed.tensor:DTensor._op_dispatcher.sharding_propagator"
        ".propagate_op_sharding.cache",
        "2.5",
        "several ranks in one process",
    ),
    "transform_cache": PrivateName(
        "torch.distributed.tensor._redistribute:_gen_transform_infos",
        "2.5",
        "several ranks in one process",
    ),
    "fake_store": PrivateName(
        "torch.testing._internal.distributed.fake_pg:FakeStore",
        "2.1",
        "several ranks in one process",
    ),
    # Dynamo: what it compiled, and which frames it skips.
    "cleanup_manager": PrivateName(
        "torch._dynamo.utils:CleanupManager", "2.0", "counting the runs of compiled graphs"
    ),
    "orig_code_map": PrivateName(
        "torch._dynamo.utils:orig_code_map", "2.0", "counting the runs of compiled graphs"
    ),
    "cache_entries": PrivateName(
        "torch._C:_dynamo.eval_frame._debug_get_cache_entry_list",
        "2.0",
        "counting the runs of compiled graphs",
    ),
    "compilation_metrics": PrivateName(
        "torch._dynamo.utils:get_compilation_metrics", "2.1", "explaining why nothing compiled"
    ),
    "in_hop_compile": PrivateName(
        "torch._higher_order_ops.utils:_in_hop_compile",
        "2.12",
        "recording calls that export traces",
    ),
    "input_codes": PrivateName(
        "torch._dynamo.convert_frame:input_codes", "2.0", "explaining why nothing compiled"
    ),
    "wrap_inline": PrivateName(
        "torch._dynamo.external_utils:wrap_inline", "2.1", "the names of compiled modules"
    ),
    "skip_code": PrivateName(
        "torch._dynamo.eval_frame:set_code_exec_strategy",
        "2.7",
        "excluding pytest-torchgraph from Dynamo",
    ),
    "frame_strategy": PrivateName(
        "torch._dynamo.eval_frame:FrameExecStrategy",
        "2.7",
        "excluding pytest-torchgraph from Dynamo",
    ),
    "frame_action": PrivateName(
        "torch._dynamo.eval_frame:FrameAction", "2.7", "excluding pytest-torchgraph from Dynamo"
    ),
    # Dynamo: functions that are observed.
    "callback_from_stance": PrivateName(
        "torch._dynamo.eval_frame:_callback_from_stance", "2.6", "detecting compiled code"
    ),
    "skip_guard_eval_unsafe": PrivateName(
        "torch._dynamo.eval_frame:_is_skip_guard_eval_unsafe_stance",
        "2.6",
        "detecting that compiled code is entered",
    ),
    "guard_hook": PrivateName(
        "torch._C:_dynamo.eval_frame.set_guard_complete_hook",
        "2.9",
        "detecting that compiled code is served from the cache",
    ),
    "optimize_context": PrivateName(
        "torch._dynamo.eval_frame:OptimizeContext.__init__",
        "2.0",
        "detecting that torch.compile is called",
    ),
    "convert_frame": PrivateName(
        "torch._dynamo.convert_frame:CatchErrorsWrapper.__call__",
        "2.0",
        "reporting skipped frames",
    ),
    "in_skipfiles": PrivateName(
        "torch._dynamo.trace_rules:check", "2.2", "explaining why a frame was skipped"
    ),
    "skip_reason": PrivateName(
        "torch._dynamo.convert_frame:add_skip_reason", "2.13", "explaining why a frame was skipped"
    ),
    "collapse_resume_frames": PrivateName(
        "torch._dynamo.symbolic_convert:collapse_resume_frames",
        "2.9",
        "the whole stack at a graph break",
    ),
    "dynamo_exception": PrivateName(
        "torch._dynamo.exc:TorchDynamoException", "2.0", "captures via Dynamo"
    ),
    "unsupported": PrivateName("torch._dynamo.exc:Unsupported", "2.0", "captures via Dynamo"),
    "backend_compiler_failed": PrivateName(
        "torch._dynamo.exc:BackendCompilerFailed",
        "2.0",
        "CompiledAutograd(backward_fullgraph=True)",
    ),
    # Dispatch, and the registry of ops.
    "dispatch_modes": PrivateName(
        "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
        "2.0",
        "explaining why nothing compiled",
    ),
    "module_call": PrivateName(
        "torch.nn:Module._call_impl", "1.8", "recording eager ops alongside compiled graphs"
    ),
    "wrapped_module_call": PrivateName(
        "torch.nn:Module._wrapped_call_impl", "2.1", "recording eager ops alongside compiled graphs"
    ),
    "dispatch_mode_at": PrivateName(
        "torch._C:_get_dispatch_stack_at", "2.0", "recording eager ops alongside compiled graphs"
    ),
    "pop_dispatch_mode": PrivateName(
        "torch._C:_pop_torch_dispatch_stack", "2.0", "recording eager ops alongside compiled graphs"
    ),
    "push_dispatch_mode": PrivateName(
        "torch._C:_push_on_torch_dispatch_stack",
        "2.0",
        "recording eager ops alongside compiled graphs",
    ),
    "function_modes": PrivateName(
        "torch.overrides:_get_current_function_mode_stack",
        "2.0",
        "explaining why code was recompiled",
    ),
    "dispatch_mode_count": PrivateName(
        "torch._C:_len_torch_dispatch_stack", "2.0", "explaining why nothing compiled"
    ),
    "ignore_compile_internals": PrivateName(
        "torch.utils._python_dispatch:TorchDispatchMode.ignore_compile_internals",
        "2.9",
        "recording ops as they run",
    ),
    "higher_order_ops": PrivateName("torch._ops:_higher_order_ops", "2.0", "judging op patterns"),
    "triton_ops": PrivateName(
        "torch._library.triton:triton_ops_to_kernels",
        "2.9",
        "naming ops of torch.library.triton_op",
    ),
    "triton_kernels": PrivateName(
        "torch._higher_order_ops.triton_kernel_wrap:kernel_side_table",
        "2.3",
        "the names of Triton kernels",
    ),
    "op_names": PrivateName("torch._C:_dispatch_get_all_op_names", "1.10", "judging op patterns"),
    "has_kernel": PrivateName(
        "torch._C:_dispatch_has_kernel_for_dispatch_key", "1.8", "judging op patterns"
    ),
    # Autograd, and tensors.
    "sequence_nr": PrivateName(
        "torch._C:_autograd._get_sequence_nr", "1.13", "module paths of backward ops"
    ),
    "current_node": PrivateName(
        "torch._C:_current_autograd_node", "1.13", "module paths of backward ops"
    ),
    "saved_tensor_hooks": PrivateName(
        "torch._C:_autograd._top_saved_tensors_default_hooks", "2.8", "lines of backward ops"
    ),
    "engine_run_backward": PrivateName(
        "torch.autograd:_engine_run_backward", "2.3", "module paths under compiled autograd"
    ),
    "set_version_counter": PrivateName(
        "torch._C:_autograd._unsafe_set_version_counter", "2.5", "restoring values"
    ),
    "storage_reference": PrivateName(
        "torch:UntypedStorage._weak_ref", "2.0", "recording ops as they run"
    ),
    "free_storage_reference": PrivateName(
        "torch:UntypedStorage._free_weak_ref", "2.0", "recording ops as they run"
    ),
    "fake_tensor_mode": PrivateName(
        "torch._subclasses.fake_tensor:FakeTensorMode", "2.0", "fake=True"
    ),
    "fake_tensor": PrivateName("torch._subclasses.fake_tensor:FakeTensor", "2.0", "fake=True"),
    "default_tolerances": PrivateName(
        "torch.testing._comparison:default_tolerances", "1.9", "assert_matches_eager(rtol=...)"
    ),
    # AOTAutograd.
    "aot_autograd": PrivateName(
        "torch._dynamo.backends.common:aot_autograd", "2.0", "captures via aot"
    ),
    "make_boxed_func": PrivateName("functorch.compile:make_boxed_func", "2.0", "captures via aot"),
    "default_partition": PrivateName(
        "torch._functorch.partitioners:default_partition", "2.0", "capture.joint"
    ),
    "min_cut_partition": PrivateName(
        "torch._functorch.partitioners:min_cut_rematerialization_partition",
        "2.0",
        "Aot(partition='min_cut')",
    ),
    "functorch_config": PrivateName("torch._functorch:config", "2.0", "captures via inductor"),
    # Inductor.
    "compile_fx": PrivateName(
        "torch._inductor.compile_fx:compile_fx", "2.0", "captures via inductor"
    ),
    "compile_fx_inner": PrivateName(
        "torch._inductor.compile_fx:compile_fx_inner", "2.0", "captures via inductor"
    ),
    "post_grad_passes": PrivateName(
        "torch._inductor.compile_fx:_recursive_post_grad_passes", "2.4", "captures via inductor"
    ),
    "compile_to_module": PrivateName(
        "torch._inductor.graph:GraphLowering.compile_to_module", "2.0", "Inductor(codegen=False)"
    ),
    "kernel_provenance": PrivateName(
        "torch._inductor.debug:set_kernel_post_grad_provenance_tracing",
        "2.9",
        "the module paths of kernels",
    ),
    "scheduling": PrivateName(
        "torch._inductor.scheduler:BaseScheduling", "2.0", "the module paths of kernels"
    ),
    "vector_instructions": PrivateName(
        "torch._inductor.cpu_vec_isa:valid_vec_isa_list", "2.4", "Inductor(codegen=False)"
    ),
    "vector_instruction_set": PrivateName(
        "torch._inductor.cpu_vec_isa:VecISA", "2.4", "Inductor(codegen=False)"
    ),
    "check_vector_instructions": PrivateName(
        "torch._inductor.cpu_vec_isa:VecISA.check_build", "2.4", "Inductor(codegen=False)"
    ),
    "inductor_mode_options": PrivateName(
        "torch._inductor:list_mode_options", "2.0", "captures via inductor"
    ),
    "inductor_decompositions": PrivateName(
        "torch._inductor.decomposition:select_decomp_table", "2.0", "Aot(decompositions='inductor')"
    ),
    "inductor_config": PrivateName("torch._inductor:config", "2.0", "captures via inductor"),
    "cache_dir": PrivateName(
        "torch._inductor.runtime.runtime_utils:default_cache_dir", "2.5", "isolating tests"
    ),
    # The caches of compiled code.
    "check_node_safe": PrivateName(
        "torch._functorch._aot_autograd.autograd_cache:check_node_safe",
        "2.6",
        "explaining bypasses of AOTAutograd's cache",
    ),
    "aot_cache_key": PrivateName(
        "torch._functorch._aot_autograd.autograd_cache:autograd_cache_key",
        "2.6",
        "assert_cacheable of a capture",
    ),
    "aot_cache_bypass": PrivateName(
        "torch._functorch._aot_autograd.autograd_cache:BypassAOTAutogradCache",
        "2.6",
        "explaining bypasses of AOTAutograd's cache",
    ),
    "aot_config": PrivateName(
        "torch._functorch._aot_autograd.schemas:AOTConfig", "2.2", "assert_cacheable of a capture"
    ),
    "detect_fake_mode": PrivateName(
        "torch._guards:detect_fake_mode", "2.1", "assert_cacheable of a capture"
    ),
    "fake_mode": PrivateName(
        "torch._subclasses.fake_tensor:FakeTensorMode", "2.0", "assert_cacheable of a capture"
    ),
    "shape_env": PrivateName(
        "torch.fx.experimental.symbolic_shapes:ShapeEnv", "2.0", "assert_cacheable of a capture"
    ),
    "tracing": PrivateName("torch._guards:tracing", "2.1", "assert_cacheable of a capture"),
    "tracing_context_class": PrivateName(
        "torch._guards:TracingContext", "2.1", "assert_cacheable of a capture"
    ),
    "should_save_cache": PrivateName(
        "torch._functorch._aot_autograd.graph_compile:_should_save_cache",
        "2.9",
        "detecting that compiled code is not saved",
    ),
    "compile_id": PrivateName(
        "torch._guards:CompileContext.current_compile_id",
        "2.1",
        "detecting that compiled code is not saved",
    ),
    "clear_inductor_caches": PrivateName(
        "torch._inductor.utils:clear_caches", "2.9", "restarting with only the caches on disk"
    ),
    # Compiled autograd.
    "enable_compiled_autograd": PrivateName(
        "torch._dynamo.compiled_autograd:_enable", "2.6", "captures via compiled_autograd"
    ),
    "compiled_autograd_enabled": PrivateName(
        "torch._dynamo.compiled_autograd:compiled_autograd_enabled",
        "2.1",
        "restoring compiled autograd",
    ),
    "set_autograd_compiler": PrivateName(
        "torch._C:_dynamo.compiled_autograd.set_autograd_compiler",
        "2.1",
        "restoring compiled autograd",
    ),
    "reset_compiled_autograd": PrivateName(
        "torch._dynamo.compiled_autograd:reset",
        "2.1",
        "explaining why compiled autograd captured again",
    ),
    "end_capture": PrivateName(
        "torch._dynamo.compiled_autograd:AutogradCompilerInstance.end_capture",
        "2.1",
        "counting the runs of compiled autograd's graphs",
    ),
    "set_verbose_logger": PrivateName(
        "torch._C:_dynamo.compiled_autograd.set_verbose_logger",
        "2.4",
        "explaining why compiled autograd captured again",
    ),
    "verbose_logging_enabled": PrivateName(
        "torch._dynamo.compiled_autograd:snapshot_verbose_logging_enabled",
        "2.4",
        "restoring compiled autograd's log",
    ),
    "unwrap_size": PrivateName(
        "torch._dynamo.external_utils:unwrap_maybe_dynamic_int",
        "2.7",
        "captures via compiled_autograd",
    ),
    "accumulate_grad": PrivateName(
        "torch._dynamo.external_utils:call_accumulate_grad", "2.8", "captures via compiled_autograd"
    ),
    "call_hook": PrivateName(
        "torch._dynamo.external_utils:call_hook", "2.1", "captures via compiled_autograd"
    ),
    # Other settings that are restored after a test.
    "compiler_config": PrivateName("torch.compiler:config", "2.6", "isolating tests"),
    "fx_config": PrivateName("torch.fx.experimental:_config", "2.0", "isolating tests"),
    "log_state": PrivateName("torch._logging._internal:log_state", "2.0", "isolating tests"),
    "init_logs": PrivateName("torch._logging._internal:_init_logs", "2.0", "isolating tests"),
    "get_fp32_precision": PrivateName(
        "torch._C:_get_fp32_precision_getter", "2.9", "isolating tests"
    ),
    "set_fp32_precision": PrivateName(
        "torch._C:_set_fp32_precision_setter", "2.9", "isolating tests"
    ),
}
"""Every private name in use, keyed by our name for it, which is often torch's own."""


def get(name: str) -> Any:
    """Return the private torch object registered as `name`, importing its module on first use.

    Raises:
        TorchGraphError: if this torch lacks it; the message names the feature that needs it.
    """
    private_name = NAMES[name]
    module, _, attributes = private_name.path.partition(":")
    try:
        value: Any = sys.modules.get(module)
        if value is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = importlib.import_module(module)
        value = functools.reduce(getattr, attributes.split("."), value)
    except (ImportError, AttributeError):
        raise TorchGraphError(
            f"torch {torch.__version__} has no {private_name.path.replace(':', '.')} (available "
            f"since {private_name.since}), which pytest-torchgraph needs for "
            f"{private_name.purpose}: this feature is unavailable with this release of torch"
        ) from None
    return value


Replaced = contextlib.AbstractContextManager[None]
"""A context inside which a name of torch is replaced."""


@contextlib.contextmanager
def replaced(name: str, value: Any) -> Iterator[None]:
    """Replace one of `NAMES` by `value` inside the context, and restore it afterwards.

    Raises:
        TorchGraphError: if this torch lacks the name.
    """
    before = get(name)
    module, _, attributes = NAMES[name].path.partition(":")
    *path, last = attributes.split(".")
    owner = functools.reduce(getattr, path, sys.modules[module])
    setattr(owner, last, value)
    try:
        yield
    finally:
        setattr(owner, last, before)


def has(name: str) -> bool:
    """Return True if this torch has one of `NAMES`. Use this for names that have a substitute."""
    try:
        get(name)
    except TorchGraphError:
        return False
    return True


def probe() -> dict[str, str]:
    """Return the names of `NAMES` that this torch lacks, each with the error message of `get`."""
    missing = {}
    for name in NAMES:
        try:
            get(name)
        except TorchGraphError as error:
            missing[name] = str(error)
    return missing
