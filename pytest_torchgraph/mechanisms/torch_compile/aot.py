"""Capture through torch.compile and AOTAutograd: split forward and backward graphs of aten ops.

A backend of ours stands where inductor would: it records what AOTAutograd hands to the compilers
and runs the graphs as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch.fx

from ... import torch_private
from ...convert.canonical_names import Canon
from ...convert.from_fx import Converted, Naming, convert
from ...convert.placeholders import aot_inputs, dynamo_inputs
from ...graph.model import Graph, GraphKind
from ...ops.levels import Level
from ..protocol import Captured
from ..step.named_tensors import Roots
from ..step.step import Step
from .run import run_compiled, switched_off


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
        off = switched_off()
        if off:
            return Captured([], why_none=off)
        recorder = _Recorder(self, roots, canon)
        why_none = run_compiled(
            step, target, recorder, dynamic=self.dynamic, fullgraph=self.fullgraph
        )
        return recorder.captured(why_none)


class _Recorder:
    """The backend: a callable, given to torch.compile."""

    def __init__(self, options: Aot, roots: Roots, canon: Canon):
        self.options = options
        self.roots = roots
        self.canon = canon
        self.made: list[_Made] = []
        self.joints: list[Graph] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        frame = _Frame(self, gm, example_inputs)
        compilers: dict[str, Any] = {
            "fw_compiler": frame.compiler("forward"),
            "bw_compiler": frame.compiler("backward"),
            "inference_compiler": frame.compiler("inference"),
        }
        compilers["partition_fn"] = frame.partition
        if self.options.decompositions is not None:
            compilers["decompositions"] = self._decompositions()
        return torch_private.aot_autograd(**compilers)(gm, example_inputs)  # type: ignore[no-any-return]

    def _decompositions(self) -> Any:
        if self.options.decompositions != "inductor":
            return self.options.decompositions
        return torch_private.get("decompositions")()

    def captured(self, why_none: str) -> Captured:
        ran = [made for made in self.made if made.converted.graph.kind != "backward" or made.runs]
        return Captured(
            [made.converted.graph for made in ran],
            {position: made.converted for position, made in enumerate(ran)},
            why_none,
            self.joints,
        )


@dataclass
class _Made:
    converted: Converted
    runs: int = 0


class _Frame:
    """The graphs of one frame that Dynamo compiled: they share the names of its inputs."""

    def __init__(self, recorder: _Recorder, gm: torch.fx.GraphModule, example_inputs: list[Any]):
        self.recorder = recorder
        self.inputs = dynamo_inputs(gm, example_inputs, recorder.roots.tensors)
        self.forward_names: dict[str, str] = {}

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

    def naming(self, named: dict[str, tuple[str, str]]) -> Naming:
        roots = self.recorder.roots
        return Naming(named, roots.modules, ranks=roots.ranks(), dynamo=self.inputs)

    def partition(self, joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Record the joint graph, then split it as the options say."""
        named = aot_inputs(joint, self.inputs, {})
        naming = self.naming(named)
        canon = self.recorder.canon
        found = convert(joint, name="joint", kind="joint", level="aot", canon=canon, naming=naming)
        self.recorder.joints.append(found.graph)
        cut = self.recorder.options.partition == "min_cut"
        split = torch_private.get("min_cut" if cut else "default_partition")
        return split(joint, *args, **kwargs)

    def record(self, gm: torch.fx.GraphModule, kind: GraphKind) -> _Made:
        named = aot_inputs(gm, self.inputs, self.forward_names)
        naming = self.naming(named)
        converted = convert(
            gm, name=kind, kind=kind, level="aot", canon=self.recorder.canon, naming=naming
        )
        if kind != "backward":
            self.forward_names = converted.names
        made = _Made(converted)
        self.recorder.made.append(made)
        return made
