"""Autograd's nodes and storages, and AOTAutograd."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from .private_names import get


def accumulating_leaves(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaf tensors that a backward from `roots` accumulates a gradient into.

    Walks autograd's nodes (`grad_fn.next_functions`, since 1.0). A leaf is the `variable` of an
    AccumulateGrad node, or a root without `grad_fn`.
    """
    leaves = [root for root in roots if root.grad_fn is None and root.requires_grad]
    todo: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    visited = set(todo)
    while todo:
        node = todo.pop()
        if type(node).__name__ == "AccumulateGrad" and node.variable is not None:
            leaves.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in visited:
                visited.add(following)
                todo.append(following)
    return leaves


def sequence_number() -> Callable[[], int]:
    """The function that gives the sequence number of this thread's next autograd node."""
    return get("sequence_nr")  # type: ignore[no-any-return]


def current_autograd_node() -> Callable[[], Any]:
    """The function that gives the autograd node which is running its backward."""
    return get("current_node")  # type: ignore[no-any-return]


def saved_tensor_hooks() -> Callable[[], Any]:
    """The function that gives the hooks for saved tensors that are in force: (pack, unpack)."""
    return functools.partial(get("saved_tensor_hooks"), True)


class StoragePins:
    """Weak references to storages, which keep their addresses from being used again.

    The memory of a storage is freed all the same. `StorageWeakRef` is one such reference as an
    object, which takes longer to make and to free than all else that is noted of a storage.
    """

    def __init__(self) -> None:
        self._references: list[int] = []
        self._make: Callable[[torch.UntypedStorage], int] = get("storage_reference")
        self._free: Callable[[int], object] = get("free_storage_reference")

    def add(self, storage: torch.UntypedStorage) -> int:
        """Pin one more; gives its number."""
        self._references.append(self._make(storage))
        return len(self._references) - 1

    def __del__(self) -> None:
        for reference in self._references:
            self._free(reference)


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """A Dynamo backend that runs AOTAutograd.

    Args:
        compilers: the keywords of torch's `aot_autograd`: `fw_compiler`, `bw_compiler`,
            `partition_fn`, `decompositions` and others.
    """
    return get("aot_autograd")(**compilers)  # type: ignore[no-any-return]


def boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A callable in the boxed calling convention: it takes its arguments as one list."""
    return get("make_boxed_func")(call)  # type: ignore[no-any-return]


def outputs_of_forward() -> int | None:
    """How many outputs the forward has that AOTAutograd compiles now, before those that are saved.

    None where it compiles none.
    """
    metadata = getattr(get("tracing_context")(), "fw_metadata", None)
    count = getattr(metadata, "num_forward", None)
    return None if count is None else int(count) + len(getattr(metadata, "tokens", ()))


def hint_of(size: int | torch.SymInt) -> int | None:
    """The number that a symbolic size had when it was traced; None where torch knows none."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return hint if isinstance(hint, int) else None


@functools.cache
def marks_gradient_sums() -> bool:
    """Whether AOTAutograd marks the nodes that sum gradients (torch 2.11 does, 2.9 does not)."""
    return importlib.util.find_spec("torch._functorch._aot_autograd.streams") is not None
