"""The eager run that a capture is compared with: the same target from the same state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from ...errors import CaptureError
from .accelerators import autocast
from .invocation import Invocation
from .saved_state import RandomState, preserve_state
from .saved_tensor import version
from .step import DEPTH, Step, held_by


@dataclass(frozen=True)
class Outcome:
    """The results of one step.

    Attributes:
        outputs: the tensors of its output, by their path in it, as `output['logits']`.
        grads: the gradients, by the name of the parameter or argument.
    """

    outputs: dict[str, torch.Tensor]
    grads: dict[str, torch.Tensor]


def outcome_of(step: Step) -> Outcome:
    """The outcome of a step that has just run, before gradients are put back."""
    named = step.invocation.named
    with_grad = [leaf for leaf in step.leaves if leaf.grad is not None]
    names = {id(tensor): name for name, tensor in [*named.inputs, *named.all_parameters]}
    if any(id(leaf) not in names for leaf in with_grad):  # the target may have made modules
        named.look()
        names.update((id(parameter), name) for name, parameter in named.all_parameters)
    return Outcome(
        {path: tensor.detach() for path, tensor in _named_outputs(step.output)},
        {
            names[id(leaf)]: leaf.grad.detach()
            for leaf in with_grad
            if leaf.grad is not None and id(leaf) in names
        },
    )


def _named_outputs(
    output: Any, prefix: str = "output", depth: int = 0
) -> Iterator[tuple[str, torch.Tensor]]:
    of_known_names = isinstance(output, dict) and hasattr(output, "__dict__")
    leaves, _ = pytree.tree_flatten_with_path(dict(output) if of_known_names else output)
    for path, leaf in leaves:
        name = prefix + pytree.keystr(path)
        if isinstance(leaf, torch.Tensor):
            yield name, leaf
        elif depth <= DEPTH:
            yield from _named_outputs(held_by(leaf), name, depth + 1)


class EagerRun:
    """How to run an invocation again, eagerly, from the state that its capture started from.

    To be made when the capture is over and what it changed has its former value again.
    """

    def __init__(self, invocation: Invocation, random: RandomState):
        self.invocation = invocation
        self.random = random
        self.modes = _Modes()
        named = invocation.named
        self.versions = [
            (name, tensor, version(tensor))
            for name, tensor in [*named.inputs, *named.all_parameters]
        ]

    def run(self, how: Callable[[Step], object] = Step.run) -> Outcome:
        """Run it.

        Args:
            how: what runs the step, if not the target by itself.

        Raises:
            CaptureError: if a parameter or an argument has changed since the capture.
        """
        for name, tensor, seen in self.versions:
            if version(tensor) != seen:
                raise CaptureError(
                    f"{name} has changed since the capture, so an eager run would start from "
                    "another state: call assert_matches_eager() right after graph_capture()"
                )
        self.invocation.named.look()  # the target may have made modules
        with preserve_state(self.invocation.named) as saved, self.modes.again():
            step = Step(self.invocation, saved)
            self.random.restore()
            how(step)
            return outcome_of(step)


class _Modes:
    """Grad mode and autocast, as they were around the capture."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        self.autocast = autocast()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            now = autocast()
            for device, dtype in self.autocast.items():
                if now.get(device) != dtype:
                    stack.enter_context(torch.autocast(device, dtype, enabled=dtype is not None))
            yield
