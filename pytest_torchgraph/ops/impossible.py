"""Reject an op pattern that cannot match any op at a graph's level.

A test that expects zero ops would always pass if the op were misspelled. A pattern without a match
in the graph must therefore name an op that could occur at the level of the graph.

Tracers trace through Python functions and classes. Such a function is a node only if the tracer
keeps calls of it; the count of any other function would always be zero.
"""

from __future__ import annotations

import builtins
import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch

from .. import torch_private
from . import registry
from .matching import ATEN_LEVELS, Level, is_glob, matches
from .qualified import class_name, op_name

_GLUE = re.compile(
    r"torch\._dynamo\.(compiled_autograd\.(ops\.)?|external_utils\.)\w+(\.\w+)?\Z|torch\.add\Z"
)
"""Unregistered functions in graphs of compiled autograd: autograd functions, hooks, sums."""

BECOMES = {
    "aten.item": "aten._local_scalar_dense",
    "aten.linear": "aten.addmm aten.mm",
    "aten.matmul": "aten.mm aten.bmm aten.addmm",
    "aten.reshape": "aten.view aten._unsafe_view",
    "aten.dropout": "aten.native_dropout aten.bernoulli_",
    "aten.layer_norm": "aten.native_layer_norm",
    "aten.batch_norm": "aten._native_batch_norm_legit* aten.native_batch_norm",
    "aten.group_norm": "aten.native_group_norm",
    "aten.conv1d": "aten.convolution",
    "aten.conv2d": "aten.convolution",
    "aten.conv3d": "aten.convolution",
    "aten.softmax": "aten._softmax",
    "aten.log_softmax": "aten._log_softmax",
    "aten.to": "aten._to_copy",
    "aten.contiguous": "aten.clone",
    "aten.flatten": "aten.view",
    "aten.chunk": "aten.split",
    "aten.scaled_dot_product_attention": "aten._scaled_dot_product_*",
    "aten.cross_entropy_loss": "aten._log_softmax aten.nll_loss_forward",
    "aten.einsum": "aten.bmm",
    "aten.T": "aten.t aten.permute",
}
"""The ops that common composite ops become, for hints in messages."""

_CAST = "prims.convert_element_type"
_COPIES = ("aten._to_copy", "aten.to")
"""Casts and moves, which inductor replaces by ops of prims."""


def pattern_name(op: Any) -> str:
    """Return the pattern for a user's argument.

    Args:
        op: a pattern as a string, an op object (`torch.ops.aten.mm`, a `torch.library.custom_op`),
            a function, or a `torch.nn.Module` (class or instance). The pattern of an object is its
            qualified name.

    Raises:
        TypeError: if `op` is an empty string, or neither a string nor callable.
    """
    if isinstance(op, str):
        if not op.strip():
            raise TypeError("an empty string names no op: pass a string such as 'aten.mm'")
        return op
    if not callable(op):
        raise TypeError(f"{op!r} names no op: pass a string such as 'aten.mm', or the op itself")
    if isinstance(op, torch.nn.Module):
        return class_name(type(op))
    return torch_private.name_of_custom_op(op) or name_of(op)


def refuse_impossible(
    op: Any, levels: Iterable[Level], *, traced: bool = False, decomposed: bool = False
) -> None:
    """Raise if a pattern cannot match an op at any of `levels`.

    Args:
        op: see `pattern_name`.
        levels: levels of the graphs.
        traced: True if the graphs were captured by this package, False if the user passed them in.
        decomposed: True if one of the graphs has inductor's decompositions.

    Raises:
        ValueError: if the pattern cannot match at any level. The message gives the reason for one
            level. Also if it cannot match in a graph with inductor's decompositions.
    """
    pattern = pattern_name(op)
    if decomposed and (problem := _problem_in_inductor(pattern)):
        raise ValueError(problem)
    problems = [_problem(op, pattern, level, traced) for level in sorted(set(levels))]
    if problems and all(problems):
        problem = problems[0]
        raise ValueError(problem.replace(_COPIES[0], _CAST) if decomposed else problem)


