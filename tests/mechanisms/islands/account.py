"""Everything that one step dispatches, by torch's own means: nothing of the package is used."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.utils._pytree as pytree
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

_TORCH = torch.__path__[0]
_AOT = f"{_TORCH}/_functorch/_aot_autograd/"


def _boxed(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    return make_boxed_func(graph.forward)  # type: ignore[no-any-return]


class Everything(TorchDispatchMode):
    """Counts each op that is dispatched: in a graph, by AOTAutograd itself, or eagerly.

    An op is in a graph if code that torch.fx generated is the first in the stack that is neither
    torch's nor this mode's; it is AOTAutograd's own if that is met before any code of the user's.
    How AccumulateGrad takes a gradient, a `detach`, is not counted.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.compiled: Counter[str] = Counter()
        self.eager: Counter[str] = Counter()
        self.by_aot: Counter[str] = Counter()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        node = torch._C._current_autograd_node()
        taken = type(node).__name__ == "AccumulateGrad" and "detach" in str(func)
        if not taken:
            self._counter()[str(func)] += 1
        return func(*args, **(kwargs or {}))

    def _counter(self) -> Counter[str]:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith("<eval_with_key>"):
                return self.compiled
            # On a first run AOTAutograd runs its graph under a dispatch mode of its own.
            if file.startswith(_AOT) and frame.f_code.co_name != "__torch_dispatch__":
                return self.by_aot
            if not file.startswith(("<", f"{_TORCH}/")):
                return self.eager
            frame = frame.f_back
        return self.eager


def everything(target: Callable[..., Any], args: tuple[Any, ...]) -> Everything:
    """Count what one step dispatches, forward and backward, the target compiled up to AOTAutograd.

    State is put back by the caller.
    """
    mode = Everything()
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=_boxed, bw_compiler=_boxed, inference_compiler=_boxed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo looks at .grad of tensors that are no leaves
        _run(mode, torch.compile(target, backend=backend), args)
    return mode


def _run(mode: Everything, compiled: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        with mode:
            output = compiled(*args)
        leaves = [each for each in pytree.tree_leaves(output) if isinstance(each, Tensor)]
        if isinstance(output, dict) and "loss" in output:
            leaves = [output["loss"]]
        roots = list({id(each): each for each in leaves if each.requires_grad}.values())
        if roots and torch.is_grad_enabled():
            gradients = [torch.ones_like(root) for root in roots]
            with mode:
                torch.autograd.backward(roots, gradients)
    finally:
        torch._dynamo.reset()
