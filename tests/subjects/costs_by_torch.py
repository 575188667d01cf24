"""The costs of a subject's step, measured with torch only.

FLOPs by `FlopCounterMode`, saved activations by `saved_tensors_hooks`, and the peak by the
storages that are alive. Parameters, buffers and inputs are always left out.
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
    assert hasattr(_formula, "__wrapped__")  # already takes tensors, and must not be wrapped twice
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop.__wrapped__,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop.__wrapped__,
}
"""torch's formulas for attention, applied to the CPU ops, for which torch has none."""


@dataclass
class Storage:
    """A storage created by an op.

    Attributes:
        op: the op.
        nbytes: its size.
        in_backward: True if the op ran in the backward.
        saved: True if autograd saved it for the backward.
        read: True if an op of the backward read it.
    """

    op: str
    nbytes: int
    in_backward: bool
    saved: bool = False
    read: bool = False


def flops(subject: Subject, custom: dict[Any, Any] | None = None) -> tuple[int, int]:
    """Return the FLOPs of forward and backward in an eager run."""
    with FlopCounterMode(display=False, custom_mapping=custom) as forwards:
        output = forward(subject)
    with FlopCounterMode(display=False, custom_mapping=custom) as backwards:
        backward(output)
    return forwards.get_total_flops(), backwards.get_total_flops()


class Storages(TorchDispatchMode):
    """Records the storages that ops create under the mode, except those of `own`.

    Args:
        own: the addresses of earlier storages.
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
        """Return True, because Dynamo otherwise compiles nothing under the mode."""
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
    """Return the storages that autograd saves for the backward of a step.

    Storages saved by the modes of selective checkpointing are not included.
    """
    return [each for each in storages(subject, call) if each.saved]


def storages(subject: Subject, call: Callable[..., Any] | None = None) -> list[Storage]:
    """Return all storages that ops of a step create."""
    with _storages(subject) as seen:
        with torch.autograd.graph.saved_tensors_hooks(seen.pack, lambda tensor: tensor):
            output = forward(subject, call)
        seen.in_backward = True
        backward(output)
    return seen.found


def peak(subject: Subject, call: Callable[..., Any] | None = None) -> int:
    """Return the maximum of bytes in storages of the step that were alive at the same time.

    The hooks are off, because under them an op that saves its result keeps it forever. The caller
    owns the gradients with which the backward starts.
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
    """Compile the subject up to AOTAutograd. Its graphs run op by op."""
    from functorch.compile import default_partition
    from torch._dynamo.backends.debugging import boxed_nop

    with fresh():
        backend = aot_autograd(fw_compiler=boxed_nop, partition_fn=default_partition)
        yield torch.compile(subject.model, backend=backend)


def after_a_run(measure: Callable[..., Any], make: Callable[[], Subject]) -> Any:
    """Measure the second compiled step. The first one compiles."""
    subject = make()
    with compiled(subject) as call:
        measure(subject, call)
        subject.model.zero_grad()
        return measure(subject, call)
