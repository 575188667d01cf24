"""One step of a target, forward and backward, and the lock that allows one capture at a time."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ... import torch_private
from ...errors import CaptureError
from ...words import listed, with_article
from .named_tensors import DEPTH, held_by
from .saved_state import CAPTURE_THE_STEP
from .saved_tensor import version_of

if TYPE_CHECKING:
    from .invocation import Invocation
    from .saved_state import SavedState

_SECOND_BACKWARD = "Trying to backward through the graph a second time"
"""Autograd's error if the saved tensors of a graph were already freed."""
_NO_DOUBLE_BACKWARD = re.compile("does not currently support (?:double backward|higher order grad)")
"""torch.compile's error if a backward goes through a compiled backward."""


@contextmanager
def _double_backward_explained() -> Iterator[None]:
    """Replace torch.compile's double-backward error with an explanation."""
    try:
        yield
    except RuntimeError as error:
        if not _NO_DOUBLE_BACKWARD.search(str(error)):
            raise
        raise CaptureError(
            "torch.compile cannot run a backward through gradients that the target computes with "
            "create_graph=True, for example forces or a gradient penalty. It fails in the same "
            "way without pytest-torchgraph. Use via='dispatch', or via='aot' with "
            "torch._dynamo.config.trace_autograd_ops = True if torch can trace these gradients. "
            f"(torch: {error})"
        ) from error


