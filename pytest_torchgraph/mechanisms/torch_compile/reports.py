"""Why Dynamo compiled nothing in one run, from torch's trace and hooks."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch.fx

from ...convert.source_lines import (
    is_own_file,
    is_torch_file,
    is_user_file,
    relative,
    resumed,
)
from ...watching.breaks import BreakReport, read_report
from ...watching.observe.structured_trace import REPEATED

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
    """Collects graph breaks and failures of Dynamo from torch's trace and hooks.

    Attributes:
        broke: each of them, in order.
    """

    def __init__(self) -> None:
        self.broke: list[Broke] = []
        self._stack: list[tuple[str, int, str, str]] = []
        self._is_new = False

    def at_break(self, frames: Iterable[Any], module: str) -> None:
        """Dynamo is about to report a break with this stack."""
        self._stack = [(each.filename or "", each.lineno or 0, each.name, "") for each in frames]

    def record(self, metadata: dict[str, Any], payload: str) -> None:
        """Keep what a record of the trace says."""
        artifact = metadata.get("artifact")
        if isinstance(artifact, dict) and artifact.get("name") == "dynamo_graph_break_reason":
            if not payload.startswith(REPEATED):
                self._broke(read_report(payload))
            return
        metrics = metadata.get("compilation_metrics")
        if isinstance(metrics, dict):
            if metrics.get("fail_reason") and not self._is_new:
                report = read_report(str(metrics["fail_reason"]))
                file, line = metrics.get("co_filename"), metrics.get("co_firstlineno")
                begin = str(file), int(line or 0), str(metrics.get("co_name")), ""
                self.broke.append(Broke(report.frames or [begin], why(report)))
            self._is_new = False

    def _broke(self, report: BreakReport) -> None:
        stack, self._stack = self._stack, []
        if report.of_compiler:  # its stack is that of the program around the target
            stack = []
        frames = stack or report.frames or [("", 0, "", "")]
        ours = [number for number, frame in enumerate(frames) if is_own_file(frame[0])]
        of_target = frames[ours[-1] + 1 :] if ours else frames
        self.broke.append(Broke(of_target or frames, why(report)))
        self._is_new = True


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
