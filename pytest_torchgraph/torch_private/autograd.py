"""Autograd's nodes and storages, and AOTAutograd."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from .names import get


def accumulating_leaves(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward from `roots` accumulates a gradient into.

    Walks autograd's nodes (`grad_fn.next_functions`, since 1.0); AccumulateGrad has `variable`.
    """
    found: list[torch.Tensor] = []
    todo: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    found += [root for root in roots if root.grad_fn is None and root.requires_grad]
    seen = set(todo)
    while todo:
        node = todo.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and type(node).__name__ == "AccumulateGrad":
            found.append(variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return found


def sequence_number() -> Callable[[], int]:
    """The function that gives the number of this thread's next autograd node."""
    return get("sequence")  # type: ignore[no-any-return]


def current_autograd_node() -> Callable[[], Any]:
    """The function that gives the autograd node which is running its backward."""
    return get("node")  # type: ignore[no-any-return]


def storage_ref() -> type[Any]:
    """`StorageWeakRef`: pins the identity of a storage, not its memory."""
    return get("storage")  # type: ignore[no-any-return]


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """A Dynamo backend that runs AOTAutograd with these compilers."""
    return get("aot")(**compilers)  # type: ignore[no-any-return]


def boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A callable in the boxed calling convention."""
    return get("boxed")(call)  # type: ignore[no-any-return]


@functools.cache
def marks_gradient_sums() -> bool:
    """Whether AOTAutograd marks the nodes that add up gradients (2.11 does, 2.9 does not)."""
    return importlib.util.find_spec("torch._functorch._aot_autograd.streams") is not None
