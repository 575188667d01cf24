"""The records of torch's structured trace, as typed events.

The trace is the only source that has every compilation, whatever the backend, thread or cache. It
is text: no event keeps a tensor or a graph of the user's alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...convert.refused_nodes import RefusedOp
from ..guards.look import Sight

ONLY_TRACED = "pytest-torchgraph only had this traced"
"""Text of the exception by which a backend of ours ends a compilation after Dynamo's tracing."""


RECOMPILE_LIMIT = "recompile limit"
"""Words in the reason with which Dynamo refuses to compile code again."""


def is_recompile_limit(failure: str, reason: str) -> bool:
    """Return True if Dynamo refused because it had compiled this code too often.

    Args:
        failure, reason: as in `CompilationFinished`. torch 2.9 to 2.11 raise an error of its own.
    """
    return bool(failure) and (failure == "RecompileLimitExceeded" or RECOMPILE_LIMIT in reason)


@dataclass(frozen=True, slots=True)
class CompileId:
    """A compile id, as torch writes it: `1/0`, or `!0/1/0` inside a captured backward.

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
    """A record of the trace, about one compilation.

    Attributes:
        id: the compilation, None where the trace names none (AOTAutograd used without Dynamo).
        attempt: how often Dynamo had started this compilation over, as it does at a graph break.
    """

    id: CompileId | None
    attempt: int


@dataclass(frozen=True, slots=True)
class CompilationStarted(Event):
    """Dynamo began to trace a frame.

    Attributes:
        function, line: name and first line of the code.
        callable_name: name of the compiled callable that was entered last.
        code_hash: hash of the code object, 0 if it is not known.
        own_resets: how often this package had reset Dynamo by then.
    """

    function: str
    line: int
    callable_name: str = ""
    code_hash: int = 0
    own_resets: int = 0


@dataclass(frozen=True, slots=True)
class GraphPrinted(Event):
    """A graph was printed.

    Attributes:
        stage: `dynamo`, `joint`, `forward`, `backward`, `inference`, `compiled_autograd` or
            `post_grad`.
        text: the graph, as Python code.
        files: of the functions that Dynamo traced for its own graph.
    """

    stage: str
    text: str
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CodeGenerated(Event):
    """Inductor generated code for one graph.

    Attributes:
        code: a Python module.
    """

    code: str


@dataclass(frozen=True, slots=True)
class GraphBreakEvent(Event):
    """Dynamo met a graph break.

    Attributes:
        report: Dynamo's report: place, reason, hints, the user's stack.
        hand_over: whether this is the call of `backward` from which compiled autograd goes on, so
            that no op is missing from the graphs.
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
    """Guards failed, so that a frame has to be compiled again.

    Attributes:
        reasons: each guard that failed, in torch's words.
        sights: what was seen of each while torch said that.
    """

    reasons: tuple[str, ...]
    sights: tuple[Sight, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheMissEvent(Event):
    """Compiled autograd found no captured backward in its cache that fits, and captures one.

    Attributes:
        reasons: torch's words, those of earlier captures among them.
    """

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompilationFinished(Event):
    """A compilation ended, well or with an exception.

    Attributes:
        function, file, line: the code that was compiled; empty where the trace does not say.
        failure: the type of the exception that ended it, "" where it went well.
        reason: the text of that exception.
        failed_file, failed_line: where in the user's code it was raised; "" and 0 where the trace
            does not say.
        cudagraphs: why a graph of it got no CUDA graph, "" where torch does not say.
        ops: how many ops Dynamo's graph has; 0 where there is no graph.
        seconds: how long it took, with what the backend did.
        lowered: whether inductor compiled a graph of it.
        cache_off: the setting that kept torch from asking its caches, "" for none.
    """

    function: str
    file: str
    line: int
    failure: str
    reason: str
    failed_file: str = ""
    failed_line: int = 0
    cudagraphs: str = ""
    ops: int = 0
    seconds: float = 0.0
    lowered: bool = False
    cache_off: str = ""


@dataclass(frozen=True, slots=True)
class CudagraphsSkipped(Event):
    """A backward that was compiled at its first run got no CUDA graph.

    Attributes:
        reason: torch's words.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CacheEvent(Event):
    """One of torch.compile's caches looked a graph up, or did not save it.

    Attributes:
        cache: "aot" for AOTAutograd's cache, "inductor" for inductor's.
        state: "unsaved" for compiled code that AOTAutograd did not save because a graph has no op.
        backward: True for a backward graph.
        reason: torch's words for a bypass, and for an entry that could not be pickled.
        key: the key; "" for a bypass.
        components: the parts of the key, each with its hash, where a recorder keeps graphs.
        refused: the ops that a bypass is about.
    """

    cache: Literal["aot", "inductor"]
    state: Literal["hit", "miss", "bypass", "unsaved"]
    backward: bool = False
    reason: str = ""
    key: str = ""
    components: tuple[str, ...] = ()
    refused: tuple[RefusedOp, ...] = ()
