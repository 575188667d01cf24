"""The recording of a TorchDispatchMode: ops as they ran, with tensors as numbered values.

The records hold no tensors. A tensor is identified by its id while a weak reference to it is alive.
A storage is identified by its address; a weak reference to the storage keeps the address from being
reused. Names, order and dead code are determined after the run, in `replay`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import torch
from torch.autograd.function import BackwardCFunction

from ... import torch_private
from ...convert.normalize import value_of_constant
from ...convert.placeholders import InputName
from ...convert.source_lines import Line, callers, current_line, user_frames
from ...errors import CaptureError
from ...graph.model import RecomputedBy
from ..step import STEP, NamedTensors, Step
from .constants import is_made_of_numbers, read, tensors_inside

if TYPE_CHECKING:
    from .noted_run import UnseenWrites


LIFT = torch.ops.aten.lift_fresh.default
"""The op that `torch.tensor` and similar functions apply to a constant that they have just created.
"""
FIRST_LEAF_SEQUENCE = 2**63
"""Autograd nodes with this sequence number or higher are not operations: AccumulateGrad."""

_WRITE, _WRITTEN = "CopySlices", "AsStridedBackward0"
"""Names of the two autograd nodes of a write into a view: the base's node, then the view's."""

_REENTRANT = "CheckpointFunctionBackward"
"""Name of the autograd node of a reentrant checkpoint."""
_PACKAGE = __name__.partition(".")[0] + "."
_grad_is_enabled = torch.is_grad_enabled
_PLAIN = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout))
"""Argument types that hold no tensor."""
_STRIDED = torch.strided
_STRIDED_PLACE = 5
"""Number of items in the place of a strided tensor: storage, offset, shape, strides and dtype."""


_T = TypeVar("_T")
_CONTAINERS = (tuple, list, dict)


def parts_of(value: Any, kind: type[_T]) -> Iterator[_T]:
    """Yield the objects of a class among arguments or results, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, _CONTAINERS):
        # The items are looked at here, because this runs for each op, and most are no containers.
        for item in [*value.values()] if isinstance(value, dict) else value:
            if isinstance(item, kind):
                yield item
            elif isinstance(item, _CONTAINERS):
                yield from parts_of(item, kind)


class Value(int):
    """A tensor in a recorded argument: the number of its value."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class OpRecord:
    """One op that ran.

    Attributes:
        op, args, kwargs: the op as called, with tensors replaced by `Value`.
        output: the result, with tensors replaced by `Value`.
        path_number: number of the running module's path, -1 if only autograd knows it.
        sequence: in the forward, the autograd sequence number after this op; in the backward, the
            sequence number of the autograd node that ran it.
        line: the user's line that called the op, `None` in the backward.
        by: see `Node.by`.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    path_number: int
    sequence: int
    line: Line | None
    by: RecomputedBy = ""


HANDS_OVER = ("numpy", "__array__", "__dlpack__")
"""Methods that pass a tensor to another library. Its computations are not dispatched as ops."""

Age: TypeAlias = Literal["before", "meanwhile", "unknown", "outside"]
"""The time of a tensor's creation; see `UnknownInput`."""


class UnknownInput(NamedTuple):
    """An argument tensor with no recorded producer.

    Attributes:
        age: "before" if the op that made it ran before the step, "meanwhile" if the op may have run
            during the step, "unknown" for a leaf, "outside" if another library may have computed it
            from a tensor of the step.
        line: the target's line where it appeared, `None` if there is no line, as for tensors that
            the target returned.
    """

    age: Age
    line: Line | None