def _problem(op: Any, pattern: str, level: Level, traced: bool) -> str:
    """Return the reason why a pattern cannot match at a level, or "" if it can."""
    if pattern.startswith("torch.ops."):
        problem = _problem(pattern[10:], pattern[10:], level, traced)
        return problem or f"{pattern!r} names no op: remove 'torch.ops.', as in {pattern[10:]!r}"
    if level == "compiled_autograd" and _GLUE.match(pattern):
        return ""
    registered = registry.matching(pattern)
    if level in ATEN_LEVELS and registered:
        return _dispatched_problem(pattern, registered, level)
    if level == "export" and registered:
        return ""
    if level in _TORCH_FUNCTIONS:
        if any(not registered_op.startswith(_BELOW_AUTOGRAD) for registered_op in registered):
            return ""  # a custom op: Dynamo and torch.fx keep it as a node
        if registered or pattern.startswith(_BELOW_AUTOGRAD):
            return (
                f"{pattern!r} cannot occur in a graph at level {level!r}, which holds torch "
                "functions: capture via 'aot', or for a watch, use capture.at('aot')"
            )
    if any(matches(name, pattern) for name in registry.unregistered(pattern)):
        return ""
    return _python_problem(op, pattern, level, traced)


_TORCH_FUNCTIONS = ("dynamo", "fx")
"""Levels whose nodes are torch functions."""
LISTED = "capture.op_counts lists the captured ops"
_BELOW_AUTOGRAD = ("aten.", "prims.", "prim.")
"""Prefixes of ops that torch functions run. Dynamo and torch.fx record only the functions."""


def _python_problem(op: Any, pattern: str, level: Level, traced: bool) -> str:
    """Return `_problem` for the name of a Python function or class, or for an unknown name."""
    callables = find_callables(pattern)
    if not callables and not isinstance(op, str):  # defined in a function: no name resolves to it
        callables = [(pattern, op)]
    if level not in _TORCH_FUNCTIONS and is_glob(pattern) and not is_symbolic(pattern):
        # `torch.*` means torch's functions, not the few size functions that occur at every level.
        callables = [pair for pair in callables if not is_at_every_level(pair[0])]
    reasons = [why_never_called(*pair, level, traced) for pair in callables]
    if not reasons:
        return _unknown(pattern, level, traced)
    refusal = f"{pattern!r} cannot occur in a graph at level {level!r}"
    if None in reasons:
        alias = alias_of(pattern, callables)
        return f"{refusal}, where it has a different name: did you mean {alias}?" if alias else ""
    reason = next(filter(None, reasons), "")
    if reason:
        return f"{refusal}: {reason}"
    becomes = f"aten.{pattern.rpartition('.')[2].lower()}"
    remedy = "capture via 'dynamo' or 'fx', or for a watch, use capture.at('dynamo')"
    if all(isinstance(value, type) for _, value in callables):
        remedy = "capture via 'fx'"
    if level == "export" and not is_glob(pattern) and registry.matching(becomes):
        remedy = f"did you mean {becomes}?"
    return f"{refusal}, which holds ops such as aten.mm.default: {remedy}"


def _dispatched_problem(pattern: str, registered: list[str], level: Level) -> str:
    """Return `_problem` for a pattern of registered ops, at a level that has only such ops."""
    refusal = f"{pattern!r} cannot occur in a graph at level {level!r}"
    if level in ("aot", "post_grad") and all(map(registry.is_triton_op, registered)):
        return (
            f"{refusal}, because torch.compile decomposes ops of torch.library.triton_op: name its "
            "ops, or its kernel as 'triton.<kernel>'"
        )
    if level == "post_grad":  # see `_problem_in_inductor`
        return ""
    packet = ".".join(pattern.split(".")[:2])
    functional = [op for op in registered if not op.rpartition(".")[2].endswith("out")]
    if all(registry.is_composite(op) for op in functional or registered):
        becomes = _accepted(packet, level, True) if packet in BECOMES else []
        hint = f"did you mean {' or '.join(becomes)}?" if becomes else "name its ops"
        why = "because it is a composite op, which is decomposed before this level"
        return f"{refusal}, {why}: {hint}"
    # `is_replaced` reads the names of all ops, which takes milliseconds: call it last.
    writes = level == "aot" and all(map(registry.is_in_place, registered))
    if writes and all(map(registry.is_replaced, registered)):
        return (
            f"{refusal}, which is functional (ops that write to their arguments are replaced): did "
            f"you mean {packet.rstrip('_')}?"
        )
    return ""


def _accepted(name: str, level: Level, traced: bool) -> list[str]:
    """Return the ops that a packet or op becomes at a level, or itself, without refused names."""
    names = BECOMES.get(name, "").split() if level in ATEN_LEVELS else []
    return [op for op in names or [name] if not _problem(op, op, level, traced)]


