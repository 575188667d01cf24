"""The captured call, its variants on another device or on fake tensors, and its backward."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.utils._pytree as pytree

from ... import torch_private
from ...convert import source_lines
from ...devices import why_absent
from ...errors import CaptureError, add_note
from ...words import listed
from .named_tensors import NamedTensors
from .updates import Updates


@dataclass(frozen=True, eq=False)
class Invocation:
    """One call of a target, which can be run repeatedly.

    Attributes:
        target: a module or any callable.
        args, kwargs: the arguments of the call.
        loss_fn: maps the output to the scalar where the backward starts. `None` uses the output's
            own `loss`, or else all differentiable outputs.
        backward: None runs the backward if possible, False never, True requires it.
        updates: the state that the target may change; `None` if it is no training step.
        warmup: how often the target runs before the captured call.

    Raises:
        TypeError: if `backward` has another value.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss_fn: Callable[[Any], torch.Tensor] | None = None
    backward: bool | None = None
    updates: Updates | None = None
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.backward not in (None, True, False):
            raise TypeError(f"backward must be None, True or False, not {self.backward!r}")

    @cached_property
    def named(self) -> NamedTensors:
        """The tensors and modules with names, collected before the target runs."""
        first = () if self.updates is None else self.updates.modules
        named = NamedTensors(self.target, self.args, self.kwargs, first)
        if self.updates is not None:
            self.updates.rename({id(p): name for name, p in named.all_parameters})
        for tensor in named.all_tensors():
            if tensor.requires_grad and torch_private.is_fake(tensor):
                _refuse_unlinked(tensor.device)
        return named

    def call(self, target: Callable[..., Any] | None = None) -> Any:
        """Call the target, or its replacement, with the arguments."""
        return (self.target if target is None else target)(*self.args, **self.kwargs)

    def with_backward(self, backward: bool) -> Invocation:
        """Return the same call with another `backward`."""
        invocation = replace(self, backward=backward)
        vars(invocation)["named"] = self.named  # shared: building it walks over all modules
        return invocation

    def raise_what_the_target_raises(self) -> None:
        """Call the target eagerly to find out if a tracer's error is the target's own.

        If the target runs without an error, only the tracer failed, and nothing is raised.

        Raises:
            Exception: the exception of the target itself.
        """
        try:
            self.call()
        except Exception as own:
            raise own from None


def _refuse_unlinked(device: torch.device) -> None:
    """Raise `CaptureError` if torch would end the process for a fake tensor that requires grad.

    Autograd asks the device of a leaf for its stream, in C++ code that must not raise. torch 2.14
    raises later, in the backward.
    """
    reason = why_absent(device)
    if reason is not None:
        raise CaptureError(f"an argument is a fake tensor on {device}: {reason}")


