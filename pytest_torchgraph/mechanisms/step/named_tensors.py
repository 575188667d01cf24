"""The modules that a target runs, and the names of their parameters, buffers and inputs."""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.utils._pytree as pytree

from ... import torch_private
from ...convert.placeholders import InputName
from ...convert.source_lines import is_user_file
from ...graph.module_paths import OwnModule

DEPTH = 8
"""Maximum nesting depth for objects in an argument or output, which may reference each other."""
_MAX_OBJECTS = 1000
"""Maximum number of values in one argument or global that are searched: it may be a dataset."""


class NamedTensors:
    """The modules and tensors of a target and its arguments, with their names.

    Args:
        target, args, kwargs: the call.
        first: modules with prefixes of their paths, which name what they contain.

    Attributes:
        is_model: whether the target is a module, or a method of one.
        modules_by_prefix: the outermost modules, with the prefixes of their paths.
        modules: path of each module, by id; "" for the target itself.
        tensors: (role, name) of each parameter, buffer and tensor argument, by id. For a tied
            parameter, the name that was declared first.
        older: weak references, by id, to tensors that an op computed before the step, and that a
            module, an argument or a closure holds.
        all_modules: every module with its path, each once.
        all_parameters: every parameter with its name, each once.
        all_buffers: every buffer, each once.
        inputs: each tensor among the arguments, with its name.
        held: each tensor in an argument unknown to pytree, with its path.
        plain: tensors that a module, an argument or a closure holds, or that a global reaches, such
            as the cache of a model.
        numbers: the names of the numbers among the arguments.
        generators: the random generators that an argument, a module or a closure holds.
        functions: the functions of the user that run in the target, as far as their names tell.
        compiles: whether the target, or what it calls, is a result of `torch.compile`.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        first: Sequence[tuple[str, torch.nn.Module]] = (),
    ):
        self.is_model = isinstance(getattr(target, "__self__", target), torch.nn.Module)
        module_search = _ModuleSearch()
        self.modules_by_prefix = list(_modules(module_search, target, args, kwargs))
        # Modules of `first` keep the paths that it gives them, even if the search found them.
        if first:
            inside = {id(child) for _, module in first for child in module.modules()}
            others = [
                pair
                for pair in module_search.outermost()
                if id(torch_private.uncompiled(pair[1])) not in inside
            ]
            self.modules_by_prefix = [*first, *others]
        self.older = {id(tensor): weakref.ref(tensor) for tensor in module_search.computed}
        self.modules: dict[int, str] = {}
        self.tensors: dict[int, InputName] = {}
        leaves = list(_list_inputs(target, args, kwargs))
        self.inputs: list[tuple[str, torch.Tensor]] = [
            (name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)
        ]
        self.held = [
            pair for name, leaf in leaves for pair in _list_held(name, held_by(leaf), 0, set())
        ]
        self.numbers = [name for name, leaf in leaves if isinstance(leaf, int | float)]
        self.look()
        self.plain = list(module_search.tensors.values())
        # Setting the state of a generator twice is harmless.
        self.generators = module_search.generators
        self.functions = module_search.functions
        modules = (module for _, module in self.all_modules)
        self.compiles = module_search.compiles or any(map(torch_private.is_compiled, modules))

    def look(self) -> None:
        """Collect modules, parameters and buffers. Call it again if they may have changed.

        Names and paths that were given before stay.
        """
        modules: dict[int, tuple[str, torch.nn.Module]] = {}
        parameters: dict[int, tuple[str, Any]] = {}
        buffers: dict[int, tuple[str, Any]] = {}
        for prefix, root in self.modules_by_prefix:
            # A single walk over the modules takes as long as ten ops of a dispatch capture.
            walked = list(root.named_modules(prefix=prefix, remove_duplicate=False))
            walked = [(without_wrappers(path), module) for path, module in walked]
            for path, module in walked:
                modules.setdefault(id(module), (path, module))
            # All parameters of a root before its buffers: graphs have their inputs in this order.
            for role, named_tensors in (("parameter", parameters), ("buffer", buffers)):
                for path, module in walked:
                    for name, tensor in vars(module)[f"_{role}s"].items():
                        if tensor is not None:
                            full_name = f"{path}.{name}" if path else name
                            named_tensors.setdefault(id(tensor), (full_name, tensor))
                            self._name_tensor(tensor, role, full_name)
        for name, tensor in self.inputs:
            # Last, so that a parameter that is also an argument keeps the name of the parameter.
            self._name_tensor(tensor, "input", name)
        for number, (path, _) in modules.items():
            self.modules.setdefault(number, path)
        self.all_modules = list(modules.values())
        self.all_parameters: list[tuple[str, torch.nn.Parameter]] = list(parameters.values())
        self.all_buffers: list[torch.Tensor] = [buffer for _, buffer in buffers.values()]

    def _name_tensor(self, tensor: torch.Tensor, role: str, name: str) -> None:
        """Name a tensor and, for a distributed tensor, its local tensor."""
        self.tensors.setdefault(id(tensor), (role, name))
        inner = torch_private.local(tensor)
        if inner is not tensor:
            # The ops of a DTensor are recorded on its local tensor.
            self.tensors.setdefault(id(inner), (role, name))

    def current_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each buffer that a module holds now, with its name."""
        for path, module in self.all_modules:
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    yield f"{path}.{name}" if path else name, buffer

    def classes(self) -> dict[str, str]:
        """Return the class name of each module, by module path."""
        # The root of a function is a module that it calls, so ops in no module may be its own.
        return {
            path: type(module).__name__ if path or self.is_model else ""
            for path, module in self.all_modules
        }

    def own_modules(self) -> dict[str, OwnModule]:
        """Return the modules whose class is not torch's; see `Graph.own_modules`."""
        return {
            path: OwnModule(
                f"{type(module).__module__}.{type(module).__qualname__}",
                not _is_of_torch(type(module).forward),
            )
            for path, module in self.all_modules
            if not _is_of_torch(type(module))
        }

    def all_tensors(self) -> list[torch.Tensor]:
        """Return every parameter, buffer and argument, each once."""
        tensors = [
            *(tensor for _, tensor in self.all_parameters),
            *self.all_buffers,
            *(tensor for _, tensor in self.inputs),
        ]
        return list({id(tensor): tensor for tensor in tensors}.values())

    def leaves(self) -> list[torch.Tensor]:
        """Return the tensors that can receive gradients: parameters, then arguments."""
        parameters = [parameter for _, parameter in self.all_parameters]
        inputs = [tensor for _, tensor in self.inputs if tensor.is_leaf and tensor.requires_grad]
        return list({id(leaf): leaf for leaf in (*parameters, *inputs)}.values())

    def input_order(self) -> dict[str, int]:
        """Return the position of each input of a graph, by name.

        Tensor arguments come first, then parameters and buffers, then sizes, then numbers.
        """
        ids = dict.fromkeys([*(id(tensor) for _, tensor in self.inputs), *self.tensors])
        order = {key: number for number, key in enumerate(ids)}
        positions = {name: order[key] for key, (_, name) in self.tensors.items()}
        # Whoever sorts takes the length of the result for a size, which is not in it. The numbers
        # are above that length.
        for position, name in enumerate(self.numbers, len(positions) + len(self.numbers) + 1):
            positions.setdefault(name, position)
        return positions


