"""One step through torch.compile, from and to a fresh Dynamo.

What skipped frames compute is refused, unless it is recorded.
"""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
import torch.fx

from ... import torch_private
from ...convert.source_lines import (
    is_own_file,
    is_torch_file,
    is_user_file,
    relative,
    resumed,
)
from ...errors import CaptureError
from ...watching.breaks import BreakReport, read_report
from ...watching.observe.structured_trace import REPEATED
from ..step.step import Step
from .skipped_frames import (
    RECORDED_BY_AOT,
    AfterBreak,
    CalledAtBreak,
    SkippedFrame,
    UncompiledRegion,
    refuse_uncompiled,
    torch_frames,
)

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


_NO_HINT = ("Please report an issue to PyTorch.", "This graph break may have been caused by")
"""Beginnings of hints that help nobody who reads one break."""
_DISPATCH = "\nvia='dispatch' captures what runs eagerly."
_IS_CAUSAL = "_detect_is_causal_mask"
"""The function of nn.Transformer that looks at the data of masks."""


class Broke(NamedTuple):
    """A graph break, or a failure of Dynamo, as a message tells it.

    Attributes:
        stack: the frames of the target at the break, outermost first; the innermost one of the
            user's code is the place, unless the break is in torch.nn.
        why: kind, reason and hints, a line each.
    """

    stack: Sequence[tuple[str, int, str, str]]
    why: str

    @property
    def place(self) -> tuple[str, int, str]:
        """File, line and function of the innermost frame of the user's code, else of any."""
        users = [frame for frame in self.stack if is_user_file(frame[0])]
        return (users or self.stack)[-1][:3]

    @property
    def is_in_torch_nn(self) -> bool:
        """Whether the innermost frame is in a module of torch.nn."""
        return is_torch_file(self.stack[-1][0], "nn", "modules")

    def describe_in_torch(self) -> str:
        """The refusal of a break in torch's own code: what happened, where and why."""
        file, line, function, _ = self.stack[-1]
        caller, at, _ = self.place
        called = f", called at {_line(caller, at)}" if is_user_file(caller) else ""
        advice = ""
        if function == _IS_CAUSAL:
            advice = (
                "\nThe masks are not looked at where src_is_causal and tgt_is_causal are given "
                "(is_causal, for a layer or an encoder alone)."
            )
        return (
            "Dynamo broke the graph in torch's own code, which it compiles only together with the "
            "code that calls it, so all of it ran eagerly and its operations are in no graph. It "
            f"broke at {_line(file, line)}{called}\n{self.why}{advice}"
        )

    def describe(self) -> str:
        """Why nothing was compiled: where and why."""
        file, line, function = self.place
        if self.is_in_torch_nn or is_torch_file(file):
            return f"{self.describe_in_torch()}{_DISPATCH}"
        within = f" in {resumed(function)[0]}" if function else ""
        return (
            "Dynamo gave up on the target and ran it eagerly. It broke at "
            f"{_line(file, line, within)}\n{self.why}{_DISPATCH}"
        )


def _line(file: str, line: int, within: str = "") -> str:
    code = linecache.getline(file, line).strip()
    return f"{relative(file)}:{line}{within}{': ' if code else ''}{code}"


def why(report: BreakReport) -> str:
    """Kind, reason and hints of a report, a line each, without what is for Dynamo's developers."""
    reason = report.reason
    if report.context:
        reason = reason.replace(f" [{report.context}]", "", 1)
    hints = [hint for hint in report.hint.splitlines() if not hint.startswith(_NO_HINT)]
    first = ": ".join(filter(None, [report.kind, reason]))
    return "\n".join([first, *hints])


class Reports:
    """Collects from torch's trace and hooks what Dynamo does not compile.

    Attributes:
        broke: each break and each failure, in order.
        given_up: what it left to the interpreter.
    """

    def __init__(self) -> None:
        self.broke: list[Broke] = []
        self.given_up: list[UncompiledRegion] = []
        self._stack: list[tuple[str, int, str, str]] = []
        self._last: Broke | None = None
        self._tried: set[tuple[str, str, int]] = set()

    def at_break(self, frames: Iterable[Any], module: str) -> None:
        """Dynamo is about to report a break with this stack."""
        self._stack = [(each.filename or "", each.lineno or 0, each.name, "") for each in frames]

    def rest_left(self, code: CodeType, line: int) -> None:
        """Dynamo leaves what comes in this code from this line on, because of the last break."""
        if is_user_file(code.co_filename):
            place = code.co_name, code.co_filename, code.co_firstlineno
            broke = self._last or Broke([("", 0, "", "")], "")
            self.given_up.append(AfterBreak(*place, line, *broke.place[:2], broke.why))

    def record(self, metadata: dict[str, Any], payload: str) -> None:
        """Keep what a record of the trace says."""
        artifact = metadata.get("artifact")
        if isinstance(artifact, dict) and artifact.get("name") == "dynamo_graph_break_reason":
            if not payload.startswith(REPEATED):
                self._broke(read_report(payload))
            return
        metrics = metadata.get("compilation_metrics")
        if isinstance(metrics, dict):
            self._compiled(metrics)

    def _broke(self, report: BreakReport) -> None:
        stack, self._stack = self._stack, []
        if report.of_compiler:  # its stack is that of the program around the target
            stack = []
        frames = stack or report.frames or [("", 0, "", "")]
        ours = [number for number, frame in enumerate(frames) if is_own_file(frame[0])]
        of_target = frames[ours[-1] + 1 :] if ours else frames
        broke = self._last = Broke(of_target or frames, why(report))
        self.broke.append(broke)
        self.given_up += torch_frames(frames, broke.why)
        self.given_up.append(CalledAtBreak(tuple(frames), self._tried, broke.why))

    def _compiled(self, metrics: dict[str, Any]) -> None:
        """A compilation came to its end."""
        name, file = str(metrics.get("co_name")), str(metrics.get("co_filename"))
        line = int(metrics.get("co_firstlineno") or 0)
        self._tried.add((name, file, line))
        broke, self._last = self._last, None
        if not metrics.get("fail_reason"):
            return
        if broke is None:
            report = read_report(str(metrics["fail_reason"]))
            broke = Broke(report.frames or [(file, line, name, "")], why(report))
            self.broke.append(broke)
        if is_user_file(file):
            place = broke.place if is_user_file(broke.place[0]) else broke.stack[-1]
            self.given_up.append(SkippedFrame(name, file, line, *place[:2], broke.why))


def told_by(backend: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A backend under a name, whose errors are in words.

    torch shows both: of a callable object the address, of an error that consists of an op the op.
    """

    def compile(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        try:
            return backend(gm, example_inputs)  # type: ignore[no-any-return]
        except Exception as error:
            if not any(isinstance(arg, str) for arg in error.args):
                error.args = (f"{type(error).__name__}: {error}", *error.args[1:])
            raise

    compile.__name__ = compile.__qualname__ = name
    return compile
