"""Capture through torch.compile as far as Dynamo: what it hands to a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.fx

from ...convert.canonical_names import CanonicalNames
from ...convert.graph_modules import runnable
from ...graph.model import GraphKind
from ...ops.levels import Level
from ..islands.capture import Made
from ..protocol import Captured
from ..step.step import Step
from .frame import Frame
from .run import run_compiled, switched_off


@dataclass(frozen=True)
class Dynamo:
    """torch.compile up to the backend: one graph for each frame, or part of one, that it compiles.

    The backward runs, eagerly, and is in no graph; nor is what runs between two graphs. A target is
    refused in which a frame that Dynamo skipped computes something.

    Args:
        dynamic: as in `torch.compile`: None makes a size symbolic once it has changed.
        fullgraph: as in `torch.compile`: True raises at a graph break instead of splitting.
    """

    dynamic: bool | None = None
    fullgraph: bool = False

    name: ClassVar[str] = "dynamo"
    level: ClassVar[Level] = "dynamo"

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Compile the target with a backend that records and runs the graphs as they are."""
        off = switched_off()
        if off:
            return Captured([], why_none=off)
        made: list[Made] = []

        def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            frame = Frame(gm, example_inputs, step.invocation.named, canon)
            made.append(Made(frame.dynamo(gm, _kind(example_inputs))))
            return frame.noting(made[-1].counting(runnable(gm).forward))

        why_none = run_compiled(
            step, backend, "graph_capture", dynamic=self.dynamic, fullgraph=self.fullgraph
        )
        return Captured([each.counted for each in made], why_none)


def _kind(example_inputs: list[Any]) -> GraphKind:
    """`forward` where an input requires grad, else `inference`."""
    needs_grad = any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
    )
    return "forward" if needs_grad and torch.is_grad_enabled() else "inference"
