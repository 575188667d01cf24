"""What the compiler did, as values: the records of torch's structured trace, typed.

The trace is the one channel that sees every compilation, whichever backend, thread or cache is in
play. It is text: nothing here keeps a tensor or a graph of the user's alive.
"""

from __future__ import annotations

from dataclasses import dataclass

ONLY_TRACED = "pytest-torchgraph only had this traced"
"""What a backend of ours raises that wants to know what Dynamo traces, and nothing more."""


@dataclass(frozen=True, slots=True)
class CompileId:
    """Which compilation: torch's own notation.

    Attributes:
        autograd: number of the compiled-autograd capture that it belongs to, None outside one.
        frame: number of the frame (a code object); None for the capture itself.
        compile: how often the frame had been compiled before.
    """

    autograd: int | None = None
    frame: int | None = None
    compile: int | None = None

    def __str__(self) -> str:
        parts = [] if self.autograd is None else [f"!{self.autograd}"]
        if self.frame is not None:
            parts += [str(self.frame), str(self.compile)]
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in one compilation.

    Attributes:
        id: the compilation, None where the trace names none (AOTAutograd used without Dynamo).
        attempt: how often Dynamo had started this compilation over.
    """

    id: CompileId | None
    attempt: int


@dataclass(frozen=True, slots=True)
class Started(Event):
    """Dynamo began to trace a frame.

    Attributes:
        region: name of the compiled callable that was entered last.
    """

    function: str
    line: int
    region: str = ""


@dataclass(frozen=True, slots=True)
class Printed(Event):
    """A graph, as text.

    Attributes:
        stage: `dynamo`, `joint`, `forward`, `backward`, `inference`, `compiled_autograd` or
            `post_grad`.
        files: of the functions that Dynamo traced for its own graph.
    """

    stage: str
    text: str
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Generated(Event):
    """The code that inductor wrote for one graph."""

    code: str


@dataclass(frozen=True, slots=True)
class GraphBreakEvent(Event):
    """A graph break.

    Attributes:
        report: Dynamo's report: place, reason, hints, the user's stack.
        hand_over: whether compiled autograd takes over there, so that nothing is lost.
        stack: file, line, function and code of each frame, outermost first, torch's among them;
            empty where only the report has it, which leaves out a `forward` that calls a `forward`.
        module: Dynamo's name of the module whose code broke, as `L['self'].layers.0`; "" for the
            one that is compiled, or where there is none.
    """

    report: str
    hand_over: bool
    stack: tuple[tuple[str, int, str, str], ...] = ()
    module: str = ""


@dataclass(frozen=True, slots=True)
class GuardsFailed(Event):
    """The guards that failed, so that the frame has to be compiled again."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CacheMissEvent(Event):
    """Why compiled autograd captured the backward instead of running one that it had."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finished(Event):
    """A compilation ended.

    Attributes:
        function, file, line: the code that was compiled; empty where the trace does not say.
        failure: the type of the exception that ended it, "" where it went well.
        reason: the text of that exception.
        failed_file, failed_line: where in the user's code it was raised; "" and 0 where the trace
            does not say.
        cudagraphs: why a graph of it got no CUDA graph, "" where torch does not say.
    """

    function: str
    file: str
    line: int
    failure: str
    reason: str
    failed_file: str = ""
    failed_line: int = 0
    cudagraphs: str = ""


@dataclass(frozen=True, slots=True)
class CudagraphsSkipped(Event):
    """A backward that was compiled when it first ran got no CUDA graph."""

    reason: str
