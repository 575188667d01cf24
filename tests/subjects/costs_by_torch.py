"""What a step of a subject costs, found by torch's own means: nothing of the package is used.

FLOPs by `FlopCounterMode`, what is saved for backward by `saved_tensors_hooks`, the peak by
counting the storages that are alive. Parameters, buffers and inputs are left out everywhere.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from subjects.counting import backward, forward, fresh, start
from subjects.models import Subject
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop, sdpa_flop

aten = torch.ops.aten
for _formula in (sdpa_flop, sdpa_backward_flop):
    assert hasattr(_formula, "__wrapped__")  # it takes tensors, and would be made to once more
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop.__wrapped__,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop.__wrapped__,
}
"""torch's formulas for attention, for the ops of the CPU, to which torch gives none."""


@dataclass
class Storage:
    """A storage that an op made.

    Attributes:
        op: the op.
        nbytes: its size.
        in_backward: whether that was in the backward.
        saved: whether autograd kept it for the backward.
        read: whether an op of the backward took it.
    """

    op: str
    nbytes: int
    in_backward: bool
    saved: bool = False
    read: bool = False


def flops(subject: Subject, custom: dict[Any, Any] | None = None) -> tuple[int, int]:
    """Those of forward and backward, in an eager run."""
    with FlopCounterMode(display=False, custom_mapping=custom) as forwards:
        output = forward(subject)
    with FlopCounterMode(display=False, custom_mapping=custom) as backwards:
        backward(output)
    return forwards.get_total_flops(), backwards.get_total_flops()


class Storages(TorchDispatchMode):
    """The storages that ops make while it is on, but for those of `own`.

    Args:
        own: the addresses of the storages that were there before.
    """

    def __init__(self, own: set[int]) -> None:
        super().__init__()
        self.own = own
        self.found: list[Storage] = []
        self.alive: dict[int, Storage] = {}
        self.now = self.peak = 0
        self.in_backward = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this Dynamo compiles nothing that runs under the mode."""
        return True

    def at(self, tensor: Tensor) -> Storage | None:
        return self.alive.get(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = self.in_backward and func is not aten.detach.default  # unpacking detaches
        for leaf in pytree.tree_leaves((args, kwargs)) if reads else ():
            if isinstance(leaf, Tensor) and (storage := self.at(leaf)):
                storage.read = True
        out = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.note(leaf.untyped_storage(), str(func))
        return out

    def note(self, storage: torch.UntypedStorage, op: str) -> None:
        key = storage._cdata
        if key in self.own or key in self.alive:
            return
        made = self.alive[key] = Storage(op, storage.nbytes(), self.in_backward)
        self.found.append(made)
        self.now += made.nbytes
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.free, key)

    def free(self, key: int) -> None:
        self.now -= self.alive.pop(key).nbytes

    def pack(self, tensor: Tensor) -> Tensor:
        if storage := self.at(tensor):
            storage.saved = True
        return tensor


def kept(subject: Subject, call: Callable[..., Any] | None = None) -> list[Storage]:
    """The storages that autograd keeps for the backward of a step.

    Under selective checkpointing what its modes keep is not among them.
    """
    return [each for each in storages(subject, call) if each.saved]


def storages(subject: Subject, call: Callable[..., Any] | None = None) -> list[Storage]:
    """All storages that ops of a step make."""
    with _storages(subject) as seen:
        with torch.autograd.graph.saved_tensors_hooks(seen.pack, lambda tensor: tensor):
            output = forward(subject, call)
        seen.in_backward = True
        backward(output)
    return seen.found


def peak(subject: Subject, call: Callable[..., Any] | None = None) -> int:
    """The most bytes of storages that ops of a step made and that lived at one time.

    Without the hooks, under which an op that keeps its result keeps it for ever. The gradients with
    which the backward starts are the caller's.
    """
    with _storages(subject) as seen:
        output = forward(subject, call)
    roots, gradients = start(output)
    seen.own |= {each.untyped_storage()._cdata for each in gradients}
    with seen:
        if roots:
            torch.autograd.backward(roots, gradients)
    return seen.peak


def _storages(subject: Subject) -> Storages:
    leaves = pytree.tree_leaves((subject.args, subject.kwargs))
    given = [*subject.model.parameters(), *subject.model.buffers(), *leaves]
    return Storages({x.untyped_storage()._cdata for x in given if isinstance(x, Tensor)})


@contextlib.contextmanager
def compiled(subject: Subject) -> Iterator[Callable[..., Any]]:
    """The subject compiled up to AOTAutograd; its graphs run op by op."""
    from functorch.compile import default_partition
    from torch._dynamo.backends.debugging import boxed_nop

    with fresh():
        backend = aot_autograd(fw_compiler=boxed_nop, partition_fn=default_partition)
        yield torch.compile(subject.model, backend=backend)


def after_a_run(measure: Callable[..., Any], make: Callable[[], Subject]) -> Any:
    """What a measurement says of the second compiled step: the first one compiles."""
    subject = make()
    with compiled(subject) as call:
        measure(subject, call)
        subject.model.zero_grad()
        return measure(subject, call)
