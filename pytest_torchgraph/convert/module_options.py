"""What a module of torch's was made with: `p=0.1` of a `Dropout`, as far as it is not the default.

A graph of modules shows a call of one, and no more. Two dropouts of other probabilities are other
computations all the same. What a class of the user's keeps is not known to be an option.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch

_PLAIN = (bool, int, float, str, type(None))


def module_options(module: Any) -> str | None:
    """The options of a module of torch's, in the order of its class; None for another one."""
    if not isinstance(module, torch.nn.Module) or not _is_of_torch(type(module)):
        return None
    options = [
        f"{name}.{option}" if name else option
        for name, part in module.named_modules()
        if _is_of_torch(type(part))
        for option in _options(part)
    ]
    return ", ".join(options)


def _options(module: torch.nn.Module) -> Iterator[str]:
    kind: Any = type(module)
    for name, default in _parameters(kind).items():
        value = getattr(module, name, inspect.Parameter.empty)
        if default is True and not isinstance(value, bool):  # bias: a parameter, or None
            value = value is not None
        value = _of_one(value)
        if isinstance(value, tuple | list):
            known = all(isinstance(item, _PLAIN) for item in value)
        else:
            known = isinstance(value, _PLAIN)
        if known and (value != default or type(value) is not type(default)):
            yield f"{name}={value!r}"
    others = {parameter.dtype for parameter in module._parameters.values() if parameter is not None}
    yield from sorted(str(dtype) for dtype in others - {torch.float32})
    if not module.training and "training" in _names(kind):
        yield "eval"


def _of_one(value: Any) -> Any:
    """The one number of `(2, 2)`, which classes make of `2`."""
    if isinstance(value, tuple) and value and all(item == value[0] for item in value):
        return value[0]
    return tuple(value) if isinstance(value, list) else value


@cache
def _parameters(kind: type) -> Mapping[str, Any]:
    """The defaults of what a class takes; of `LSTM(*args, **kwargs)` what its base takes."""
    for base in kind.__mro__:
        if "__init__" in vars(base):
            parameters = inspect.signature(base).parameters
            if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
                return {
                    name: each.default
                    for name, each in parameters.items()
                    if name not in ("device", "dtype")
                }
    return {}


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The attributes that a module's forward reads."""
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    return () if code is None else tuple(code.co_names)


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"
