"""What Dynamo compiled: its bytecode, the graphs in it, the autograd functions behind them."""

from __future__ import annotations

import functools
import sys
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from .names import get


def compiled_code() -> list[tuple[CodeType, list[tuple[dict[str, Any], str]]]]:
    """The bytecode that Dynamo made, as far as it is still in use.

    Returns:
        the code, and the globals that it needs, each with the dict that it is in.
    """
    manager = get("cleanups").instance
    found = []
    for key, hooks in list(manager.values.items()):
        reference = manager.refs.get(key)
        code = None if reference is None else reference()
        if code is not None:
            globals_ = [(hook.scope, hook.name) for hook in hooks if hook.name in hook.scope]
            found.append((code, globals_))
    return found


def origin_of(code: CodeType) -> tuple[str, CodeType | None]:
    """The id of the compilation that made this bytecode, and the user's code that it is of.

    "" and None where it is no longer in use.
    """
    try:
        original: CodeType = get("original_code")[code]
    except KeyError:
        return "", None
    for entry in get("cache_entries")(original):
        if entry.code is code:
            return str(entry.compile_id), original
    return "", original


def aot_autograd_functions() -> list[Any]:
    """The autograd functions in which AOTAutograd keeps a forward with its backward."""
    return [
        each
        for each in torch.autograd.Function.__subclasses__()
        if each.__name__ == "CompiledFunction" and hasattr(each, "_aot_id")
    ]


def autograd_functions_behind(call: Any) -> list[Any]:
    """Those of `aot_autograd_functions` that a compiled function calls.

    Goes through closures, partial objects and the globals of generated code.
    """
    wanted = set(aot_autograd_functions())
    found: list[Any] = []
    todo, seen = [call], {id(call)}
    while todo and len(seen) < 10_000:
        here = todo.pop()
        if isinstance(here, type):
            if here in wanted:
                found.append(here)
            continue
        for each in _behind(here):
            if id(each) not in seen:
                seen.add(id(each))
                todo.append(each)
    return found


def _behind(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        generated = value.__globals__.get("__name__") not in sys.modules
        return [*cells, *vars(value).values(), *([value.__globals__] if generated else [])]
    if isinstance(value, MethodType):
        owner = value.__self__
        inner: list[Any] = [owner] if isinstance(owner, type) else []
        if type(owner).__module__.startswith("torch._functorch"):
            inner += list(vars(owner).values())
        return [value.__func__, *inner]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return list(value.values()) if len(value) < 1000 else []
    if isinstance(value, tuple | list):
        return list(value) if len(value) < 1000 else []
    if type(value).__module__.startswith(("torch._functorch", "functools")):
        return list(getattr(value, "__dict__", {}).values())
    return []


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def inlined(call: Any) -> Any:
    """The callable that torch.compile wrapped because it has no Python code of its own."""
    if not isinstance(call, FunctionType) or call.__code__ is not get("wrap_inline")(len).__code__:
        return None
    inner = dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=False)).get("fn")
    return None if inner is None else inner.cell_contents


def is_compiled_code(code: CodeType) -> bool:
    """Whether Dynamo has anything that it compiled of this code."""
    return bool(get("cache_entries")(code))


def recompiled_to_the_limit() -> list[CodeType]:
    """The code that Dynamo will not compile again, because it did so too often."""
    limit = get("config").recompile_limit
    found = []
    for reference in list(get("attempted").seen):
        code = reference()
        if code is not None and len(get("cache_entries")(code)) >= limit:
            found.append(code)
    return found
