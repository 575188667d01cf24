"""Everything that one step dispatches, by torch's own means, and what a capture has else.

The account itself uses nothing of the package.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from pytest_torchgraph import Capture, Graph

_TORCH = torch.__path__[0]
_TAKES = re.compile(r"detach|clone|copy_|empty_strided")
_AOT = f"{_TORCH}/_functorch/_aot_autograd/"


def _boxed(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
    return make_boxed_func(graph.forward)  # type: ignore[no-any-return]


class Everything(TorchDispatchMode):
    """Counts each op that is dispatched: in a graph, by AOTAutograd itself, or eagerly.

    An op is in a graph if code that torch.fx generated is the first in the stack that is neither
    torch's nor this mode's; it is AOTAutograd's own if that is met before any code of the user's.
    How AccumulateGrad takes a gradient, a `detach` or a copy, is not counted.
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
        taken = type(node).__name__ == "AccumulateGrad" and _TAKES.search(str(func))
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


def everything(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Everything:
    """Count what one step dispatches, forward and backward, the target compiled up to AOTAutograd.

    State is put back by the caller.
    """
    mode = Everything()
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=_boxed, bw_compiler=_boxed, inference_compiler=_boxed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo looks at .grad of tensors that are no leaves
        _run(mode, torch.compile(target, backend=backend), args, kwargs or {})
    return mode


def unlike(captured: Capture, account: Everything) -> list[str]:
    """Where a capture is not the account: in what was compiled, and in what ran eagerly."""
    pairs = (
        # On a first run AOTAutograd detaches the inputs of custom ops inside of the graph.
        ("compiled", _no_detach(ops_of(captured.graphs)), _no_detach(account.compiled)),
        ("eager", ops_of(captured.eager), account.eager),
        ("eager_ops", Counter(each.op for each in captured.eager_ops), account.eager),
    )
    return [
        f"{what}: too many {dict(own - torchs)}, too few {dict(torchs - own)}"
        for what, own, torchs in pairs
        if own != torchs
    ]


def ops_of(graphs: Iterable[Graph]) -> Counter[str]:
    """How often each op ran in some graphs."""
    found: Counter[str] = Counter()
    for graph in graphs:
        for op, count in graph.op_counts.items():
            found[op] += count * graph.runs
    return found


def _no_detach(ops: Counter[str]) -> Counter[str]:
    return Counter({op: count for op, count in ops.items() if "detach" not in op})


def _run(
    mode: Everything,
    compiled: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    try:
        with mode:
            output = compiled(*args, **kwargs)
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
