"""Independent counts of the ops that a backward recomputes, and models with checkpoints.

`OpsRunAgain` uses no graph: it counts the ops that the dispatcher sees while an eager backward
calls the forward of a module again. `NodesCopied` numbers the nodes of AOTAutograd's joint graph
and counts the numbers that the partitioner puts into both the forward and the backward.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from functorch.compile import (
    default_partition,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
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

    Views, and values that depend only on constants, are left out, as in `Capture.recomputed`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.depth = 0
        self.in_backward = False
        self._constants: dict[int, Tensor] = {}

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """Count the ops that the forwards of these modules run in a backward."""
        for module in modules:
            module.forward = self.watched(module.forward)

    def watched(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function, so that the ops that it runs in a backward are counted."""

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
    """Return the modules that users checkpoint: those of the outermost lists, or the children."""
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


_NUMBER = "number in the joint graph"
_AGAIN = "runs again"
_RESTORING = ("run_with_rng_state", "graphsafe_run_with_rng_state")


class NodesCopied:
    """Counts the nodes that the partitioner copies from a joint graph into both of its parts.

    Nodes are identified by a number in their `meta`, which every copy keeps. Views are recognised
    by the storage of their results when the backward runs.

    Args:
        partition: "default" or "min_cut".

    Attributes:
        counts: number of copies of each op, in every backward that ran.
        ran: number of compiled backwards that ran.
    """

    def __init__(self, partition: str) -> None:
        cut = partition == "min_cut"
        self._cut = min_cut_rematerialization_partition if cut else default_partition
        self.counts: Counter[str] = Counter()
        self.ran = 0

    def compiled(self, model: nn.Module) -> Callable[..., Any]:
        """Return the model, compiled by this partitioner."""
        backend = aot_autograd(
            fw_compiler=lambda gm, _: make_boxed_func(gm.forward),
            bw_compiler=lambda gm, _: make_boxed_func(_CountsOnce(gm, self).run),
            partition_fn=self._split,
        )
        return torch.compile(model, backend=backend)  # type: ignore[no-any-return]

    def _split(self, joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        constants: set[int] = set()
        for number, node in enumerate(joint.graph.nodes):
            node.meta[_NUMBER] = number
            operands = [used.meta[_NUMBER] for used in node.all_input_nodes]
            if node.op != "placeholder" and not _is_random(node) and constants.issuperset(operands):
                constants.add(number)
        forward, backward = self._cut(joint, *args, **kwargs)
        kept = {node.meta.get(_NUMBER) for node in forward.graph.nodes} - constants - {None}
        for node in backward.graph.nodes:
            if node.op == "call_function":
                # The partitioner creates this op for a copied random op, under a new number.
                restores = str(node.target) in _RESTORING
                node.meta[_AGAIN] = restores or node.meta.get(_NUMBER) in kept
        return forward, backward


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


class _CountsOnce(fx.Interpreter):
    """Counts the marked nodes of a graph in its first run."""

    def __init__(self, gm: fx.GraphModule, count: NodesCopied) -> None:
        super().__init__(gm)
        self.count: NodesCopied | None = count

    def run(self, *args: Any) -> Any:  # type: ignore[override]
        result = super().run(*args)
        if self.count is not None:
            self.count.ran += 1
        self.count = None
        return result

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if self.count is not None and n.meta.get(_AGAIN) and "getitem" not in str(n.target):
            args, _ = self.fetch_args_kwargs_from_env(n)
            if not _storages(result) or not _storages(result) <= _storages(args):
                called = n.args[1] if str(n.target) in _RESTORING else n.target
                self.count.counts[str(called)] += 1
        return result


def _storages(values: Any) -> set[int]:
    tensors = [x for x in tree_leaves(values) if isinstance(x, Tensor)]
    return {x.untyped_storage()._cdata for x in tensors}
