"""The forward whose backward compiled autograd takes over: AOTAutograd's graphs, both halves.

The backward is noted when the joint graph is split. Compiled autograd copies it into its own graph,
node by node, instead of having it compiled; and changes it when it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from ... import torch_private
from ...convert.canonical_names import CanonicalNames
from ...convert.from_fx import Converted, Naming, convert
from ...graph.model import GraphKind
from ..islands.capture import Made
from ..islands.island_recorder import IslandRecorder
from ..step.named_tensors import NamedTensors
from ..torch_compile.frame import Frame


class ForwardRecorder:
    """A backend for torch.compile that records AOT graphs and runs the forwards as they are.

    Attributes:
        made: called with each forward or inference graph; gives what counts its runs.
        islands: records what runs eagerly beside the graphs.
    """

    def __init__(
        self,
        named: NamedTensors,
        canon: CanonicalNames,
        made: Callable[[Converted], Made],
        islands: IslandRecorder,
    ):
        self.islands = islands
        self.named = named
        self.canon = canon
        self.made = made
        self._backwards: dict[int, tuple[torch.fx.GraphModule, Converted]] = {}

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """Compile one graph of Dynamo."""
        frame = Frame(gm, example_inputs, self.named, self.canon)
        halves = _Halves(self, frame)
        compiler = torch_private.aot_autograd(
            fw_compiler=halves.compiler("forward"),
            bw_compiler=lambda gm, _: torch_private.boxed(gm.forward),
            inference_compiler=halves.compiler("inference"),
            partition_fn=halves.split,
        )
        with self.islands.aside():
            return frame.noting(compiler(gm, example_inputs))

    def backward(self, module: torch.fx.GraphModule) -> Converted:
        """The graph of an AOT backward; of one that was compiled before it is converted now."""
        known = self._backwards.get(id(module))
        if known is not None:
            return known[1]
        naming = Naming(modules=self.named.modules)
        converted = convert(
            module, name="backward", kind="backward", level="aot", canon=self.canon, naming=naming
        )
        return self.note(module, converted)

    def note(self, module: torch.fx.GraphModule, converted: Converted) -> Converted:
        """Keep what an AOT backward is."""
        self._backwards[id(module)] = (module, converted)
        return converted


class _Halves:
    """The two halves of what Dynamo compiled at once."""

    def __init__(self, recorder: ForwardRecorder, frame: Frame):
        self.recorder = recorder
        self.frame = frame
        self.backward: torch.fx.GraphModule | None = None

    def split(self, joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        halves = torch_private.get("default_partition")(joint, *args, **kwargs)
        self.backward = halves[1]
        return halves

    def compiler(self, kind: GraphKind) -> Callable[..., Any]:
        def compile(gm: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
            made = self.recorder.made(self.frame.lowered(gm, kind, "aot"))
            if self.backward is not None:
                converted = self.frame.lowered(self.backward, "backward", "aot")
                self.recorder.note(self.backward, converted)
            return made.recorded(torch_private.boxed(gm.forward), self.recorder.islands)

        return compile