class Step:
    """One run of an invocation, forward and backward.

    Attributes:
        invocation: the call to run.
        saved: the state that is restored afterwards.
        leaves: the tensors that receive gradients in a backward.
        output: the return value of the target.
        ran_backward: whether the backward ran.
        own_backward: whether the target itself made or changed gradients.
        cotangents: the incoming gradients, each with the position of its output.
    """

    def __init__(self, invocation: Invocation, saved: SavedState):
        self.invocation = invocation
        self.saved = saved
        leaves = invocation.named.leaves()
        if invocation.updates is not None:
            leaves += invocation.updates.leaves()
        self.leaves = list({id(leaf): leaf for leaf in leaves}.values())
        self.output: Any = None
        self.ran_backward = self.own_backward = False
        self.cotangents: list[tuple[int, torch.Tensor]] = []

    def run(
        self,
        call: Callable[..., Any] | None = None,
        forward: Callable[[], AbstractContextManager[Any]] = nullcontext,
        backward: Callable[[], AbstractContextManager[Any]] | None = nullcontext,
    ) -> None:
        """Run the target inside `forward()`, then its backward inside `backward()`.

        Args:
            call: the callable to run instead of the target: the compiled target.
            forward: creates the context of the call.
            backward: creates the context of the backward; `None` if the mechanism has no backward.

        Raises:
            CaptureError: if the output has no tensor; if `backward=True` and nothing requires grad;
                if `loss_fn` does not return a scalar tensor; if an earlier backward freed the
                output's graph; if the backward would have to differentiate a compiled backward.
        """
        # A training step runs its own backward.
        is_training_step = self.invocation.updates is not None
        requested = False if is_training_step else self.invocation.backward
        grads = self.grads()
        with forward(), _double_backward_explained():
            self.output = self.invocation.call(call)
        tensors = output_leaves(self.output)
        own_backward = self.own_backward = any(
            now is not before or version != former
            for (now, version), (before, former) in zip(self.grads(), grads, strict=True)
        )
        if not tensors and not own_backward and not is_training_step:
            raise CaptureError(
                f"the target returned no tensor, but {_describe(self.output)}: return the result "
                "of the computation"
            )
        if backward is None or requested is False or (requested is None and own_backward):
            return
        roots, cotangents = self._find_roots(tensors)
        if not roots:
            if requested:
                raise CaptureError(
                    "backward=True, but the result of loss_fn does not depend on the output: "
                    "compute the loss from the output"
                )
            return
        self._set_aside_leaves(roots)
        # A `loss` that is a property may be none of the tensors; it counts as the first output.
        output_numbers = {id(tensor): position for position, tensor in enumerate(tensors)}
        self.cotangents = [
            (output_numbers.get(id(root), 0), grad)
            for root, grad in zip(roots, cotangents, strict=True)
        ]
        try:
            with backward(), _double_backward_explained():
                torch.autograd.backward(roots, cotangents)
        except RuntimeError as error:
            if _SECOND_BACKWARD in str(error):
                raise CaptureError(self._why_no_second_backward()) from error
            raise
        self.ran_backward = True

    def warm_up(self) -> None:
        """Run a training step before it is captured, as often as requested."""
        for _ in range(self.invocation.warmup):
            self.invocation.call()

    def grads(self) -> list[tuple[torch.Tensor | None, int]]:
        """Return the gradient of each leaf, with its version."""
        grads = [leaf.grad for leaf in self.leaves]
        return [(grad, 0 if grad is None else version_of(grad)) for grad in grads]

    def _why_no_second_backward(self) -> str:
        """Explain why the backward cannot start from the target's output, and suggest a fix."""
        if refusal := self.saved.refusal():
            return refusal
        computed = [name for name, x in self.invocation.named.inputs if x.grad_fn is not None]
        if computed:
            return (
                "the backward cannot start, because an earlier backward, such as the backward of "
                f"an earlier capture, freed the graph that computed {listed(computed, 3)}. To end "
                f"the backward at the argument, pass {computed[0]}.detach().requires_grad_()"
            )
        return (
            "the backward cannot start, because an earlier backward freed its graph. If the "
            "target calls loss.backward() or torch.autograd.grad: return the loss instead (the "
            "capture runs the backward), or pass backward=False. If the target keeps a tensor of "
            f"an earlier call, such as a hidden state: detach() it. {CAPTURE_THE_STEP}"
        )

    def _set_aside_leaves(self, roots: list[torch.Tensor]) -> None:
        """Find every leaf that will receive a gradient, including leaves in closures.

        Add the new ones to `leaves`, and remove their gradients until the end.
        """
        leaf_ids = {id(leaf) for leaf in self.leaves}
        for leaf in torch_private.accumulating_leaves(roots):
            if id(leaf) not in leaf_ids:
                leaf_ids.add(id(leaf))
                self.leaves.append(leaf)
                self.saved.set_aside(leaf)

    def _find_roots(self, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any]]:
        """Return the tensors that the backward starts from, and their incoming gradients."""
        differentiable = [tensor for tensor in tensors if tensor.requires_grad]
        unique = list({id(tensor): tensor for tensor in differentiable}.values())
        if not unique or not torch.is_grad_enabled():
            # Called only for its errors: a wrong loss is reported in any case.
            if self.invocation.loss_fn is not None:
                self._loss(self.output)
            if self.invocation.backward:
                raise CaptureError(f"backward=True, but {self.why_no_grad()}")
            return [], []
        if self.invocation.loss_fn is not None:
            return self._gradients_of_loss(unique)
        own_loss = _own_loss(self.output)
        if own_loss is not None:
            return [own_loss], [torch.ones_like(own_loss)]
        leaves = {id(leaf) for leaf in pytree.tree_leaves(self.output)}
        # Tensors inside an object unknown to pytree, for example a cache, are state, not outputs.
        roots = [tensor for tensor in unique if id(tensor) in leaves] or unique
        return roots, [_cotangent(tensor) for tensor in roots]

    def _gradients_of_loss(
        self, tensors: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[Any]]:
        """Return the outputs that the loss depends on, with their gradients.

        The ops of `loss_fn` are in no graph, because it is called on detached copies of the
        outputs. For this reason also, if one output is computed from another, the ops between them
        are not differentiated twice.
        """
        copy_of = {id(tensor): tensor.detach().requires_grad_() for tensor in tensors}
        output = pytree.tree_map_only(
            torch.Tensor, lambda leaf: copy_of.get(id(leaf), leaf), self.output
        )
        leaf_ids = {id(leaf) for leaf in pytree.tree_leaves(output)}
        opaque = not all(id(copied) in leaf_ids for copied in copy_of.values())
        if opaque:  # pytree does not know the output's class, so the output cannot be rebuilt
            copy_of = {id(tensor): tensor for tensor in tensors}
            output = self.output
        loss = self._loss(output)
        if not loss.requires_grad:
            raise CaptureError(
                "the result of loss_fn does not require grad: compute it from the output, without "
                "detach() or torch.no_grad()"
            )
        copies = [copy_of[id(tensor)] for tensor in tensors]
        # Without copies, one output may be computed from another. This backward must then not free
        # the graph between them.
        grads = torch.autograd.grad(loss, copies, allow_unused=True, retain_graph=opaque)
        pairs = [pair for pair in zip(tensors, grads, strict=True) if pair[1] is not None]
        return [tensor for tensor, _ in pairs], [grad for _, grad in pairs]

    def _loss(self, output: Any) -> torch.Tensor:
        """Return the result of `loss_fn`, or raise if it is no real scalar tensor."""
        assert self.invocation.loss_fn is not None
        loss = self.invocation.loss_fn(output)
        if isinstance(loss, torch.Tensor) and loss.is_complex():
            raise CaptureError(
                f"loss_fn must return a real scalar, not {str(loss.dtype)[6:]}: return "
                "loss.abs() or loss.real"
            )
        of_tensor = "loss.mean() or loss.sum()" if isinstance(loss, torch.Tensor) else ""
        if not of_tensor or loss.numel() != 1:
            advice = of_tensor or "the loss tensor, without .item()"
            raise CaptureError(
                f"loss_fn must return a scalar tensor, not {_describe(loss)}: return {advice}"
            )
        return loss

    def why_no_grad(self) -> str:
        """Explain why no backward could start, and suggest a fix."""
        if not torch.is_grad_enabled():
            return "grad mode is off. Capture outside of torch.no_grad() and inference_mode()"
        if self.own_backward and self.invocation.backward is None:
            return "the target itself changed gradients. To run a backward, pass backward=True"
        if not any(leaf.requires_grad for leaf in self.leaves):
            return (
                "no parameter or input of the target requires grad. Call requires_grad_() on one "
                "of them"
            )
        return (
            "no output of the target requires grad. Return a tensor that is neither detached nor "
            "of an integer dtype"
        )


