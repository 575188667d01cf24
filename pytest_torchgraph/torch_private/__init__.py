"""Every private name of torch that the package touches, each with what it is for and a probe.

torch makes no promise for these. A name that is missing makes the feature that needs it
unavailable, with a message that says so; it never makes a check pass. `probe()` says what is
missing, and the test suite runs it on every supported release.
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode

from .autograd import (
    accumulating_leaves,
    aot_autograd,
    boxed,
    current_autograd_node,
    marks_gradient_sums,
    sequence_number,
    storage_ref,
)
from .compiled import (
    aot_autograd_functions,
    autograd_functions_behind,
    compiled_code,
    inlined,
    is_compiled_code,
    origin_of,
    recompiled_to_the_limit,
)
from .dynamo import (
    compile_is_disabled,
    frames_seen,
    fresh_dynamo,
    is_compiled,
    is_fake,
    modes_that_stop_compilation,
    on_compiled_region,
    reset_dynamo,
    stance,
)
from .names import NAMES, Private, get, probe, replaced
from .observers import (
    autograd_reasons,
    compiled_autograd_is_on,
    current_stance,
    guard_hook,
    leave_alone,
    on_break_stack,
    on_capture,
    on_entry,
    on_rest_left,
    on_skip,
    traced_files,
)
from .ops import is_composite, registered_ops
from .settings import (
    CONFIGS,
    configs_restored,
    counters_restored,
    leave_compilation,
    logs_restored,
    matmul_precision_restored,
    stance_restored,
)
from .trace import quiet, structured_trace

__all__ = [
    "CONFIGS",
    "NAMES",
    "Private",
    "TorchDispatchMode",
    "accumulating_leaves",
    "aot_autograd",
    "aot_autograd_functions",
    "autograd_functions_behind",
    "autograd_reasons",
    "boxed",
    "compile_is_disabled",
    "compiled_autograd_is_on",
    "compiled_code",
    "configs_restored",
    "counters_restored",
    "current_autograd_node",
    "current_stance",
    "frames_seen",
    "fresh_dynamo",
    "get",
    "guard_hook",
    "inlined",
    "is_compiled",
    "is_compiled_code",
    "is_composite",
    "is_fake",
    "leave_alone",
    "leave_compilation",
    "logs_restored",
    "marks_gradient_sums",
    "matmul_precision_restored",
    "modes_that_stop_compilation",
    "on_break_stack",
    "on_capture",
    "on_compiled_region",
    "on_entry",
    "on_rest_left",
    "on_skip",
    "origin_of",
    "probe",
    "quiet",
    "recompiled_to_the_limit",
    "registered_ops",
    "replaced",
    "reset_dynamo",
    "sequence_number",
    "stance",
    "stance_restored",
    "storage_ref",
    "structured_trace",
    "traced_files",
]
