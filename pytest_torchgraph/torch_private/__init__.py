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
    inductor       the code that inductor writes
    autograd       autograd's nodes and storages, AOTAutograd, the dispatcher's registry
    dtensor        tensor wrappers such as DTensor, meshes and process groups
    restore        settings and counters: changes that tests make, and their restoration
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

from .autograd import StoragePins as StoragePins
from .autograd import accumulating_leaves as accumulating_leaves
from .autograd import aot_autograd as aot_autograd
from .autograd import boxed as boxed
from .autograd import current_autograd_node as current_autograd_node
from .autograd import hint_of as hint_of
from .autograd import is_composite as is_composite
from .autograd import is_triton_op as is_triton_op
from .autograd import marks_gradient_sums as marks_gradient_sums
from .autograd import name_of_custom_op as name_of_custom_op
from .autograd import outputs_of_forward as outputs_of_forward
from .autograd import registered_ops as registered_ops
from .autograd import saved_tensor_hooks as saved_tensor_hooks
from .autograd import sequence_number as sequence_number
from .autograd import triton_constants as triton_constants
from .autograd import triton_function as triton_function
from .autograd import triton_kernel_name as triton_kernel_name
from .autograd import triton_kernels as triton_kernels
from .compile_cache import RefusedNode as RefusedNode
from .compile_cache import cache_settings as cache_settings
from .compile_cache import caches_switched_off as caches_switched_off
from .compile_cache import clear_memory_caches as clear_memory_caches
from .compile_cache import graph_looked_up as graph_looked_up
from .compile_cache import nodes_behind as nodes_behind
from .compile_cache import on_unsaved as on_unsaved
from .compile_cache import stable_cache_keys as stable_cache_keys
from .compile_cache import why_uncacheable as why_uncacheable
from .compiled import LastCompilation as LastCompilation
from .compiled import aot_autograd_functions as aot_autograd_functions
from .compiled import autograd_functions_behind as autograd_functions_behind
from .compiled import backend_name as backend_name
from .compiled import backend_of as backend_of
from .compiled import code_at_recompile_limit as code_at_recompile_limit
from .compiled import compiled_code as compiled_code
from .compiled import disabled_in as disabled_in
from .compiled import is_at_recompile_limit as is_at_recompile_limit
from .compiled import is_compiled_code as is_compiled_code
from .compiled import is_inline_wrapper as is_inline_wrapper
from .compiled import last_compilations as last_compilations
from .compiled import on_aot_compiled_call as on_aot_compiled_call
from .compiled import on_compile_call as on_compile_call
from .compiled import on_precompiled_call as on_precompiled_call
from .compiled import origin_of as origin_of
from .compiled import unwrap_inline as unwrap_inline
from .dtensor import flattened as flattened
from .dtensor import forget_meshes as forget_meshes
from .dtensor import is_mesh as is_mesh
from .dtensor import local as local
from .dtensor import meshes_of as meshes_of
from .dtensor import placement_types as placement_types
from .dtensor import process_groups as process_groups
from .dtensor import stands_for_others as stands_for_others
from .dtensor import subclass_of as subclass_of
from .dtensor import wait as wait
from .dynamo import aside as aside
from .dynamo import callback_of as callback_of
from .dynamo import compile_is_disabled as compile_is_disabled
from .dynamo import frames_seen as frames_seen
from .dynamo import fresh_dynamo as fresh_dynamo
from .dynamo import is_compiled as is_compiled
from .dynamo import is_fake as is_fake
from .dynamo import modes_that_stop_compilation as modes_that_stop_compilation
from .dynamo import nested_graph_breaks as nested_graph_breaks
from .dynamo import on_compiled_region as on_compiled_region
from .dynamo import one_backend as one_backend
from .dynamo import own_resets as own_resets
from .dynamo import reset_dynamo as reset_dynamo
from .dynamo import run_eagerly as run_eagerly
from .dynamo import stance as stance
from .dynamo import uncompiled as uncompiled
from .inductor import code_written_only as code_written_only
from .inductor import on_kernel_call as on_kernel_call
from .observers import GAVE_UP as GAVE_UP
from .observers import code_being_compiled as code_being_compiled
from .observers import compiled_autograd_is_on as compiled_autograd_is_on
from .observers import compiled_autograd_reasons as compiled_autograd_reasons
from .observers import current_stance as current_stance
from .observers import gave_up_frame as gave_up_frame
from .observers import guard_hook as guard_hook
from .observers import leave_alone as leave_alone
from .observers import leave_function_alone as leave_function_alone
from .observers import local_of as local_of
from .observers import on_break_stack as on_break_stack
from .observers import on_compiled_autograd_capture as on_compiled_autograd_capture
from .observers import on_entry as on_entry
from .observers import on_final_callback as on_final_callback
from .observers import on_skip as on_skip
from .observers import on_traced_call as on_traced_call
from .observers import torch_function_modes as torch_function_modes
from .observers import traced_files as traced_files
from .observers import traced_lines as traced_lines
from .private_names import NAMES as NAMES
from .private_names import PrivateName as PrivateName
from .private_names import get as get
from .private_names import probe as probe
from .private_names import replaced as replaced
from .restore import ConfigChanges as ConfigChanges
from .restore import assign_settings as assign_settings
from .restore import assign_switches as assign_switches
from .restore import assigned_settings as assigned_settings
from .restore import configs_restored as configs_restored
from .restore import counters_restored as counters_restored
from .restore import forget_aborted_compilation as forget_aborted_compilation
from .restore import logs_restored as logs_restored
from .restore import matmul_precision as matmul_precision
from .restore import matmul_precision_restored as matmul_precision_restored
from .restore import same as same
from .restore import stance_restored as stance_restored
from .restore import switches as switches
from .restore import switches_restored as switches_restored
from .size_guards import broken_guards as broken_guards
from .size_guards import shape_env as shape_env
from .trace import CacheMiss as CacheMiss
from .trace import LeafGuard as LeafGuard
from .trace import cache_miss as cache_miss
from .trace import ignore_torch_warnings as ignore_torch_warnings
from .trace import leaf_guards as leaf_guards
from .trace import shape_of as shape_of
from .trace import structured_trace as structured_trace
