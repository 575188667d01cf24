"""Capture through the whole of torch.compile: inductor's post-grad graphs and its kernels."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch.fx

from ... import torch_private
from ...convert.canonical_names import CanonicalNames
from ...convert.graph_modules import copied
from ...graph.model import GraphKind
from ...ops.levels import Level
from ...watching.kernels import Kernel, kernels_of
from ..islands.capture import Made, recorded_islands, with_islands
from ..islands.recorder import IslandRecorder
from ..protocol import Captured
from ..step.named_tensors import NamedTensors
from ..step.step import Step
from .frame import Frame
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
    """

    dynamic: bool | None = None
    fullgraph: bool = False
    mode: str | None = None
    options: dict[str, Any] | None = None

    name: ClassVar[str] = "inductor"
    level: ClassVar[Level] = "post_grad"

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Compile the target with inductor, recording what passes through it, and run the step."""
        off = switched_off()
        if off:
            return Captured([], why_none=off)
        islands = IslandRecorder(step.invocation.named)
        recorder = _Recorder(self, step.invocation.named, canon, islands)
        compiling = functools.partial(
            run_compiled,
            step,
            recorder,
            "inductor",
            trace=recorder.trace,
            eager_is_recorded=True,
            dynamic=self.dynamic,
            fullgraph=self.fullgraph,
        )
        with recorder.watching():
            why_none = with_islands(step, islands, compiling)
        found = recorded_islands(step, islands, canon, recorder.made)
        return Captured(
            [made.counted for made in recorder.made],
            why_none,
            kernels=recorder.kernels,
            islands=found,
            comparable=self._drawing_as_eager() if recorder.draws() else None,
        )

    def _drawing_as_eager(self) -> Inductor:
        """This mechanism, but with torch's random numbers where inductor has its own."""
        return replace(self, options={**(self.options or {}), "fallback_random": True})


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
        self.kernels: list[Kernel] = []
        self.current: tuple[Frame, GraphKind] | None = None

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        frame = Frame(gm, example_inputs, self.named, self.canon)
        inner = torch_private.get("compile_fx_inner")

        def compile_inner(gm: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            before, known = self.current, len(self.made)
            self.current = (frame, _kind(kwargs))
            try:
                with self.islands.aside():
                    compiled = inner(gm, inputs, *args, **kwargs)
            finally:
                self.current = before
            if len(self.made) == known:
                return compiled
            return self.made[known].recorded(compiled, self.islands)

        patches = dict(self.options.options or {})
        if self.options.mode is not None:
            of_mode = torch_private.get("inductor_mode_options")(
                self.options.mode, self.options.dynamic
            )
            patches = {**of_mode, **patches}
        patches.update(NO_GRAPH_CACHE)
        with self.islands.aside():
            return torch_private.get("compile_fx")(  # type: ignore[no-any-return]
                gm, example_inputs, inner_compile=compile_inner, config_patches=patches
            )

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

        with (
            torch_private.replaced("post_grad_passes", post_grad_passes),
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
            self.kernels.extend(kernels_of(payload, str(len(self.made) - 1)))


def _kind(kwargs: dict[str, Any]) -> GraphKind:
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"
