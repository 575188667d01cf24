"""Capture through torch.compile as far as Dynamo: what it hands to a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.fx

from ...convert.canonical_names import Canon
from ...convert.from_fx import Converted, Naming, convert
from ...convert.graph_modules import runnable
from ...convert.placeholders import dynamo_inputs
from ...graph.model import Graph, GraphKind
from ...ops.levels import Level
from ..protocol import Captured
from ..step.named_tensors import Roots
from ..step.step import Step
from .run import run_compiled, switched_off


@dataclass(frozen=True)
class Dynamo:
    """torch.compile up to the backend: one graph for each frame, or part of one, that it compiles.

    The backward runs, eagerly, and is in no graph.

    Args:
        dynamic: as in `torch.compile`: None makes a size symbolic once it has changed.
        fullgraph: as in `torch.compile`: True raises at a graph break instead of splitting.
    """

    dynamic: bool | None = None
    fullgraph: bool = False

    name: ClassVar[str] = "dynamo"
    level: ClassVar[Level] = "dynamo"

    def capture(self, step: Step, target: Any, roots: Roots, canon: Canon) -> Captured:
        """Compile the target with a backend that records and runs the graphs as they are."""
        off = switched_off()
        if off:
            return Captured([], why_none=off)
        graphs: list[Graph] = []
        modules: dict[int, Converted] = {}

        def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            named = dynamo_inputs(gm, example_inputs, roots.tensors)
            inputs = dict(zip(placeholders, named, strict=False))
            naming = Naming(inputs, roots.modules, ranks=roots.ranks())
            kind = _kind(example_inputs)
            found = convert(gm, name=kind, kind=kind, level="dynamo", canon=canon, naming=naming)
            modules[len(graphs)] = found
            graphs.append(found.graph)
            return runnable(gm).forward

        why_none = run_compiled(
            step, target, backend, dynamic=self.dynamic, fullgraph=self.fullgraph
        )
        return Captured(graphs, modules, why_none)


def _kind(example_inputs: list[Any]) -> GraphKind:
    """Whether a graph runs for a backward, or for its results alone."""
    needs_grad = any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
    )
    return "forward" if needs_grad and torch.is_grad_enabled() else "inference"
