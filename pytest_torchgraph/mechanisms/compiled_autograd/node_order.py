"""Which module each step of a backward belongs to, where the forward ran eagerly.

Compiled autograd says of its ops only which step of the backward they are: `(NodeCall 7)`. The
steps are a walk over the autograd graph in an order of its own, which is replayed here; and an
autograd node has a sequence number, which says between which module calls it was made.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ... import torch_private
from ..recording.mode import LEAF
from ..step.named_tensors import NamedTensors


class ModuleCalls:
    """Notes during a forward which modules run at which sequence numbers of autograd."""

    def __init__(self, named: NamedTensors):
        self.named = named
        self.numbers: list[int] = []
        self.paths: list[str] = []
        self._stack: list[str] = []
        self._sequence = torch_private.sequence_number()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note the module calls that are made inside."""
        module = torch.nn.modules.module
        before = module.register_module_forward_pre_hook(self._enter)
        after = module.register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        self._stack.append(self.named.modules.get(id(module), type(module).__name__))
        self._note()

    def _leave(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()
        self._note()

    def _note(self) -> None:
        self.numbers.append(self._sequence())
        self.paths.append(self._stack[-1] if self._stack else "")

    def path_of(self, node: Any) -> str:
        """Path of the module that made an autograd node, "" where that is not known."""
        number = node._sequence_nr()
        at = bisect_right(self.numbers, number) - 1
        return self.paths[at] if at >= 0 and number < LEAF else ""


def steps(roots: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The autograd nodes of a backward in the order in which compiled autograd takes them.

    A worklist, last in, first out; a node is put on it when its last consumer was taken. (The
    engine itself orders by sequence number.) The first step is the root, which is no node: None.

    Args:
        roots: the tensors, or gradient edges, that the backward starts from.
        inputs: what it is confined to; then the order is another one, and nothing is returned.
    """
    if inputs:
        return []
    start = [_node_of(root) for root in roots]
    consumers = _consumers(start)
    order: list[Any] = [None]
    todo: list[Any] = []

    def arrive(nodes: Sequence[Any]) -> None:
        for node in nodes:
            if node is not None:
                consumers[node] -= 1
                if not consumers[node]:
                    todo.append(node)

    arrive(start)
    while todo:
        node = todo.pop()
        order.append(node)
        arrive([following for following, _ in node.next_functions])
    return order


def _node_of(root: Any) -> Any:
    if not isinstance(root, torch.Tensor):
        return root.node
    return (
        root.grad_fn
        if root.grad_fn is not None
        else torch.autograd.graph.get_gradient_edge(root).node
    )


def _consumers(start: Sequence[Any]) -> Counter[Any]:
    """How many edges of the backward lead to each node."""
    count: Counter[Any] = Counter(node for node in start if node is not None)
    todo = list(count)
    while todo:
        for node, _ in todo.pop().next_functions:
            if node is not None:
                if node not in count:
                    todo.append(node)
                count[node] += 1
    return count
