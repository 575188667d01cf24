"""Capture through torch.compile with inductor: its post-grad graphs and its kernels."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch.fx

from ... import torch_private
from ...convert.canonical_names import CanonicalNames
from ...convert.graph_modules import copied
from ...graph.model import Graph, GraphKind
from ...graph.schedule import ScheduledCall
from ...ops.levels import Level
from ...watching.kernels import Kernel, Origin, kernels_of, placed_by_op
from ...watching.output_code import UnreadableCodeError
from ...watching.schedule import schedule_of
from ..islands.capture import Made, recorded_islands
from ..islands.recorder import IslandRecorder
from ..protocol import Captured
from ..step.named_tensors import NamedTensors
from ..step.step import Step
from .frame import Frame
from .post_grad import PostGradRun, origins_of
from .run import run_compiled, switched_off

NO_GRAPH_CACHE = {"fx_graph_cache": False, "fx_graph_remote_cache": False}


@dataclass(frozen=True)
class Inductor:
    """torch.compile with inductor: the graphs that it generates code for, and `capture.kernels`.

    Inductor's graph caches are off during the capture, so that cold and warm ones give the same
    answer; compiled C++ and Triton code is still taken from its cache. What runs eagerly beside the
    graphs is recorded as well: `Capture.eager`.

    Args:
        dynamic, fullgraph, mode, options: as in `torch.compile`.
        codegen: False writes the code, for `Capture.kernels`, and neither compiles nor runs nor
            stores it; the step runs the post-grad graphs op by op. That takes a fraction of the
            time. Then `assert_matches_eager` is about the post-grad graphs, passes included, and
            not about generated code. Where options let inductor measure (`max_autotune`), it still
            compiles what it measures.
    """

    dynamic: bool | None = None
    fullgraph: bool = False
    mode: str | None = None
    options: dict[str, Any] | None = None
    codegen: bool = True

    name: ClassVar[str] = "inductor"
    level: ClassVar[Level] = "post_grad"

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Compile the target with inductor, recording what passes through it, and run the step."""
        off = switched_off()
        if off:
            return Captured([], why_none=off)
        islands = IslandRecorder(step.invocation.named)
        recorder = _Recorder(self, step.invocation.named, canon, islands)
        with recorder.watching():
            why_none = run_compiled(
                step,
                islands,
                recorder,
                "inductor",
                trace=recorder.trace,
                dynamic=self.dynamic,
                fullgraph=self.fullgraph,
            )
        found = recorded_islands(step, islands, canon, recorder.made)
        return Captured(
            [made.counted for made in recorder.made],
            why_none,
            kernels=functools.partial(
                _kernels, recorder.written, [made.converted.graph for made in recorder.made]
            ),
            schedules=functools.partial(
                _schedules, recorder.written, len(recorder.made), dict(canon.groups)
            ),
            islands=found,
            comparable=self._drawing_as_eager() if recorder.draws() else None,
            incomparable=recorder.not_run(),
        )

    def _drawing_as_eager(self) -> Inductor:
        """This mechanism, but with torch's random numbers where inductor has its own."""
        return replace(self, options={**(self.options or {}), "fallback_random": True})


class _Written(NamedTuple):
    """The code of a graph.

    Attributes:
        graph: position of the graph.
        code: the Python module.
        origins: what is computed by each call in it.
    """

    graph: int
    code: str
    origins: list[Origin]