STEP = Step.run.__code__
"""The code that calls the target; frames outside it are ignored."""


def _cotangent(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fixed, non-uniform gradient: after a normalisation, a uniform one becomes zero."""
    # `linspace` and `reshape` create only strided tensors.
    if tensor.is_nested or tensor.layout is not torch.strided:
        return torch.ones_like(tensor)

    def spread(first: float, last: float) -> torch.Tensor:
        """Return one number per element, evenly spaced."""
        size, device = tensor.numel(), tensor.device
        return torch.linspace(first, last, size, dtype=torch.float32, device=device)

    values = spread(0.5, 1.5)
    if tensor.is_complex():
        values = torch.complex(values, spread(1.25, 0.25))
    return values.to(tensor.dtype).reshape(tensor.shape)


def _own_loss(output: Any) -> torch.Tensor | None:
    """Return the output's scalar `loss`, which models of transformers compute."""
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
        return None if loss.is_complex() else loss  # a complex loss has no minimum
    return None


def output_leaves(output: Any) -> list[torch.Tensor]:
    """Return the tensors of an output, in order."""
    return [leaf for leaf in _all_leaves(output) if isinstance(leaf, torch.Tensor)]


def _all_leaves(output: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the leaves of an output, including the attributes of objects unknown to pytree."""
    for leaf in pytree.tree_leaves(output):
        yield leaf
        if depth <= DEPTH:
            yield from _all_leaves(held_by(leaf), depth + 1)


def _describe(value: Any) -> str:
    """Return what a value is, for a message that it is the wrong one."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "None"
    return with_article(type(value).__name__)


_lock = threading.RLock()
_inside: list[bool] = []
"""For each capture running in this thread, whether it resets Dynamo."""


@contextlib.contextmanager
def exclusive(*, resets: bool) -> Iterator[None]:
    """Prevent captures in other threads.

    A capture changes and restores state shared by all threads: the RNG, Dynamo's caches, tensor
    methods. Concurrent captures would restore each other's changes. A nested capture in the same
    thread is harmless unless the outer or the inner capture resets Dynamo. A second thread gets an
    error instead of waiting, because the first capture's target may itself wait for that thread.

    Args:
        resets: whether the capture resets Dynamo.

    Raises:
        CaptureError: if another thread is capturing, or if this thread is and the outer or the
            inner capture resets Dynamo.
    """
    if not _lock.acquire(blocking=False):
        raise CaptureError(
            "another thread is capturing at the moment, and captures change global state (the "
            "RNG, Dynamo): run the captures one after the other"
        )
    try:
        if _inside and (resets or any(_inside)):
            raise CaptureError(
                "a capture runs inside another capture, in its target or loss_fn, and both change "
                "global state (the RNG, Dynamo): run the captures one after the other"
            )
        _inside.append(resets)
        try:
            yield
        finally:
            _inside.pop()
    finally:
        _lock.release()
