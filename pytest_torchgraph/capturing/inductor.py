"""Capture through the whole of torch.compile: inductor's post-grad graphs and its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch.fx

from .. import torch_private
from ..graph.model import Graph, GraphKind, Level
from .convert import Naming, convert
from .kernels import Kernel, kernels_of
from .mechanism import Captured
from .names import Canon
from .roots import Roots
from .step import Step
from .through_dynamo import aot_inputs, dynamo_inputs, run_compiled, switched_off


@dataclass(frozen=True)
class Inductor:
    """torch.compile with inductor: the graphs that it generates code for, and `capture.kernels`.

    Inductor's graph caches are off during the capture, so that cold and warm ones give the same
    answer; compiled C++ and Triton code is still taken from its cache.

    Args:
        dynamic, fullgraph, mode, options: as in `torch.compile`.
    """

    dynamic: bool | None = None
    fullgraph: bool = False
    mode: str | None = None
    options: dict[str, Any] | None = None

    name: ClassVar[str] = "inductor"
    level: ClassVar[Level] = "post_grad"

    def capture(self, step: Step, target: Any, roots: Roots, canon: Canon) -> Captured:
        """Compile the target with inductor, recording what passes through it, and run the step."""
        off = switched_off()
        if off:
            return Captured([], why_none=off)
        recorder = _Recorder(self, roots, canon)
        with recorder.watching():
            why_none = run_compiled(
                step,
                target,
                recorder,
                trace=recorder.trace,
                dynamic=self.dynamic,
                fullgraph=self.fullgraph,
            )
        return Captured(
            recorder.graphs,
            dict(enumerate(recorder.modules)),
            why_none,
            kernels=recorder.kernels,
        )


class _Recorder:
    """The backend: inductor itself, with a look at each graph after its last pass."""

    def __init__(self, options: Inductor, roots: Roots, canon: Canon):
        self.options = options
        self.roots = roots
        self.canon = canon
        self.graphs: list[Graph] = []
        self.modules: list[torch.fx.GraphModule] = []
        self.kernels: list[Kernel] = []
        self.current: tuple[_Frame, GraphKind] | None = None

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        frame = _Frame(dynamo_inputs(gm, example_inputs, self.roots))
        inner = torch_private.get("compile_inner")

        def compile_inner(gm: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.current
            self.current = (frame, _kind(kwargs))
            try:
                return inner(gm, inputs, *args, **kwargs)
            finally:
                self.current = before

        patches = dict(self.options.options or {})
        if self.options.mode is not None:
            of_mode = torch_private.get("mode_options")(self.options.mode, self.options.dynamic)
            patches = {**of_mode, **patches}
        return torch_private.get("compile_fx")(  # type: ignore[no-any-return]
            gm, example_inputs, inner_compile=compile_inner, config_patches=patches or None
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look at each graph behind the last post-grad pass, and let nothing come from a cache."""
        inductor = torch_private.get("inductor_config")
        aot_config = torch_private.get("functorch_config")
        users = inductor.post_grad_custom_post_pass

        def look(graph: torch.fx.Graph) -> None:
            if users is not None:
                users(graph)
            self.record(graph)

        with (
            inductor.patch(fx_graph_cache=False, post_grad_custom_post_pass=look),
            aot_config.patch(enable_autograd_cache=False),
        ):
            yield

    def record(self, graph: torch.fx.Graph) -> None:
        """Convert a post-grad graph of the frame that is being compiled."""
        if self.current is None or graph.owning_module is None:
            return
        frame, kind = self.current
        module = torch.fx.GraphModule(graph.owning_module, _copy(graph))
        named = aot_inputs(module, frame.inputs, frame.names if kind == "backward" else {})
        naming = Naming(named, self.roots.modules, ranks=self.roots.ranks(), dynamo=frame.inputs)
        found = convert(
            module, name=kind, kind=kind, level="post_grad", canon=self.canon, naming=naming
        )
        if kind != "backward":
            frame.names = found.names
        self.graphs.append(found.graph)
        self.modules.append(module)

    def trace(self, metadata: dict[str, Any], payload: str) -> None:
        """Take the generated code out of torch's structured trace."""
        if "inductor_output_code" in metadata and payload:
            self.kernels.extend(kernels_of(payload, str(len(self.graphs) - 1)))


@dataclass
class _Frame:
    """One frame that Dynamo compiled: the names of its inputs and of its forward's nodes."""

    inputs: list[tuple[str, str]]
    names: dict[str, str] = field(default_factory=dict)


def _kind(kwargs: dict[str, Any]) -> GraphKind:
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"


def _copy(graph: torch.fx.Graph) -> torch.fx.Graph:
    """The graph as it is now: inductor goes on changing its own."""
    copy = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        nodes[node] = copy.node_copy(node, nodes.__getitem__)
        nodes[node].meta = dict(node.meta)
    return copy
