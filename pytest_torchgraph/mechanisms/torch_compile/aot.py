"""Captures through torch.compile up to Dynamo, or up to AOTAutograd.

Our backends replace inductor. They record the graphs that Dynamo passes to a backend, or those that
AOTAutograd passes to its compilers, and run them unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import fx

from ... import torch_private
from ...convert.canonical_names import CanonicalNames
from ...convert.graph_modules import runnable
from ...graph.model import Graph, GraphKind
from ...ops.matching import Level
from ..islands import CompiledGraph
from ..protocol import Captured
from ..step import Step
from .cacheable import trains_with
from .run import Backend, Frame


@dataclass(frozen=True)
class Dynamo:
    """torch.compile up to the backend: a graph for each compiled frame or part of a frame.

    `Capture.eager` holds the ops that ran eagerly between the graphs. The backward of the graphs
    runs op by op, and is not captured. Use AOTAutograd for compiled backwards.

    Args:
        dynamic: as in `torch.compile`: None makes a size symbolic once it has changed.
        fullgraph: as in `torch.compile`: True raises at a graph break instead of splitting.
    """

    dynamic: bool | None = None
    fullgraph: bool = False

    name: ClassVar[str] = "dynamo"
    level: ClassVar[Level] = "dynamo"

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Compile the target with a backend that records the graphs and runs them unchanged."""
        recorder = _DynamoRecorder(self, step, canon, sees_aot=False)
        recorder.run()
        return recorder.captured()


class _DynamoRecorder(Backend):
    """The backend that records Dynamo's graphs."""

    name = "graph_capture"

    def compile(
        self, frame: Frame, gm: fx.GraphModule, example_inputs: list[Any]
    ) -> Callable[..., Any]:
        """Record the graph, and run it as it is. Its ops are dispatched one by one."""
        kind: GraphKind = "forward" if trains_with(example_inputs) else "inference"
        compiled_graph = CompiledGraph(frame.dynamo(gm, kind))
        self.compiled_graphs.append(compiled_graph)
        call = torch_private.boxed(runnable(gm).forward)
        run = compiled_graph.recorded(call, self.islands)
        return lambda *args: run([*args])


@dataclass(frozen=True)
class Aot:
    """torch.compile up to AOTAutograd, without inductor; nothing is optimised or lowered.

    `Capture.eager` holds the ops that ran eagerly between the graphs.

    Args:
        dynamic: as in `torch.compile`: None makes a size symbolic once it has changed.
        fullgraph: as in `torch.compile`: True raises at a graph break instead of splitting.
        partition: how the joint graph is split: "default", or "min_cut", which recomputes cheap
            values in the backward, as inductor does.
        decompositions: None, "inductor" for inductor's table, or a custom table.
    """

    dynamic: bool | None = None
    fullgraph: bool = False
    partition: Literal["default", "min_cut"] = "default"
    decompositions: Any = None

    name: ClassVar[str] = "aot"
    level: ClassVar[Level] = "aot"

    def __post_init__(self) -> None:
        if self.partition not in ("default", "min_cut"):
            raise ValueError(
                f"partition={self.partition!r} is invalid: pass 'default' or 'min_cut'"
            )
        if isinstance(self.decompositions, str) and self.decompositions != "inductor":
            raise ValueError(
                f"decompositions={self.decompositions!r} is invalid: pass None, 'inductor' or a "
                "dict from ops to functions"
            )

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Compile the target with the recording backend and run the step."""
        recorder = AotRecorder(self, step, canon)
        recorder.run()
        recorder.compiled_graphs = [graph for graph in recorder.compiled_graphs if graph.ran]
        return recorder.captured(joints=recorder.joints)


class AotRecorder(Backend):
    """The backend that records AOTAutograd's graphs.

    Attributes:
        joints: the joint graphs, in order.
    """

    name = "AOTAutograd"

    def __init__(self, options: Aot, step: Step, canon: CanonicalNames):
        super().__init__(options, step, canon)
        self.joints: list[Graph] = []

    def compile(
        self, frame: Frame, gm: fx.GraphModule, example_inputs: list[Any]
    ) -> Callable[..., Any]:
        """Run AOTAutograd, with compilers that record the graphs."""
        compilers: dict[str, Any] = {
            "fw_compiler": self.compiler(frame, "forward"),
            "bw_compiler": self.compiler(frame, "backward"),
            "inference_compiler": self.compiler(frame, "inference"),
            "partition_fn": functools.partial(self.partition, frame),
        }
        decompositions = self.options.decompositions
        if decompositions == "inductor":
            decompositions = torch_private.get("inductor_decompositions")()
        if decompositions is not None:
            compilers["decompositions"] = decompositions
        compiled: Callable[..., Any] = torch_private.aot_autograd(**compilers)(gm, example_inputs)
        return compiled

    def compiler(self, frame: Frame, kind: GraphKind) -> Callable[..., Any]:
        """Return the compiler of the graphs of one kind, which runs them unchanged."""

        def compile(gm: fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
            """Record a graph, and return the callable that runs it."""
            with self.islands.suspended():
                self.bypass_search.check_empty(gm, backward=kind == "backward")
                compiled_graph = CompiledGraph(frame.lowered(gm, kind, "aot"))
            self.compiled_graphs.append(compiled_graph)
            return compiled_graph.recorded(torch_private.boxed(gm.forward), self.islands)

        return compile

    def partition(self, frame: Frame, joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Record the joint graph, then split it with the chosen partitioner."""
        self.joints.append(frame.lowered(joint, "joint", "aot").graph)
        cut = self.options.partition == "min_cut"
        split = torch_private.get("min_cut_partition" if cut else "default_partition")
        return split(joint, *args, **kwargs)
