"""One step of a target: call it, then run the backward from its output."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.utils._pytree as pytree

from ..errors import CaptureError


class Step:
    """What is to be run, and how the backward starts.

    Attributes:
        output: what the target returned.
        ran_backward: whether the backward was run.
        cotangents: the gradients that flow in, each with the position of its output.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loss_fn: Callable[[Any], torch.Tensor] | None,
        backward: bool | None,
        leaves: list[torch.Tensor],
    ):
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self.loss_fn = loss_fn
        self.backward = backward
        self.leaves = leaves
        self.output: Any = None
        self.ran_backward = False
        self.cotangents: list[tuple[int, torch.Tensor]] = []

    def run(
        self,
        call: Callable[..., Any] | None = None,
        forward: Callable[[], AbstractContextManager[Any]] = nullcontext,
        backward: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Run the target inside `forward()`, then its backward inside `backward()`.

        Args:
            call: what to call instead of the target itself: the compiled target.

        Raises:
            CaptureError: if the output has no tensor; if `backward=True` and nothing requires
                grad; if `loss_fn` does not give a scalar tensor.
        """
        call_ = self.target if call is None else call
        with forward():
            self.output = call_(*self.args, **self.kwargs)
        tensors = output_leaves(self.output)
        own_backward = any(leaf.grad is not None for leaf in self.leaves)
        if not tensors and not own_backward:
            raise CaptureError(
                f"the output of the target holds no tensor: {_describe(self.output)}. Return the "
                "result of the computation, so that there is something to see."
            )
        if self.backward is False or (self.backward is None and own_backward):
            return
        roots, cotangents = self.start(tensors)
        if not roots:
            return
        place = {id(tensor): number for number, tensor in enumerate(tensors)}
        self.cotangents = [
            (place.get(id(root), 0), grad) for root, grad in zip(roots, cotangents, strict=True)
        ]
        with backward():
            torch.autograd.backward(roots, cotangents)
        self.ran_backward = True

    def start(self, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any]]:
        """Where the backward starts: tensors of the output and the gradients that flow in."""
        differentiable = [
            tensor for tensor in tensors if tensor.requires_grad and tensor.is_floating_point()
        ]
        unique = list({id(tensor): tensor for tensor in differentiable}.values())
        loss = None if self.loss_fn is None else self._loss()
        if not unique or not torch.is_grad_enabled():
            if self.backward:
                raise CaptureError(f"backward=True, but {self._why_no_grad(tensors)}")
            return [], []
        if loss is not None:
            if not loss.requires_grad:
                raise CaptureError("the result of loss_fn does not require grad")
            # The gradient of the loss flows in from outside, so no op of the loss is captured.
            grads = torch.autograd.grad(loss, unique, allow_unused=True, retain_graph=True)
            found = [(tensor, grad) for tensor, grad in zip(unique, grads, strict=True)]
            found = [(tensor, grad) for tensor, grad in found if grad is not None]
            return [tensor for tensor, _ in found], [grad for _, grad in found]
        own = _own_loss(self.output)
        if own is not None:
            return [own], [torch.ones_like(own)]
        return unique, [_cotangent(tensor) for tensor in unique]

    def _loss(self) -> torch.Tensor:
        assert self.loss_fn is not None
        loss = self.loss_fn(self.output)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise CaptureError(
                f"loss_fn must return a scalar tensor, not {_describe(loss)}: reduce it, for "
                "example with .mean()"
            )
        return loss

    def _why_no_grad(self, tensors: list[torch.Tensor]) -> str:
        if not torch.is_grad_enabled():
            return "gradients are switched off (torch.no_grad() or inference_mode() around it)"
        if not any(leaf.requires_grad for leaf in self.leaves):
            return "no parameter and no input of the target requires grad"
        return (
            f"no output of the target requires grad ({len(tensors)} output tensors): is it "
            "detached, or of an integer dtype?"
        )


def _cotangent(tensor: torch.Tensor) -> torch.Tensor:
    """Fixed and not uniform: a plain sum has zero gradients behind a normalisation."""
    values = torch.linspace(0.5, 1.5, tensor.numel(), dtype=torch.float32, device=tensor.device)
    return values.to(tensor.dtype).reshape(tensor.shape)


def _own_loss(output: Any) -> torch.Tensor | None:
    """The output's own scalar `loss`, the convention of transformers."""
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
        return loss
    return None


def output_leaves(output: Any) -> list[torch.Tensor]:
    """The tensors of an output, in order."""
    return [leaf for leaf in _all_leaves(output) if isinstance(leaf, torch.Tensor)]


def _all_leaves(output: Any) -> list[Any]:
    """The leaves of the output; of an unregistered object those of its attributes."""
    leaves = pytree.tree_leaves(output)
    if len(leaves) == 1 and leaves[0] is output and not isinstance(output, torch.Tensor):
        if isinstance(output, dict):
            return pytree.tree_leaves(dict(output))
        if hasattr(output, "__dict__") and not callable(output):
            return pytree.tree_leaves(dict(vars(output)))
    return leaves


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
