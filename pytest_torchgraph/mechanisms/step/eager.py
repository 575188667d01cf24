"""The eager run that a capture is compared with, its results, and a run in float64."""

from __future__ import annotations

import contextlib
import copy
import enum
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ... import torch_private
from ...errors import CaptureError
from ...watching.observe import HUB
from .invocation import Invocation
from .named_tensors import DEPTH, held_by
from .python_state import PythonState
from .saved_state import RandomState, SavedState, preserve_state
from .saved_tensor import same_bits, storage_of, version_of
from .step import Step

_PLAIN: dict[type, type] = {immutable_list: list, immutable_dict: dict}
"""Types that torch.fx substitutes in the output of an interpreted graph, with the original types.
"""


class _Container(NamedTuple):
    """A list, a dict or another object in an output, with items that are leaves."""

    kind: type


@dataclass(frozen=True)
class Outcome:
    """The results of one step.

    Attributes:
        outputs: the tensors of the output, by path, for example `output['logits']`.
        others: the other leaves, by path.
        containers: the types of lists, dicts and other objects that contain leaves, by path.
        requires_grad: the paths of the tensors that require grad.
        strides: the strides of the dense tensors of the output, by path.
        sharing: for each tensor of the output, by path: the path of the first output that is the
            same object, and the label of the first input or output with the same storage, "" if
            its memory is unknown.
        grads: the gradients, by the name of the parameter or argument.
        state: final buffers and tensor arguments, for example `buffer norm.running_mean`.
        numpy: the final state of numpy's global generator, `None` without numpy.
    """

    outputs: Mapping[str, torch.Tensor]
    others: Mapping[str, Any]
    containers: Mapping[str, type]
    requires_grad: frozenset[str]
    strides: Mapping[str, tuple[int, ...]]
    sharing: Mapping[str, tuple[str, str]]
    grads: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)
    numpy: Any = None

    def kept(self, earlier: Outcome | None) -> Outcome:
        """Copy all tensors, because a later call may write to them.

        Gradients and state with the values of an earlier outcome share its copies.
        """

        def copies(
            tensors: Mapping[str, torch.Tensor], former: Mapping[str, torch.Tensor]
        ) -> dict[str, torch.Tensor]:
            """Return the tensors as copies, or as former copies with the same bits."""
            return {
                name: former[name]
                if name in former and same_bits(tensor, former[name])
                else tensor.detach().clone()
                for name, tensor in tensors.items()
            }

        return replace(
            self,
            outputs=copies(self.outputs, {}),
            grads=copies(self.grads, earlier.grads if earlier else {}),
            state=copies(self.state, earlier.state if earlier else {}),
        )

    def finished(self, saved: SavedState) -> Outcome:
        """Add the final values of the state, once the step's state is restored; drop the copies."""
        final_values = saved.final_values()
        saved.release()
        state = {
            label: final_values.get(id(tensor), tensor) for label, tensor in self.state.items()
        }
        return replace(self, state=state)


