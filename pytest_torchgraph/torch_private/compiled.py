"""Compiled code: bytecode, graphs and AOTAutograd's functions; calls of `torch.compile`.

Dynamo's `orig_code_map` maps its bytecode to the user's code. The globals of the bytecode refer to
the compiled graphs. The closures and partial objects of a graph refer to AOTAutograd's
`CompiledFunction`.
"""

from __future__ import annotations

import functools
import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import BuiltinMethodType, CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch

from .observers import leave_function_alone
from .private_names import Replaced, get, has, replaced
from .trace import innermost_backend


def compiled_code() -> list[tuple[CodeType, list[tuple[dict[str, Any], str]]]]:
    """Return the bytecode that Dynamo generated and that is still alive.

    Returns:
        Pairs of a code object and the globals that Dynamo added for it (compiled graphs, resume
        functions), each as its dict and its name in the dict.
    """
    manager = get("cleanup_manager").instance
    alive = []
    for key, hooks in list(manager.values.items()):
        reference = manager.refs.get(key)
        code = None if reference is None else reference()
        if code is not None:
            globals_ = [(hook.scope, hook.name) for hook in hooks if hook.name in hook.scope]
            alive.append((code, globals_))
    return alive


def origin_of(code: CodeType) -> tuple[str, CodeType | None]:
    """Return the id of the compilation that generated this bytecode, such as `0/1`, and its source.

    Args:
        code: bytecode of `compiled_code`.

    Returns:
        The id and the user's code. The id is "" if the compilation is no longer in Dynamo's cache;
        both are empty ("" and `None`) if Dynamo does not know the bytecode.
    """
    try:
        original: CodeType = get("orig_code_map")[code]
    except KeyError:
        return "", None
    for entry in get("cache_entries")(original):
        if entry.code is code:
            return str(entry.compile_id), original
    return "", original


def aot_autograd_functions() -> list[Any]:
    """Return AOTAutograd's `torch.autograd.Function` classes, one per pair of graphs."""
    return [
        function
        for function in torch.autograd.Function.__subclasses__()
        if function.__name__ == "CompiledFunction" and hasattr(function, "_aot_id")
    ]


def autograd_functions_behind(call: Any) -> list[Any]:
    """Return the classes of `aot_autograd_functions` that a compiled function calls.

    The search follows closures, partial objects and the globals of generated code.
    """
    targets = set(aot_autograd_functions())
    if not targets:
        return []
    functions: list[Any] = []
    worklist, visited = [call], {id(call)}
    while worklist and len(visited) < _MAX_VISITED:
        value = worklist.pop()
        if isinstance(value, type):
            if value in targets:
                functions.append(value)
            continue
        for referent in _referents(value):
            if id(referent) not in visited:
                visited.add(id(referent))
                worklist.append(referent)
    return functions


_MAX_VISITED = 10_000
"""Maximum number of objects in a search, so that it does not walk through a program's data.

For a compiled `nn.TransformerEncoder` it is 83, both with aot_eager and with inductor (torch 2.13).
"""

_MAX_ITEMS = 1_000
"""A container with this many items counts as data and is not searched.

The largest container in a compiled `nn.TransformerEncoder` has 157 items (torch 2.13).
"""


_FOLLOWED = (
    *(FunctionType, MethodType, BuiltinMethodType, CellType, functools.partial),
    *(dict, tuple, list),
)
"""Types whose objects lead from a compiled graph to AOTAutograd's functions.

`CompiledFunction.apply` is a method of C since torch 2.14.
"""


def _referents(value: Any) -> list[Any]:
    """Return the values that a function, container or wrapper of torch holds."""
    is_wrapper = type(value).__module__.startswith(("torch._functorch", "functools"))
    is_data = isinstance(value, dict | tuple | list) and len(value) >= _MAX_ITEMS
    if is_data or not (is_wrapper or isinstance(value, _FOLLOWED)):
        return []
    # The globals of a module lead everywhere; those of generated code lead to the graph.
    return [
        inner
        for inner in gc.get_referents(value)
        if not (isinstance(inner, dict) and inner.get("__name__") in sys.modules)
    ]


def unwrap_inline(call: Any) -> Any:
    """Return the callable inside torch's `wrap_inline`; `None` for any other callable.

    torch.compile wraps callables without Python code of their own, such as `torch.nn` modules.
    """
    # All results of `wrap_inline` have one code object, also that of a wrapped `len`.
    if not isinstance(call, FunctionType) or call.__code__ is not get("wrap_inline")(len).__code__:
        return None
    inner = dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=True)).get("fn")
    return None if inner is None else inner.cell_contents


