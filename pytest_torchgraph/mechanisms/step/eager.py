"""The eager run that a capture is compared with: the same target from the same state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ...convert.canonical_names import Canon
from ...errors import CaptureError
from .named_tensors import Roots
from .saved_state import RandomState, preserved, version
from .step import Step

if TYPE_CHECKING:
    from ..protocol import Mechanism


@dataclass(frozen=True)
class Outcome:
    """What one step gave: the tensors of its output by path, and the gradients by name."""

    outputs: dict[str, torch.Tensor]
    grads: dict[str, torch.Tensor]


def outcome_of(step: Step, roots: Roots) -> Outcome:
    """The outcome of a step that has just run, before gradients are put back."""
    names = {id(tensor): name for name, tensor in [*roots.inputs, *roots.parameters()]}
    return Outcome(
        {path: tensor.detach() for path, tensor in _named_outputs(step.output)},
        {
            names[id(leaf)]: leaf.grad.detach()
            for leaf in step.leaves
            if leaf.grad is not None and id(leaf) in names
        },
    )


def _named_outputs(output: Any) -> Iterator[tuple[str, torch.Tensor]]:
    value = output
    if not isinstance(output, torch.Tensor) and hasattr(output, "__dict__"):
        value = dict(output) if isinstance(output, dict) else output
    leaves, _ = pytree.tree_flatten_with_path(value)
    opaque = len(leaves) == 1 and leaves[0][1] is output and not isinstance(output, torch.Tensor)
    if opaque and hasattr(output, "__dict__"):
        leaves, _ = pytree.tree_flatten_with_path(dict(vars(output)))
    for path, leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            yield "output" + pytree.keystr(path), leaf


class Eager:
    """How to run a step again, eagerly, from the state that the capture started from."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loss_fn: Callable[[Any], torch.Tensor] | None,
        backward: bool | None,
        roots: Roots,
    ):
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self.loss_fn = loss_fn
        self.backward = backward
        self.roots = roots
        self.random = RandomState()
        self.modes = _Modes()
        self.versions: list[tuple[str, torch.Tensor, int]] = []

    def settle(self) -> None:
        """Note the state that the capture left, which is the one that it started from."""
        tensors = [*self.roots.inputs, *self.roots.parameters()]
        self.versions = [(name, tensor, version(tensor)) for name, tensor in tensors]

    def run(self, mechanism: Mechanism | None = None) -> Outcome:
        """Run the step, or let a mechanism run it, whose graphs are not kept.

        Raises:
            CaptureError: if a parameter or an argument has changed since the capture.
        """
        for name, tensor, seen in self.versions:
            if version(tensor) != seen:
                raise CaptureError(
                    f"{name} has changed since the capture, so an eager run would start from "
                    "another state: call assert_matches_eager() right after graph_capture()"
                )
        step = Step(
            self.target, self.args, self.kwargs, self.loss_fn, self.backward, self.roots.leaves()
        )
        with preserved(self.roots) as world, self.modes.again():
            step.world = world
            self.random.put_back()
            if mechanism is None:
                step.run()
            else:
                mechanism.capture(step, self.target, self.roots, Canon())
            return outcome_of(step, self.roots)


class _Modes:
    """Grad mode and autocast, as they were around the capture."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        self.autocast = [
            (device, torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        ]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            yield
