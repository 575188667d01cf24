"""The independent account: what is dispatched when a case runs, counted without the package.

A dispatch mode of this module's own counts every op that reaches it, forward and backward, and
nothing else is asked. Its rules:

1. A composite op that inference mode passes on whole is taken apart, as it is in every other mode.
2. An op runs inside a compiled graph between the entry and the exit of the function that this
   module's own backend made of the graph; its phase is that of the graph.
3. An op outside of graphs is AOTAutograd's own, its prologue or epilogue, if a frame of
   torch/_functorch/_aot_autograd is on the stack before any frame of a user's file.
4. A `detach` whose autograd node is an AccumulateGrad stores a gradient in `.grad`; so does a copy
   (`clone`, or `new_empty_strided` and `copy_`) where the strides of the parameter are others.
5. A higher-order op counts once, by its name; what its body runs does not.
6. AOTAutograd's check of custom ops, which detaches each parameter that the first run of a graph
   uses, is switched off meanwhile.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

from .case import Case

Counts = dict[str, Counter[str]]
"""Counts by where an op ran: "forward graph", "backward aot", "forward eager", ..."""

_TORCH = torch.__path__[0] + "/"
_AOT = _TORCH + "_functorch/_aot_autograd/"
_TAKES = {
    f"aten.{op}"
    for op in ("detach.default", "clone.default", "copy_.default", "new_empty_strided.default")
}
_STANDARD = sys.base_prefix + "/lib/python"
_SITE = "/site-packages/"


def _is_user_file(name: str) -> bool:
    standard = name.startswith(_STANDARD) and _SITE not in name
    return not (name.startswith(_TORCH) or standard or name.startswith("<") or name == __file__)


class Counting(TorchDispatchMode):
    """Counts each op that is dispatched.

    Attributes:
        counts: the counts, by phase and place.
        phase: "forward" or "backward".
        inside: the phases of the compiled graphs that are running.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counts = {}
        self.phase = "forward"
        self.inside: list[str] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this Dynamo compiles nothing that runs under the mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            output = func(*args, **kwargs)
            self.note(f"higher_order.{func}")
            return output
        if torch.is_inference_mode_enabled() and func._can_decompose() and _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        output = func(*args, **kwargs)  # one that raises has not run
        self.note(str(func))
        return output

    def note(self, name: str) -> None:
        """Count an op where it runs."""
        phase = self.inside[-1] if self.inside else self.phase
        place = f"{phase} {self.place(name)}"
        self.counts.setdefault(place, Counter())[name] += 1

    def place(self, name: str) -> str:
        """Where the op that is being dispatched runs."""
        if self.inside:
            return "graph"
        node = torch._C._current_autograd_node()
        if name in _TAKES and type(node).__name__ == "AccumulateGrad":
            return "accumulate"
        frame = sys._getframe(3)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(_AOT):
                return "aot"
            if _is_user_file(file):
                break
            frame = frame.f_back  # type: ignore[assignment]
        return "eager"

    def backend(self) -> Callable[..., Any]:
        """A backend that runs AOTAutograd's graphs as they are, and says when one runs."""

        def compiler(phase: str, gm: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
            from functorch.compile import make_boxed_func

            run = make_boxed_func(gm.forward)

            def entered(args: list[Any]) -> Any:
                self.inside.append(phase)
                try:
                    return run(args)
                finally:
                    self.inside.pop()

            entered._boxed_call = True  # type: ignore[attr-defined]
            return entered

        return aot_autograd(
            fw_compiler=functools.partial(compiler, "forward"),
            bw_compiler=functools.partial(compiler, "backward"),
        )


def _is_composite(func: Any) -> bool:
    name, key = func.name(), "CompositeImplicitAutograd"
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, key) and not any(
        has(name, own) for own in ("CPU", "CompositeExplicitAutograd")
    )


def count(case: Case, *, compiled: bool) -> tuple[Counts, list[float]]:
    """Run a case, eagerly or compiled, with its backward, and count what is dispatched.

    Returns:
        The counts, and a sum over each output and over each gradient of a parameter.
    """
    mode = Counting()
    target = torch.compile(case.target, backend=mode.backend()) if compiled else case.target
    config = torch._functorch.config
    checks = [name for name in ("check_custom_op_aliasing",) if hasattr(config, name)]  # torch 2.11
    with config.patch(dict.fromkeys(checks, False)), case.context():
        with mode:
            output = target(*case.args, **case.kwargs)
        roots, gradients = starts(case, output)
        if roots and torch.is_grad_enabled():
            mode.phase = "backward"
            with mode:
                torch.autograd.backward(roots, gradients)
    owner = case.target if isinstance(case.target, torch.nn.Module) else torch.nn.Module()
    grads = [parameter.grad for parameter in owner.parameters() if parameter.grad is not None]
    return mode.counts, [*sums(output), *sums(grads)]


def sums(output: Any) -> list[float]:
    """A sum over each tensor of an output, to tell what two runs computed apart."""
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    return [_sum(leaf) for leaf in leaves]


def _sum(tensor: Tensor) -> float:
    if tensor.is_nested or tensor.layout is not torch.strided:
        return 0.0
    return float(torch.nan_to_num(tensor.detach().abs().to(torch.float64)).sum())


def starts(case: Case, output: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Where the backward starts, as the package documents it, and with which gradients."""
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    if not leaves and hasattr(output, "__dict__"):
        leaves = pytree.tree_leaves(vars(output))
    roots = list({id(leaf): leaf for leaf in leaves if leaf.requires_grad}.values())
    if not roots:
        return [], []
    if case.loss_fn is not None:
        cut = {id(root): root.detach().requires_grad_() for root in roots}
        copied = pytree.tree_map_only(Tensor, lambda leaf: cut.get(id(leaf), leaf), output)
        copies = list(cut.values())
        grads = torch.autograd.grad(case.loss_fn(copied), copies, allow_unused=True)
        pairs = [(root, grad) for root, grad in zip(roots, grads, strict=True) if grad is not None]
        return [root for root, _ in pairs], [grad for _, grad in pairs]
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
        return [loss], [torch.ones_like(loss)]
    return roots, [_spread(root) for root in roots]


def _spread(root: Tensor) -> Tensor:
    if root.is_nested or root.layout is not torch.strided:
        return torch.ones_like(root)
    real = torch.linspace(0.5, 1.5, root.numel()).reshape(root.shape)
    if root.is_complex():
        real = torch.complex(real, torch.linspace(1.25, 0.25, root.numel()).reshape(root.shape))
    return real.to(root.dtype)
