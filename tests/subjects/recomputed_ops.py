"""An independent count of the ops that an eager backward runs again; models with checkpoints.

The count knows no graph: it counts what the dispatcher sees while a backward calls the forward of a
module again.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from pytest_torchgraph.ops import shared_argument

aten = torch.ops.aten
KEPT = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
]


class OpsRunAgain(TorchDispatchMode):
    """Counts the ops that run in a backward while a watched module's forward is called.

    Views, and values that depend on constants alone, are left out, as in `Capture.recomputed`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.depth = 0
        self.in_backward = False
        self._constants: dict[int, Tensor] = {}

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """Count what the forwards of these modules run in a backward."""
        for module in modules:
            module.forward = self.watched(module.forward)

    def watched(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, such that what it runs in a backward is counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            try:  # a checkpoint stops its last recomputation early, by an exception
                return forward(*args, **kwargs)
            finally:
                self.depth -= 1

        return call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        random = torch.Tag.nondeterministic_seeded in func.tags
        if not random and all(id(x) in self._constants for x in tensors):
            # Kept alive, so that no other tensor gets the same id.
            self._constants |= {id(x): x for x in tree_leaves(result) if isinstance(x, Tensor)}
        elif self.in_backward and self.depth and not _is_view(str(func)):
            self.counts[str(func)] += 1
        return result


def _is_view(name: str) -> bool:
    return shared_argument(name) is not None and not name.rpartition(".")[0].endswith("_")


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The modules that people checkpoint: those of the outermost lists, or else the children."""
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            if isinstance(child, nn.ModuleList | nn.Sequential):
                found.extend(child.children())
            else:
                visit(child)

    visit(model)
    found = found or [*model.children()]
    return [block for block in found if any(True for _ in block.parameters())]


def checkpoint_blocks(blocks: Iterable[nn.Module], how: str) -> None:
    """Have each of these modules run under a checkpoint that does not re-enter autograd.

    Args:
        blocks: the modules.
        how: "none", "every block", or "selective", which keeps what products, convolutions and
            attention return.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if how == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, KEPT)
    for block in blocks if how != "none" else ():
        block.forward = functools.partial(checkpoint, block.forward, **options)  # type: ignore[method-assign]
