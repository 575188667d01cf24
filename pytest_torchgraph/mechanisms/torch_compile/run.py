"""One step through torch.compile, from and to a fresh Dynamo.

What skipped frames compute is refused, unless it is recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ... import torch_private
from ...errors import CaptureError
from ..step.step import Step
from .reports import Broke, Reports, told_by
from .skipped_frames import RECORDED_BY_AOT, refuse_uncompiled

_RECORDS = frozenset({"dynamo_graph_break_reason", "compilation_metrics", "inductor_output_code"})


def switched_off() -> str:
    """The reason for which torch.compile compiles nothing here, "" where it does."""
    disabled = torch_private.compile_is_disabled()
    if disabled:
        return f"torch.compile is switched off by {disabled}"
    if torch_private.stance() not in ("default", "eager_then_compile"):
        return (
            f"torch.compiler.set_stance({torch_private.stance()!r}) is in force: under it "
            "torch.compile compiles nothing"
        )
    modes = torch_private.modes_that_stop_compilation()
    if modes:
        return (
            f"{', '.join(modes)} is active around the capture: Dynamo compiles nothing under a "
            "TorchDispatchMode"
        )
    return ""


def run_compiled(
    step: Step,
    backend: Callable[..., Any],
    name: str,
    *,
    trace: Callable[[dict[str, Any], str], None] | None = None,
    eager_is_recorded: bool = False,
    forward: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    backward: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    **options: Any,
) -> str:
    """Run the step with the target compiled for `backend`, from and to a fresh Dynamo.

    Args:
        backend: the backend.
        name: what torch's messages call it.
        trace: called with each record of torch's structured trace.
        eager_is_recorded: whether what runs eagerly is recorded: then nothing is refused here.
        forward, backward: contexts for the two halves of the step.
        options: further options of `torch.compile`.

    A graph break is no failure: the frame goes on in another graph, and the frames that it calls
    are compiled by themselves. Where what runs eagerly is not recorded, it depends on whose a frame
    is that Dynamo skips:

    - One of the user's code that Dynamo gave up on, as a whole or behind a break from which it
      cannot resume, is refused if it runs operations itself there (an LSTM in its forward, say),
      also beside other graphs: they are in none, though it looks compiled. One that only calls
      others, such as a decorator's wrapper, loses nothing.
    - One of torch's own is skipped whenever it is not traced as a part of its caller: at a break
      inside a module of torch.nn, or in a module of the user's that it calls, all of it runs
      eagerly (nn.Transformer, which looks at the data of its masks; the layers of torch's in a
      Sequential). That is refused as well.

    Raises:
        CaptureError: if operations of the target ran eagerly, in no graph, for such a reason, and
            were not recorded.

    Returns:
        The reason to give where nothing was captured.
    """
    found = Reports()

    def emit(metadata: dict[str, Any], payload: str) -> None:
        found.record(metadata, payload)
        if trace is not None:
            trace(metadata, payload)

    compiles = 0

    def counted(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        nonlocal compiles
        made = backend(gm, example_inputs)
        compiles += 1
        return made  # type: ignore[no-any-return]

    compiled = torch.compile(step.invocation.target, backend=told_by(counted, name), **options)
    with (
        torch_private.fresh_dynamo(),
        torch_private.one_backend(),
        torch_private.ignore_torch_warnings(),
        torch_private.on_break_stack(found.at_break),
        torch_private.on_step_graph_break(found.rest_left),
        torch_private.structured_trace(emit, _RECORDS),
    ):
        step.run(compiled, forward, backward)
    if eager_is_recorded:
        return _why_none(found.broke)
    for each in found.broke:
        if each.is_in_torch_nn:
            advice = RECORDED_BY_AOT if compiles else ""
            raise CaptureError(f"{each.describe_in_torch()}{advice}")
    refuse_uncompiled(found.given_up, step.invocation, compiled=compiles > 0)
    return _why_none(found.broke)


def _why_none(broke: list[Broke]) -> str:
    if broke:
        return broke[0].describe()
    return (
        "Dynamo found no tensor operation in a frame that it compiles: the target computes "
        "nothing, all of it is in torch.compiler.disable'd code, or in files that Dynamo skips"
    )
