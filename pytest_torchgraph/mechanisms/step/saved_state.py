"""Saves the state that a step may change, and restores it afterwards.

This state includes parameters, gradients, buffers, arguments, `requires_grad`, `training`,
optimizer state, random number generators, torch's global switches, and the marks that torch.compile
leaves on tensors and modules.

A device backend is a torch module, such as `torch.cuda`. The functions for its generators have the
same names in each backend.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import random
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ... import torch_private
from ...errors import CaptureError, add_note
from ...words import listed
from .named_tensors import NamedTensors
from .python_state import PythonState, state_of
from .saved_tensor import LARGE, SavedTensor, storage_of
from .updates import Updates, state_of_object

_open: list[SteppedOptimizers] = []
"""The `SteppedOptimizers` notified when an optimizer steps, innermost last."""


class SteppedOptimizers:
    """State and settings of each optimizer before its first step.

    Few captures run an optimizer, so an optimizer is saved only when it is about to step.

    Args:
        parameters: ids of the parameters that are already saved.

    Attributes:
        on_step: called before each step of an optimizer, unless it is compiled.
        _saved_ids: see `parameters`.
        _saved_optimizers: the saved optimizers, by `id`.
    """

    def __init__(self, parameters: set[int]):
        self._saved_ids = parameters
        self.on_step: Callable[[], object] | None = None
        self._saved_optimizers: dict[int, _SavedOptimizer] = {}

    @contextlib.contextmanager
    def noted(self, *, at_start: bool = False) -> Iterator[None]:
        """Save each optimizer that steps inside.

        Args:
            at_start: whether to save all optimizers now. A step that the user compiled has a guard
                on the number of hooks: it would compile once more with ours, and again without.
        """
        _open.append(self)
        with contextlib.ExitStack() as stack:
            stack.callback(_open.remove, self)
            if at_start:
                note_all()
            else:
                # A global hook, because the target may create the optimizer inside the step.
                stack.callback(register_optimizer_step_pre_hook(_before_step).remove)
            yield

    def note(self, optimizer: Optimizer) -> None:
        """Save an optimizer before its first step, and report each step."""
        if self.on_step is not None:
            self.on_step()
        if id(optimizer) not in self._saved_optimizers:
            # Copies are not ops of the target, and torch.export's modes would make fake copies.
            with torch_private.get("without_modes")():
                self._saved_optimizers[id(optimizer)] = _SavedOptimizer(optimizer, self._saved_ids)

    def changed_parameters(self, allowed: Set[int] = frozenset()) -> list[str]:
        """Return the names of changed parameters that are in no module of the target.

        Args:
            allowed: ids of the parameters that may change.
        """
        return [
            f"parameter {number} of {type(saved.optimizer).__name__}"
            for saved in self._saved_optimizers.values()
            for number, parameter in saved.parameters
            if id(parameter.tensor) not in allowed and parameter.looks_changed()
        ]

    def saved_state(self) -> set[int]:
        """Return the ids of the tensors in the saved state of optimizers."""
        ids = set()
        for saved in self._saved_optimizers.values():
            for state in saved.contents[0].contents.values():  # the state of one parameter
                members = state.contents if isinstance(state, _SavedObject) else ()
                values = members.values() if isinstance(members, dict) else members
                ids |= {id(value.tensor) for value in values if isinstance(value, SavedTensor)}
        return ids

    def unnamed(self, updates: Updates) -> list[str]:
        """Return the optimizers whose state changed, and that `updates` does not name."""
        return [
            f"the state of {type(saved.optimizer).__name__}"
            for saved in self._saved_optimizers.values()
            if not updates.covers(saved.optimizer) and saved.has_changed()
        ]

    def restore(self) -> None:
        """Restore each optimizer."""
        for saved in self._saved_optimizers.values():
            saved.restore()


class _SavedOptimizer:
    """One optimizer: state, groups and attributes, and parameters that are not saved elsewhere.

    Attributes:
        contents: the copied state, and the copied groups.
        parameters: number and copy of each parameter.
    """

    def __init__(self, optimizer: Optimizer, saved_ids: set[int]):
        self.optimizer = optimizer
        self.contents = [_copy_state(optimizer.state), _copy_state(optimizer.param_groups)]
        # Their contents stay as they are: hooks, schedulers or process groups.
        self.attributes = dict(vars(optimizer))
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        self.parameters = [
            (number, SavedTensor(p))
            for number, p in enumerate(parameters)
            if id(p) not in saved_ids
        ]

    def has_changed(self) -> bool:
        """Return True if state or groups changed. A compiled step does not say what stepped."""
        now = self.optimizer.state, self.optimizer.param_groups
        return any(map(_differs, now, self.contents))

    def restore(self) -> None:
        """Restore the optimizer, and these parameters."""
        for contents in self.contents:
            _restore_state(contents)
        # The same objects as before, which the user's code may hold.
        vars(self.optimizer).clear()
        vars(self.optimizer).update(self.attributes)
        for _, parameter in self.parameters:
            parameter.restore()


class _SavedObject(NamedTuple):
    """A list, a dict or an object with attributes, and a copy of its contents."""

    value: Any
    contents: Any


def _copy_state(value: Any) -> Any:
    """Copy the state of a parameter or group, including tensors, lists and dicts.

    Returns:
        A `SavedTensor`, a `_SavedObject`, or for an immutable value the value itself.
    """
    match value:
        case torch.nn.Parameter() | Optimizer() | LRScheduler():
            return value
        case torch.Tensor():
            return SavedTensor(value)
        case dict():
            return _SavedObject(value, {key: _copy_state(item) for key, item in value.items()})
        case list():
            return _SavedObject(value, [*map(_copy_state, value)])
    # The copy of an immutable value is the value itself.
    copied = copy.copy(value)
    if copied is value or not hasattr(value, "__dict__"):
        return copied
    return _SavedObject(value, dict(vars(value)))  # such as a callable of LambdaLR


def _differs(now: Any, saved: Any) -> bool:
    """Return True if a value differs from its copy by `_copy_state`."""
    if isinstance(saved, SavedTensor):
        return now is not saved.tensor or saved.looks_changed()
    if isinstance(saved, _SavedObject):
        if type(now) is not type(saved.value):
            return True
        contents = saved.contents
        if isinstance(contents, list):
            return len(now) != len(contents) or any(map(_differs, now, contents))
        now = now if isinstance(now, dict) else vars(now)
        return now.keys() != contents.keys() or any(_differs(now[k], contents[k]) for k in contents)
    return now is not saved and not isinstance(now, torch.Tensor) and bool(now != saved)


def _restore_state(saved: Any) -> Any:
    """Restore a value copied by `_copy_state`, in the same object if it is mutable."""
    if isinstance(saved, SavedTensor):
        saved.restore()
        return saved.tensor
    if not isinstance(saved, _SavedObject):
        return saved
    value, contents = saved
    if isinstance(value, list):
        value[:] = map(_restore_state, contents)
    else:
        items = {key: _restore_state(item) for key, item in contents.items()}
        values = value if isinstance(value, dict) else vars(value)
        values.clear()
        values.update(items)
    return value


def _before_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    """Save an optimizer before it steps. When Dynamo compiles the step, it traces this hook too."""
    if torch.compiler.is_compiling():
        note_all()
    else:
        for opened in _open:
            opened.note(optimizer)


def note_all() -> None:
    """Save all optimizers in the process.

    Dynamo runs this function while it traces a step, and cannot pass an optimizer as an argument.
    Waiting for the step itself is too late, because tracing creates the optimizer's state.
    """
    # `isinstance` would access weak proxies, which raise if their referent is dead.
    alive = [
        value
        for value in gc.get_objects()
        # Dynamo creates the object of an optimizer that the trace creates, but does not fill it.
        if issubclass(type(value), Optimizer) and "param_groups" in vars(value)
    ]
    for opened in _open:
        for optimizer in alive:
            opened.note(optimizer)


# Names of attributes of `torch`.
_BACKENDS = ("cuda", "xpu", "mps", "mtia", "hpu", "xla", "ipu", "maia")


def _in_use(module: Any) -> bool:
    """Return True if a backend has generators and is initialized.

    If the backend has no `is_initialized`, it must be available instead.
    """
    if not hasattr(module, "get_rng_state") or not hasattr(module, "set_rng_state"):
        return False
    if hasattr(module, "is_initialized"):
        return bool(module.is_initialized())
    forked = getattr(module, "_is_in_bad_fork", None)
    return bool(module.is_available()) and not (forked is not None and forked())


CAPTURE_THE_STEP = (
    "To capture a whole training step, name what it changes: "
    "graph_capture(step, x, updates=(model, optimizer))."
)
"""The advice for a step that contains its backward or its optimizer."""
_COMPILED = "_is_torch_compile"
"""The attribute that `torch.compile(module)` sets in the module's `__dict__`; Dynamo reads it."""


