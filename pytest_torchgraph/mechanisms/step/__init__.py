"""One forward and backward of a target, with all changed state restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .eager import EagerRun as EagerRun
    from .eager import InFloat64 as InFloat64
    from .eager import Outcome as Outcome
    from .eager import outcome_of as outcome_of
    from .invocation import Invocation as Invocation
    from .invocation import note_meta_device as note_meta_device
    from .invocation import refuse_values as refuse_values
    from .invocation import to_device as to_device
    from .invocation import with_fake_tensors as with_fake_tensors
    from .named_tensors import DEPTH as DEPTH
    from .named_tensors import NamedTensors as NamedTensors
    from .named_tensors import callable_of as callable_of
    from .named_tensors import held_by as held_by
    from .python_state import PythonState as PythonState
    from .saved_state import RandomState as RandomState
    from .saved_state import SavedState as SavedState
    from .saved_state import compile_marks_restored as compile_marks_restored
    from .saved_state import note_all as note_all
    from .saved_state import preserve_state as preserve_state
    from .step import Step as Step
    from .step import exclusive as exclusive
    from .step import output_leaves as output_leaves
else:
    __getattr__ = front_door(
        __name__,
        {
            "eager": "EagerRun InFloat64 Outcome outcome_of",
            "invocation": "Invocation note_meta_device refuse_values to_device with_fake_tensors",
            "named_tensors": "DEPTH NamedTensors callable_of held_by",
            "python_state": "PythonState",
            "saved_state": "RandomState SavedState compile_marks_restored note_all preserve_state",
            "step": "Step exclusive output_leaves",
        },
    )