class RecordingMode(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that identifies the tensors it has met.

    Attributes:
        named: the tensors and modules with names.
        paths: module paths, indexed by the numbers in the records.
        values: all values, by number.
        meta: dtype, shape, strides, device, layout and storage offset of each value.
        storage_of: number of each value's storage.
        copied_from: for each storage that AOTAutograd copied into an argument, the argument's.
        without_memory: the storages of fake tensors.
        filled: the storages of tensors that C++ code of torch may fill through a pointer.
        origin: (role, name) of each value from outside the step.
        constants: the contents of constants that the target created; see `Node.args`.
        kept: copies of constant tensors, made when they were first met; `None` to keep no copies.
        views: for each value without a recorded producer whose storage is known, an earlier value
            with this storage.
        unknown_inputs: argument tensors with no recorded producer.
        writes: tracks the writes to tensors; `None` until a thread is started.
        suspensions: how many contexts prevent recording now, see `IslandRecorder.suspended`.
        handed_over: the calls of `HANDS_OVER` methods, with the target's lines.
        precompiled: the target's lines that called precompiled code.
    """

    def __init__(self, named: NamedTensors):
        super().__init__()  # type: ignore[no-untyped-call]
        self.named = named
        self.paths: list[str] = [""]
        self.values: list[Value] = []
        self.meta: list[tuple[Any, ...]] = []
        self.storage_of: list[int] = []
        self.copied_from: dict[int, int] = {}
        self.without_memory: set[int] = set()
        self.filled: set[int] = set()
        self.origin: dict[int, InputName] = {}
        self.constants: dict[int, tuple[Any, ...]] = {}
        self.kept: dict[int, torch.Tensor] | None = None
        self.views: dict[int, int] = {}
        self.unknown_inputs: list[UnknownInput] = []
        self.writes: UnseenWrites | None = None
        self.suspensions = 0
        self.handed_over: list[tuple[str, Line | None]] = []
        self.precompiled: list[Line | None] = []
        self._path_numbers: dict[str, int] = {"": 0}
        # By `id` of a met tensor: a weak reference, which tells if the id is still the tensor's.
        self._tensors: dict[int, tuple[Any, Value]] = {}
        self._pins = torch_private.StoragePins()
        self._storages = self._pins.numbers
        # The first value in each place of a storage, see `_place`, and in each storage.
        self._places: dict[tuple[Any, ...], Value] = {}
        self._first_on: dict[int, Value] = {}
        # The values that were passed to another library, by `_contents`.
        self._shared: dict[Any, Value | None] = {}
        self._owners: dict[int, torch.Tensor] | None = None  # see `_meet_owner`
        self._composite: dict[Any, bool] = {}
        self._sequence = torch_private.get("sequence_nr")
        self._begin = self._sequence()  # nodes with a lower number are older than the step
        self._autograd_node = torch_private.get("current_node")
        self._saved_tensor_hooks = torch_private.saved_tensor_hooks()
        self._engine = torch_private.get("engine_run_backward").__code__

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True. Otherwise Dynamo would not compile a frame again that ran under the mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap __torch_dispatch__ in torch.compiler.disable, at 3 µs per op.
        return False

    def introduce_inputs(self, step: Step, *, backward: bool) -> None:
        """Declare the arguments of a step, or the incoming gradients of its backward."""
        if backward:
            for number, cotangent in step.cotangents:
                self.introduce(cotangent, "tangent", f"tangent.{number}")
        else:
            for name, tensor in self.named.inputs:
                self.introduce(tensor, "input", name)

    def recording(self, *, backward: bool) -> contextlib.AbstractContextManager[None]:
        """Record everything that runs inside, as the forward or as the backward."""
        raise NotImplementedError

    # -- modules ---------------------------------------------------------------------------------

    def number_of_path(self, path: str) -> int:
        """Return the number of a module path, assigning a new number if needed."""
        number = self._path_numbers.get(path)
        if number is None:
            number = self._path_numbers[path] = len(self.paths)
            self.paths.append(path)
        return number

    def number_of_module(self, module: torch.nn.Module) -> int:
        """Return the number of a module's path, or of its class name if the module is unknown."""
        path = self.named.modules.get(id(module))
        return self.number_of_path(type(module).__name__ if path is None else path)

    def number_of_owner(self, node: Any) -> int:
        """Return the path number of the module that owns an AccumulateGrad node's parameter.

        The number is 0, as of the target itself, if the node accumulates into another tensor.
        """
        tensor = getattr(node, "variable", None)
        role, name = self.named.tensors.get(id(tensor), ("", ""))
        return self.number_of_path(name.rpartition(".")[0] if role == "parameter" else "")

    # -- ops -------------------------------------------------------------------------------------

    def sequence_of(self, node: Any) -> int:
        """Return the sequence number of an autograd node, -1 for `None`.

        An autograd node is created before its op runs, with one exception: a write into a view
        creates two nodes after the op, one for the base and one for the view. For both, the number
        before them is returned, as if they had been created before the op.
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
        """Return the reason why an op of the backward runs; see `Node.by`.

        A checkpoint reruns the forward with grad mode on, while autograd's formulas run with grad
        mode off. A reentrant checkpoint nested in another checkpoint also reruns its forward with
        grad mode off.

        Args:
            node: the autograd node that runs the op.
            in_module: True if a module is being called.
        """
        if in_module or _grad_is_enabled():
            return "checkpoint"
        if not isinstance(node, BackwardCFunction):
            return "function" if self._is_in_hook() else "formula"
        return "checkpoint" if type(node).__name__ == _REENTRANT else "function"

    def _is_in_hook(self) -> bool:
        """Return True if the engine has called code of the user: an unpack hook or a tensor hook.

        An op of a formula has no frame of the user between the engine and the dispatcher.
        """
        return any(user_frames(sys._getframe(3), self._engine))  # above the recorder's own frames

    def is_packing(self) -> bool:
        """Return True while a saved-tensor hook packs a tensor.

        The op that saves the tensor has created its autograd node before. Packing creates none.
        """
        # torch calls the hooks of saved tensors with grad mode off.
        if torch.is_grad_enabled():
            return False
        hooks = self._saved_tensor_hooks()
        pack = None if hooks is None else getattr(hooks[0], "__code__", None)
        if pack is None:
            return False
        return any(caller.f_code is pack for caller in callers(sys._getframe(2)))

    def is_composite(self, func: Any) -> bool:
        """Return True for an op that is decomposed everywhere except in inference mode."""
        composite = self._composite.get(func)
        if composite is None:
            composite = self._composite[func] = torch_private.is_composite(func.name())
        return composite

    # -- tensors ---------------------------------------------------------------------------------

    def encode(self, value: Any, output: bool = False) -> Any:
        """Encode an argument or output: tensors as `Value`, sequences as tuples."""
        if type(value) in _PLAIN:
            return value
        entry = self._tensors.get(id(value))
        # An op that returns its argument returns the same value, even if it changed the storage.
        if (
            entry is not None
            and entry[0]() is value
            and (output or self._keeps_storage(value, entry[1]))
        ):
            return entry[1]
        if isinstance(value, torch.Tensor):
            return self.add_tensor(value, output)
        if isinstance(value, list | tuple):
            return self.encode_all(value, output)
        return value

    def encode_all(self, values: Iterable[Any], output: bool = False) -> tuple[Any, ...]:
        """Return `encode` of each value.

        This runs for each op, so it does the first steps of `encode` without calling it.
        """
        tensors = self._tensors
        encoded = []
        for value in values:
            if type(value) in _PLAIN:
                encoded.append(value)
                continue
            entry = tensors.get(id(value))
            if (
                entry is not None
                and entry[0]() is value
                and (output or self._keeps_storage(value, entry[1]))
            ):
                encoded.append(entry[1])
            else:
                encoded.append(self.encode(value, output))
        return tuple(encoded)

    def add_tensor(self, tensor: torch.Tensor, output: bool) -> Value:
        """Note a tensor object that was not met before, and return its value.

        The value is new, unless the tensor is an argument in a place that has a value already. A
        new value of an argument has an origin, or is a view of an earlier value. If its origin is
        no named tensor, it is an unknown input.

        Args:
            tensor: the tensor.
            output: True if an op returned it, False if it is an argument.
        """
        storage, place = self._place(tensor)
        if not output:
            # The same place in a known storage: another Python object for a known tensor.
            met_value = self._places.get(place)
            if met_value is None and self._shared:  # it may be an array that was a tensor before
                met_value = self._shared.get(_contents(tensor))
            if met_value is not None:
                self._tensors[id(tensor)] = (weakref.ref(tensor), met_value)
                return met_value
        role_and_name, base = self.named.tensors.get(id(tensor)), self._first_on.get(storage)
        if not output and role_and_name is None and base is None:
            # It may be a view of a named tensor, made before the step, so by no recorded op.
            base = self._meet_owner(storage)
        value = Value(len(self.values))
        if not output:
            if role_and_name is None and base is not None:
                self.views[value] = base
            else:
                self.origin[value] = role_and_name or ("constant", "constant")
                if role_and_name is None:
                    self.unknown_inputs.append(UnknownInput(self._age(tensor), current_line(STEP)))
                    self._keep(value, tensor)
        self.values.append(value)
        if len(place) == _STRIDED_PLACE:
            _, offset, shape, stride, dtype = place
            self.meta.append((dtype, shape, stride, tensor.device, _STRIDED, offset))
        else:
            # A nested tensor has no single shape.
            shape = () if tensor.is_nested else tuple(tensor.shape)
            self.meta.append((tensor.dtype, shape, None, tensor.device, tensor.layout, 0))
        self.storage_of.append(storage)
        # Such functions fill a new row of lengths; other tensors need no search for the caller.
        is_row = output and tensor.ndim == 1 and tensor.is_cpu
        if is_row and not _FILL.isdisjoint(_caller().f_code.co_names):
            self.filled.add(storage)
        self._tensors[id(tensor)] = (weakref.ref(tensor), value)
        self._places.setdefault(place, value)
        if storage not in self._first_on:
            self._first_on[storage] = value
            if torch_private.is_fake(tensor):
                self.without_memory.add(storage)
        return value

    def _meet_owner(self, storage: int) -> Value | None:
        """Return the value of the named tensor that owns a storage, or `None`."""
        if self._owners is None:  # built at the first need: most steps have no such view
            locals_ = [torch_private.local(tensor) for tensor in self.named.all_tensors()]
            named_locals = [tensor for tensor in locals_ if id(tensor) in self.named.tensors]
            # Reversed, because if tensors share a storage, the first of them is the owner.
            self._owners = {self._place(tensor)[0]: tensor for tensor in reversed(named_locals)}
        owner = self._owners.get(storage)
        return None if owner is None else self.add_tensor(owner, False)

    def _age(self, tensor: torch.Tensor) -> Age:
        """Return when a tensor was made, if known.

        Autograd counts sequence numbers per thread, and starts at 0 in each. They are therefore
        compared only in a process with a single thread, and only if the step started no thread: a
        thread of a pool may have ended already.
        """
        node = tensor.grad_fn
        if node is None:
            return "outside" if self.handed_over and self._is_foreign(tensor) else "unknown"
        older = self.named.older.get(id(tensor))
        if older is not None and older() is tensor:
            return "before"
        one_thread = threading.active_count() == 1 and self.writes is None
        return "before" if one_thread and node._sequence_nr() < self._begin else "meanwhile"

    def _is_foreign(self, tensor: torch.Tensor) -> bool:
        """Return True if another library owns the memory, and no variable or module is the tensor.

        A tensor that a variable or a module holds may have been made from a numpy array before the
        step. It is then an ordinary constant.
        """
        try:
            # Memory that torch allocated can be resized, numpy's cannot.
            if tensor.untyped_storage().resizable():
                return False
        except (NotImplementedError, RuntimeError):  # it has no storage
            return False
        scopes = [vars(module) for _, module in self.named.all_modules]
        for frame in callers(sys._getframe(1), STEP):
            scopes.append(frame.f_globals)
            for name in frame.f_code.co_freevars:
                # Locals of the target do not count, because they hold each result of the target.
                if torch_private.local_of(frame, name) is tensor:
                    return False
        return not any(value is tensor for scope in scopes for value in scope.values())

    def hand_over(self, method: str, tensor: Any) -> None:
        """Note a method call that may pass a tensor to another library."""
        if method in HANDS_OVER:
            value = self.find_value(tensor)
            if not self.is_of_numpy(value):
                self.handed_over.append((method, current_line(STEP)))
            # An array that comes back unchanged is the tensor. Dynamo passes arrays like this.
            if value is not None and (contents := _contents(tensor)) is not None:
                self._shared[contents] = value

    def is_of_numpy(self, value: Value | None) -> bool:
        """Return True if a value stands for a numpy array that depends on no tensor of the step."""
        return False

    def lifted(self, tensor: torch.Tensor) -> None:
        """Meet a constant that `torch.tensor` has just made from numbers, tensors or an array.

        `torch.tensor` reads tensors in a list without dispatching an op. Each of them is therefore
        read again here, as by `.item()`.
        """
        # An array whose memory is a tensor of the step: no constant, see `hand_over`.
        if self._shared and _contents(tensor) in self._shared:
            return
        if self.handed_over and not is_made_of_numbers(_caller()):
            self.unknown_inputs.append(UnknownInput("outside", current_line(STEP)))
        if not torch_private.is_fake(tensor):
            for element in tensors_inside(tensor, self.alive()):
                with self:
                    read(element)
        self.introduce_constant(tensor)

    def introduce(self, tensor: torch.Tensor, role: str, name: str) -> None:
        """Declare the role and name of a tensor before it appears as an argument.

        A tensor that was met before keeps its origin.
        """
        tensor = torch_private.local(tensor)
        entry = self._tensors.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            value = self.add_tensor(tensor, True)
            self.origin[value] = (role, name)
            if role == "constant":
                self._keep(value, tensor)

    def _keep(self, value: Value, tensor: torch.Tensor) -> None:
        """Copy a constant, if copies are wanted."""
        if self.kept is not None:
            self.kept[value] = tensor.detach().clone()

    def introduce_constant(self, tensor: torch.Tensor) -> None:
        """Declare a tensor as a constant that the target has just made from Python values."""
        self.introduce(tensor, "constant", "constant")
        value = self.find_value(tensor)
        if value is not None and self.origin.get(value) == ("constant", "constant"):
            self.constants[value] = value_of_constant(tensor)

    def number_of(self, tensor: torch.Tensor) -> Value:
        """Return the value of an output, a gradient or any other tensor."""
        return self.encode(torch_private.local(tensor))  # type: ignore[no-any-return]

    def memory(self, value: Value | torch.Tensor) -> int:
        """Return the number of the storage that holds a value, or a tensor, at the end."""
        if isinstance(value, torch.Tensor):
            return self._place(torch_private.local(value))[0]
        storage = self.storage_of[value]
        return self.copied_from.get(storage, storage)

    def find_value(self, tensor: torch.Tensor) -> Value | None:
        """Return the value of a tensor, or `None` if the tensor was not met."""
        entry = self._tensors.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def alive(self) -> list[torch.Tensor]:
        """Return the met tensors that are still alive."""
        tensors = [reference() for reference, _ in list(self._tensors.values())]
        return [tensor for tensor in tensors if tensor is not None]

    def _keeps_storage(self, tensor: torch.Tensor, value: Value) -> bool:
        """Return False if a met tensor has got another storage, for example by `x.data = y`."""
        try:
            address = tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):  # it has no storage
            return True
        return self._storages.get(address) == self.storage_of[value]

    def _place(self, tensor: torch.Tensor) -> tuple[int, tuple[Any, ...]]:
        """Return the number of a tensor's storage, and the tensor's place in the storage.

        Two tensors in one place have the same elements, and get the same value.
        """
        try:
            storage = tensor.untyped_storage()
            # The storage object, not the data pointer: a fake tensor has no data.
            address = storage._cdata
        except (NotImplementedError, RuntimeError):
            number = -1 - len(self.values)  # no storage: a negative number that no other value has
            return number, (number, 0, id(tensor))
        number = self._storages.get(address, -1)
        if number == -1:
            number = self._pins.add(storage)
        if tensor.layout is not _STRIDED or tensor.is_nested:
            return number, (number, 0, id(tensor))
        form = tuple(tensor.shape), tensor.stride(), tensor.dtype
        return number, (number, tensor.storage_offset(), *form)


def unrecorded(reason: str) -> CaptureError:
    """Return the error for a step in which something ran unrecorded."""
    return CaptureError(f"something ran unrecorded, so the graphs would be incomplete: {reason}")


_FILL = frozenset({"_pad_packed_sequence", "ctc_loss"})
"""Functions of torch that write lengths to a tensor in C++, without an op."""


def _caller() -> FrameType:
    """Return the innermost frame outside this package."""
    return next(
        frame
        for frame in callers(sys._getframe(2))
        if not str(frame.f_globals.get("__name__")).startswith(_PACKAGE)
    )


def _contents(tensor: torch.Tensor) -> Any:
    """Return what identifies the memory of a tensor and its contents, `None` if unknown."""
    if not (tensor.is_cpu and tensor.layout is _STRIDED and tensor.is_contiguous()):
        return None
    if torch_private.is_fake(tensor) or torch_private.subclass_of(tensor):
        return None
    address = tensor.data_ptr()
    memory = ctypes.string_at(address, tensor.nbytes)
    return address, tensor.dtype, tensor.shape, hash(memory)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector.

    The collector runs after every few hundred new objects, and at times examines all objects of the
    process; torch alone creates half a million. Building a graph creates no garbage. Use this
    context only around our own code, never around the target.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
