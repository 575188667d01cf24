"""Every private name of torch that the package touches, and what is done with it.

torch makes no promise for these. A name that is missing makes the feature that needs it
unavailable, with a message that says so; it never makes a check pass. `probe()` lists the missing
ones, and the test suite runs it on every supported release.

    private_names  the table of names
    dynamo         Dynamo's state: reset, stance, what keeps it from compiling
    compiled       what Dynamo compiled: bytecode, graphs, autograd functions
    observers      callbacks at entries, skipped frames, graph breaks and captures
    cache_miss     what Dynamo has before it when it says why it compiles again
    compile_cache  lookups in torch.compile's caches
    compile_calls  callbacks at calls of torch.compile
    trace          the structured trace
    inductor       the code that inductor writes
    autograd, ops  autograd's nodes, AOTAutograd; the dispatcher's registry
    config_changes what changes in torch's settings
    restore        settings and counters that a test changes, put back afterwards
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode

from .autograd import (
    StoragePins,
    accumulating_leaves,
    aot_autograd,
    boxed,
    current_autograd_node,
    hint_of,
    marks_gradient_sums,
    outputs_of_forward,
    saved_tensor_hooks,
    sequence_number,
)
from .cache_miss import CacheMiss, LeafGuard, cache_miss, leaf_guards, shape_of
from .compile_cache import (
    LookedUp,
    Refused,
    cache_settings,
    caches_switched_off,
    clear_memory_caches,
    graph_looked_up,
    nodes_behind,
    on_unsaved,
    plain_settings,
    put_plain_settings,
    why_uncacheable,
)
from .compile_calls import on_compile_call, on_precompiled_call
from .compiled import (
    aot_autograd_functions,
    autograd_functions_behind,
    backend_name,
    code_at_recompile_limit,
    compiled_code,
    disabled_in,
    is_at_recompile_limit,
    is_compiled_code,
    is_inline_wrapper,
    last_compilation,
    origin_of,
    unwrap_inline,
)
from .config_changes import GONE, ConfigChanges
from .dtensor import (
    flattened,
    forget_meshes,
    is_mesh,
    local,
    meshes_of,
    process_groups,
    stands_for_others,
    wait,
)
from .dynamo import (
    aside,
    compile_is_disabled,
    frames_seen,
    fresh_dynamo,
    is_compiled,
    is_fake,
    modes_that_stop_compilation,
    nested_graph_breaks,
    on_compiled_region,
    one_backend,
    own_resets,
    reset_dynamo,
    stance,
    uncompiled,
)
from .inductor import code_written_only, on_kernel_call
from .observers import (
    code_being_compiled,
    compiled_autograd_is_on,
    compiled_autograd_reasons,
    current_stance,
    guard_hook,
    leave_alone,
    leave_function_alone,
    local_of,
    on_break_stack,
    on_compiled_autograd_capture,
    on_entry,
    on_skip,
    on_traced_call,
    torch_function_modes,
    traced_files,
)
from .ops import (
    is_composite,
    is_triton_op,
    name_of_custom_op,
    registered_ops,
    triton_constants,
    triton_function,
    triton_kernel_name,
    triton_kernels,
)
from .private_names import NAMES, PrivateName, get, probe, replaced
from .restore import (
    CONFIGS,
    configs_restored,
    counters_restored,
    forget_aborted_compilation,
    logs_restored,
    matmul_precision_restored,
    same,
    stance_restored,
)
from .trace import ignore_torch_warnings, structured_trace

__all__ = [
    "CONFIGS",
    "GONE",
    "NAMES",
    "CacheMiss",
    "ConfigChanges",
    "LeafGuard",
    "LookedUp",
    "PrivateName",
    "Refused",
    "StoragePins",
    "TorchDispatchMode",
    "accumulating_leaves",
    "aot_autograd",
    "aot_autograd_functions",
    "aside",
    "autograd_functions_behind",
    "backend_name",
    "boxed",
    "cache_miss",
    "cache_settings",
    "caches_switched_off",
    "clear_memory_caches",
    "code_at_recompile_limit",
    "code_being_compiled",
    "code_written_only",
    "compile_is_disabled",
    "compiled_autograd_is_on",
    "compiled_autograd_reasons",
    "compiled_code",
    "configs_restored",
    "counters_restored",
    "current_autograd_node",
    "current_stance",
    "disabled_in",
    "flattened",
    "forget_aborted_compilation",
    "forget_meshes",
    "frames_seen",
    "fresh_dynamo",
    "get",
    "graph_looked_up",
    "guard_hook",
    "hint_of",
    "ignore_torch_warnings",
    "is_at_recompile_limit",
    "is_compiled",
    "is_compiled_code",
    "is_composite",
    "is_fake",
    "is_inline_wrapper",
    "is_mesh",
    "is_triton_op",
    "last_compilation",
    "leaf_guards",
    "leave_alone",
    "leave_function_alone",
    "local",
    "local_of",
    "logs_restored",
    "marks_gradient_sums",
    "matmul_precision_restored",
    "meshes_of",
    "modes_that_stop_compilation",
    "name_of_custom_op",
    "nested_graph_breaks",
    "nodes_behind",
    "on_break_stack",
    "on_compile_call",
    "on_compiled_autograd_capture",
    "on_compiled_region",
    "on_entry",
    "on_kernel_call",
    "on_precompiled_call",
    "on_skip",
    "on_traced_call",
    "on_unsaved",
    "one_backend",
    "origin_of",
    "outputs_of_forward",
    "own_resets",
    "plain_settings",
    "probe",
    "process_groups",
    "put_plain_settings",
    "registered_ops",
    "replaced",
    "reset_dynamo",
    "same",
    "saved_tensor_hooks",
    "sequence_number",
    "shape_of",
    "stance",
    "stance_restored",
    "stands_for_others",
    "structured_trace",
    "torch_function_modes",
    "traced_files",
    "triton_constants",
    "triton_function",
    "triton_kernel_name",
    "triton_kernels",
    "uncompiled",
    "unwrap_inline",
    "wait",
    "why_uncacheable",
]
