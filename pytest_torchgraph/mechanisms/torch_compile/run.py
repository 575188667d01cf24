"""One step through torch.compile, from and to a fresh Dynamo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from ... import torch_private
from ..islands.capture import run_recorded
from ..islands.island_recorder import IslandRecorder
from ..step.step import Step
from .reports import Broke, Reports, told_by

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
    islands: IslandRecorder,
    backend: Callable[..., Any],
    name: str,
    *,
    trace: Callable[[dict[str, Any], str], None] | None = None,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    **options: Any,
) -> str:
    """Run the step with the target compiled for `backend`, from and to a fresh Dynamo.

    Args:
        islands: records what runs eagerly beside the compiled graphs.
        backend: the backend.
        name: what torch's messages call it.
        trace: called with each record of torch's structured trace.
        around: makes a further context for each half of the step.
        options: further options of `torch.compile`.

    Returns:
        The reason to give where nothing was captured.

    Raises:
        CaptureError: if something ran that cannot be seen, with its place.
    """
    found = Reports()

    def emit(metadata: dict[str, Any], payload: str) -> None:
        found.record(metadata, payload)
        if trace is not None:
            trace(metadata, payload)

    compiled = torch.compile(step.invocation.target, backend=told_by(backend, name), **options)
    with (
        torch_private.fresh_dynamo(),
        torch_private.one_backend(),
        torch_private.ignore_torch_warnings(),
        torch_private.on_break_stack(found.at_break),
        torch_private.structured_trace(emit, _RECORDS),
    ):
        run_recorded(step, islands, compiled, around)
    return _why_none(found.broke)


def _why_none(broke: list[Broke]) -> str:
    if broke:
        return broke[0].describe()
    return (
        "Dynamo found no tensor operation in a frame that it compiles: the target computes "
        "nothing, all of it is in torch.compiler.disable'd code, or in files that Dynamo skips"
    )
