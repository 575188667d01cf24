"""Capture through torch.compile and AOTAutograd: split forward and backward graphs of aten ops.

A backend of ours stands where inductor would: it records what AOTAutograd hands to the compilers
and runs the graphs as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.fx

from .. import torch_private
from ..graph.model import Graph, GraphKind, Level
from .convert import Naming, convert
from .mechanism import Captured
from .names import Canon
from .roots import Roots, readable
from .step import Step


@dataclass(frozen=True)
class Aot:
    """torch.compile up to AOTAutograd, without inductor; nothing is optimised or lowered.

    Args:
        dynamic: as in `torch.compile`: None makes a size symbolic once it has changed.
        fullgraph: as in `torch.compile`: True raises at a graph break instead of splitting.
        partition: how the joint graph is split, "default" or "min_cut" (recomputes in the
            backward what is cheap, as inductor does).
        decompositions: None, "inductor" for inductor's table, or a table of one's own.
    """

    dynamic: bool | None = None
    fullgraph: bool = False
    partition: Literal["default", "min_cut"] = "default"
    decompositions: Any = None

    name: ClassVar[str] = "aot"
    level: ClassVar[Level] = "aot"

    def __post_init__(self) -> None:
        if self.partition not in ("default", "min_cut"):
            raise ValueError(f"partition={self.partition!r}: 'default' or 'min_cut'")
        if isinstance(self.decompositions, str) and self.decompositions != "inductor":
            raise ValueError(f"decompositions={self.decompositions!r}: None, 'inductor' or a table")

    def capture(self, step: Step, target: Any, roots: Roots, canon: Canon) -> Captured:
        """Compile the target with the recording backend and run the step."""
        off = _switched_off()
        if off:
            return Captured([], why_none=off)
        recorder = _Recorder(self, roots, canon)
        failures: list[str] = []
        compiled = torch.compile(
            target, backend=recorder, dynamic=self.dynamic, fullgraph=self.fullgraph
        )
        torch_private.reset_dynamo()
        try:
            with torch_private.quiet(), torch_private.structured_trace(_collector(failures)):
                step.run(compiled)
        finally:
            torch_private.reset_dynamo()
        return recorder.captured(_why_none(failures))


class _Recorder:
    """The backend: a callable, given to torch.compile."""

    def __init__(self, options: Aot, roots: Roots, canon: Canon):
        self.options = options
        self.roots = roots
        self.canon = canon
        self.made: list[_Made] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        frame = _Frame(self, gm, example_inputs)
        compilers: dict[str, Any] = {
            "fw_compiler": frame.compiler("forward"),
            "bw_compiler": frame.compiler("backward"),
            "inference_compiler": frame.compiler("inference"),
        }
        if self.options.partition == "min_cut":
            compilers["partition_fn"] = torch_private.get("min_cut")
        if self.options.decompositions is not None:
            compilers["decompositions"] = self._decompositions()
        return torch_private.aot_autograd(**compilers)(gm, example_inputs)  # type: ignore[no-any-return]

    def _decompositions(self) -> Any:
        if self.options.decompositions != "inductor":
            return self.options.decompositions
        return torch_private.get("decompositions")()

    def captured(self, why_none: str) -> Captured:
        ran = [made for made in self.made if made.graph.kind != "backward" or made.runs]
        return Captured(
            [made.graph for made in ran],
            {position: made.module for position, made in enumerate(ran)},
            why_none,
        )


@dataclass
class _Made:
    graph: Graph
    module: torch.fx.GraphModule
    runs: int = 0


class _Frame:
    """The graphs of one frame that Dynamo compiled: they share the names of its inputs."""

    def __init__(self, recorder: _Recorder, gm: torch.fx.GraphModule, example_inputs: list[Any]):
        self.recorder = recorder
        self.inputs = _dynamo_inputs(gm, example_inputs, recorder.roots)
        self.forward_names: dict[str, str] = {}
        self.forward_roles: dict[str, str] = {}

    def compiler(self, kind: GraphKind) -> Callable[..., Any]:
        def compile(gm: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
            made = self.record(gm, kind)
            run = torch_private.boxed(gm.forward)

            def counted(args: list[Any]) -> Any:
                made.runs += 1
                return run(args)

            counted._boxed_call = True  # type: ignore[attr-defined]
            return counted

        return compile

    def record(self, gm: torch.fx.GraphModule, kind: GraphKind) -> _Made:
        naming = Naming(self.input_names(gm), self.recorder.roots.modules)
        converted = convert(
            gm, name=kind, kind=kind, level="aot", canon=self.recorder.canon, naming=naming
        )
        if kind != "backward":
            self.forward_names = converted.names
            self.forward_roles = {
                name: node.op
                for name, fx_name in ((n, n) for n in converted.names)
                if (node := converted.graph.by_name.get(converted.names[fx_name])) is not None
                and node.kind == "placeholder"
            }
        made = _Made(converted.graph, gm)
        self.recorder.made.append(made)
        return made

    def input_names(self, gm: torch.fx.GraphModule) -> dict[str, tuple[str, str]]:
        """(role, name) of each placeholder, from what AOTAutograd says that it is."""
        named: dict[str, tuple[str, str]] = {}
        for node in gm.graph.nodes:
            if node.op != "placeholder":
                continue
            description = node.meta.get("desc")
            index = _input_index(description)
            if index is not None and index < len(self.inputs):
                named[node.name] = self.inputs[index]
            elif type(description).__name__ == "TangentAOTInput":
                output = getattr(description.output, "idx", None)
                named[node.name] = ("tangent", "tangent" if output is None else f"tangent.{output}")
            elif node.name in self.forward_names:
                named[node.name] = ("saved", self.forward_names[node.name])
            else:
                named[node.name] = ("input", node.name)
        return named


def _input_index(description: Any) -> int | None:
    """Which of Dynamo's inputs a placeholder of AOTAutograd is, seen through views and such."""
    for _ in range(8):
        if type(description).__name__ == "PlainAOTInput":
            return int(description.idx)
        description = getattr(description, "base_of", None) or getattr(description, "base", None)
        if isinstance(description, list | tuple):
            description = description[0] if description else None
    return None


