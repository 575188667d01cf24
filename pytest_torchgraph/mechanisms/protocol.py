"""The protocol behind `via`: a mechanism runs one step and gives the graphs that it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch

from ..convert.canonical_names import CanonicalNames
from ..convert.from_fx import Converted
from ..graph.model import Graph
from ..graph.schedule import ScheduledCall
from ..ops.levels import Level
from ..syncs.detect import RecordedCalls
from ..watching.cache_lookups import CacheBypass
from ..watching.kernels import Kernel
from .islands.islands import Islands
from .step.step import Step

COMPILING = frozenset({"dynamo", "aot", "inductor", "compiled_autograd"})
"""The mechanisms that run torch.compile: what it did is known, and what ran eagerly beside it."""


@dataclass(frozen=True)
class Built:
    """Graphs that were worked out from what was recorded.

    Attributes:
        graphs: in the order in which they ran.
        calls: the recorded calls that may wait for a device; None where not each call was seen.
        constants: the tensors of constants, by the names of their nodes, if they were kept.
    """

    graphs: Sequence[Graph]
    calls: RecordedCalls | None = None
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Captured:
    """The answer of a mechanism: the graphs of one step, and what came with them.

    Attributes:
        graphs: in the order in which they were made, with their live modules; or, where there are
            none, as they were built from what was recorded, or how to build them, which happens
            when they are first read.
        why_none: where there are no graphs, the reason.
        joints: the joint graphs that forward and backward were split from.
        kernels: gives the kernels that were generated, `graph` being the position of their graph,
            or raises `UnreadableCodeError`; None where no code is generated.
        schedules: gives, for each graph by position, the collectives in the code that was generated
            for it; () where that is not readable. None where no code is generated.
        levels: the graphs of the same run at other levels that the mechanism knows.
        islands: gives what ran eagerly beside the graphs, which is worked out when it is first
            read; None where that was not recorded.
        bypasses: gives what keeps Dynamo's graphs out of torch.compile's caches; None if unknown.
        comparable: where the run drew other random numbers than an eager one does, the mechanism
            that draws the same.
        incomparable: the reason why an eager run tells nothing of this one, "" where it does.
    """

    graphs: Sequence[Converted] | Built | Callable[[], Built]
    why_none: str = ""
    joints: Sequence[Graph] = ()
    kernels: Callable[[], Sequence[Kernel]] | None = None
    schedules: Callable[[], Sequence[Sequence[ScheduledCall]]] | None = None
    levels: Mapping[Level, Sequence[Converted]] = field(default_factory=dict)
    islands: Callable[[], Islands] | None = None
    bypasses: Callable[[], tuple[CacheBypass, ...]] | None = None
    comparable: Mechanism | None = None
    incomparable: str = ""


@runtime_checkable
class Mechanism(Protocol):
    """A way to obtain graphs. Its options are the attributes of the (frozen) object."""

    name: ClassVar[str]
    level: ClassVar[Level]

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Run the step once and return the graphs that it gave.

        Args:
            step: what is to be run; its outcome is read from it afterwards.
            canon: the names of symbols and devices, which all graphs of the capture share.

        Raises:
            CaptureError: if this mechanism cannot capture the target.
        """
        ...
