"""All private names of torch that the package uses, and the code that uses them.

torch may change these names in any release. If a name is missing, the feature that needs it is
unavailable, and a message says so. A missing name never makes a check pass. `probe()` returns the
missing names, and the test suite runs it on every supported release.

    private_names  the table of names
    dynamo         Dynamo's state: reset, stance, conditions that stop compilation
    compiled       Dynamo's results: bytecode, graphs, autograd functions, calls of torch.compile
    observers      callbacks at entries, skipped frames, graph breaks and captures
    compile_cache  lookups in torch.compile's caches
    trace          the structured trace, and Dynamo's data at a recompilation
    size_guards    guards on dynamic sizes
    inductor       the code that inductor writes, and its graph passes
    autograd       autograd's nodes and storages, AOTAutograd, the dispatcher's registry
    dtensor        tensor wrappers such as DTensor, meshes and process groups
    restore        settings and counters: changes that tests make, and their restoration
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode

from .autograd import (
    StoragePins,
    accumulating_leaves,
    aot_autograd,
    around_engine,
    boxed,
    has_python_kernel,
    hint_of,
    is_composite,
    is_triton_op,
    marks_gradient_sums,
    name_of_custom_op,
    outputs_of_forward,
    registered_ops,
    saved_tensor_hooks,
    triton_constants,
    triton_function,
    triton_kernel_name,
    triton_kernels,
)
from .compile_cache import (
    RefusedNode,
    cache_settings,
    caches_switched_off,
    clear_memory_caches,
    graph_looked_up,
    nodes_behind,
    on_unsaved,
    stable_cache_keys,
    why_uncacheable,
)
from .compiled import (
    LastCompilation,
    aot_autograd_functions,
    autograd_functions_behind,
    backend_name,
    backend_of,
    code_at_recompile_limit,
    compiled_code,
    is_at_recompile_limit,
    is_compiled_code,
    last_compilations,
    on_aot_compiled_call,
    on_compile_call,
    on_precompiled_call,
    origin_of,
    unwrap_inline,
)
from .dtensor import (
    flattened,
    forget_meshes,
    is_mesh,
    local,
    meshes_of,
    placement_types,
    process_groups,
    stands_for_others,
    subclass_of,
    wait,
)
from .dynamo import (
    aside,
    callback_of,
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
    run_eagerly,
    stance,
    uncompiled,
)
from .inductor import (
    HOOKS,
    code_written_only,
    is_own_pass,
    on_kernel_call,
    on_passes,
    runs_others,
    unwrapped_pass,
    with_passes,
)
from .observers import (
    GAVE_UP,
    code_being_compiled,
    compiled_autograd_is_on,
    compiled_autograd_reasons,
    current_stance,
    gave_up_frame,
    global_state,
    guard_hook,
    leave_alone,
    leave_function_alone,
    local_of,
    on_break_stack,
    on_compiled_autograd_capture,
    on_entry,
    on_final_callback,
    on_optimizer_step,
    on_skip,
    on_traced_call,
    torch_function_modes,
    traced_files,
    traced_lines,
)
from .private_names import NAMES, PrivateName, get, probe, replaced
from .restore import (
    ConfigChanges,
    assign_settings,
    assign_switches,
    assigned_settings,
    configs_restored,
    counters_restored,
    forget_aborted_compilation,
    logs_restored,
    matmul_precision,
    matmul_precision_restored,
    same,
    stance_restored,
    switches,
    switches_restored,
)
from .size_guards import broken_guards, shape_env
from .trace import (
    CacheMiss,
    LeafGuard,
    cache_miss,
    ignore_torch_warnings,
    leaf_guards,
    shape_of,
    structured_trace,
)
