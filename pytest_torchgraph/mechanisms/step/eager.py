"""The eager run that a capture is compared with: the same target from the same state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from ...errors import CaptureError
from .accelerators import autocast
from .invocation import Invocation
from .outcome import Outcome, outcome_of
from .python_state import PythonState
from .saved_state import RandomState, preserve_state
from .saved_tensor import version
from .step import Step


class EagerRun:
    """How to run an invocation again, eagerly, from the state that its capture started from.

    To be made when the capture is over and what it changed has its former value again.
    """

    def __init__(self, invocation: Invocation, random: RandomState):
        self.invocation = invocation
        self.random = random
        self.modes = _Modes()
        self.versions = {name: (tensor, version(tensor)) for name, tensor in self._tensors()}

    def run(self, how: Callable[[Step], object] = Step.run) -> Outcome:
        """Run it.

        Args:
            how: what runs the step, if not the target by itself.

        Raises:
            CaptureError: if a parameter, a buffer or an argument has changed since the capture.
        """
        self.invocation.named.look()  # the target may have made modules
        for name, tensor in self._tensors():
            before, seen = self.versions.get(name, (tensor, version(tensor)))
            if before is not tensor or seen != version(tensor):
                raise CaptureError(
                    f"{name} has changed since the capture, so an eager run would start from "
                    "another state: call assert_matches_eager() right after graph_capture()"
                )
        with preserve_state(self.invocation.named) as saved, self.modes.again():
            step = Step(self.invocation, saved)
            self.random.restore()
            how(step)
            outcome = outcome_of(step)
        return outcome.finished(saved)

    def inside(self, context: Callable[[], AbstractContextManager[Any]]) -> Outcome:
        """Run the target by itself, inside a context."""

        def how(step: Step) -> None:
            with context():
                step.run()

        return self.run(how)

    def python(self) -> PythonState:
        """Return what the target keeps in Python, as it is now."""
        return PythonState(self.invocation.named, self.invocation.target)

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What a run starts from: arguments, parameters and buffers by their names."""
        named = self.invocation.named
        yield from named.inputs
        yield from named.all_parameters
        for path, module in named.all_modules:
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    yield f"{path}.{name}" if path else name, buffer


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