def _is_of_torch(defined: Any) -> bool:
    """Return True if a class or function is defined in torch."""
    return str(defined.__module__).partition(".")[0] == "torch"


def without_wrappers(path: str) -> str:
    """Return a module path without `torch.compile`'s wrapper modules."""
    if "_orig_mod" not in path:
        return path
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


_CONTAINERS = (list, tuple, deque, dict)
_SCALARS = (int, float, complex, str, bytes, type(None), type, ModuleType, logging.Logger)
MAX_DEPTH = 4
"""Maximum depth of the search for modules in lists, dicts, closures and attributes of the target.
"""


def _modules(
    module_search: _ModuleSearch,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[tuple[str, torch.nn.Module]]:
    """Return the outermost modules that the target can reach.

    These are the target itself, the module that it is bound to, and modules in its closure or among
    its arguments.
    """
    module_search.look("", target)
    for name, value in [*((str(i), arg) for i, arg in enumerate(args)), *kwargs.items()]:
        if not isinstance(value, torch.Tensor):
            module_search.look(name, value, 1)
    outer = module_search.outermost()
    module_search.look_further()
    if isinstance(target, torch.nn.Module):
        return [("", target), *(pair for pair in outer if pair[1] is not target)]
    return [("", outer[0][1])] if len(outer) == 1 else outer


class _ModuleSearch:
    """Searches values for modules and tensors.

    Attributes:
        computed: the found tensors that an op computed.
        tensors: the other found tensors, by id.
        generators: the found random generators.
        functions: the found functions of the user.
        compiles: whether a function, or a module without a path, is a result of `torch.compile`.
        _further: values that `look_further` searches, with names and depths.
        _seen: ids of the modules with a path, and of the values in `_further`.
        _left: in `look_further`, one item for each value that may still be searched inside the
            current one; otherwise `None`.
    """

    def __init__(self) -> None:
        self.compiles = False
        self._modules_by_id: dict[int, tuple[str, torch.nn.Module]] = {}
        self.computed: list[torch.Tensor] = []
        self.tensors: dict[int, torch.Tensor] = {}
        self.generators: list[Any] = []
        self.functions: list[FunctionType] = []
        self._further: list[tuple[str, Any, int]] = []
        self._seen: set[int] = set()
        self._left: Iterator[None] | None = None

    def look_further(self) -> None:
        """Search what the user's functions look up, and objects in objects, nearest first.

        Modules found here get no path, so that stored graphs keep the names of their inputs.
        """
        for name, value, depth in itertools.islice(self._further, _MAX_OBJECTS):  # the list grows
            self._left = itertools.repeat(None, _MAX_OBJECTS)
            self.look(name, value, depth)

    def look(self, name: str, value: Any, depth: int = 0) -> None:
        """Search a value, no deeper than `MAX_DEPTH`."""
        if isinstance(value, _SCALARS):
            return
        if inspect.isfunction(value) and torch_private.uncompiled(value) is not value:
            self.compiles = True
        # For example a hidden state of an earlier call. It was not computed by an unrecorded op of
        # the step.
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            self.computed.append(value)
        elif isinstance(value, torch.Tensor):
            self.tensors[id(value)] = value
        elif _is_data(value):
            self.generators.append(value)
        if depth > MAX_DEPTH or _is_data(value):
            return
        if isinstance(value, torch.nn.Module) and self._left:
            self.tensors.update((id(t), t) for t in (*value.parameters(), *value.buffers()))
            self.compiles |= any(map(torch_private.is_compiled, value.modules()))
        elif isinstance(value, torch.nn.Module):
            self._modules_by_id.setdefault(id(value), (name, value))
            self._seen.add(id(value))
            # It has no path of its own if `updates` names the module that it wraps.
            self.compiles |= torch_private.is_compiled(value)
        elif inspect.ismethod(value):
            self.look("self", value.__self__, depth)
            self.look(name, value.__func__, depth)
        elif isinstance(value, functools.partial):
            self.look(name, value.func, depth)
        left = self._left or itertools.repeat(None)
        # Ends with the members, or earlier if nothing is left.
        for _, (key, item) in zip(left, _list_members(name, value), strict=False):
            self.look(key, item, depth + 1)
        own = getattr(value, "__module__", None)
        for key, item in self._list_further(value):
            if id(item) not in self._seen:
                self._seen.add(id(item))
                # A chain of helper functions in one module may be long.
                beside = inspect.isfunction(item) and item.__module__ == own
                self._further.append((key, item, 1 if beside else depth + 1))

    def _list_further(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield the attributes of an object, or the globals of a function of the user."""
        if isinstance(value, torch.nn.Module):
            yield from (("", getattr(type(child), "forward", None)) for child in value.modules())
        elif inspect.isfunction(value):
            if is_user_file(value.__code__.co_filename):
                self.functions.append(value)
                names = names_in(value.__code__)
                yield from ((name, value.__globals__.get(name)) for name in names)
        elif not isinstance(value, _CONTAINERS):
            yield "", vars(type(value)).get("__call__")
            yield from held_by(value).items()

    def outermost(self) -> list[tuple[str, torch.nn.Module]]:
        """Return the modules that are not inside another found module."""
        named_modules = list(self._modules_by_id.values())
        if len(named_modules) == 1:
            return named_modules
        inner = {id(c) for _, module in named_modules for c in module.modules() if c is not module}
        return [(name, module) for name, module in named_modules if id(module) not in inner]


def is_generator(value: Any, *kinds: type) -> bool:
    """Return True for a random number generator of Python or numpy, or an object of `kinds`."""
    numpy: Any = sys.modules.get("numpy.random")
    # Dynamo, which traces a capture inside a compiled target, has no constant for `random.Random`.
    own = any(base is random.Random for base in type(value).__mro__)
    return own or isinstance(value, (*kinds, *([numpy.Generator] if numpy else ())))


def _is_data(value: Any) -> bool:
    """Return True for a tensor or a random generator."""
    # `isinstance(value, torch.Generator)` would run Python code of torch for each attribute of each
    # module.
    return isinstance(value, torch.Tensor) or type(value) is torch.Generator or is_generator(value)


def _list_members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members of a value that may be or contain modules, with their names."""
    if isinstance(value, torch.nn.Module):
        for child in value.modules():  # torch does not search plain lists and dicts for modules
            for key, item in vars(child).items():
                # Most attributes of a module are torch's own dicts.
                if key[:1] != "_" if isinstance(item, _CONTAINERS) else _is_data(item):
                    yield key, item
    elif isinstance(value, functools.partial):
        yield from ((str(index), item) for index, item in enumerate(value.args))
        yield from value.keywords.items()
    elif inspect.isfunction(value):
        yield from _list_reachable(value)
    elif isinstance(value, list | tuple | deque):
        yield from ((f"{name}.{index}", item) for index, item in enumerate(value))
    elif isinstance(value, dict):
        # The state of an optimizer has parameters as keys, which would print their values.
        for index, (key, item) in enumerate(value.items()):
            yield f"{name}.{index if isinstance(key, torch.Tensor) else key}", item
    else:
        for key, item in held_by(value).items():
            if isinstance(item, (torch.nn.Module, *_CONTAINERS)) or _is_data(item):
                yield key, item


def names_in(code: Any) -> Iterator[str]:
    """Yield the names that code, including nested code, looks up."""
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from names_in(constant)


def _list_reachable(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function refers to: closure, modules among globals, defaults."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable is not assigned yet
            continue
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, torch.nn.Module) or _is_data(value):
            yield name, value
    defaults = function.__defaults__ or ()
    declared = code.co_varnames[: code.co_argcount]
    # Defaults belong to the last parameters, so from the end on.
    yield from zip(declared[::-1], defaults[::-1], strict=False)
    yield from (function.__kwdefaults__ or {}).items()


def _list_inputs(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the argument leaves, named by parameter and position: `x`, `batch.ids`, `xs.0`."""
    names: dict[str, Any] = {}
    try:
        signature = inspect.signature(callable_of(target))
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                names.update(value)
            else:
                names[name] = value
    # A built-in may have no signature. A call with wrong arguments fails later, in the target.
    except (TypeError, ValueError):
        names = {**{f"args.{i}": arg for i, arg in enumerate(args)}, **kwargs}
    for name, value in names.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield ".".join([name, *(_key_to_str(key) for key in path)]), leaf


def _list_held(
    name: str, held: Mapping[Any, Any], depth: int, seen: set[int]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in an argument unknown to pytree, such as PyG's `Data`, with their paths.

    Args:
        name: path of the object.
        held: its attributes.
        depth: number of objects around it.
        seen: ids of the objects met, because objects may refer to each other.
    """
    for key, value in held.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            leaf_name = ".".join([name, str(key), *(_key_to_str(part) for part in path)])
            if isinstance(leaf, torch.Tensor):
                yield leaf_name, leaf
            elif depth < DEPTH and len(seen) < _MAX_OBJECTS and id(leaf) not in seen:
                seen.add(id(leaf))
                yield from _list_held(leaf_name, held_by(leaf), depth + 1, seen)


def _key_to_str(key: Any) -> str:
    """Return a key of a pytree path, such as `MappingKey`, as it appears in names."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def callable_of(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the target's signature: a module's forward, otherwise the target."""
    if not isinstance(target, torch.nn.Module):
        return target
    return getattr(target, "_orig_mod", target).forward


def held_by(leaf: Any) -> dict[Any, Any]:
    """Return the attributes of an object unknown to pytree, by name."""
    # Objects with `__call__` hold attributes too, such as PyG's `Data`. A module of Python holds
    # much that is not the argument's own.
    if isinstance(leaf, torch.Tensor | torch.nn.Module | type | ModuleType):
        return {}
    if inspect.isroutine(leaf):
        return {}
    if isinstance(leaf, dict):
        return dict(leaf)
    if hasattr(leaf, "__dict__"):
        return dict(vars(leaf))
    slots = getattr(type(leaf), "__slots__", ())
    names = (slots,) if isinstance(slots, str) else slots
    return {name: getattr(leaf, name, None) for name in names}
