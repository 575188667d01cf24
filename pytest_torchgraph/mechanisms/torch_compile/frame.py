"""The graphs of one frame that Dynamo compiled, which share the names of its inputs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from ...convert.canonical_names import CanonicalNames
from ...convert.from_fx import Converted, Naming, convert
from ...convert.placeholders import aot_inputs, dynamo_inputs
from ...convert.rng_states import names_in_backward
from ...graph.model import GraphKind
from ...ops.levels import Level
from ..step.named_tensors import NamedTensors


class Frame:
    """One call of the backend: Dynamo's graph of a frame, and those that are lowered from it.

    To be made inside the backend: what the names are made from is erased afterwards.

    Attributes:
        inputs: (role, name) of each input of Dynamo's graph.
    """

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: list[Any],
        named: NamedTensors,
        canon: CanonicalNames,
    ):
        self.inputs = dynamo_inputs(gm, example_inputs, named.tensors, named.numbers)
        self._placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        self._named = named
        self._canon = canon
        self._forward: Converted | None = None
        self._returned: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def noting(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled frame as a callable of which the outputs are noted; see `position_of`."""

        @functools.wraps(compiled)
        def run(*args: Any, **kwargs: Any) -> Any:
            outputs = compiled(*args, **kwargs)
            for position, value in enumerate(outputs if isinstance(outputs, tuple | list) else ()):
                if isinstance(value, torch.Tensor):
                    self._returned[id(value)] = weakref.ref(value), position
            return outputs

        return run

    def position_of(self, tensor: torch.Tensor) -> int | None:
        """The position of a tensor among what Dynamo's graph returned; None if it is not of it."""
        known = self._returned.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def dynamo(self, gm: torch.fx.GraphModule, kind: GraphKind) -> Converted:
        """Dynamo's own graph."""
        inputs = dict(zip(self._placeholders, self.inputs, strict=False))
        naming = Naming(inputs, self._named.modules, ranks=self._named.ranks())
        found = convert(gm, name=kind, kind=kind, level="dynamo", canon=self._canon, naming=naming)
        return replace(found, position_of=self.position_of)

    def lowered(self, gm: torch.fx.GraphModule, kind: GraphKind, level: Level) -> Converted:
        """A graph of AOTAutograd or of a stage behind it.

        A backward calls what it is given by the names that the nodes of its forward have, which
        is to come first.
        """
        forward = self._forward if kind == "backward" else None
        naming = Naming(
            aot_inputs(
                gm,
                self.inputs,
                forward.names if forward else {},
                names_in_backward(forward.fx, gm.graph) if forward else {},
            ),
            self._named.modules,
            ranks=self._named.ranks(),
            dynamo=self.inputs,
            forward=forward,
        )
        found = convert(gm, name=kind, kind=kind, level=level, canon=self._canon, naming=naming)
        if kind in ("forward", "inference"):
            found = self._forward = replace(found, position_of=self.position_of)
        return found
