"""The mode of `via="dispatch"`: writes down each op as it runs, and as little of it as will do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from ... import torch_private
from ...convert.effects import schema
from ...convert.source_lines import Line, is_torch_module, is_user_file
from ...graph.model import RecomputedBy
from ...ops.views import KNOWN_NAMESPACES
from ..recording.mode import HANDS_OVER, LEAF, LIFT, OpRecord, RecordingMode
from ..step.named_tensors import NamedTensors
from ..step.saved_state import SavedState

_inference_mode_is_on = torch.is_inference_mode_enabled
_NONE: dict[str, Any] = {}
"""The keyword arguments of all calls without any."""


class _RunningHooks:
    """The hooks on the output of a module, which run when its forward has ended.

    What they run belongs to the module. Tensor parallelism puts its collectives there.

    Attributes:
        sequence: that of the last op of the module, as far as is known.
        outer: the hooks that called the module, None where none did.
    """

    def __init__(self, call: FrameType, sequence: int, outer: _RunningHooks | None):
        self._call = call
        self.sequence = sequence
        self.outer = outer

    def are_running(self, frame: FrameType | None) -> bool:
        """Whether a frame is inside of the module's call."""
        while frame is not None and frame is not self._call:
            frame = frame.f_back
        return frame is not None


class DispatchRecorder(RecordingMode):  # type: ignore[no-untyped-call]
    """Records forward and backward ops of one step.

    Args:
        named: the tensors and modules that have names.
        saved: what is told of each op that may write.
    """

    def __init__(self, named: NamedTensors, saved: SavedState):
        super().__init__(named)
        self._saved = saved
        self._writing: dict[Any, bool] = {}
        self.forward: list[OpRecord] = []
        self.backward: list[OpRecord] = []
        self.records = self.forward
        self.changes: list[tuple[int, int]] = []
        self._stack: list[int] = []
        self._hooks: _RunningHooks | None = None
        self._user_files: dict[str, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap __torch_dispatch__ in a torch.compiler.disable, at 3 µs an op. No compiled
        # region runs under this mode, so there is nothing to disable.
        return False

    @contextmanager
    def recording(self, *, backward: bool) -> Iterator[None]:
        """Record what runs inside as the forward or as the backward."""
        self.records = self.backward if backward else self.forward
        pre = torch.nn.modules.module.register_module_forward_pre_hook(self._enter)
        post = torch.nn.modules.module.register_module_forward_hook(self._leave, always_call=True)
        try:
            with self:
                yield
        finally:
            pre.remove()
            post.remove()
            self._stack.clear()
            self._hooks = None

    # -- modules ---------------------------------------------------------------------------------

    @property
    def module(self) -> str:
        """Path of the innermost module that is running."""
        if self._hooks is not None:
            self._after_hooks()
        return self.paths[self._stack[-1]] if self._stack else ""

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        if self._hooks is not None:
            self._after_hooks()
        number = self.number_of_module(module)
        self._stack.append(number)
        if self.records is self.forward:
            self.changes.append((self._sequence(), number))

    def _leave(self, module: torch.nn.Module, _args: Any, _output: Any) -> None:
        if self._hooks is not None:
            self._after_hooks()
        if module._forward_hooks and self._stack:  # they run behind this one
            self._hooks = _RunningHooks(sys._getframe(1), self._sequence(), self._hooks)
        else:
            self._left(self._sequence())

    def _left(self, sequence: int) -> None:
        """Note that the innermost module has ended, before what comes next in this sequence."""
        if self._stack:
            self._stack.pop()
        if self.records is self.forward:
            self.changes.append((sequence, self._stack[-1] if self._stack else 0))

    def _after_hooks(self) -> None:
        """Note which modules have ended: those of which no hook on the output is running."""
        caller = sys._getframe(2)
        while (hooks := self._hooks) is not None:
            if hooks.are_running(caller):
                hooks.sequence = self._sequence()
                return
            self._hooks = hooks.outer
            self._left(hooks.sequence)

    # -- ops -------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if types and torch_private.stands_for_others(types):
            return NotImplemented
        if _inference_mode_is_on() and self.is_composite(func):
            with self:  # inference mode skips the place where composite ops are taken apart
                return func.decompose(*args, **(kwargs or {}))
        writes = self.writes
        if writes is not None and not writes.is_following:
            return writes.follow(func, self.__torch_dispatch__, args, kwargs or {})
        if func is LIFT:
            self.lifted(args[0])
        if self._hooks is not None:
            self._after_hooks()
        if self._saved.unwritten and self._may_write(func):
            self._saved.before_write(args, *(kwargs or _NONE).values())
        encoded = self.encode_all(args)
        if kwargs:
            named = {key: self.encode(arg) for key, arg in kwargs.items()}
            output = func(*args, **kwargs)
        else:
            named = _NONE
            output = func(*args)
        self._record(func, encoded, named, self.encode(output, True))
        return output

    def read(self, method: str, tensor: Any) -> None:
        """Record a method that reads a tensor and dispatches no op; what leads to it stays."""
        self.hand_over(method)
        if method in HANDS_OVER:  # numpy may write into the memory that it is given
            self._saved.before_write(tensor)
        op = sys.intern(f"Tensor.{method}")
        if op in schema.READING and isinstance(tensor, torch.Tensor):
            if self._hooks is not None:
                self._after_hooks()
            self._record(op, (self.number_of(tensor),), _NONE, None)

    def _record(
        self, func: Any, encoded: tuple[Any, ...], named: dict[str, Any], result: Any
    ) -> None:
        stack = self._stack
        if self.records is self.forward:
            path, sequence, line = (stack[-1] if stack else 0), self._sequence(), self._line()
            by: RecomputedBy = ""
            if self.is_packing():
                sequence = self.records[-1].sequence if self.records else self._begin
        else:
            node = self._autograd_node()
            path = stack[-1] if stack else -1
            sequence = self.sequence_of(node)
            line, by = None, self.by(node, bool(stack))
            if path == -1 and sequence >= LEAF:
                path = self.number_of_owner(node)
        self.records.append(OpRecord(func, encoded, named, result, path, sequence, line, by))

    def _may_write(self, func: Any) -> bool:
        """True for an op that writes to an argument, or is a custom one, which may not say so."""
        known = self._writing.get(func)
        if known is None:
            is_mutable = getattr(getattr(func, "_schema", None), "is_mutable", True)
            known = bool(is_mutable or getattr(func, "namespace", "") not in KNOWN_NAMESPACES)
            self._writing[func] = known
        return known

    def _line(self) -> Line | None:
        frame: FrameType | None = sys._getframe(2)
        known = self._user_files
        direct = True
        while frame is not None:
            code = frame.f_code
            file = code.co_filename  # a code object's own hash takes one of all its constants
            mine = known.get(file)
            if mine is None:
                mine = known[file] = is_user_file(file)
            if mine:
                return file, frame.f_lineno, code.co_name, direct
            direct = direct and not is_torch_module(file)
            frame = frame.f_back
        return None
