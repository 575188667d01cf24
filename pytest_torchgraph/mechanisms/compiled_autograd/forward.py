"""The forward whose backward compiled autograd takes over: AOTAutograd's graphs, both halves.

The backward is noted when the joint graph is split. Compiled autograd copies it into its own graph,
node by node, instead of having it compiled; and changes it when it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from ... import torch_private
from ...convert.canonical_names import Canon
from ...convert.from_fx import Converted, Naming, convert
from ...convert.placeholders import aot_inputs, dynamo_inputs
from ...graph.model import GraphKind
from ..step.named_tensors import Roots


class ForwardRecorder:
    """A backend for torch.compile that records AOT graphs and runs the forwards as they are.

    Attributes:
        made: called with each forward or inference graph.
    """

    def __init__(self, roots: Roots, canon: Canon, made: Callable[[Converted], None]):
        self.roots = roots
        self.canon = canon
        self.made = made
        self._backwards: dict[int, tuple[torch.fx.GraphModule, Converted]] = {}

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """Compile one graph of Dynamo."""
        frame = _Frame(self, gm, example_inputs)
        return torch_private.aot_autograd(  # type: ignore[no-any-return]
            fw_compiler=frame.compiler("forward"),
            bw_compiler=lambda gm, _: torch_private.boxed(gm.forward),
            inference_compiler=frame.compiler("inference"),
            partition_fn=frame.split,
        )(gm, example_inputs)

    def backward(self, module: torch.fx.GraphModule) -> Converted:
        """What was noted of an AOT backward; converted now for one that is not of this capture."""
        known = self._backwards.get(id(module))
        if known is None:
            self.note(module, Naming(modules=self.roots.modules))
            known = self._backwards[id(module)]
        return known[1]

    def note(self, module: torch.fx.GraphModule, naming: Naming) -> None:
        """Convert an AOT backward."""
        converted = convert(
            module, name="backward", kind="backward", level="aot", canon=self.canon, naming=naming
        )
        self._backwards[id(module)] = (module, converted)


class _Frame:
    """The two halves of what Dynamo compiled at once."""

    def __init__(
        self, recorder: ForwardRecorder, gm: torch.fx.GraphModule, example_inputs: list[Any]
    ):
        self.recorder = recorder
        self.inputs = dynamo_inputs(gm, example_inputs, recorder.roots.tensors)
        self.backward: torch.fx.GraphModule | None = None

    def naming(self, inputs: dict[str, tuple[str, str]]) -> Naming:
        roots = self.recorder.roots
        return Naming(inputs, roots.modules, ranks=roots.ranks(), dynamo=self.inputs)

    def split(self, joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        halves = torch_private.get("default_partition")(joint, *args, **kwargs)
        self.backward = halves[1]
        return halves

    def compiler(self, kind: GraphKind) -> Callable[..., Any]:
        def compile(gm: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
            recorder = self.recorder
            naming = self.naming(aot_inputs(gm, self.inputs, {}))
            converted = convert(
                gm, name=kind, kind=kind, level="aot", canon=recorder.canon, naming=naming
            )
            recorder.made(converted)
            if self.backward is not None:
                named = aot_inputs(self.backward, self.inputs, converted.names)
                recorder.note(self.backward, self.naming(named))
            return torch_private.boxed(gm.forward)

        return compile
