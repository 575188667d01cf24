"""The dispatch mode: writes down each op as it runs, and as little of it as will do.

It holds no tensor. A tensor is known by its id as long as a weak reference to it is alive, and a
storage by its address, which a weak storage reference keeps from being used again. Everything else
(names, order, dead code) is worked out after the run, in `replay`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch

from ... import torch_private
from ...convert.source_lines import is_user_file
from ..step.named_tensors import NamedTensors

LEAF = 2**63
"""Autograd nodes from this sequence number on are no operations: AccumulateGrad."""


class Value(int):
    """A tensor in a recorded argument: the number of its value."""

    __slots__ = ()


class OpRecord:
    """One op that ran.

    Attributes:
        op, args, kwargs: as called, tensors replaced by `Value`.
        output: what it returned, likewise.
        path: number of the module path that was running, -1 where only autograd knows it.
        sequence: in the forward the sequence number after this op, in the backward that of the
            autograd node that ran it.
        line: code object and line of the user's call, None in the backward.
    """

    __slots__ = ("args", "kwargs", "line", "op", "output", "path", "sequence")

    def __init__(
        self,
        op: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        path: int,
        sequence: int,
        line: tuple[CodeType, int] | None,
    ):
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.output = output
        self.path = path
        self.sequence = sequence
        self.line = line


class DispatchRecorder(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records forward and backward ops of one step."""

    def __init__(self, named: NamedTensors):
        super().__init__()  # type: ignore[no-untyped-call]
        self.named = named
        self.forward: list[OpRecord] = []
        self.backward: list[OpRecord] = []
        self.records = self.forward
        self.paths: list[str] = [""]
        self.changes: list[tuple[int, int]] = []
        self.values: list[Value] = []
        self.meta: list[tuple[Any, ...]] = []
        self.storage_of: list[int] = []
        self.origin: dict[int, tuple[str, str]] = {}
        self.views: dict[int, int] = {}
        self._stack: list[int] = []
        self._path_numbers: dict[str, int] = {"": 0}
        self._tensors: dict[int, tuple[Any, Value]] = {}
        self._storages: dict[int, int] = {}
        self._pins: list[Any] = []
        self._places: dict[tuple[Any, ...], Value] = {}
        self._first_on: dict[int, Value] = {}
        self._composite: dict[Any, bool] = {}
        self._user_code: dict[CodeType, bool] = {}
        self._sequence = torch_private.sequence_number()
        self._autograd_node = torch_private.current_autograd_node()
        self._storage_ref = torch_private.storage_ref()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this Dynamo would never again compile a frame that ran under the mode."""
        return True

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

    # -- modules ---------------------------------------------------------------------------------

    @property
    def module(self) -> str:
        """Path of the innermost module that is running."""
        return self.paths[self._stack[-1]] if self._stack else ""

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        path = self.named.modules.get(id(module))
        if path is None:
            path = type(module).__name__
        number = self._path_numbers.get(path)
        if number is None:
            number = self._path_numbers[path] = len(self.paths)
            self.paths.append(path)
        self._stack.append(number)
        if self.records is self.forward:
            self.changes.append((self._sequence(), number))

    def _leave(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()
        if self.records is self.forward:
            self.changes.append((self._sequence(), self._stack[-1] if self._stack else 0))

    # -- ops -------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and self._is_composite(func):
            with self:  # inference mode skips the place where composite ops are taken apart
                return func.decompose(*args, **kwargs)
        encoded = tuple([self.encode(arg) for arg in args])
        named = {key: self.encode(arg) for key, arg in kwargs.items()} if kwargs else {}
        output = func(*args, **kwargs)
        stack = self._stack
        if self.records is self.forward:
            path, sequence, line = (stack[-1] if stack else 0), self._sequence(), self._line()
        else:
            node = self._autograd_node()
            path = stack[-1] if stack else -1
            sequence = node._sequence_nr() if node is not None else -1
            line = None
            if path == -1 and sequence >= LEAF:
                path = self._parameter_path(node)
        self.records.append(
            OpRecord(func, encoded, named, self.encode(output, True), path, sequence, line)
        )
        return output

    def _is_composite(self, func: Any) -> bool:
        known = self._composite.get(func)
        if known is None:
            known = self._composite[func] = torch_private.is_composite(func.name())
        return known

    def _parameter_path(self, node: Any) -> int:
        known = self.named.tensors.get(id(getattr(node, "variable", None)))
        path = known[1].rpartition(".")[0] if known is not None and known[0] == "parameter" else ""
        number = self._path_numbers.get(path)
        if number is None:
            number = self._path_numbers[path] = len(self.paths)
            self.paths.append(path)
        return number

    def _line(self) -> tuple[CodeType, int] | None:
        frame: FrameType | None = sys._getframe(2)
        known = self._user_code
        while frame is not None:
            code = frame.f_code
            mine = known.get(code)
            if mine is None:
                mine = known[code] = is_user_file(code.co_filename)
            if mine:
                return code, frame.f_lineno
            frame = frame.f_back
        return None

    # -- tensors ---------------------------------------------------------------------------------

    def encode(self, value: Any, output: bool = False) -> Any:
        """A recorded argument or output: tensors as `Value`, all sequences as tuples."""
        if isinstance(value, torch.Tensor):
            known = self._tensors.get(id(value))
            if known is not None and known[0]() is value:
                return known[1]
            return self.meet(value, output)
        if isinstance(value, list | tuple):
            return tuple([self.encode(item, output) for item in value])
        return value

    def meet(self, tensor: torch.Tensor, output: bool) -> Value:
        """A tensor that was not seen before: a new value, or another handle of a known one."""
        storage, place = self._place(tensor)
        if not output:
            again = self._places.get(place)
            if again is not None:
                self._tensors[id(tensor)] = (weakref.ref(tensor), again)
                return again
        value = Value(len(self.values))
        if not output:
            known = self.named.tensors.get(id(tensor))
            base = self._first_on.get(storage)
            if known is None and base is not None:
                self.views[value] = base
            else:
                self.origin[value] = known or ("constant", "constant")
        self.values.append(value)
        shape, stride = _form(tensor)
        self.meta.append((tensor.dtype, shape, stride, tensor.device, place[1]))
        self.storage_of.append(storage)
        self._tensors[id(tensor)] = (weakref.ref(tensor), value)
        self._places.setdefault(place, value)
        self._first_on.setdefault(storage, value)
        return value

    def introduce(self, tensor: torch.Tensor, role: str, name: str) -> None:
        """Say what a tensor is that will come as an argument."""
        known = self._tensors.get(id(tensor))
        if known is None or known[0]() is not tensor:
            self.origin[self.meet(tensor, True)] = (role, name)

    def number_of(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor: of an output of the target, of a gradient."""
        return self.encode(tensor)  # type: ignore[no-any-return]

    def _place(self, tensor: torch.Tensor) -> tuple[int, tuple[Any, ...]]:
        try:
            storage = tensor.untyped_storage()
            address = storage._cdata
        except (NotImplementedError, RuntimeError):
            number = -1 - len(self.values)
            return number, (number, 0, id(tensor))
        number = self._storages.get(address, -1)
        if number == -1:
            number = self._storages[address] = len(self._pins)
            self._pins.append(self._storage_ref(storage))
        if tensor.layout is not torch.strided or tensor.is_nested:
            return number, (number, 0, id(tensor))
        offset = tensor.storage_offset()
        return number, (number, offset, tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _form(tensor: torch.Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """Shape and strides; of a nested tensor the shape is not one."""
    if tensor.is_nested:
        return (), None
    stride = tensor.stride() if tensor.layout is torch.strided else None
    return tuple(tensor.shape), stride
