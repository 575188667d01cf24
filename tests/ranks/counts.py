"""Counts of a rank's collectives by kind, from a capture and from `CommDebugMode`."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ranks.parallel_models import Build
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_torchgraph import Capture
from pytest_torchgraph.ops import collective_kinds
from pytest_torchgraph.ranks.fake_group import fake_rank

Counts = tuple[Counter[str], Counter[str]]
"""The counts of the forward and of the backward."""


class Collectives(TorchDispatchMode):
    """Counts communicating ops by name, using only the dispatcher.

    `CommDebugMode` does the same and also sets hooks in modules.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def get_comm_counts(self) -> Counter[str]:
        """Return the counts as `CommDebugMode` does, with names in place of packets."""
        return self.counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(tensor_type, DTensor) for tensor_type in types):
            return NotImplemented
        name = str(func.overloadpacket)
        if func.namespace in ("_c10d_functional", "c10d") and not re.search("wait|wrap", name):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def by_torch(
    build: Build,
    rank: int,
    mesh: Mapping[str, int],
    loss_fn: Callable[[Any], Tensor] | None = None,
    counting: type[CommDebugMode] | type[Collectives] = CommDebugMode,
) -> Counts:
    """Count in an eager run. The backward starts at `loss_fn`, or at the sum of the outputs."""
    with fake_rank(rank, mesh, "cpu") as device_mesh, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CommDebugMode's hooks create views and fire early
        target, args, *rest = build(device_mesh)
        with counting() as forward:
            output = target(*args, **(rest[0] if rest else {}))
            loss = loss_fn(output) if loss_fn else output.sum()
        with counting() as backward:
            if loss.requires_grad:
                loss.backward()
        return kinds_of(forward.get_comm_counts()), kinds_of(backward.get_comm_counts())


def by_us(captured: Capture) -> Counts:
    """Count the collectives of a capture, compiled or not."""
    backward = {graph.name for graph in captured.program if graph.kind == "backward"}
    return (
        Counter(
            collective.kind
            for collective in captured.collectives
            if collective.graph not in backward
        ),
        Counter(
            collective.kind for collective in captured.collectives if collective.graph in backward
        ),
    )


def kinds_of(counts: Mapping[Any, int]) -> Counter[str]:
    """Return the kinds that `CommDebugMode` counted. It counts the ops of both APIs by packet."""
    kinds: Counter[str] = Counter()
    for packet, count in counts.items():
        (kind,) = collective_kinds(f"{str(packet).replace('::', '.')}.default", ())
        kinds[kind] += count
    return kinds