def _problem_in_inductor(pattern: str) -> str:
    """Return the reason why a graph with inductor's decompositions cannot contain an op, or "".

    A check that there are no casts is common, and would always pass. Other decomposed ops are
    accepted, because a test may assert that inductor has decomposed them.
    """
    if ".".join(pattern.split(".")[:2]) not in _COPIES:
        return ""
    return (
        f"{pattern!r} cannot occur in these graphs, because inductor decomposes it: name "
        f"{_CAST!r} (casts) or 'prims.device_put' (moves), or capture via 'aot'"
    )


def _unknown(pattern: str, level: Level, traced: bool) -> str:
    """Return the message for an unknown name, with the closest names that can occur at a level."""
    candidates = {*registry.unregistered(pattern)}
    if not pattern.startswith("triton."):
        registered = registry.registered()
        candidates |= {*registered, *(".".join(op.split(".")[:2]) for op in registered)}
        if level in _TORCH_FUNCTIONS:
            candidates = {name for name in candidates if not name.startswith(_BELOW_AUTOGRAD)}
            pairs = _candidates(pattern)
            candidates |= {n for n, f in pairs if why_never_called(n, f, level, traced) is None}
    names = sorted(candidates, key=lambda name: (not name.startswith("aten."), name))
    bare = pattern.removeprefix("torch.")
    close = [name for name in names if name.partition(".")[2] == bare]
    close = close or difflib.get_close_matches(pattern, names, n=10)
    # A composite op may be closest: suggest the ops that it becomes.
    accepted = (a for name in close for a in _accepted(name, level, traced))
    suggestions = [*dict.fromkeys(accepted)][:3]
    hint = f"did you mean {', '.join(suggestions)}?" if suggestions else LISTED
    return f"{pattern!r} names no op that can occur in a graph at level {level!r}: {hint}"


_SEARCHED_MODULES = (
    "operator",
    "math",
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.special",
    "torch.linalg",
    "torch.fft",
)
"""Modules whose functions every glob is matched with."""
_OWN_ROOTS = frozenset({"torch", "Tensor", "operator", "math"})
_ON_NUMBERS = frozenset(
    {"abs", "bool", "divmod", "float", "getattr", "int", "max", "min", "pow", "round"}
)
"""Builtins that compute symbolic sizes, and `getattr`, with which Dynamo reads attributes."""
_SYMBOLIC = re.compile(r"(operator|math)\b|torch\._?sym_")
_READING = frozenset({"Tensor.__array__", "Tensor.__dlpack__", "Tensor.numpy", "Tensor.tolist"})
"""Methods that read a tensor without dispatching an op; `dispatch` records them as nodes."""
_WILDCARD = re.compile(r"[*?]")


def find_callables(pattern: str) -> list[tuple[str, Any]]:
    """Return (qualified name, callable) pairs for a pattern; empty if it names no callable."""
    if is_glob(pattern):
        return [(name, value) for name, value in _candidates(pattern) if matches(name, pattern)]
    value = _resolve(pattern)
    if isinstance(value, ModuleType):
        return list(_members(value))
    return [(pattern, value)] if callable(value) else []


def name_of(value: Any) -> str:
    """Return the op name of a node that calls `value`."""
    is_module = isinstance(value, type) and issubclass(value, torch.nn.Module)
    return class_name(value) if is_module else op_name(value)


def alias_of(pattern: str, callables: list[tuple[str, Any]]) -> str:
    """Return the name used by nodes if `pattern` is an alias, otherwise "".

    `torch.nn.functional.conv2d` is an alias of `torch.conv2d`. An imported function is an alias of
    the function in its own module.
    """
    if (
        len(callables) != 1
        or callables[0][0] != pattern
        or pattern.startswith(("Tensor.", "torch.Tensor."))
    ):
        return ""
    name = name_of(callables[0][1])
    return "" if name == pattern else name


def is_symbolic(name: str) -> bool:
    """Return True for a function that computes symbolic sizes, and for a glob of such functions."""
    return name in _ON_NUMBERS or _SYMBOLIC.match(name) is not None


def is_at_every_level(name: str) -> bool:
    """Return True for a function that can also occur in graphs of dispatched ops."""
    return is_symbolic(name) or name in _READING


def why_never_called(name: str, value: Any, level: Level, traced: bool) -> str | None:
    """Return the reason why no node at a level can call a callable, `None` if one can.

    Args:
        name: qualified name of the callable.
        value: the callable.
        level: the level.
        traced: True if the graph was captured by this package, False if the user passed it in. Any
            function can be called in a torch.fx graph of the user.

    Returns:
        "" for a torch function or class. The caller then suggests a replacement.
    """
    if is_symbolic(name) or (level == "dispatch" and name in _READING):
        return None
    if level not in ("dynamo", "fx"):
        is_kept = level == "post_grad" and name.startswith("torch._inductor.")
        return None if is_kept else _traced_through(name, value)
    if level == "fx":
        return _why_not_fx(name, value, traced)
    if not isinstance(value, type):
        return None if _is_torch_name(name) or not _is_python_function(name) else _NOT_TRACED
    if not issubclass(value, torch.nn.Module):
        return None if _is_torch_name(name) and not name.startswith("torch.nn.") else _CLASS
    return _function_of(value) if _is_torch_name(name) else _MODULE