def backend_name(callback: Any) -> str:
    """Return the name of the backend in a callback of Dynamo's, "" for a callback without one.

    The innermost wrapper of the backend is torch.compile's own, and holds the name. For a backend
    without `__name__`, such as an instance or a `functools.partial`, this is its `repr`. The name
    omits addresses, because it is compared with the names of other runs.
    """
    backend = innermost_backend(callback)
    if backend is callback:
        return ""
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
    return re.sub(r" at 0x\w+| id='\d+'", "", str(name or type(backend).__name__))


def backend_of(callback: Any) -> tuple[str, bool]:
    """Return `backend_name`, and True if torch registers this backend under the name."""
    name, backend = backend_name(callback), innermost_backend(callback)
    if type(backend).__module__ == "torch" and not hasattr(backend, "compiler_fn"):
        return name, True  # torch.compile's wrapper of inductor
    try:
        registered = get("lookup_backend")(name)
    except get("invalid_backend"):
        return name, False
    return name, registered is getattr(backend, "compiler_fn", backend)


def is_compiled_code(code: CodeType) -> bool:
    """Return True if Dynamo's cache has an entry for this code."""
    return bool(get("cache_entries")(code))


def is_at_recompile_limit(code: CodeType) -> bool:
    """Return True if this code has reached Dynamo's recompile limit, so it is not recompiled."""
    config = get("config")
    limit = min(config.recompile_limit, config.accumulated_recompile_limit)
    return bool(len(get("cache_entries")(code)) >= limit)


def code_at_recompile_limit() -> list[CodeType]:
    """Return all code that has reached the recompile limit; see `is_at_recompile_limit`."""
    codes = [reference() for reference in list(get("input_codes").seen)]
    return [code for code in codes if code is not None and is_at_recompile_limit(code)]


class LastCompilation(NamedTuple):
    """Result of an attempt of Dynamo to compile a function.

    Attributes:
        function, file, line: the function.
        failure, reason: type and text of the exception that ended it; "" if it succeeded.
        ops: number of ops in its graph: 0 if all ops run outside the graph, at graph breaks; `None`
            if Dynamo found no tensor operation.
    """

    function: str
    file: str
    line: int
    failure: str
    reason: str
    ops: int | None


def last_compilations() -> Iterator[LastCompilation]:
    """Yield the last 64 compilations of the process, oldest first. A reset does not clear them."""
    for metrics in get("compilation_metrics")():
        key = metrics.co_name or "", metrics.co_filename or "", metrics.co_firstlineno or 0
        failure, reason = metrics.fail_type or "", metrics.fail_reason or ""
        yield LastCompilation(*key, failure, reason, metrics.graph_op_count)


def on_compile_call(called: Callable[[FrameType], None]) -> Replaced:
    """Call `called(frame)` for each call of `torch.compile`, with a frame inside torch's code.

    Calls of `Module.compile` and `torch._dynamo.optimize`, and torch's own calls, are included.
    Exports, and calls of `torch.compile` while it is disabled, are not.

    Raises:
        TorchGraphError: if this torch has no `OptimizeContext`.
    """
    original = get("optimize_context")

    def observed(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not kwargs.get("export"):
            called(sys._getframe(1))

    return replaced("optimize_context", observed)


def on_precompiled_call(called: Callable[[Any], None]) -> Replaced:
    """Call `called(module)` for each call of a module from `torch.compiler.precompile.load`.

    Do nothing before torch 2.14, which introduced these modules.
    """
    if not _has_precompiled_code():
        return nullcontext()
    original = get("precompiled_call")

    @functools.wraps(original)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        called(self)
        return original(self, *args, **kwargs)

    if "torch._dynamo" in sys.modules:
        leave_function_alone(entered)
    return replaced("precompiled_call", entered)


def on_aot_compiled_call(called: Callable[[Any], None]) -> Replaced:
    """Call `called(function)` for each call of a result of `torch.compile(f).aot_compile(...)`.

    `function` has the name and the file of `f`.

    Raises:
        TorchGraphError: if this torch has no `AOTCompiledFunction`.
    """
    original = get("aot_compiled_call")

    @functools.wraps(original)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Dynamo inlines this function, and then finds the same graph break as without it.
        if not torch.compiler.is_compiling():
            called(self.fn)
        return original(self, *args, **kwargs)

    return replaced("aot_compiled_call", entered)


@functools.cache
def _has_precompiled_code() -> bool:
    """Return True if this torch has precompiled modules.

    The answer is cached, because looking for a missing module searches the import path.
    """
    return has("precompiled_call")
