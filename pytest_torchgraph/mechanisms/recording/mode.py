"""The records of a TorchDispatchMode: ops as they ran, their tensors as numbered values.

It holds no tensor. A tensor is known by its id as long as a weak reference to it is alive, and a
storage by its address, which a weak storage reference keeps from being used again. Everything else
(names, order, dead code) is worked out after the run, in `replay`.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from torch.autograd.function import BackwardCFunction

from ... import torch_private
from ...convert.normalize import value_of_constant
from ...convert.source_lines import Line, is_user_file, line_of
from ...graph.model import RecomputedBy
from ..step.named_tensors import NamedTensors
from ..step.step import Step
from .constants import read, tensors_inside

if TYPE_CHECKING:
    from .unseen import UnseenWrites


LIFT = torch.ops.aten.lift_fresh.default
"""What `torch.tensor` and the like pass a constant to that they have just made."""
_STEP = Step.run.__code__
"""The code that calls the target; the frames around it are of nobody's concern."""
LEAF = 2**63
"""Autograd nodes from this sequence number on are no operations: AccumulateGrad."""

_WRITE, _WRITTEN = "CopySlices", "AsStridedBackward0"
"""Names of the autograd nodes of a write into a view: of the base, and of the view behind it."""

_REENTRANT = "CheckpointFunctionBackward"
"""Name of the autograd node of a reentrant checkpoint."""
_grad_is_enabled = torch.is_grad_enabled
_PLAIN = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout))
"""Types of arguments that hold no tensor."""
_STRIDED = torch.strided
_STRIDED_PLACE = 5
"""How many items the place of a strided tensor has: storage, offset, shape, strides and dtype."""


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
        line: the user's line that called it, None in the backward.
        by: see `Node.by`.
    """

    __slots__ = ("args", "by", "kwargs", "line", "op", "output", "path", "sequence")

    def __init__(
        self,
        op: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        path: int,
        sequence: int,
        line: Line | None,
        by: RecomputedBy = "",
    ):
        self.by = by
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.output = output
        self.path = path
        self.sequence = sequence
        self.line = line


HANDS_OVER = ("numpy", "__array__", "__dlpack__")
"""Methods that hand a tensor to another library, which computes what no mode sees."""

Age: TypeAlias = Literal["before", "meanwhile", "unknown", "outside"]
"""When a tensor was made; see `Stranger`."""


class Stranger(NamedTuple):
    """A tensor that came as an argument, of which nobody knows where it is from.

    Attributes:
        age: whether the op that made it ran before the step, or perhaps meanwhile; unknown of a
            leaf; "outside" of what another library may have computed from a tensor of the step.
        line: the target's line that it came up in; None where there is none, as for what the
            target returned.
    """

    age: Age
    line: Line | None


class RecordingMode(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that knows the tensors which it has met.

    Attributes:
        named: the tensors and modules that have names.
        paths: module paths, by the numbers that records have.
        values: all values, by number.
        meta: dtype, shape, strides, device, layout and offset of each value.
        storage_of: number of the storage of each value.
        without_memory: the storages of fake tensors.
        origin: (role, name) of each value that came from outside.
        constants: the values of constants that the target made, see `Node.args`.
        kept: the tensors of constants, as they were when first met; None to keep none.
        views: the value whose storage another one shares that no recorded op gave.
        strangers: the tensors that came as arguments of which nobody knows where they are from.
        writes: once a thread was started: what is known of the writes to the tensors.
        handed_over: the calls of `HANDS_OVER`, with the target's lines.
        precompiled: the target's lines that called precompiled code.
    """

    def __init__(self, named: NamedTensors):
        super().__init__()  # type: ignore[no-untyped-call]
        self.named = named
        self.paths: list[str] = [""]
        self.values: list[Value] = []
        self.meta: list[tuple[Any, ...]] = []
        self.storage_of: list[int] = []
        self.without_memory: set[int] = set()
        self.origin: dict[int, tuple[str, str]] = {}
        self.constants: dict[int, tuple[Any, ...]] = {}
        self.kept: dict[int, torch.Tensor] | None = None
        self.views: dict[int, int] = {}
        self.strangers: list[Stranger] = []
        self.writes: UnseenWrites | None = None
        self.handed_over: list[tuple[str, Line | None]] = []
        self.precompiled: list[Line | None] = []
        self._path_numbers: dict[str, int] = {"": 0}
        self._tensors: dict[int, tuple[Any, Value]] = {}
        self._storages: dict[int, int] = {}
        self._pins = torch_private.StoragePins()
        self._places: dict[tuple[Any, ...], Value] = {}
        self._first_on: dict[int, Value] = {}
        self._owners: dict[int, torch.Tensor] | None = None
        self._composite: dict[Any, bool] = {}
        self._sequence = torch_private.sequence_number()
        self._begin = self._sequence()
        self._autograd_node = torch_private.current_autograd_node()
        self._saved_tensor_hooks = torch_private.saved_tensor_hooks()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this Dynamo would never again compile a frame that ran under the mode."""
        return True

    # -- modules ---------------------------------------------------------------------------------

    def number_of_path(self, path: str) -> int:
        """The number of a module path, a new one where it has none."""
        number = self._path_numbers.get(path)
        if number is None:
            number = self._path_numbers[path] = len(self.paths)
            self.paths.append(path)
        return number

    def number_of_module(self, module: torch.nn.Module) -> int:
        """The number of a module's path; of one that nobody knows that of its class's name."""
        path = self.named.modules.get(id(module))
        return self.number_of_path(type(module).__name__ if path is None else path)

    def number_of_owner(self, node: Any) -> int:
        """The number of the path of the module whose parameter an AccumulateGrad is for."""
        known = self.named.tensors.get(id(getattr(node, "variable", None)))
        owned = known is not None and known[0] == "parameter"
        return self.number_of_path(known[1].rpartition(".")[0] if known and owned else "")

    # -- ops -------------------------------------------------------------------------------------

    def sequence_of(self, node: Any) -> int:
        """The sequence number of an autograd node, -1 for None.

        All nodes are made before their op, but for those of a write into a view: behind it come one
        for the base and one for the view. Both count as that of the op itself, the one before them.
        """
        if node is None:
            return -1
        number: int = node._sequence_nr()
        name = type(node).__name__
        if name == _WRITE:
            return number - 1
        if name == _WRITTEN:
            base = node.next_functions[0][0]
            if type(base).__name__ == _WRITE and base._sequence_nr() == number - 1:
                return number - 2
        return number

    def by(self, node: Any, in_module: bool) -> RecomputedBy:
        """Why an op of the backward runs; see `Node.by`.

        A checkpoint runs the forward again with grad mode on, autograd's formulas run without it.
        A reentrant checkpoint inside of another one runs its forward without it, too.

        Args:
            node: the autograd node that runs the op.
            in_module: True if a module is being called.
        """
        if in_module or _grad_is_enabled():
            return "checkpoint"
        if not isinstance(node, BackwardCFunction):
            return "formula"
        return "checkpoint" if type(node).__name__ == _REENTRANT else "function"

    def is_packing(self) -> bool:
        """Whether what runs packs a tensor that another op saves, which has made its node already.

        It has no gradient itself.
        """
        if torch.is_grad_enabled():
            return False
        hooks = self._saved_tensor_hooks()
        pack = None if hooks is None else getattr(hooks[0], "__code__", None)
        frame: FrameType | None = None if pack is None else sys._getframe(2)
        while frame is not None and frame.f_code is not pack:
            frame = frame.f_back
        return frame is not None

    def is_composite(self, func: Any) -> bool:
        """True for an op that inference mode does not take apart, as it is everywhere else."""
        known = self._composite.get(func)
        if known is None:
            known = self._composite[func] = torch_private.is_composite(func.name())
        return known

    # -- tensors ---------------------------------------------------------------------------------

    def encode(self, value: Any, output: bool = False) -> Any:
        """A recorded argument or output: tensors as `Value`, all sequences as tuples."""
        if type(value) in _PLAIN:
            return value
        known = self._tensors.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        if isinstance(value, torch.Tensor):
            return self.meet(value, output)
        if isinstance(value, list | tuple):
            return self.encode_all(value, output)
        return value

    def encode_all(self, values: Iterable[Any], output: bool = False) -> tuple[Any, ...]:
        """What `encode` gives for each of several values."""
        tensors = self._tensors
        encoded = []
        for value in values:
            if type(value) in _PLAIN:
                encoded.append(value)
                continue
            known = tensors.get(id(value))
            if known is not None and known[0]() is value:
                encoded.append(known[1])
            else:
                encoded.append(self.encode(value, output))
        return tuple(encoded)

    def meet(self, tensor: torch.Tensor, output: bool) -> Value:
        """A tensor that was not seen before: a new value, or another handle of a known one."""
        storage, place = self._place(tensor)
        if not output:
            again = self._places.get(place)
            if again is not None:
                self._tensors[id(tensor)] = (weakref.ref(tensor), again)
                return again
        known, base = self.named.tensors.get(id(tensor)), self._first_on.get(storage)
        if not output and known is None and base is None:
            base = self._meet_owner(storage)
        value = Value(len(self.values))
        if not output:
            if known is None and base is not None:
                self.views[value] = base
            else:
                self.origin[value] = known or ("constant", "constant")
                if known is None:
                    self.strangers.append(Stranger(self._age(tensor), line_of_target()))
                    self._keep(value, tensor)
        self.values.append(value)
        if len(place) == _STRIDED_PLACE:
            _, offset, shape, stride, dtype = place
            self.meta.append((dtype, shape, stride, tensor.device, _STRIDED, offset))
        else:
            shape = () if tensor.is_nested else tuple(tensor.shape)  # of a nested one it is not one
            self.meta.append((tensor.dtype, shape, None, tensor.device, tensor.layout, 0))
        self.storage_of.append(storage)
        if torch_private.is_fake(tensor):
            self.without_memory.add(storage)
        self._tensors[id(tensor)] = (weakref.ref(tensor), value)
        self._places.setdefault(place, value)
        self._first_on.setdefault(storage, value)
        return value

    def _meet_owner(self, storage: int) -> Value | None:
        """The value of the named tensor that has a storage; None where none has it."""
        if self._owners is None:
            locals_ = [torch_private.local(each) for each in self.named.all_tensors()]
            known = [each for each in locals_ if id(each) in self.named.tensors]
            self._owners = {self._place(each)[0]: each for each in reversed(known)}
        owner = self._owners.get(storage)
        return None if owner is None else self.meet(owner, False)

    def _age(self, tensor: torch.Tensor) -> Age:
        """When a tensor was made, as far as that is known.

        Autograd counts in each thread by itself, so that its count says nothing where there are
        several.
        """
        node = tensor.grad_fn
        if node is None:
            return "outside" if self.handed_over and self._is_foreign(tensor) else "unknown"
        older = self.named.older.get(id(tensor))
        if older is not None and older() is tensor:
            return "before"
        counted = threading.active_count() == 1 and node._sequence_nr() < self._begin
        return "before" if counted else "meanwhile"

    def _is_foreign(self, tensor: torch.Tensor) -> bool:
        """Return True if another library owns the memory, and no variable or module keeps it.

        A tensor that was made from a numpy array before the step is a constant like any other.
        """
        try:
            if tensor.untyped_storage().resizable():
                return False
        except (NotImplementedError, RuntimeError):
            return False
        kept = [vars(module) for _, module in self.named.all_modules]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not _STEP:
            kept.append(frame.f_globals)
            for name in frame.f_code.co_freevars:
                if torch_private.local_of(frame, name) is tensor:
                    return False
            frame = frame.f_back
        return not any(value is tensor for scope in kept for value in scope.values())

    def hand_over(self, method: str) -> None:
        """Note that a method is called which may hand a tensor to another library."""
        if method in HANDS_OVER:
            self.handed_over.append((method, line_of_target()))

    def lifted(self, tensor: torch.Tensor) -> None:
        """Meet a constant that `torch.tensor` has just made of numbers, tensors or an array.

        It reads the tensors in a list, and no mode sees that: each is read again, as by `.item()`.
        """
        if self.handed_over:
            self.strangers.append(Stranger("outside", line_of_target()))
        if not torch_private.is_fake(tensor):
            for element in tensors_inside(tensor, self.alive()):
                with self:
                    read(element)
        self.introduce_constant(tensor)

    def introduce(self, tensor: torch.Tensor, role: str, name: str) -> None:
        """Say what a tensor is that will come as an argument."""
        tensor = torch_private.local(tensor)
        known = self._tensors.get(id(tensor))
        if known is None or known[0]() is not tensor:
            value = self.meet(tensor, True)
            self.origin[value] = (role, name)
            if role == "constant":
                self._keep(value, tensor)

    def _keep(self, value: Value, tensor: torch.Tensor) -> None:
        if self.kept is not None:
            self.kept[value] = tensor.detach().clone()

    def introduce_constant(self, tensor: torch.Tensor) -> None:
        """Say that a tensor is a constant which the target has just made of Python values."""
        self.introduce(tensor, "constant", "constant")
        value = self.known(tensor)
        if value is not None and self.origin.get(value) == ("constant", "constant"):
            self.constants[value] = value_of_constant(tensor)

    def number_of(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor: of an output of the target, of a gradient."""
        return self.encode(torch_private.local(tensor))  # type: ignore[no-any-return]

    def known(self, tensor: torch.Tensor) -> Value | None:
        """The value of a tensor that was met, None for another one."""
        known = self._tensors.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def alive(self) -> list[torch.Tensor]:
        """The tensors that were met and are alive."""
        met = [each() for each, _ in list(self._tensors.values())]
        return [tensor for tensor in met if tensor is not None]

    def _place(self, tensor: torch.Tensor) -> tuple[int, tuple[Any, ...]]:
        """The number of a tensor's storage, and where in it the tensor is."""
        try:
            storage = tensor.untyped_storage()
            address = storage._cdata
        except (NotImplementedError, RuntimeError):
            number = -1 - len(self.values)
            return number, (number, 0, id(tensor))
        number = self._storages.get(address, -1)
        if number == -1:
            number = self._storages[address] = self._pins.add(storage)
        if tensor.layout is not _STRIDED or tensor.is_nested:
            return number, (number, 0, id(tensor))
        form = tuple(tensor.shape), tensor.stride(), tensor.dtype
        return number, (number, tensor.storage_offset(), *form)


def line_of_target() -> Line | None:
    """The innermost user's line inside the step that is running."""
    frame: FrameType | None = sys._getframe(1)
    found = None
    while frame is not None and frame.f_code is not _STEP:
        if found is None and is_user_file(frame.f_code.co_filename):
            found = line_of(frame)
        frame = frame.f_back
    return None if frame is None else found


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Let the cyclic garbage collector wait.

    Each few hundred new objects it looks whether they are garbage, and at times at all objects of
    the process, of which torch alone makes half a million. Of a graph that is being built nothing
    is garbage. It is for code of ours alone, never around the target's.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