def outcome_of(step: Step) -> Outcome:
    """Return the outcome of a step that has just run, before its state is restored.

    `state` holds the tensors themselves until `finished`.
    """
    named = step.invocation.named
    with_grad = [leaf for leaf in step.leaves if leaf.grad is not None]
    names = {id(tensor): name for name, tensor in [*named.inputs, *named.all_parameters]}
    if any(id(leaf) not in names for leaf in with_grad):  # the target may have created modules
        named.look()
        names.update((id(parameter), name) for name, parameter in named.all_parameters)
    restored = step.saved.restored()
    # Restoring overwrites each tensor that shares memory with a buffer or an argument.
    shared = {storage_of(tensor) for tensor in restored} - {0}
    restored_ids = {id(tensor) for tensor in restored}

    def detached(tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that restoring the state will not overwrite."""
        tensor = tensor.detach()
        return tensor.clone() if storage_of(tensor) in shared else tensor

    outputs: dict[str, torch.Tensor] = {}
    other_leaves: dict[str, Any] = {}
    containers: dict[str, type] = {}
    requiring = set()
    strides: dict[str, tuple[int, ...]] = {}
    sharing: dict[str, tuple[str, str]] = {}
    parameters = [(f"parameter {name!r}", tensor) for name, tensor in named.all_parameters]
    labelled = [*parameters, *_labelled_state(step)]
    # Reversed, so that the first label of a storage stays.
    owners = {_memory_of(tensor): label for label, tensor in reversed(labelled)}
    objects: dict[int, str] = {}  # the first path of each output, by `id`
    for path, leaf in _leaves(step.output, "output"):
        if isinstance(leaf, torch.Tensor):
            outputs[path] = detached(leaf)
            if leaf.requires_grad:
                requiring.add(path)
            first = objects.setdefault(id(leaf), path)
            if memory := _memory_of(leaf):
                sharing[path] = first, owners.setdefault(memory, path)
                strides[path] = leaf.stride()
            else:
                sharing[path] = first, ""
        elif isinstance(leaf, _Container):
            containers[path] = leaf.kind
        elif (array := _as_tensor(leaf)) is not None:  # the type says that it was an array
            outputs[path], containers[path] = array, type(leaf)
        else:
            other_leaves[path] = leaf
    grads = {
        names[id(leaf)]: leaf.grad.detach()
        for leaf in with_grad
        if leaf.grad is not None and id(leaf) in names
    }
    state = {
        label: tensor if id(tensor) in restored_ids else detached(tensor)
        for label, tensor in _labelled_state(step)
    }
    return Outcome(
        outputs,
        other_leaves,
        containers,
        frozenset(requiring),
        strides,
        sharing,
        grads,
        state,
        _numpy_state(),
    )


def _memory_of(tensor: Any) -> int:
    """Return an id of the memory of a dense tensor with elements, 0 for any other tensor."""
    if is_traceable_wrapper_subclass(tensor) or torch_private.is_fake(tensor):
        return 0
    dense = tensor.layout is torch.strided and not tensor.is_nested and tensor.numel()
    return storage_of(tensor) if dense else 0


def _labelled_state(step: Step) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield buffers, tensor arguments and what a training step updates, each with its label."""
    named, updates = step.invocation.named, step.invocation.updates
    if updates is not None:
        for name, parameter in updates.parameters.values():
            yield f"parameter {name!r}", parameter
        for name, tensor in updates.tensors():
            yield f"state {name!r}", tensor
    for name, buffer in named.current_buffers():
        yield f"buffer {name!r}", buffer
    for name, tensor in [*named.inputs, *named.held]:
        if not isinstance(tensor, torch.nn.Parameter):
            yield f"argument {name!r}", tensor


def _leaves(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each leaf and each container of an output, with its path.

    An object unknown to pytree is a container of its attributes.
    """
    children = _children(value, path)
    if children is None:
        held = held_by(value) if depth <= DEPTH and not _is_value(value) else {}
        if not held:
            # A copy, because another run of the target may change the object and return it again.
            yield path, copy.copy(value) if isinstance(value, set | bytearray) else value
            return
        children = [(f"{path}[{key!r}]", item) for key, item in held.items()]
        depth += 1
    yield path, _Container(_PLAIN.get(type(value), type(value)))
    for name, item in children:
        yield from _leaves(item, name, depth)


def _children(value: Any, path: str) -> list[tuple[str, Any]] | None:
    """Return the items of a container, `None` for a leaf."""
    if isinstance(value, torch.Tensor):
        return None
    if isinstance(value, dict):
        return [(f"{path}[{key!r}]", item) for key, item in value.items()]
    if type(value) in (list, tuple, immutable_list):
        return [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    try:
        items, _ = pytree.tree_flatten_with_path(value, is_leaf=lambda node: node is not value)
    except ValueError:  # a class registered without the names of its items
        leaves, _ = pytree.tree_flatten(value, is_leaf=lambda node: node is not value)
        return [(f"{path}[{number}]", item) for number, item in enumerate(leaves)]
    if len(items) == 1 and not items[0][0]:
        return None
    return [(path + pytree.keystr(key), item) for key, item in items]


def _is_value(value: Any) -> bool:
    """Return True for a value that has attributes but is compared as a whole."""
    return isinstance(
        value, bool | int | float | complex | str | bytes | enum.Enum | torch.dtype | torch.device
    ) or type(value).__module__ in ("pathlib", "datetime", "fractions", "decimal", "uuid")


def _as_tensor(value: Any) -> torch.Tensor | None:
    """Return a tensor copy of a numpy array; `None` for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        return None
    try:
        return torch.from_numpy(value.copy())
    except (TypeError, ValueError):  # a dtype that torch does not have
        return None


def _numpy_state() -> Any:
    """Return the state of numpy's global generator, in comparable form."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    _, key, *position = numpy.get_state()
    return key.tobytes(), *position


class EagerRun:
    """Reruns an invocation eagerly, from the state that its capture started from.

    Create it after the capture, once all changed state is restored.

    Args:
        invocation: the call.
        random: the state of the random number generators before the capture.
        callback: Dynamo's callback in the target, if the capture replaced it; otherwise `None`.

    Attributes:
        backends: the backends of all compiled code that the step called, each with its name, and
            True if torch registers it under this name. Complete after an eager run.
        switches, inference: torch's global switches and inference mode now, for each run.
        versions: the tensors that a run starts from, with their versions, by name.
    """

    def __init__(self, invocation: Invocation, random: RandomState, callback: Any = None):
        self.invocation = invocation
        self.random = random
        self.backends: set[tuple[str, bool]] = set()
        if callback is not None:
            self._note_backend(callback)
        self.switches = torch_private.switches()
        self.inference = torch.is_inference_mode_enabled()
        self.versions = {name: (tensor, version_of(tensor)) for name, tensor in self._tensors()}

    def _note_backend(self, callback: Any) -> None:
        """Add the backend in a callback of Dynamo's to `backends`."""
        self.backends.add(torch_private.backend_of(callback))

    def run(self, how: Callable[[Step], object]) -> Outcome:
        """Run the invocation, unseen by an open watch.

        Args:
            how: runs the step.

        Raises:
            CaptureError: if a parameter, a buffer or an argument has changed since the capture.
        """
        self.invocation.named.look()  # the target may have created modules
        for name, tensor in self._tensors():
            before, seen = self.versions.get(name, (tensor, version_of(tensor)))
            if before is not tensor or seen != version_of(tensor):
                raise CaptureError(
                    f"{name} changed after the capture, so an eager run would start from a "
                    "different state: call assert_matches_eager() right after the captured calls"
                )
        with (
            HUB.paused(),
            preserve_state(self.invocation.named, updates=self.invocation.updates) as saved,
            torch.inference_mode(self.inference),
        ):
            torch_private.assign_switches(self.switches)
            step = Step(self.invocation, saved)
            # Dropout has to draw the same numbers as in the capture.
            self.random.restore()
            how(step)
            outcome = outcome_of(step)
        return outcome.finished(saved)

    def eagerly(
        self,
        context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        how: Callable[[Step], object] = Step.run,
    ) -> Outcome:
        """Run the invocation inside a context. Code that is already compiled runs eagerly."""

        def run(step: Step) -> None:
            with context(), torch_private.run_eagerly(self._note_backend):
                how(step)

        return self.run(run)

    def python(self) -> PythonState:
        """Return the target's current Python state."""
        return PythonState(self.invocation.named, self.invocation.target)

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors that a run starts from: arguments, parameters and buffers, by name."""
        named = self.invocation.named
        yield from named.inputs
        yield from named.all_parameters
        yield from named.current_buffers()


LOWER_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that are recomputed in float64."""
_LOWERING_METHODS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)


class InFloat64(TorchFunctionMode):
    """Casts the arguments of each function to float64, and replaces requested dtypes.

    An in-place write to a float32, float16 or bfloat16 tensor is not cast, because the result must
    be in the caller's tensor. Parameters and arguments are not changed. Gradients have the dtypes
    of their leaves, because autograd casts them at the end.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function in float64."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        # Attributes of the tensor itself, or an in-place write: a cast would give another tensor.
        if name in ("__get__", "__set__") or (name.endswith("_") and _has_lower_dtype(args[:1])):
            return func(*args, **kwargs)
        if func in _LOWERING_METHODS:
            func = torch.Tensor.double
        args, kwargs = pytree.tree_map(cast_to_float64, (tuple(args), kwargs))
        return func(*args, **kwargs)


def _has_lower_dtype(values: Sequence[Any]) -> bool:
    """Return True if one of the values is a tensor that would be cast."""
    return any(isinstance(value, torch.Tensor) and value.dtype in LOWER_DTYPES for value in values)


def cast_to_float64(value: Any) -> Any:
    """Cast a tensor of a lower precision, or replace a dtype, by float64."""
    if isinstance(value, torch.Tensor) and value.dtype in LOWER_DTYPES:
        return value.double()
    if isinstance(value, torch.dtype) and value in LOWER_DTYPES:
        return torch.float64
    return value