def _why_not_fx(name: str, value: Any, traced: bool) -> str | None:
    """Return `why_never_called` for a torch.fx graph."""
    is_module = isinstance(value, type) and issubclass(value, torch.nn.Module)
    # A tracer decides which modules it keeps.
    if is_module or _is_torch_name(name) or name in _wrapped():
        return None
    if _is_python_function(name) or isinstance(value, type) or traced:
        return f"{_traced_through(name, value)}, or keep it as a node with torch.fx.wrap"
    return None


_MODULE = (
    "a module is not recorded, only its ops: name the ops that its forward runs, and pass its path "
    "as module="
)
_CLASS = "a class is not recorded, only its ops: name the ops that its methods run"
_FUNCTION = "a Python function is not recorded, only its ops: name the ops that it runs"
_NOT_TRACED = "a function of Python or numpy is never a node: name the ops that torch runs"


def _traced_through(name: str, value: Any) -> str:
    if _is_torch_name(name):
        return ""
    if _is_python_function(name):
        return _NOT_TRACED
    if not isinstance(value, type):
        return _FUNCTION
    return _MODULE if issubclass(value, torch.nn.Module) else _CLASS


def _is_torch_name(name: str) -> bool:
    """Return True for a name in torch, `operator` or `math`, whose functions fx calls directly."""
    return name.partition(".")[0] in _OWN_ROOTS


def _is_python_function(name: str) -> bool:
    """Return True for a builtin, and for a function of the standard library or numpy."""
    root, dot, _ = name.partition(".")
    return (
        root == "numpy" or root in sys.stdlib_module_names or (not dot and hasattr(builtins, root))
    )


def _function_of(cls: type) -> str:
    """Return a hint that names the torch function with the name of a torch module."""
    words = "_".join(re.findall(r"[A-Z]+(?![a-z])\d*d?|[A-Z][a-z]*\d*d?", cls.__name__)).lower()
    guesses = (cls.__name__.lower(), words, re.sub(r"\dd\Z", "", words), words.replace("_loss", ""))
    for guess in guesses:
        function = getattr(torch.nn.functional, guess, None)
        if function is not None:
            return f"a module is not recorded, only its ops: did you mean {op_name(function)}?"
    return _MODULE


def _wrapped() -> set[str]:
    """Return the names of functions that `torch.fx.wrap` keeps as nodes."""
    functions = [
        scope.get(name, getattr(builtins, name, None))
        for (_, name), scope in torch_private.get("fx_wrapped").items()
    ]
    return {op_name(function) for function in functions if function is not None}


def _candidates(pattern: str) -> Iterator[tuple[str, Any]]:
    """Yield the callables that a glob may match, in torch and in the glob's root package."""
    root = _WILDCARD.split(pattern, maxsplit=1)[0].partition(".")[0]
    for name in _SEARCHED_MODULES:
        yield from _members(sys.modules[name])
    for name in dir(torch.Tensor):
        if callable(getattr(torch.Tensor, name, None)):
            yield f"Tensor.{name}", getattr(torch.Tensor, name)
            yield f"torch.Tensor.{name}", getattr(torch.Tensor, name)
    if root and root not in _OWN_ROOTS and root in sys.modules:
        for name, module in list(sys.modules.items()):
            if (name == root or name.startswith(f"{root}.")) and isinstance(module, ModuleType):
                yield from _members(module)


def _members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the callables that nodes name after a module."""
    # Use vars() instead of getattr, which can import another module.
    for attribute, value in list(vars(module).items()):
        name = f"{module.__name__}.{attribute}"
        if callable(value) and name_of(value) == name:
            yield name, value


def _resolve(name: str) -> Any:
    """Return the object of a dotted name in the loaded modules, or `None`."""
    first, *attributes = name.split(".")
    if first == "Tensor":
        return getattr(torch.Tensor, attributes[0], None) if len(attributes) == 1 else None
    value: Any = sys.modules.get(first, getattr(builtins, first, None))
    for part in attributes:
        value = getattr(value, part, None)
    return value