def to_device(invocation: Invocation, device: torch.device) -> Invocation:
    """Return an invocation of copies of target and arguments on `device`.

    A tensor that is passed twice is copied once, because attention behaves differently if query and
    key are the same tensor.

    Raises:
        CaptureError: if the device is unavailable, or if the target is a function that uses a
            module on another device, because that module cannot be replaced by a copy.
    """
    try:
        torch.empty(0, device=device)
    except Exception as error:
        raise CaptureError(f"device={str(device)!r} is not available: {error}") from None

    copies: dict[int, Any] = {}

    def move(value: Any) -> Any:
        """Return the copy of a tensor, or any other value itself."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in copies:
            # Copied even if on `device` already, because the step may write to its arguments.
            moved = value.detach().to(device, copy=True)
            copies[id(value)] = moved.requires_grad_() if value.requires_grad else moved
        return copies[id(value)]

    def module(value: torch.nn.Module) -> torch.nn.Module:
        """Return the copy of a module, and note the copies of its tensors."""
        moved = copy.deepcopy(value).to(device)
        for tensors_of in (torch.nn.Module.parameters, torch.nn.Module.buffers):
            # A parameter that is also an argument is one tensor on the new device too.
            pairs = zip(tensors_of(value), tensors_of(moved), strict=True)
            copies.update((id(original), copied) for original, copied in pairs)
        return moved

    # The target first, so that arguments can be tensors of it.
    target = _moved_target(invocation.target, device, move, module)
    args, kwargs = pytree.tree_map(move, (invocation.args, invocation.kwargs))
    return replace(invocation, target=target, args=args, kwargs=kwargs)


def _moved_target(
    target: Any,
    device: torch.device,
    move: Callable[[Any], Any],
    module: Callable[[torch.nn.Module], torch.nn.Module],
) -> Any:
    """Return a target with `move` of its tensors and `module` of its module; see `to_device`."""
    if isinstance(target, torch.nn.Module):
        return module(target)
    if isinstance(target, functools.partial):
        function = _moved_target(target.func, device, move, module)
        args, keywords = pytree.tree_map(move, (target.args, target.keywords))
        return functools.partial(function, *args, **keywords)
    if inspect.ismethod(target) and isinstance(target.__self__, torch.nn.Module):
        return getattr(module(target.__self__), target.__name__)
    parameters = NamedTensors(target, (), {}).all_parameters
    elsewhere = {parameter.device.type for _, parameter in parameters} - {device.type}
    if elsewhere:
        raise CaptureError(
            f"device={str(device)!r} cannot be used here: the target is a function that uses a "
            f"module on {', '.join(sorted(elsewhere))}, and this module cannot be replaced by a "
            "copy. Pass the module itself, its bound method, or a functools.partial of it"
        )
    return target


def note_meta_device(error: Exception, invocation: Invocation) -> None:
    """Add a note to an exception if the target has tensors on the meta device."""
    named = invocation.named
    on_meta = [
        named.tensors[id(tensor)]
        for tensor in named.all_tensors()
        if tensor.device.type == "meta" and id(tensor) in named.tensors
    ]
    if on_meta:
        first = listed((f"{role} {name!r}" for role, name in on_meta), 1)
        add_note(
            error,
            f"The target is on the meta device ({first}), where tensors have no data. To capture "
            "it as if on the CPU, pass fake=True, via 'aot', 'dispatch', 'dynamo' or 'export'.",
        )


_NO_VALUES = ("data is not allocated yet", ".numpy() is not supported for tensor subclasses")
"""torch's errors if a fake tensor in a list becomes a constant, or is passed to numpy."""


def refuse_values(error: Exception) -> None:
    """Raise `CaptureError` if a step failed because fake tensors have no values."""
    classes = torch_private.get("fake_value"), torch_private.get("fake_shape")
    if isinstance(error, classes) or any(words in str(error) for words in _NO_VALUES):
        what = str(error).partition("\n")[0]
        raise CaptureError(
            f"the target needs the values of a tensor, and fake tensors have none (torch: {what})"
            f"{source_lines.innermost(error)}\nCapture without fake=True, or compute without "
            "values: torch.where instead of `if` and masks, no .item()"
        ) from error


@contextlib.contextmanager
def with_fake_tensors(invocation: Invocation, device: torch.device | None) -> Iterator[Invocation]:
    """Yield an invocation with fake arguments, parameters and buffers.

    No module is copied: its tensors are replaced by fake ones, and put back afterwards. Tensors on
    the meta device count as CPU tensors. Models can therefore be larger than the memory:
    `with torch.device("meta"): model = Model(config)`.

    Args:
        invocation: the call.
        device: the device of the fake tensors; `None` for the device of the real tensors.
    """
    # Tensors in closures and globals stay real.
    mode = torch_private.get("fake_tensor_mode")(allow_non_fake_inputs=True)
    fake_tensor = torch_private.get("fake_tensor")
    fakes: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake tensor in place of a tensor, one for all its uses."""
        if id(tensor) not in fakes:
            where = device or tensor.device
            if where.type == "meta":
                where = torch.device("cpu")
            with torch.no_grad():
                # The conversion to meta copies no data, so the model may be larger than the memory.
                meta = tensor.detach().to("meta")
                value = fake_tensor(mode, meta, where)
            if isinstance(tensor, torch.nn.Parameter):
                value = torch.nn.Parameter(value, tensor.requires_grad)
            elif tensor.requires_grad:
                value.requires_grad_()
            fakes[id(tensor)] = value
        return fakes[id(tensor)]

    slots = [
        (table, name, tensor)
        for _, root in invocation.named.modules_by_prefix
        for module in root.modules()
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        if tensor is not None
    ]
    try:
        for table, name, tensor in slots:
            table[name] = fake(tensor)  # type: ignore[assignment]
        arguments = invocation.args, invocation.kwargs
        args, kwargs = pytree.tree_map_only(torch.Tensor, fake, arguments)
        with mode:
            yield replace(invocation, args=args, kwargs=kwargs)
    finally:
        for table, name, tensor in slots:
            table[name] = tensor  # type: ignore[assignment]
