"""The modules that are being called, and which of them ran at each autograd sequence number."""

from __future__ import annotations

import contextlib
import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from types import FrameType
from typing import Any

import torch

from ... import torch_private
from ...convert.source_lines import callers
from .mode import RecordingMode


@dataclass(eq=False)
class _RunningHooks:
    """The forward hooks of a module, which run after its forward.

    Their ops belong to the module. Tensor parallelism runs its collectives in forward hooks.

    Attributes:
        call: the frame that calls the module.
        sequence: sequence number of the module's last known op.
        outer: the running hooks that called this module, or `None`.
    """

    call: FrameType
    sequence: int
    outer: _RunningHooks | None


class ModuleCalls:
    """Follows the calls of modules by hooks.

    Args:
        recorder: numbers the paths of the modules.

    Call `end_hooks` before each op and each module call, because no hook of torch says that the
    forward hooks of a module have ended.

    Attributes:
        running: path numbers of the modules that are being called, innermost last.
        marks: whenever the innermost module changed, the sequence number, and its path number.
        is_marking: False while a backward runs, whose module calls make no marks.
        hooks: the forward hooks that may be running; `None` if there are none.
    """

    def __init__(self, recorder: RecordingMode):
        self.running: list[int] = []
        self.marks: list[tuple[int, int]] = []
        self.is_marking = True
        self.hooks: _RunningHooks | None = None
        self._recorder = recorder
        self._sequence = torch_private.get("sequence_nr")

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Follow the module calls made inside."""
        module = torch.nn.modules.module
        # `always_call`: if the target catches an exception, later paths must not be one module too
        # deep.
        try:
            with (
                module.register_module_forward_pre_hook(self._enter),
                module.register_module_forward_hook(self._leave, always_call=True),
            ):
                yield
        finally:
            self.running.clear()
            self.hooks = None

    def path_at(self, sequence: int) -> str:
        """Return the path of the module that ran at a sequence number, "" if unknown."""
        index = bisect_right(self.marks, sequence, key=itemgetter(0)) - 1
        return self._recorder.paths[self.marks[index][1]] if index >= 0 else ""

    def end_hooks(self) -> None:
        """Mark modules as exited once none of their forward hooks is running."""
        while (hooks := self.hooks) is not None:
            if any(caller is hooks.call for caller in callers(sys._getframe(1))):
                hooks.sequence = self._sequence()
                return
            self.hooks = hooks.outer
            self._left(hooks.sequence)

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        """Note that a module is called, as its forward pre-hook."""
        self.end_hooks()
        self.running.append(self._recorder.number_of_module(module))
        self._mark(self._sequence())

    def _leave(self, module: torch.nn.Module, _args: Any, _output: Any) -> None:
        """Note that a module's forward ended, as its forward hook."""
        self.end_hooks()
        if module._forward_hooks and self.running:  # the module's own hooks run after this one
            self.hooks = _RunningHooks(sys._getframe(1), self._sequence(), self.hooks)
        else:
            self._left(self._sequence())

    def _left(self, sequence: int) -> None:
        """Note that the innermost module ended at this sequence number."""
        if self.running:
            self.running.pop()
        self._mark(sequence)

    def _mark(self, sequence: int) -> None:
        """Note that the innermost module is another one from this sequence number on."""
        if self.is_marking:
            self.marks.append((sequence, self.running[-1] if self.running else 0))
