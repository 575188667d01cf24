"""The protocol behind `via`: a mechanism runs one step and gives the graphs that it saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from ..graph.model import Graph, Level
from .kernels import Kernel
from .names import Canon
from .roots import Roots
from .step import Step


@dataclass
class Captured:
    """What a mechanism saw.

    Attributes:
        graphs: in the order in which they were made; or how to build them from what was recorded,
            which happens when they are first read.
        modules: the live `torch.fx.GraphModule` of a graph, by the graph's position.
        why_none: where there are no graphs, the reason.
        joints: the joint graphs that forward and backward were split from.
        kernels: the kernels that were generated, `graph` being the position of their graph; None
            where no code is generated.
        levels: the graphs of the same run at other levels that the mechanism knows.
    """

    graphs: list[Graph] | Callable[[], list[Graph]]
    modules: dict[int, Any] = field(default_factory=dict)
    why_none: str = ""
    joints: list[Graph] = field(default_factory=list)
    kernels: list[Kernel] | None = None
    levels: dict[Level, list[Graph]] = field(default_factory=dict)


@runtime_checkable
class Mechanism(Protocol):
    """A way to obtain graphs. Its options are the attributes of the (frozen) object."""

    name: ClassVar[str]
    level: ClassVar[Level]

    def capture(self, step: Step, target: Any, roots: Roots, canon: Canon) -> Captured:
        """Run the step once and return the graphs that it gave."""
        ...
