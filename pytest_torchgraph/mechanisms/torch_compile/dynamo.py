"""Capture through torch.compile up to Dynamo: the graphs that Dynamo passes to a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.fx

from ... import torch_private
from ...convert.canonical_names import CanonicalNames
from ...convert.graph_modules import runnable
from ...graph.model import GraphKind
from ...ops.matching import Level
from ..islands import CompiledGraph, IslandRecorder, recorded_islands
from ..protocol import Captured
from ..step import Step
from .cacheable import BypassSearch, trains_with
from .run import Frame, run_compiled


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
        islands = IslandRecorder(step.invocation.named)
        compiled_graphs: list[CompiledGraph] = []
        bypass_search = BypassSearch(step.invocation.named.modules, sees_aot=False)

        def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            with islands.suspended():
                bypass_search.keep(gm, example_inputs)
                frame = Frame(gm, example_inputs, step.invocation.named, canon)
                kind: GraphKind = "forward" if trains_with(example_inputs) else "inference"
                compiled_graphs.append(CompiledGraph(frame.dynamo(gm, kind)))
                call = torch_private.boxed(runnable(gm).forward)
            run = compiled_graphs[-1].recorded(call, islands)
            return frame.record_outputs(lambda *args: run([*args]))

        why_none = run_compiled(
            step, islands, backend, "graph_capture", dynamic=self.dynamic, fullgraph=self.fullgraph
        )
        recorded = recorded_islands(step, islands, canon, compiled_graphs)
        graphs = [compiled_graph.counted for compiled_graph in compiled_graphs]
        return Captured(graphs, why_none, islands=recorded, bypasses=bypass_search.find)