@contextlib.contextmanager
def compile_marks_restored(named: NamedTensors) -> Iterator[None]:
    """Remove the marks that `torch.compile` sets on modules inside."""
    unmarked = [module for _, module in named.all_modules if _COMPILED not in vars(module)]
    try:
        yield
    finally:
        for module in unmarked:
            vars(module).pop(_COMPILED, None)


class SavedState:
    """The state that a step may change.

    Args:
        named: the tensors and modules of the target.
        sees_writes: True if `before_write` is called before each op that may write. Large
            parameters are then copied only if such an op is about to run; copying all of them takes
            a tenth of the time of an eager step.

    Attributes:
        unwritten: parameters that are not copied yet, by storage number.
        grads: each leaf with its gradient, and a copy of the gradient, by `id` of the leaf.
        lazy: the parameters without a shape so far.
        parameters, buffers: the copied tensors.
        arguments: the copied tensors that are neither: arguments, and those that a closure, a
            global or an object holds.
        slots: the tables of parameters and of buffers of each module, as they were.
        marks: the marks that each tensor had; see `_list_marks`.
        uncompiled: the modules without the mark of `torch.compile`.
        flags: owner, name and value of `requires_grad` and `training`.
        switches: the values of torch's global switches.
        attributes, objects, updated: what `updates` names besides: attributes of schedulers and
            scalers, objects with their `state_dict`, tensors that are saved nowhere else.
        random: the state of the random number generators.
        python: the attributes of the modules, compared but not restored.
        optimizers: the optimizers that have stepped.
    """

    def __init__(
        self, named: NamedTensors, *, sees_writes: bool = False, updates: Updates | None = None
    ):
        self._sees_writes = sees_writes
        # An optimizer writes all parameters. Gradients go by `_sees_writes` in any case.
        sees_writes = sees_writes and updates is None
        self.updates = updates
        self.grads: dict[int, tuple[torch.Tensor, torch.Tensor | None, SavedTensor | None]] = {}
        parameters = [(name, p) for name, p in named.all_parameters if not is_lazy(p)]
        self.lazy = [(name, p) for name, p in named.all_parameters if is_lazy(p)]
        self.unwritten: dict[int, list[SavedTensor]] = {}
        self.parameters = [(name, self._save(p, lazily=sees_writes)) for name, p in parameters]
        given = [tensor for _, tensor in (*named.inputs, *named.held)]
        own, given_ids = {id(p) for _, p in named.all_parameters}, set(map(id, given))
        updated = {} if updates is None else {id(t): t for _, t in updates.tensors()}
        own |= updated.keys()  # saved by the optimizers, or as `updated`
        held = {id(t): t for t in (*given, *named.plain) if id(t) not in own and not is_lazy(t)}
        # A closure or a global may hold a whole dataset.
        self.arguments = [
            self._save(t, lazily=sees_writes and id(t) not in given_ids) for t in held.values()
        ]
        # A target may assign another tensor to a buffer instead of writing to it.
        self.slots = [
            (module, kind, dict(vars(module)[kind]))
            for _, module in named.all_modules
            for kind in ("_buffers", "_parameters")
        ]
        self.buffers = [SavedTensor(buffer) for buffer in named.all_buffers if not is_lazy(buffer)]
        self.marks = [(tensor, _list_marks(tensor)) for tensor in named.all_tensors()]
        self.uncompiled = [
            module for _, module in named.all_modules if _COMPILED not in vars(module)
        ]
        generators = () if updates is None else updates.of_kind("generator")
        self.random = RandomState([*named.generators, *(value for _, value in generators)])
        self.flags: list[tuple[Any, str, bool]] = [
            *((p, "requires_grad", p.requires_grad) for _, p in named.all_parameters),
            *((module, "training", module.training) for _, module in named.all_modules),
        ]
        self.switches = torch_private.switches()
        self.python = PythonState(named)
        self.optimizers = SteppedOptimizers(own)
        for leaf in held.values():
            if leaf.is_leaf and leaf.requires_grad:
                self._save_grad(leaf)
        for leaf in named.leaves():
            if updates is None:
                self.set_aside(leaf)
            else:  # a training step may add to the gradients that it finds
                self._save_grad(leaf)
        self.attributes: list[Any] = []
        self.objects: list[tuple[Any, Any]] = []
        self.updated: list[SavedTensor] = []
        if updates is not None:
            for leaf in updates.leaves():
                self._save_grad(leaf)
            for _, optimizer in updates.of_kind("optimizer"):
                self.optimizers.note(optimizer)
            self.attributes = [*map(_copy_state, updates.attributes())]
            self.objects = [
                (value, state_of_object(name, value)) for name, value in updates.of_kind("object")
            ]
            noted = self.optimizers.saved_state()
            self.updated = [SavedTensor(t) for key, t in updated.items() if key not in noted]

    def _save(self, tensor: torch.Tensor, *, lazily: bool, least: int = LARGE) -> SavedTensor:
        """Save a tensor; if `lazily`, copy one of more bytes only before a write to its memory."""
        # A sparse tensor has no `nbytes`.
        if not lazily or tensor.layout is not torch.strided or tensor.nbytes <= least:
            return SavedTensor(tensor)
        storage = storage_of(tensor)
        # `before_write` finds tensors by storage id. A tensor without one is copied now.
        saved = SavedTensor(tensor, copied=storage == 0)
        self.unwritten.setdefault(storage, []).append(saved)
        return saved

    def before_write(self, *values: Any) -> None:
        """Copy the uncopied parameters that share memory with one of these tensors."""
        for value in values:
            if isinstance(value, torch.Tensor):
                for saved in self.unwritten.pop(storage_of(value), ()):
                    saved.copy()
            elif isinstance(value, list | tuple):
                self.before_write(*value)

    def copy_all(self) -> None:
        """Copy all uncopied parameters, for use when later writes may go unnoticed."""
        for tensors in self.unwritten.values():
            for saved in tensors:
                saved.copy()
        self.unwritten.clear()

    def set_aside(self, leaf: torch.Tensor) -> None:
        """Save and remove a leaf's gradient until the end, so that the step starts without one."""
        self._save_grad(leaf)
        # Autograd would add the new gradient to the old one, which is one more op.
        leaf.grad = None

    def _save_grad(self, leaf: torch.Tensor) -> None:
        """Save a leaf's gradient. It stays: an optimizer in the target's closure may step by it."""
        if id(leaf) not in self.grads:
            grad = leaf.grad
            # Most steps drop the gradients that they find, and do not write to them.
            lazily = self._sees_writes
            former = None if grad is None else self._save(grad, lazily=lazily, least=0)
            self.grads[id(leaf)] = leaf, grad, former

    def replaced_buffers(self) -> list[torch.Tensor]:
        """Return the tensors that modules now hold in place of their original buffers."""
        return [
            now
            for module, kind, before in self.slots
            for name, now in module._buffers.items()
            if kind == "_buffers" and now is not None and now is not before.get(name)
        ]

    def changed_parameters(self) -> list[str]:
        """Return the names of parameters with a changed value or storage."""
        allowed = set() if self.updates is None else self.updates.parameters.keys()
        changed = [
            name
            for name, saved in self.parameters
            if id(saved.tensor) not in allowed and saved.looks_changed()
        ]
        changed += [name for name, parameter in self.lazy if not is_lazy(parameter)]
        return changed + self.optimizers.changed_parameters(allowed)

    def refusal(self) -> str:
        """Explain why a target that changed parameters is refused, "" if it changed none."""
        changed = self.changed_parameters()
        if self.updates is None:
            moved = [name for name, saved in self.parameters if saved.is_moved]
            return _parameters_changed(changed, by_moves=changed == moved) if changed else ""
        changed += self.optimizers.unnamed(self.updates)
        if not changed:
            return ""
        return (
            f"the step changed {listed(changed, 3)}, which is not in updates=: name all that the "
            "step changes: updates=(model, optimizer)"
        )

    def restore(self, *, parameters: bool = True, keep: bool = False) -> None:
        """Restore all saved state.

        Args:
            parameters: False skips parameters, if they are known to be unchanged.
            keep: whether to keep the replaced values of buffers and arguments; see `final_values`.
        """
        torch_private.assign_switches(self.switches)  # first: the others affect the copies below
        for module, kind, before in self.slots:
            now = vars(module)[kind]
            if now.keys() != before.keys() or any(
                now[name] is not tensor for name, tensor in before.items()
            ):
                now.clear()
                now.update(before)
        for owner, name, value in self.flags:
            if getattr(owner, name) != value and (name == "training" or owner.is_leaf):
                setattr(owner, name, value)
        for saved in (*self.buffers, *self.arguments):
            saved.restore(keep=keep)
        if parameters:
            for _, saved in self.parameters:
                saved.restore()
        # After the tensors: a tensor that required no gradient loses the one it got.
        for leaf, grad, former in self.grads.values():
            leaf.grad = grad
            if former is not None and (parameters or former.looks_changed()):
                former.restore()
                if former.is_lost:
                    former.failure = "a gradient that was written without an op"
        self.optimizers.restore()
        for attributes in self.attributes:
            _restore_state(attributes)
        for value, state in self.objects:
            value.load_state_dict(state)
        for saved in self.updated:
            saved.restore()
        for tensor, marks in self.marks:
            # The marks are attributes of the tensor. In the next compilation they would make its
            # sizes dynamic.
            for name in _list_marks(tensor):
                if name not in marks:
                    delattr(tensor, name)
        for module in self.uncompiled:
            vars(module).pop(_COMPILED, None)
        self.random.restore()

    def restored(self) -> list[torch.Tensor]:
        """Return the buffers and arguments that `restore` resets to their former values."""
        return [saved.tensor for saved in (*self.buffers, *self.arguments)]

    def describe_unrestored(self) -> str:
        """Describe the changes that `restore` did not undo, "" if there are none."""
        sentences = []
        changes = self.python.changes()
        if changes:
            shown = listed(map(str, changes))
            sentences.append(f"Python values that the target changed were not restored: {shown}")
        lost = [name for name, saved in self.parameters if saved.is_lost]
        if lost:
            sentences.append(
                "Not restored, because they were written without an op, for example by numpy: "
                f"{listed(lost)}"
            )
        if failures := self.failures():
            sentences.append(f"torch refused to restore {listed(failures)}")
        return ". ".join(sentences)

    def failures(self) -> list[str]:
        """Return the tensors that torch refused to restore, each with torch's error."""
        parameters = (saved for _, saved in self.parameters)
        grads = (former for _, _, former in self.grads.values() if former is not None)
        saved = [*self.buffers, *self.arguments, *parameters, *grads, *self.updated]
        return [each.failure for each in saved if each.failure]

    def final_values(self) -> dict[int, torch.Tensor]:
        """Return the values that changed buffers and arguments had before `restore`, by id."""
        saved = (*self.buffers, *self.arguments)
        return {id(s.tensor): s.final_value for s in saved if s.final_value is not None}

    def release(self) -> None:
        """Drop the copies. The capture keeps this object alive, through its step."""
        self.parameters, self.buffers, self.arguments = [], [], []
        self.grads, self.marks, self.unwritten, self.flags = {}, [], {}, []
        self.attributes, self.objects, self.updated = [], [], []


