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


_NAMES_BY_PURPOSE = {
    # Dynamo: its settings and its state.
    "restoring Dynamo's counters": {"counters": ("torch._dynamo.utils:counters", "2.0")},
    "keeping compilation callbacks": {
        "callback_handler": ("torch._dynamo.callback:callback_handler", "2.3")
    },
    "explaining why nothing compiled": {
        "config": ("torch._dynamo:config", "2.0"),
        "stance": ("torch._dynamo.eval_frame:_stance", "2.6"),
        "compilation_metrics": ("torch._dynamo.utils:get_compilation_metrics", "2.1"),
        "input_codes": ("torch._dynamo.convert_frame:input_codes", "2.0"),
        "dispatch_modes": ("torch.utils._python_dispatch:_get_current_dispatch_mode_stack", "2.0"),
        "dispatch_mode_count": ("torch._C:_len_torch_dispatch_stack", "2.0"),
    },
    "detecting code that is already compiled": {
        "optimized_module": ("torch._dynamo.eval_frame:OptimizedModule", "2.0")
    },
    "captures via compiled_autograd, and tensors saved under activation checkpointing": {
        "tracing_context": ("torch._guards:TracingContext.try_get", "2.1")
    },
    "source lines of functions in a non-strict export": {
        "module_stack_node": (
            "torch.fx.experimental.proxy_tensor:_ModuleStackTracer.create_node",
            "2.5",
        )
    },
    # Tensors and groups of several ranks.
    "the local ops of DTensor": {
        "dtensor_local": ("torch.distributed.tensor:DTensor._local_tensor", "2.5")
    },
    "the values of constants": {
        "without_modes": ("torch.utils._python_dispatch:_disable_current_modes", "2.1")
    },
    "collectives with implicit waits": {
        "pending_result": (
            "torch.distributed._functional_collectives:AsyncCollectiveTensor.elem",
            "2.1",
        )
    },
    "the names of process groups": {
        "process_groups": ("torch.distributed.distributed_c10d:_world.pg_names", "2.1")
    },
    "detecting precompiled code": {
        "precompiled_call": ("torch._precompile:PrecompiledModule.__call__", "2.14")
    },
    "detecting code of aot_compile": {
        "aot_compiled_call": ("torch._dynamo.aot_compile:AOTCompiledFunction.__call__", "2.9")
    },
    "patterns given as a custom op": {
        "custom_op": ("torch._library.custom_ops:CustomOpDef", "2.4")
    },
    "patterns of functions in captures via fx": {
        "fx_wrapped": ("torch.fx._symbolic_trace:_wrapped_fns_to_patch", "1.8")
    },
    "several ranks in one process": {
        "sharding_cache": (
            "torch.distributed.tensor:DTensor._op_dispatcher.sharding_propagator"
            ".propagate_op_sharding.cache",
            "2.5",
        ),
        "transform_cache": ("torch.distributed.tensor._redistribute:_gen_transform_infos", "2.5"),
        "fake_store": ("torch.testing._internal.distributed.fake_pg:FakeStore", "2.1"),
        "received_object": ("torch.distributed.distributed_c10d:_tensor_to_object", "1.8"),
    },
    # Dynamo: what it compiled, and which frames it skips.
    "counting the runs of compiled graphs": {
        "cleanup_manager": ("torch._dynamo.utils:CleanupManager", "2.0"),
        "orig_code_map": ("torch._dynamo.utils:orig_code_map", "2.0"),
        "cache_entries": ("torch._C:_dynamo.eval_frame._debug_get_cache_entry_list", "2.0"),
    },
    "recording calls that export traces": {
        "in_hop_compile": ("torch._higher_order_ops.utils:_in_hop_compile", "2.11")
    },
    "the names of compiled modules": {
        "wrap_inline": ("torch._dynamo.external_utils:wrap_inline", "2.1")
    },
    "excluding pytest-torchgraph from Dynamo": {
        "skip_code": ("torch._dynamo.eval_frame:set_code_exec_strategy", "2.7"),
        "frame_strategy": ("torch._dynamo.eval_frame:FrameExecStrategy", "2.7"),
        "frame_action": ("torch._dynamo.eval_frame:FrameAction", "2.7"),
    },
    # Dynamo: functions that are observed.
    "captures via Dynamo": {
        "reset": ("torch._dynamo:reset", "2.0"),
        "dynamo_exception": ("torch._dynamo.exc:TorchDynamoException", "2.0"),
        "unsupported": ("torch._dynamo.exc:Unsupported", "2.0"),
    },
    "detecting compiled code": {
        "callback_from_stance": ("torch._dynamo.eval_frame:_callback_from_stance", "2.6")
    },
    "code that a backward runs at its end": {
        "execution_engine": ("torch.autograd.variable:Variable._execution_engine", "1.8")
    },
    "recognizing torch's own backends": {
        "lookup_backend": ("torch._dynamo.backends.registry:lookup_backend", "2.0"),
        "invalid_backend": ("torch._dynamo.exc:InvalidBackend", "2.0"),
    },
    "detecting that compiled code is entered": {
        "skip_guard_eval_unsafe": (
            "torch._dynamo.eval_frame:_is_skip_guard_eval_unsafe_stance",
            "2.6",
        )
    },
    "detecting that compiled code is served from the cache": {
        "guard_hook": ("torch._C:_dynamo.eval_frame.set_guard_complete_hook", "2.9")
    },
    "detecting that torch.compile is called": {
        "optimize_context": ("torch._dynamo.eval_frame:OptimizeContext.__init__", "2.0")
    },
    "reporting skipped frames": {
        "convert_frame": ("torch._dynamo.convert_frame:CatchErrorsWrapper.__call__", "2.0")
    },
    "explaining why a frame was skipped": {
        "in_skipfiles": ("torch._dynamo.trace_rules:check", "2.2"),
        "skip_reason": ("torch._dynamo.convert_frame:add_skip_reason", "2.13"),
    },
    "the whole stack at a graph break": {
        "collapse_resume_frames": ("torch._dynamo.symbolic_convert:collapse_resume_frames", "2.9")
    },
    "CompiledAutograd(backward_fullgraph=True)": {
        "backend_compiler_failed": ("torch._dynamo.exc:BackendCompilerFailed", "2.0")
    },
    # Dispatch, and the registry of ops.
    "recording eager ops alongside compiled graphs": {
        "module_call": ("torch.nn:Module._call_impl", "1.8"),
        "wrapped_module_call": ("torch.nn:Module._wrapped_call_impl", "2.1"),
        "dispatch_mode_at": ("torch._C:_get_dispatch_stack_at", "2.0"),
        "pop_dispatch_mode": ("torch._C:_pop_torch_dispatch_stack", "2.0"),
        "push_dispatch_mode": ("torch._C:_push_on_torch_dispatch_stack", "2.0"),
    },
    "explaining why code was recompiled": {
        "function_modes": ("torch.overrides:_get_current_function_mode_stack", "2.0"),
        "global_state": ("torch._C._dynamo.guards:GlobalStateGuard", "2.5"),
    },
    "judging op patterns": {
        "higher_order_ops": ("torch._ops:_higher_order_ops", "2.0"),
        "op_names": ("torch._C:_dispatch_get_all_op_names", "1.10"),
        "has_kernel": ("torch._C:_dispatch_has_kernel_for_dispatch_key", "1.8"),
    },
    "naming ops of torch.library.triton_op": {
        "triton_ops": ("torch._library.triton:triton_ops_to_kernels", "2.9")
    },
    "the names of Triton kernels": {
        "triton_kernels": ("torch._higher_order_ops.triton_kernel_wrap:kernel_side_table", "2.3")
    },
    # Autograd, and tensors.
    "recording ops as they run": {
        "ignore_compile_internals": (
            "torch.utils._python_dispatch:TorchDispatchMode.ignore_compile_internals",
            "2.9",
        ),
        "storage_reference": ("torch:UntypedStorage._weak_ref", "2.0"),
        "free_storage_reference": ("torch:UntypedStorage._free_weak_ref", "2.0"),
        "storage_expired": ("torch:UntypedStorage._expired", "2.0"),
    },
    "module paths of backward ops": {
        "sequence_nr": ("torch._C:_autograd._get_sequence_nr", "1.13"),
        "current_node": ("torch._C:_current_autograd_node", "1.13"),
    },
    "lines of backward ops": {
        "saved_tensor_hooks": ("torch._C:_autograd._top_saved_tensors_default_hooks", "2.8")
    },
    "steps of optimizers in a watch": {
        "after_optimizer_step": ("torch.optim.optimizer:Optimizer._optimizer_step_code", "2.0")
    },
    "module paths under compiled autograd": {
        "engine_run_backward": ("torch.autograd:_engine_run_backward", "2.3")
    },
    "restoring values": {
        "set_version_counter": ("torch._C:_autograd._unsafe_set_version_counter", "2.5"),
        "default_device": ("torch:_GLOBAL_DEVICE_CONTEXT", "2.1"),
    },
    "fake=True": {
        "fake_tensor_mode": ("torch._subclasses.fake_tensor:FakeTensorMode", "2.0"),
        "fake_tensor": ("torch._subclasses.fake_tensor:FakeTensor", "2.0"),
        "fake_value": ("torch._subclasses.fake_tensor:DataDependentOutputException", "2.0"),
        "fake_shape": ("torch._subclasses.fake_tensor:DynamicOutputShapeException", "2.0"),
    },
    "to_fx with symbolic sizes": {
        "dim_dynamic": ("torch.fx.experimental.symbolic_shapes:DimDynamic", "2.1"),
        "symbolic_context": (
            "torch.fx.experimental.symbolic_shapes:StatelessSymbolicContext",
            "2.2",
        ),
    },
    "assert_matches_eager(rtol=...)": {
        "default_tolerances": ("torch.testing._comparison:default_tolerances", "1.9")
    },
    # AOTAutograd.
    "captures via aot": {
        "aot_autograd": ("torch._dynamo.backends.common:aot_autograd", "2.0"),
        "make_boxed_func": ("functorch.compile:make_boxed_func", "2.0"),
    },
    "capture.joint": {
        "default_partition": ("torch._functorch.partitioners:default_partition", "2.0")
    },
    "Aot(partition='min_cut')": {
        "min_cut_partition": (
            "torch._functorch.partitioners:min_cut_rematerialization_partition",
            "2.0",
        )
    },
    # Inductor.
    "captures via inductor": {
        "functorch_config": ("torch._functorch:config", "2.0"),
        "compile_fx": ("torch._inductor.compile_fx:compile_fx", "2.0"),
        "compile_fx_inner": ("torch._inductor.compile_fx:compile_fx_inner", "2.0"),
        "post_grad_passes": ("torch._inductor.compile_fx:_recursive_post_grad_passes", "2.4"),
        "inductor_options": ("torch._inductor:list_options", "2.0"),
        "inductor_mode_options": ("torch._inductor:list_mode_options", "2.0"),
        "inductor_config": ("torch._inductor:config", "2.0"),
    },
    "Inductor(codegen=False)": {
        "compile_to_module": ("torch._inductor.graph:GraphLowering.compile_to_module", "2.0"),
        "vector_instructions": ("torch._inductor.cpu_vec_isa:valid_vec_isa_list", "2.4"),
        "vector_instruction_set": ("torch._inductor.cpu_vec_isa:VecISA", "2.4"),
        "check_vector_instructions": ("torch._inductor.cpu_vec_isa:VecISA.check_build", "2.4"),
    },
    "the module paths of kernels": {
        "kernel_provenance": (
            "torch._inductor.debug:set_kernel_post_grad_provenance_tracing",
            "2.9",
        ),
        "scheduling": ("torch._inductor.scheduler:BaseScheduling", "2.0"),
    },
    "Inductor(passes=...)": {
        "pass_observer": (
            "torch.fx.passes.graph_transform_observer:GraphTransformObserver",
            "2.4",
        ),
        "pass_enter": (
            "torch.fx.passes.graph_transform_observer:GraphTransformObserver.__enter__",
            "2.4",
        ),
        "pass_exit": (
            "torch.fx.passes.graph_transform_observer:GraphTransformObserver.__exit__",
            "2.4",
        ),
        "apply_graph_pass": (
            "torch.fx.passes.graph_transform_observer:GraphTransformObserver.apply_graph_pass",
            "2.6",
        ),
        "apply_gm_pass": (
            "torch.fx.passes.graph_transform_observer:GraphTransformObserver.apply_gm_pass",
            "2.6",
        ),
        "pattern_apply": ("torch._inductor.pattern_matcher:PatternMatcherPass.apply", "2.1"),
        "inference_aware_pass": (
            "torch._inductor.custom_graph_pass:CustomInferenceAwareGraphPass",
            "2.12",
        ),
    },
    "Aot(decompositions='inductor')": {
        "inductor_decompositions": ("torch._inductor.decomposition:select_decomp_table", "2.0")
    },
    # The caches of compiled code.
    "explaining bypasses of AOTAutograd's cache": {
        "check_node_safe": ("torch._functorch._aot_autograd.autograd_cache:check_node_safe", "2.6"),
        "aot_cache_bypass": (
            "torch._functorch._aot_autograd.autograd_cache:BypassAOTAutogradCache",
            "2.6",
        ),
    },
    "assert_cacheable of a capture": {
        "aot_cache_key": (
            "torch._functorch._aot_autograd.autograd_cache:autograd_cache_key",
            "2.6",
        ),
        "aot_config": ("torch._functorch._aot_autograd.schemas:AOTConfig", "2.2"),
        "detect_fake_mode": ("torch._guards:detect_fake_mode", "2.1"),
        "fake_mode": ("torch._subclasses.fake_tensor:FakeTensorMode", "2.0"),
        "shape_env": ("torch.fx.experimental.symbolic_shapes:ShapeEnv", "2.0"),
        "tracing": ("torch._guards:tracing", "2.1"),
        "tracing_context_class": ("torch._guards:TracingContext", "2.1"),
    },
    "detecting that compiled code is not saved": {
        "should_save_cache": (
            "torch._functorch._aot_autograd.graph_compile:_should_save_cache",
            "2.13",
        ),
        "compile_id": ("torch._guards:CompileContext.current_compile_id", "2.1"),
    },
    "restarting with only the caches on disk": {
        "clear_inductor_caches": ("torch._inductor.utils:clear_caches", "2.9"),
        "compile_pool": ("torch._inductor.async_compile:AsyncCompile.pool", "2.9"),
    },
    # Compiled autograd.
    "captures via compiled_autograd": {
        "enable_compiled_autograd": ("torch._dynamo.compiled_autograd:_enable", "2.6"),
        "unwrap_size": ("torch._dynamo.external_utils:unwrap_maybe_dynamic_int", "2.7"),
        "accumulate_grad": ("torch._dynamo.external_utils:call_accumulate_grad", "2.8"),
        "call_hook": ("torch._dynamo.external_utils:call_hook", "2.1"),
    },
    "restoring compiled autograd": {
        "compiled_autograd_enabled": (
            "torch._dynamo.compiled_autograd:compiled_autograd_enabled",
            "2.1",
        ),
        "set_autograd_compiler": (
            "torch._C:_dynamo.compiled_autograd.set_autograd_compiler",
            "2.1",
        ),
    },
    "explaining why compiled autograd captured again": {
        "reset_compiled_autograd": ("torch._dynamo.compiled_autograd:reset", "2.1"),
        "set_verbose_logger": ("torch._C:_dynamo.compiled_autograd.set_verbose_logger", "2.4"),
    },
    "counting the runs of compiled autograd's graphs": {
        "end_capture": (
            "torch._dynamo.compiled_autograd:AutogradCompilerInstance.end_capture",
            "2.1",
        )
    },
    "restoring compiled autograd's log": {
        "verbose_logging_enabled": (
            "torch._dynamo.compiled_autograd:snapshot_verbose_logging_enabled",
            "2.4",
        )
    },
    # Other settings that are restored after a test.
    "isolating tests": {
        "guards_tls": ("torch._guards:_TLS", "2.1"),
        "cache_dir": ("torch._inductor.runtime.runtime_utils:default_cache_dir", "2.5"),
        "compiler_config": ("torch.compiler:config", "2.6"),
        "fx_config": ("torch.fx.experimental:_config", "2.0"),
        "log_state": ("torch._logging._internal:log_state", "2.0"),
        "init_logs": ("torch._logging._internal:_init_logs", "2.0"),
        "multithreading": ("torch._C:_is_multithreading_enabled", "1.11"),
        "nnpack": ("torch._C:_get_nnpack_enabled", "2.0"),
        "forward_grad": ("torch._C:_is_fwd_grad_enabled", "2.0"),
        "set_forward_grad": ("torch._C:_set_fwd_grad_enabled", "2.0"),
        "validate_args": ("torch.distributions:Distribution._validate_args", "1.8"),
        "patch_torch": ("torch._dynamo.eval_frame:TorchPatcher.patch", "2.0"),
        "get_fp32_precision": ("torch._C:_get_fp32_precision_getter", "2.9"),
        "set_fp32_precision": ("torch._C:_set_fp32_precision_setter", "2.9"),
    },
}
"""Path and first release of each name, grouped by the feature that needs the name."""

NAMES = {
    name: PrivateName(path, since, purpose)
    for purpose, names in _NAMES_BY_PURPOSE.items()
    for name, (path, since) in names.items()
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
