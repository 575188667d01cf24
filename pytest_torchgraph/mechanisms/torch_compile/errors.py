"""Whose an exception is that came out of compiled code: the target's, or the compiler's."""

from __future__ import annotations

from types import TracebackType

from ... import torch_private
from ...convert.source_lines import is_torch_file, is_user_file
from ...errors import CaptureError, TorchGraphError, add_note
from ..step.invocation import Invocation
from ..step.saved_state import SavedState, preserve_state
from ..step.step import Step

_COMPILERS = ("_dynamo", "_functorch", "_inductor", "_subclasses", "fx")
"""The parts of torch that compile, or run what was compiled."""
_ENTRIES = (("_dynamo", "eval_frame.py"), ("_dynamo", "external_utils.py"))
"""Files with frames that are around all code that Dynamo sees, also around what runs eagerly."""
_GENERATED = "<eval_with_key>"
_GENERATED_BY_INDUCTOR = "torch._inductor."
"""Beginning of the names of the modules that inductor writes; their files are in its cache."""


def tell_whose(error: Exception, invocation: Invocation, state: SavedState, via: str) -> None:
    """See whether the target raises too when it runs eagerly.

    An exception of the user's own code is nobody else's, and `Unsupported` is Dynamo's answer to
    `fullgraph=True`: for these nothing is called. Any other gets a note if the target runs.

    Args:
        state: what the step began with.
        via: name of the mechanism.

    Raises:
        Exception: what the target raises by itself.
    """
    if isinstance(error, TorchGraphError) or not _is_of_compiler(error):
        return
    try:
        state.restore()
        with preserve_state(invocation.named) as saved:
            Step(invocation, saved).run()
    except CaptureError:
        pass  # it ran; what it returned is another matter
    except Exception as own:
        if type(own) is type(error) and str(own) == str(error):
            return
        raise own from None
    add_note(
        error,
        f"The target itself runs eagerly without an error. What fails via {via!r} is compiling it, "
        "or the code that was made of it; via='dispatch' captures what runs eagerly.",
    )


def _is_of_compiler(error: Exception) -> bool:
    """Whether torch's compilers, or code that they made, raised this, and not the user's code."""
    if isinstance(error, torch_private.get("dynamo_exception")):
        return not isinstance(error, torch_private.get("unsupported"))
    steps: list[TracebackType] = []
    step = error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    for step in reversed(steps):
        frame = step.tb_frame
        file = frame.f_code.co_filename
        if file.startswith(_GENERATED):
            return True
        if str(frame.f_globals.get("__name__")).startswith(_GENERATED_BY_INDUCTOR):
            return True
        if any(is_torch_file(file, *entry) for entry in _ENTRIES):
            continue
        if any(is_torch_file(file, part) for part in _COMPILERS):
            return True
        if is_user_file(file):
            return False
    return False