class _Recorder:
    """The backend: inductor itself, with a look at each graph after its last pass."""

    def __init__(
        self,
        options: Inductor,
        named: NamedTensors,
        canon: CanonicalNames,
        islands: IslandRecorder,
    ):
        self.options = options
        self.islands = islands
        self.named = named
        self.canon = canon
        self.made: list[Made] = []
        self.written: list[_Written] = []
        self.runs: list[PostGradRun] = []
        self.lowered: torch.fx.Graph | None = None
        self.calls: list[tuple[str, list[torch.fx.Node]]] = []
        self.current: tuple[Frame, GraphKind] | None = None

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        frame = Frame(gm, example_inputs, self.named, self.canon)
        inner = torch_private.get("compile_fx_inner")

        def compile_inner(gm: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            before, known = self.current, len(self.made)
            self.current = (frame, _kind(kwargs))
            unchanged = None if self.options.codegen else copied(gm)
            try:
                with self.islands.aside():
                    compiled = inner(gm, inputs, *args, **kwargs)
            finally:
                self.current = before
            if len(self.made) == known:
                return compiled
            made = self.made[known]
            if unchanged is not None:
                compiled = PostGradRun(made.converted, unchanged)
                self.runs.append(compiled)
            return made.recorded(compiled, self.islands)

        patches = dict(self.options.options or {})
        if self.options.mode is not None:
            of_mode = torch_private.get("inductor_mode_options")(
                self.options.mode, self.options.dynamic
            )
            patches = {**of_mode, **patches}
        patches.update(NO_GRAPH_CACHE)
        with self.islands.aside():
            compiled = torch_private.get("compile_fx")(
                gm, example_inputs, inner_compile=compile_inner, config_patches=patches
            )
        return frame.noting(compiled)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look at each graph behind the last post-grad pass, and let nothing come from a cache."""
        passes = torch_private.get("post_grad_passes")
        recursion = sys.getrecursionlimit()  # inductor raises it

        def post_grad_passes(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> None:
            compiled, self.current = self.current, None  # bodies have their passes inside those
            try:
                passes(gm, *args, **kwargs)
            finally:
                self.current = compiled
            if compiled is not None:
                frame, kind = compiled
                self.made.append(Made(frame.lowered(copied(gm), kind, "post_grad")))
                self.lowered, self.calls = gm.graph, []

        with (
            torch_private.replaced("post_grad_passes", post_grad_passes),
            torch_private.on_kernel_call(self.at_kernel_call),
            contextlib.nullcontext()
            if self.options.codegen
            else torch_private.code_written_only(self.at_code),
            torch_private.get("inductor_config").patch(**NO_GRAPH_CACHE),
            torch_private.get("functorch_config").patch(
                enable_autograd_cache=False, enable_remote_autograd_cache=False
            ),
        ):
            try:
                yield
            finally:
                sys.setrecursionlimit(recursion)

    def draws(self) -> bool:
        """True where a graph draws random numbers by inductor's own generator."""
        ops = {
            node.op
            for made in self.made
            for graph in made.converted.graph.walk()
            for node in graph.nodes
        }
        return any(op.startswith("prims.inductor_seed") for op in ops)

    def trace(self, metadata: dict[str, Any], payload: str) -> None:
        """Take the generated code out of torch's structured trace."""
        if "inductor_output_code" in metadata and payload:
            self.at_code(payload)

    def at_code(self, code: str) -> None:
        """Note the code of the graph that is being compiled, and what the calls in it compute."""
        if self.made:
            last = self.made[-1].converted
            origins = origins_of(self.calls, self.lowered, last, self.named.modules)
            self.written.append(_Written(len(self.made) - 1, code, origins))
            self.lowered, self.calls = None, []

    def at_kernel_call(self, name: str, nodes: list[torch.fx.Node]) -> None:
        """Note what a call computes in the code that is being written."""
        self.calls.append((name, nodes))

    def not_run(self) -> str:
        """The reason why not the post-grad graphs ran but those before, "" where they did."""
        ops = sorted({op for run in self.runs for op in run.lowered})
        if not ops:
            return ""
        return (
            f"with codegen=False a graph ran as it was before inductor's passes, because these put "
            f"{', '.join(ops)} into it, which only generated code can compute: use Inductor()"
        )


def _kernels(written: Sequence[_Written], graphs: Sequence[Graph]) -> list[Kernel]:
    """The kernels and library calls of all graphs.

    Args:
        written: the code.
        graphs: the graphs that it was written for.

    Raises:
        UnreadableCodeError: if it is not known what the code of a graph launches.
    """
    without = len(graphs) - len({each.graph for each in written})
    if without:
        raise UnreadableCodeError(
            f"inductor showed no code for {without} of {len(graphs)} graphs: do the options have "
            "it write something else than Python (fx_wrapper)?"
        )
    return [
        placed_by_op(kernel, graphs[each.graph])
        for each in written
        for kernel in kernels_of(each.code, str(each.graph), each.origins)
    ]


def _schedules(
    written: Sequence[_Written], graphs: int, groups: Mapping[str, str]
) -> list[Sequence[ScheduledCall]]:
    """The collectives in the code of each graph, () where it is not readable.

    Args:
        written: the code.
        graphs: how many graphs there are.
        groups: names of process groups by torch's names of them.
    """
    found: list[Sequence[ScheduledCall]] = [()] * graphs
    for each in written:
        with contextlib.suppress(UnreadableCodeError):
            found[each.graph] = schedule_of(each.code, each.origins, groups)
    return found


def _kind(kwargs: dict[str, Any]) -> GraphKind:
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"
