"""One step through torch.compile, from and to a fresh Dynamo; refused where frames were skipped."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import torch
import torch.fx

from ... import torch_private
from ...convert.source_lines import is_torch_file, is_user_file, relative
from ...errors import CaptureError
from ...watching.breaks import read_report
from ..step.step import Step
from .skipped_frames import (
    AfterBreak,
    CalledAtBreak,
    SkippedFrame,
    UncompiledRegion,
    refuse_uncompiled,
    torch_frames,
)

_RECORDS = frozenset({"dynamo_graph_break_reason", "compilation_metrics", "inductor_output_code"})
_BREAK = re.compile(r"Graph break in user code at (.+):\d+")


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
    backend: Any,
    *,
    trace: Callable[[dict[str, Any], str], None] | None = None,
    eager_is_recorded: bool = False,
    forward: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    backward: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    **options: Any,
) -> str:
    """Run the step with the target compiled for `backend`, from and to a fresh Dynamo.

    Args:
        trace: called with each record of torch's structured trace.
        eager_is_recorded: whether what runs eagerly is recorded, so that it need not be refused.
        forward, backward: contexts for the two halves of the step.
        options: further options of `torch.compile`.

    A graph break is no failure: the frame goes on in another graph, and the frames that it calls
    are compiled by themselves. What a frame means that Dynamo skips depends on whose it is:

    - One of the user's code that Dynamo gave up on, as a whole or behind a break from which it
      cannot resume, is refused if it runs operations itself there (an LSTM in its forward, say),
      also beside other graphs: they are in none, though it looks compiled. One that only calls
      others, such as a decorator's wrapper, loses nothing.
    - One of torch's own is skipped whenever it is not traced as a part of its caller: at a break
      inside a module of torch.nn, or in a module of the user's that it calls, all of it runs
      eagerly (nn.Transformer, which looks at the data of its masks; the layers of torch's in a
      Sequential). That is refused as well.

    Raises:
        CaptureError: if operations of the target ran eagerly, in no graph, for such a reason.

    Returns:
        The reason to give where nothing was captured.
    """
    found = _Failures()

    def emit(metadata: dict[str, Any], payload: str) -> None:
        found.record(metadata, payload)
        if trace is not None:
            trace(metadata, payload)

    compiled = torch.compile(step.invocation.target, backend=backend, **options)
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
        return _why_none(found.reports)
    within = next((each for each in found.reports if _is_in_torch_nn(each)), "")
    if within:
        raise CaptureError(_broken_in_torch(within))
    refuse_uncompiled(found.given_up, step.invocation)
    return _why_none(found.reports)


class _Failures:
    """Collects from torch's trace and hooks what Dynamo does not compile.

    Attributes:
        reports: its reasons, in its own words.
        given_up: what it left to the interpreter.
    """

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.given_up: list[UncompiledRegion] = []
        self._stack: list[tuple[str, int, str, str]] = []
        self._broke: tuple[str, int, str] = ("", 0, "")
        self._tried: set[tuple[str, str, int]] = set()

    def at_break(self, frames: Iterable[Any], module: str) -> None:
        """Dynamo is about to report a break with this stack."""
        self._stack = [(each.filename or "", each.lineno or 0, each.name, "") for each in frames]

    def rest_left(self, code: CodeType, line: int) -> None:
        """Dynamo leaves what comes in this code from this line on, because of the last break."""
        if is_user_file(code.co_filename):
            place = code.co_name, code.co_filename, code.co_firstlineno
            self.given_up.append(AfterBreak(*place, line, *self._broke))

    def record(self, metadata: dict[str, Any], payload: str) -> None:
        """Keep what a record of the trace says."""
        artifact = metadata.get("artifact")
        if isinstance(artifact, dict) and artifact.get("name") == "dynamo_graph_break_reason":
            self.reports.append(payload)
            report = read_report(payload)
            reason = "\n".join(filter(None, [f"{report.kind}: {report.reason}", report.hint]))
            frames = self._stack or report.frames or [("", 0, "", "")]
            users = [frame for frame in frames if is_user_file(frame[0])]
            self._broke = (*(users or frames)[-1][:2], reason)
            self.given_up += torch_frames(frames, reason)
            self.given_up.append(CalledAtBreak(tuple(frames), self._tried, reason))
            self._stack = []
        metrics = metadata.get("compilation_metrics")
        if isinstance(metrics, dict):
            name, file = str(metrics.get("co_name")), str(metrics.get("co_filename"))
            line = int(metrics.get("co_firstlineno") or 0)
            self._tried.add((name, file, line))
            if metrics.get("fail_reason"):
                self.reports.append(str(metrics["fail_reason"]))
                if is_user_file(file):
                    self.given_up.append(
                        SkippedFrame(name, file, line, str(metrics["fail_reason"]))
                    )


def _why_none(failures: list[str]) -> str:
    if failures:
        reason = "\n".join(line for line in failures[0].strip().splitlines()[:12] if line.strip())
        place = _BREAK.match(reason)
        if place is None:
            return f"Dynamo skipped the frame and ran it eagerly:\n{reason}"
        if is_user_file(place[1]):
            reason = reason.replace(place[1], relative(place[1]))
            return f"Dynamo skipped the frame and ran it eagerly:\n{reason}"
        return _broken_in_torch(failures[0])
    return (
        "Dynamo found no tensor operation in a frame that it compiles: the target computes "
        "nothing, all of it is in torch.compiler.disable'd code, or in files that Dynamo skips"
    )


def _is_in_torch_nn(report: str) -> bool:
    place = _BREAK.match(report.strip())
    return place is not None and is_torch_file(place[1], "nn", "modules")


def _broken_in_torch(report: str) -> str:
    lines = report.strip().splitlines()[:12]
    reason = "\n".join(line for line in lines if line.strip())
    place = _BREAK.match(reason)
    if place is not None:
        reason = reason.replace(place[1], relative(place[1]))
    return (
        "Dynamo broke the graph in torch's own code, which it compiles only together with the "
        "code that calls it, so all of it ran eagerly and its operations are in no graph. Avoid "
        "the break: the masks of nn.Transformer, for one, are not looked at where src_is_causal "
        f"and tgt_is_causal are given.\n{reason}"
    )


# -- names of inputs -------------------------------------------------------------------------------