@contextlib.contextmanager
def preserve_state(
    named: NamedTensors,
    *,
    sees_writes: bool = False,
    updates: Updates | None = None,
    hooked: bool = True,
) -> Iterator[SavedState]:
    """Restore everything that the step changes, even if it raises.

    Module attributes with Python values are not restored. If the step raises, a note on the
    exception lists the changed ones. For the other arguments, see `SavedState`.

    Args:
        hooked: False if the step may run code that the user compiled, see `noted`.

    Raises:
        CaptureError: if the target changed its parameters.
    """
    with torch_private.counters_restored(), torch_private.configs_restored():
        saved = SavedState(named, sees_writes=sees_writes, updates=updates)
        torch.clear_autocast_cache()  # a cast cached by an earlier call would be in no graph
        refusal = unrestored = ""
        failed: BaseException | None = None
        try:
            with saved.optimizers.noted(at_start=not hooked):
                yield saved
            refusal = saved.refusal()
        except BaseException as error:
            failed = error
            raise
        finally:
            torch.clear_autocast_cache()
            has_no_result = failed is not None or bool(refusal)
            # In any other step the parameters are unchanged, and final values may be asked for.
            restores_all = has_no_result or updates is not None
            saved.restore(parameters=restores_all, keep=not restores_all)
            if has_no_result or saved.failures():
                unrestored = saved.describe_unrestored()
                saved.release()
            notes = getattr(failed, "__notes__", ())
            if isinstance(failed, Exception) and unrestored and unrestored not in notes:
                add_note(failed, unrestored)
    if refusal or unrestored:
        raise CaptureError(" ".join(filter(None, (refusal, unrestored))))


