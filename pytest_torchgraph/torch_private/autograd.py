"""Autograd's nodes and storages, AOTAutograd, and the dispatcher's registry."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from .private_names import get, replaced


def accumulating_leaves(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaf tensors into which a backward from `roots` accumulates a gradient.

    A leaf is the `variable` of an AccumulateGrad node, or a root without `grad_fn`.
    """
    leaves = [root for root in roots if root.grad_fn is None and root.requires_grad]
    worklist: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    visited = set(worklist)
    while worklist:
        node = worklist.pop()
        if type(node).__name__ == "AccumulateGrad" and node.variable is not None:
            leaves.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in visited:
                visited.add(following)
                worklist.append(following)
    return leaves


def around_engine(
    context: Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], AbstractContextManager[None]],
) -> AbstractContextManager[None]:
    """Run each call of the autograd engine inside `context(roots, their gradients, inputs)`.

    Dynamo compiles nothing that the engine calls, such as hooks. `inputs` are the tensors that the
    backward is restricted to, empty if it is not.
    """
    original = get("engine_run_backward")

    def wrapped(roots: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = args[2] if len(args) > 2 else ()
        with context(tuple(roots), tuple(gradients), tuple(inputs)):
            return original(roots, gradients, *args, **kwargs)

    if "torch._dynamo" in sys.modules:  # the import takes a second
        wrapped = torch.compiler.disable(wrapped)  # type: ignore[no-untyped-call]
    return replaced("engine_run_backward", wrapped)


def saved_tensor_hooks() -> Callable[[], Any]:
    """Return the getter of the active saved tensor hooks: (pack, unpack)."""
    return functools.partial(get("saved_tensor_hooks"), True)


class StoragePins:
    """Weak references to storages, which keep their addresses from being reused.

    The memory of the storages can still be freed. torch's `StorageWeakRef` does the same for one
    storage, but creating and freeing it takes longer than the rest of the recording.

    Attributes:
        numbers: the number of each pinned storage, by address.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self._limit = 0  # number of pins at which those of gone storages are removed
        self._next = itertools.count()
        self._make: Callable[[torch.UntypedStorage], int] = get("storage_reference")
        self._free: Callable[[int], object] = get("free_storage_reference")
        self._is_gone: Callable[[int], bool] = get("storage_expired")

    def add(self, storage: torch.UntypedStorage) -> int:
        """Pin a storage, and return its number."""
        if len(self.numbers) >= self._limit:
            # The objects of storages that are gone lie between blocks of freed memory, which then
            # cannot be joined: a training step took twice as much memory.
            self._unpin(filter(self._is_gone, self.numbers))
            self._limit = len(self.numbers) * 5 // 4 + 16
        number = self.numbers[self._make(storage)] = next(self._next)
        return number

    def _unpin(self, addresses: Iterable[int]) -> None:
        """Forget storages, and free the references to them."""
        for address in [*addresses]:
            del self.numbers[address]
            self._free(address)

    def __del__(self) -> None:
        self._unpin(self.numbers)


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """Return a Dynamo backend that runs AOTAutograd.

    Args:
        compilers: keyword arguments of torch's `aot_autograd`: `fw_compiler`, `bw_compiler`,
            `partition_fn`, `decompositions` and others.
    """
    return get("aot_autograd")(**compilers)  # type: ignore[no-any-return]


def boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a callable to the boxed calling convention: its arguments are passed as one list."""
    return get("make_boxed_func")(call)  # type: ignore[no-any-return]


def outputs_of_forward() -> int | None:
    """Return the number of outputs of the forward being compiled, without saved activations.

    `None` if AOTAutograd is not compiling a forward.
    """
    metadata = getattr(get("tracing_context")(), "fw_metadata", None)
    count = getattr(metadata, "num_forward", None)
    # A graph also returns a token for each kind of effect.
    return None if count is None else int(count) + len(getattr(metadata, "tokens", ()))


def hint_of(size: int | torch.SymInt) -> int | None:
    """Return the value of a symbolic size at tracing; `None` if torch does not know it."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return hint if isinstance(hint, int) else None


@functools.cache
def marks_gradient_sums() -> bool:
    """Return True if AOTAutograd marks nodes that sum gradients, as torch 2.11 does."""
    # The module that reads the marks.
    return importlib.util.find_spec("torch._functorch._aot_autograd.streams") is not None


def registered_ops() -> list[str]:
    """Return the schema names of all registered ops, such as `aten::add.Tensor`."""
    return list(get("op_names")())


def is_composite(schema_name: str) -> bool:
    """Return True if an op is decomposed before dispatch (CompositeImplicitAutograd)."""
    return bool(get("has_kernel")(schema_name, "CompositeImplicitAutograd"))


def has_python_kernel(op: Any) -> bool:
    """Return True for an op with a kernel in Python that decomposes it, whoever traces it.

    `aten.upsample_nearest2d` is a kernel when it runs, and several ops when AOTAutograd traces it.
    """
    keys = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd
    return not op.py_kernels.keys().isdisjoint(keys)


def name_of_custom_op(op: Any) -> str:
    """Return the qualified name of a `torch.library.custom_op` result, "" for anything else."""
    return str(op._opoverload.overloadpacket) if isinstance(op, get("custom_op")) else ""


def is_triton_op(schema_name: str) -> bool:
    """Return True for a `torch.library.triton_op`, which torch.compile decomposes."""
    return schema_name in get("triton_ops")


def triton_kernel_name(index: Any) -> str | None:
    """Return the name of a Triton kernel by its index in torch's kernel table, or `None`."""
    return triton_function(get("triton_kernels").id_to_kernel.get(index))


def triton_kernels() -> set[str]:
    """Return the names of the Triton kernels in this process's graphs and loaded modules."""
    kernels = {triton_function(kernel) for kernel in get("triton_kernels").id_to_kernel.values()}
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if str(type(value).__module__).startswith("triton.runtime"):
                kernels.add(triton_function(value))
    return {name for name in kernels if name is not None}


def triton_function(kernel: Any) -> str | None:
    """Return the function name of a Triton kernel; `None` if it has none."""
    while kernel is not None and hasattr(kernel, "fn"):  # unwrap the autotuner, then the kernel
        kernel = kernel.fn
    name = getattr(kernel, "__name__", None)
    return None if name is None else str(name)


def triton_constants(index: Any) -> dict[str, Any]:
    """Return the constant arguments of a Triton kernel call, by its index in torch's table."""
    return dict(get("triton_kernels").constant_args.get(index, {}))
