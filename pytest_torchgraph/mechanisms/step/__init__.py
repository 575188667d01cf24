"""One forward and backward of a target, with all changed state restored.

The classes, in the order of their use:

    Invocation      (`invocation`) the call that is captured; it can be run repeatedly.
    NamedTensors    (`named_tensors`) its modules and tensors, with their names.
    Updates         (`updates`) what a training step may change: the argument `updates=`.
    preserve_state  (`saved_state`) a context that yields a `SavedState`, and restores it. It holds
                    each tensor as a `SavedTensor` (`saved_tensor`), and a `PythonState`
                    (`python_state`), which is compared only.
    Step            (`step`) one run of an invocation inside `preserve_state`.
    EagerRun        (`eager`) an eager run after a capture, to compare with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .eager import LOWER_DTYPES, EagerRun, InFloat64, Outcome, cast_to_float64, outcome_of
    from .invocation import (
        Invocation,
        note_meta_device,
        refuse_values,
        to_device,
        with_fake_tensors,
    )
    from .named_tensors import DEPTH, NamedTensors, callable_of, held_by
    from .python_state import PythonState
    from .saved_state import (
        RandomState,
        SavedState,
        compile_marks_restored,
        note_all,
        preserve_state,
    )
    from .step import STEP, Step, exclusive, output_leaves
    from .updates import Updates
else:
    __getattr__ = front_door(
        __name__,
        {
            "eager": "EagerRun InFloat64 LOWER_DTYPES Outcome cast_to_float64 outcome_of",
            "invocation": "Invocation note_meta_device refuse_values to_device with_fake_tensors",
            "named_tensors": "DEPTH NamedTensors callable_of held_by",
            "python_state": "PythonState",
            "saved_state": "RandomState SavedState compile_marks_restored note_all preserve_state",
            "step": "STEP Step exclusive output_leaves",
            "updates": "Updates",
        },
    )