def _parameters_changed(names: Sequence[str], *, by_moves: bool) -> str:
    """Explain why a target that changed these parameters is refused, and suggest a fix.

    Args:
        names: names of the changed parameters.
        by_moves: True if each of them has new memory, so no optimizer changed them: an optimizer
            writes to the same memory.
    """
    changed = f"the target changed its parameters ({listed(names, 3)})"
    restored = (
        "Parameters, gradients, buffers and the optimizer's state were restored, but not effects "
        "outside of torch, such as written files."
    )
    if by_moves:
        return (
            f"{changed}: it gave them different memory, for example because its forward casts its "
            "parameters and casts them back. Capture the model without this cast (for layerwise "
            "casting, before the hooks are attached), or cast to a new tensor: F.linear(x, "
            f"weight.to(x.dtype)). {restored}"
        )
    # The names of an optimizer's parameters, such as "parameter 0 of SGD", come last. These
    # parameters may be older than the step or not.
    unless = ", unless the target creates them (then update them without torch.optim)"
    return (
        f"{changed}, so another run would get a different model"
        f"{unless * (' of ' in names[-1])}. If the target is a training "
        "step: remove the optimizer step and the backward, and return the loss (the capture runs "
        f"the backward). {restored} {CAPTURE_THE_STEP}"
    )


