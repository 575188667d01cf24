"""The protocol behind `via`: a mechanism runs one step and gives the graphs that it saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from ..convert.canonical_names import Canon
from ..convert.from_fx import Converted
from ..graph.model import Graph
from ..ops.levels import Level
from ..syncs.found import Seen
from ..watching.kernels import Kernel
from .step.named_tensors import Roots
from .step.step import Step


@dataclass
class Captured:
    """What a mechanism saw.

    Attributes:
        graphs: in the order in which they were made; or how to build them from what was recorded,
            which happens when they are first read.
        modules: what a graph was converted from, by the graph's position.
        why_none: where there are no graphs, the reason.
        joints: the joint graphs that forward and backward were split from.
        kernels: the kernels that were generated, `graph` being the position of their graph; None
            where no code is generated.
        levels: the graphs of the same run at other levels that the mechanism knows.
        comparable: where the run drew other random numbers than an eager one does, the mechanism
            that draws the same.
        seen: the calls that ran, where the mechanism sees each; filled when the graphs are built.
    """

    graphs: list[Graph] | Callable[[], list[Graph]]
    modules: dict[int, Converted] = field(default_factory=dict)
    why_none: str = ""
    joints: list[Graph] = field(default_factory=list)
    kernels: list[Kernel] | None = None
    levels: dict[Level, list[Graph]] = field(default_factory=dict)
    comparable: Mechanism | None = None
    seen: Seen | None = None


@runtime_checkable
class Mechanism(Protocol):
    """A way to obtain graphs. Its options are the attributes of the (frozen) object."""

    name: ClassVar[str]
    level: ClassVar[Level]

    def capture(self, step: Step, target: Any, roots: Roots, canon: Canon) -> Captured:
        """Run the step once and return the graphs that it gave."""
        ...