def _dynamo_inputs(
    gm: torch.fx.GraphModule, example_inputs: list[Any], roots: Roots
) -> list[tuple[str, str]]:
    """(role, name) of each input of a Dynamo graph.

    By identity where the tensor is known, since Dynamo's own names are relative to the frame.
    """
    named: list[tuple[str, str]] = []
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, example in zip(placeholders, example_inputs, strict=False):
        known = roots.tensors.get(id(example)) if isinstance(example, torch.Tensor) else None
        if known is None:
            grapharg = node.meta.get("grapharg")
            source = getattr(grapharg, "source", None)
            name = getattr(source, "name", None)
            name = name() if callable(name) else name  # a method before torch 2.11
            if isinstance(example, int | torch.SymInt):
                name = None
            known = ("input", readable(name) if name else "size")
        named.append(known)
    return named


def _collector(failures: list[str]) -> Callable[[dict[str, Any], str], None]:
    """A listener that keeps Dynamo's reasons for compiling nothing."""

    def emit(metadata: dict[str, Any], payload: str) -> None:
        artifact = metadata.get("artifact")
        if isinstance(artifact, dict) and artifact.get("name") == "dynamo_graph_break_reason":
            failures.append(payload)
        metrics = metadata.get("compilation_metrics")
        if isinstance(metrics, dict) and metrics.get("fail_reason"):
            failures.append(str(metrics["fail_reason"]))

    return emit


def _switched_off() -> str:
    """What keeps torch.compile from compiling anything here, or ""."""
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


def _why_none(failures: list[str]) -> str:
    if failures:
        reason = "\n".join(line for line in failures[0].strip().splitlines()[:12] if line.strip())
        return f"Dynamo skipped the frame and ran it eagerly:\n{reason}"
    return (
        "Dynamo found no tensor operation in a frame that it compiles: the target computes "
        "nothing, all of it is in torch.compiler.disable'd code, or in files that Dynamo skips"
    )