def _list_marks(tensor: torch.Tensor) -> list[str]:
    """Return Dynamo's attributes on a tensor, which mark sizes as dynamic."""
    return [name for name in vars(tensor) if name.startswith("_dynamo")]


class RandomState:
    """The state of every random number generator that a model may draw from, at one moment."""

    def __init__(self, generators: Sequence[Any] = ()) -> None:
        self._states: list[tuple[Callable[[Any], object], Any]] = [
            (random.setstate, random.getstate()),
            (torch.set_rng_state, torch.get_rng_state()),
            *map(state_of, generators),
        ]
        if numpy := sys.modules.get("numpy.random"):
            self._states.append((numpy.set_state, numpy.get_state()))
        # Only backends in use, because this must not initialize any backend. The last is the name
        # registered by an out-of-tree backend.
        names = (*_BACKENDS, torch.device("privateuseone").type)
        backends: list[Any] = [getattr(torch, name, None) for name in names]
        for backend in filter(_in_use, backends):
            for index in range(backend.device_count()):
                restore = functools.partial(_set_state, backend, index)
                self._states.append((restore, backend.get_rng_state(index)))

    def restore(self) -> None:
        """Restore the generators."""
        for restore, state in self._states:
            restore(state)


def _set_state(backend: Any, index: int, state: Any) -> None:
    """Restore the generator of one device, whose index torch's function takes last."""
    backend.set_rng_state(state, index)
