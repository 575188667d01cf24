"""The table of torch's private names, and access to their objects.

`NAMES` states for each name its path, the first supported release that has it, and the feature that
needs it.
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
        since: first supported torch release that has the name in this form.
        purpose: feature that needs it. If the name is missing, the message quotes it after
            "which pytest-torchgraph needs for".
    """

    path: str
    since: str
    purpose: str


_NAMES_BY_PURPOSE = {
    # Dynamo: its settings and its state.
    "restoring Dynamo's counters": {"counters": "torch._dynamo.utils:counters"},
    "keeping compilation callbacks": {
        "callback_handler": "torch._dynamo.callback:callback_handler"
    },
    "explaining why nothing compiled": {
        "config": "torch._dynamo:config",
        "stance": "torch._dynamo.eval_frame:_stance",
        "compilation_metrics": "torch._dynamo.utils:get_compilation_metrics",
        "input_codes": "torch._dynamo.convert_frame:input_codes",
        "dispatch_modes": "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
        "dispatch_mode_count": "torch._C:_len_torch_dispatch_stack",
    },
    "detecting code that is already compiled": {
        "optimized_module": "torch._dynamo.eval_frame:OptimizedModule"
    },
    "captures via compiled_autograd, and tensors saved under activation checkpointing": {
        "tracing_context": "torch._guards:TracingContext.try_get"
    },
    "source lines of functions in a non-strict export": {
        "module_stack_node": "torch.fx.experimental.proxy_tensor:_ModuleStackTracer.create_node"
    },
    # Tensors and groups of several ranks.
    "the local ops of DTensor": {"dtensor_local": "torch.distributed.tensor:DTensor._local_tensor"},
    "the values of constants": {
        "without_modes": "torch.utils._python_dispatch:_disable_current_modes"
    },
    "collectives with implicit waits": {
        "pending_result": "torch.distributed._functional_collectives:AsyncCollectiveTensor.elem"
    },
    "the names of process groups": {
        "process_groups": "torch.distributed.distributed_c10d:_world.pg_names"
    },
    "detecting precompiled code": {
        "precompiled_call": "torch._precompile:PrecompiledModule.__call__"
    },
    "detecting code of aot_compile": {
        "aot_compiled_call": "torch._dynamo.aot_compile:AOTCompiledFunction.__call__"
    },
    "patterns given as a custom op": {"custom_op": "torch._library.custom_ops:CustomOpDef"},
    "patterns of functions in captures via fx": {
        "fx_wrapped": "torch.fx._symbolic_trace:_wrapped_fns_to_patch"
    },
    "several ranks in one process": {
        "sharding_cache": "torch.distributed.tensor:DTensor._op_dispatcher.sharding_propagator"
        ".propagate_op_sharding.cache",
        "transform_cache": "torch.distributed.tensor._redistribute:_gen_transform_infos",
        "fake_store": "torch.testing._internal.distributed.fake_pg:FakeStore",
        "received_object": "torch.distributed.distributed_c10d:_tensor_to_object",
    },
    # Dynamo: what it compiled, and which frames it skips.
    "counting the runs of compiled graphs": {
        "cleanup_manager": "torch._dynamo.utils:CleanupManager",
        "orig_code_map": "torch._dynamo.utils:orig_code_map",
        "cache_entries": "torch._C:_dynamo.eval_frame._debug_get_cache_entry_list",
    },
    "recording calls that export traces": {
        "in_hop_compile": "torch._higher_order_ops.utils:_in_hop_compile"
    },
    "the names of compiled modules": {"wrap_inline": "torch._dynamo.external_utils:wrap_inline"},
    "excluding pytest-torchgraph from Dynamo": {
        "skip_code": "torch._dynamo.eval_frame:set_code_exec_strategy",
        "frame_strategy": "torch._dynamo.eval_frame:FrameExecStrategy",
        "frame_action": "torch._dynamo.eval_frame:FrameAction",
    },
    # Dynamo: functions that are observed.
    "captures via Dynamo": {
        "reset": "torch._dynamo:reset",
        "dynamo_exception": "torch._dynamo.exc:TorchDynamoException",
        "unsupported": "torch._dynamo.exc:Unsupported",
    },
    "detecting compiled code": {
        "callback_from_stance": "torch._dynamo.eval_frame:_callback_from_stance"
    },
    "code that a backward runs at its end": {
        "execution_engine": "torch.autograd.variable:Variable._execution_engine"
    },
    "recognizing torch's own backends": {
        "lookup_backend": "torch._dynamo.backends.registry:lookup_backend",
        "invalid_backend": "torch._dynamo.exc:InvalidBackend",
    },
    "detecting that compiled code is entered": {
        "skip_guard_eval_unsafe": "torch._dynamo.eval_frame:_is_skip_guard_eval_unsafe_stance"
    },
    "detecting that compiled code is served from the cache": {
        "guard_hook": "torch._C:_dynamo.eval_frame.set_guard_complete_hook"
    },
    "detecting that torch.compile is called": {
        "optimize_context": "torch._dynamo.eval_frame:OptimizeContext.__init__"
    },
    "reporting skipped frames": {
        "convert_frame": "torch._dynamo.convert_frame:CatchErrorsWrapper.__call__"
    },
    "explaining why a frame was skipped": {
        "in_skipfiles": "torch._dynamo.trace_rules:check",
        "skip_reason": "torch._dynamo.convert_frame:add_skip_reason",
    },
    "the whole stack at a graph break": {
        "collapse_resume_frames": "torch._dynamo.symbolic_convert:collapse_resume_frames"
    },
    "CompiledAutograd(backward_fullgraph=True)": {
        "backend_compiler_failed": "torch._dynamo.exc:BackendCompilerFailed"
    },
    # Dispatch, and the registry of ops.
    "recording eager ops alongside compiled graphs": {
        "module_call": "torch.nn:Module._call_impl",
        "wrapped_module_call": "torch.nn:Module._wrapped_call_impl",
        "dispatch_mode_at": "torch._C:_get_dispatch_stack_at",
        "pop_dispatch_mode": "torch._C:_pop_torch_dispatch_stack",
        "push_dispatch_mode": "torch._C:_push_on_torch_dispatch_stack",
    },
    "explaining why code was recompiled": {
        "function_modes": "torch.overrides:_get_current_function_mode_stack",
        "global_state": "torch._C._dynamo.guards:GlobalStateGuard",
    },
    "judging op patterns": {
        "higher_order_ops": "torch._ops:_higher_order_ops",
        "op_names": "torch._C:_dispatch_get_all_op_names",
        "has_kernel": "torch._C:_dispatch_has_kernel_for_dispatch_key",
    },
    "naming ops of torch.library.triton_op": {
        "triton_ops": "torch._library.triton:triton_ops_to_kernels"
    },
    "the names of Triton kernels": {
        "triton_kernels": "torch._higher_order_ops.triton_kernel_wrap:kernel_side_table"
    },
    # Autograd, and tensors.
    "recording ops as they run": {
        "ignore_compile_internals": "torch.utils._python_dispatch:TorchDispatchMode.ignore_compile_internals",  # noqa: E501
        "storage_reference": "torch:UntypedStorage._weak_ref",
        "free_storage_reference": "torch:UntypedStorage._free_weak_ref",
        "storage_expired": "torch:UntypedStorage._expired",
    },
    "module paths of backward ops": {
        "sequence_nr": "torch._C:_autograd._get_sequence_nr",
        "current_node": "torch._C:_current_autograd_node",
    },
    "lines of backward ops": {
        "saved_tensor_hooks": "torch._C:_autograd._top_saved_tensors_default_hooks"
    },
    "steps of optimizers in a watch": {
        "after_optimizer_step": "torch.optim.optimizer:Optimizer._optimizer_step_code"
    },
    "module paths under compiled autograd": {
        "engine_run_backward": "torch.autograd:_engine_run_backward"
    },
    "restoring values": {
        "set_version_counter": "torch._C:_autograd._unsafe_set_version_counter",
        "default_device": "torch:_GLOBAL_DEVICE_CONTEXT",
    },
    "fake=True": {
        "fake_tensor_mode": "torch._subclasses.fake_tensor:FakeTensorMode",
        "fake_tensor": "torch._subclasses.fake_tensor:FakeTensor",
        "fake_value": "torch._subclasses.fake_tensor:DataDependentOutputException",
        "fake_shape": "torch._subclasses.fake_tensor:DynamicOutputShapeException",
    },
    "to_fx with symbolic sizes": {
        "dim_dynamic": "torch.fx.experimental.symbolic_shapes:DimDynamic",
        "symbolic_context": "torch.fx.experimental.symbolic_shapes:StatelessSymbolicContext",
    },
    "assert_matches_eager(rtol=...)": {
        "default_tolerances": "torch.testing._comparison:default_tolerances"
    },
    # AOTAutograd.
    "captures via aot": {
        "aot_autograd": "torch._dynamo.backends.common:aot_autograd",
        "make_boxed_func": "functorch.compile:make_boxed_func",
    },
    "capture.joint": {"default_partition": "torch._functorch.partitioners:default_partition"},
    "Aot(partition='min_cut')": {
        "min_cut_partition": "torch._functorch.partitioners:min_cut_rematerialization_partition"
    },
    # Inductor.
    "captures via inductor": {
        "functorch_config": "torch._functorch:config",
        "compile_fx": "torch._inductor.compile_fx:compile_fx",
        "compile_fx_inner": "torch._inductor.compile_fx:compile_fx_inner",
        "post_grad_passes": "torch._inductor.compile_fx:_recursive_post_grad_passes",
        "inductor_options": "torch._inductor:list_options",
        "inductor_mode_options": "torch._inductor:list_mode_options",
        "inductor_config": "torch._inductor:config",
    },
    "Inductor(codegen=False)": {
        "compile_to_module": "torch._inductor.graph:GraphLowering.compile_to_module",
        "vector_instructions": "torch._inductor.cpu_vec_isa:valid_vec_isa_list",
        "vector_instruction_set": "torch._inductor.cpu_vec_isa:VecISA",
        "check_vector_instructions": "torch._inductor.cpu_vec_isa:VecISA.check_build",
    },
    "the module paths of kernels": {
        "kernel_provenance": "torch._inductor.debug:set_kernel_post_grad_provenance_tracing",
        "scheduling": "torch._inductor.scheduler:BaseScheduling",
    },
    "Inductor(passes=...)": {
        "pass_observer": "torch.fx.passes.graph_transform_observer:GraphTransformObserver",
        "pass_enter": "torch.fx.passes.graph_transform_observer:GraphTransformObserver.__enter__",
        "pass_exit": "torch.fx.passes.graph_transform_observer:GraphTransformObserver.__exit__",
        "apply_graph_pass": "torch.fx.passes.graph_transform_observer:GraphTransformObserver.apply_graph_pass",  # noqa: E501
        "apply_gm_pass": "torch.fx.passes.graph_transform_observer:GraphTransformObserver.apply_gm_pass",  # noqa: E501
        "pattern_apply": "torch._inductor.pattern_matcher:PatternMatcherPass.apply",
        "inference_aware_pass": "torch._inductor.custom_graph_pass:CustomInferenceAwareGraphPass",
    },
    "Aot(decompositions='inductor')": {
        "inductor_decompositions": "torch._inductor.decomposition:select_decomp_table"
    },
    # The caches of compiled code.
    "explaining bypasses of AOTAutograd's cache": {
        "check_node_safe": "torch._functorch._aot_autograd.autograd_cache:check_node_safe",
        "aot_cache_bypass": "torch._functorch._aot_autograd.autograd_cache:BypassAOTAutogradCache",
    },
    "assert_cacheable of a capture": {
        "aot_cache_key": "torch._functorch._aot_autograd.autograd_cache:autograd_cache_key",
        "aot_config": "torch._functorch._aot_autograd.schemas:AOTConfig",
        "detect_fake_mode": "torch._guards:detect_fake_mode",
        "fake_mode": "torch._subclasses.fake_tensor:FakeTensorMode",
        "shape_env": "torch.fx.experimental.symbolic_shapes:ShapeEnv",
        "tracing": "torch._guards:tracing",
        "tracing_context_class": "torch._guards:TracingContext",
    },
    "detecting that compiled code is not saved": {
        "should_save_cache": "torch._functorch._aot_autograd.graph_compile:_should_save_cache",
        "compile_id": "torch._guards:CompileContext.current_compile_id",
    },
    "restarting with only the caches on disk": {
        "clear_inductor_caches": "torch._inductor.utils:clear_caches",
        "compile_pool": "torch._inductor.async_compile:AsyncCompile.pool",
    },
    # Compiled autograd.
    "captures via compiled_autograd": {
        "enable_compiled_autograd": "torch._dynamo.compiled_autograd:_enable",
        "unwrap_size": "torch._dynamo.external_utils:unwrap_maybe_dynamic_int",
        "accumulate_grad": "torch._dynamo.external_utils:call_accumulate_grad",
        "call_hook": "torch._dynamo.external_utils:call_hook",
    },
    "restoring compiled autograd": {
        "compiled_autograd_enabled": "torch._dynamo.compiled_autograd:compiled_autograd_enabled",
        "set_autograd_compiler": "torch._C:_dynamo.compiled_autograd.set_autograd_compiler",
    },
    "explaining why compiled autograd captured again": {
        "reset_compiled_autograd": "torch._dynamo.compiled_autograd:reset",
        "set_verbose_logger": "torch._C:_dynamo.compiled_autograd.set_verbose_logger",
    },
    "counting the runs of compiled autograd's graphs": {
        "end_capture": "torch._dynamo.compiled_autograd:AutogradCompilerInstance.end_capture"
    },
    "restoring compiled autograd's log": {
        "verbose_logging_enabled": "torch._dynamo.compiled_autograd:snapshot_verbose_logging_enabled"  # noqa: E501
    },
    # Other settings that are restored after a test.
    "isolating tests": {
        "guards_tls": "torch._guards:_TLS",
        "cache_dir": "torch._inductor.runtime.runtime_utils:default_cache_dir",
        "compiler_config": "torch.compiler:config",
        "fx_config": "torch.fx.experimental:_config",
        "log_state": "torch._logging._internal:log_state",
        "init_logs": "torch._logging._internal:_init_logs",
        "multithreading": "torch._C:_is_multithreading_enabled",
        "nnpack": "torch._C:_get_nnpack_enabled",
        "forward_grad": "torch._C:_is_fwd_grad_enabled",
        "set_forward_grad": "torch._C:_set_fwd_grad_enabled",
        "validate_args": "torch.distributions:Distribution._validate_args",
        "patch_torch": "torch._dynamo.eval_frame:TorchPatcher.patch",
        "get_fp32_precision": "torch._C:_get_fp32_precision_getter",
        "set_fp32_precision": "torch._C:_set_fp32_precision_setter",
    },
}
"""Path of each name, grouped by the feature that needs the name."""

_SINCE = {
    "in_hop_compile": "2.11",
    "inference_aware_pass": "2.12",
    "precompiled_call": "2.14",
    "should_save_cache": "2.13",
    "skip_reason": "2.13",
}
"""First release of each name that the oldest supported release lacks."""

NAMES = {
    name: PrivateName(path, _SINCE.get(name, "2.9"), purpose)
    for purpose, names in _NAMES_BY_PURPOSE.items()
    for name, path in names.items()
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
            with warnings.catch_warnings():  # torch warns when some of its modules are imported
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
