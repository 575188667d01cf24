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
from typing import Any, NamedTuple

import torch

from .. import torch_private
from . import registry
from .matching import DIALECTS, Level, base_name, matches
from .qualified import attribute_at, class_name, op_name

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
    "aten._to_copy": "prims.convert_element_type prims.device_put",
    "aten.contiguous": "aten.clone",
    "aten.flatten": "aten.view",
    "aten.chunk": "aten.split",
    "aten.scaled_dot_product_attention": "aten._scaled_dot_product_*",
    "aten.cross_entropy_loss": "aten._log_softmax aten.nll_loss_forward",
    "aten.einsum": "aten.bmm",
    "aten.T": "aten.t aten.permute",
}
"""The ops that common composite ops, and casts and moves, become: for hints in messages."""

_COPIES = ("aten._to_copy", "aten.to")
"""Casts and moves, which inductor replaces by ops of prims."""

LISTED = "capture.op_counts lists the captured ops"
_TORCH_FUNCTIONS = ("dynamo", "fx")
"""Levels whose nodes are torch functions."""
_BELOW_AUTOGRAD = ("aten.", "prims.", "prim.")
"""Prefixes of ops that torch functions run. Dynamo and torch.fx record only the functions."""
_OWN_ROOTS = ("torch", "Tensor", "operator", "math")
"""First parts of the names of functions that fx calls directly."""
_ON_NUMBERS = {"abs", "bool", "divmod", "float", "getattr", "int", "max", "min", "pow", "round"}
"""Builtins that compute symbolic sizes, and `getattr`, with which Dynamo reads attributes."""
_SYMBOLIC = re.compile(r"(operator|math)\b|torch\._?sym_")
_READING = ("Tensor.__array__", "Tensor.__dlpack__", "Tensor.numpy", "Tensor.tolist")
"""Methods that read a tensor without dispatching an op; `dispatch` records them as nodes."""
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
"""Modules whose functions every pattern is matched with."""


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
            level. Also for a cast or move if one of the graphs has inductor's decompositions.
    """
    pattern = pattern_name(op)
    graphs = [_Graphs(level, traced, decomposed) for level in sorted(set(levels))]
    refusals = [graphs_of_level.refusal(op, pattern) for graphs_of_level in graphs]
    first = next(iter(refusals), None)
    if first is None or None in refusals:  # without graphs, or possible at some level
        return
    name, why, remedy = first
    names = graphs[0].suggestions(pattern, name)
    # Without a reason, the remedy only points to the captured ops, which suggestions replace.
    hints = [remedy] * (why != "" or not names)
    hints += [f"did you mean {' or '.join(names)}?"] * bool(names)
    verb = "cannot occur" if why else "names no op that can occur"
    raise ValueError(
        f"{pattern!r} {verb} in a graph at level {graphs[0].level!r}{why}: {'; '.join(hints)}"
    )


class _Refusal(NamedTuple):
    """A name, why it cannot be a node at a level ("" if it names nothing), and a remedy."""

    name: str
    why: str
    remedy: str


class _Graphs(NamedTuple):
    """Graphs of one level; the arguments of `refuse_impossible` describe the attributes."""

    level: Level
    traced: bool
    decomposed: bool

    def refusal(self, op: Any, pattern: str) -> _Refusal | None:
        """Return why nothing that a pattern names can be a node; `None` if anything can."""
        first = None
        for name, why, remedy in self._named(op, pattern):
            if not why:
                return None
            first = first or _Refusal(name, why, remedy)
        return first or _Refusal(pattern, "", LISTED)

    def _named(self, op: Any, pattern: str) -> Iterator[tuple[str, str, str]]:
        """Yield a refusal of each op and callable that a pattern names; "" as `why` if possible."""
        # These are possible, although the registered ops and callables below do not say so.
        if (
            pattern in _ON_NUMBERS
            or (pattern in _READING and self.level == "dispatch")
            or (_GLUE.match(pattern) and self.level == "compiled_autograd")
            or any(matches(name, pattern) for name in registry.unregistered(pattern))
            or (_root(pattern) in DIALECTS and registry.matching(pattern.partition(".")[2]))
        ):
            yield pattern, "", ""
        ops = registry.matching(pattern)
        # A composite op may have an `out=` variant that is not composite.
        for name in [name for name in ops if not name.endswith("out")] or ops:
            yield name, *self._why_no_op(name)
        for name, value in _callables(op, pattern):
            # A glob such as `torch.*` means torch's functions, not the few functions of sizes.
            is_symbolic = _SYMBOLIC.match(pattern)
            yield name, *(("", "") if is_symbolic else self._why_no_call(name, value))

    def _why_no_op(self, op: str) -> tuple[str, str]:
        """Return why a registered op cannot be a node, and a remedy."""
        if self.level in _TORCH_FUNCTIONS:
            why = ", which holds torch functions" if op.startswith(_BELOW_AUTOGRAD) else ""
            return why, _via("aot")
        if self.decomposed and op.rpartition(".")[0] in _COPIES:
            return ", because inductor decomposes it", "capture via 'aot'"
        if self.level in ("aot", "post_grad") and registry.is_triton_op(op):
            why = ", because torch.compile decomposes ops of torch.library.triton_op"
            return why, "name its ops, or its kernel as 'triton.<kernel>'"
        # A test may assert that inductor has decomposed an op.
        if self.level in ("export", "post_grad"):
            return "", ""
        if registry.is_composite(op):
            why = ", because it is a composite op, which is decomposed before this level"
            return why, "name its ops"
        if self.level == "aot" and registry.is_decomposed_when_traced(op):
            return ", because AOTAutograd decomposes it", "name its ops, or capture via 'dispatch'"
        # `is_replaced` reads the names of all ops, which takes milliseconds: call it last.
        if self.level == "aot" and registry.is_in_place(op) and registry.is_replaced(op):
            why = ", which is functional (ops that write to their arguments are replaced)"
            return why, "name the functional op"
        return "", ""

    def _why_no_call(self, name: str, value: Any) -> tuple[str, str]:
        """Return why a callable cannot be a node, and a remedy."""
        level = self.level
        is_class = isinstance(value, type)
        is_module = is_class and issubclass(value, torch.nn.Module)
        # A tracer decides which modules it keeps.
        if level == "fx" and (is_module or name in _wrapped()):
            return "", ""
        # Dynamo traces through the classes of torch.nn.
        traced_through = is_module or (is_class and name.startswith("torch.nn."))
        if _root(name) in _OWN_ROOTS and not (traced_through and level == "dynamo"):
            vias = ("fx",) if is_module else _TORCH_FUNCTIONS
            is_node = level in vias or (
                level == "post_grad" and name.startswith("torch._inductor.")
            )
            return "" if is_node else ", which holds ops such as aten.mm.default", _via(*vias)
        if _is_python(name):
            why = ": a function of Python or numpy is never a node"
            return why, "name the ops that torch runs"
        if is_class:
            if is_module:
                remedy = "name the ops that its forward runs, and pass its path as module="
                return ": a module is not recorded, only its ops", remedy
            return ": a class is not recorded, only its ops", "name the ops that its methods run"
        # `allow_in_graph` keeps a function, and a user's torch.fx graph may call any.
        if level == "dynamo" or (level == "fx" and not self.traced):
            return "", ""
        remedy = "name the ops that it runs" + ", or keep it with torch.fx.wrap" * (level == "fx")
        return ": a Python function is not recorded, only its ops", remedy

    def suggestions(self, pattern: str, name: str) -> list[str]:
        """Return up to three possible names to use instead of a pattern.

        Args:
            pattern: the pattern.
            name: a refused name that it matches; the pattern itself if it matches none.
        """
        value = _resolve(pattern)
        own = name_of(value) if callable(value) else ""
        if own and own != pattern and not self.refusal(own, own):
            return [own]  # the pattern is an alias: nodes have the function's own name
        ops = registry.registered()
        names = {*registry.unregistered(pattern), *ops, *map(_packet, ops)}
        names |= {found for found, _ in _candidates(pattern)}
        names |= {own} if own else set()
        # The same op in another namespace, or in another spelling, such as a module for a function.
        equal = [found for found in names if _bare(found) == _bare(name)]
        if not equal and name == pattern:  # misspelled
            equal = difflib.get_close_matches(pattern, names, 20)
        # With the cutoff 0.0, the 20 most alike, in this order, which the sort below keeps.
        waiting = difflib.get_close_matches(pattern, equal, 20, 0.0)
        waiting.sort(
            key=lambda found: (
                _root(found) != _root(pattern),
                base_name(found) != base_name(name),
                _root(found) not in ("aten", "torch", "Tensor"),
            )
        )
        suggested: list[str] = []
        while waiting and len(suggested) < 3:
            found = waiting.pop(0)
            if self.refusal(found, found):
                # What it becomes at this level takes its place in the queue.
                waiting[:0] = BECOMES.get(_packet(found), "").split()
            # All suggestions have the namespace of the first one, each packet once.
            elif _packet(found) not in suggested and _root(found) == _root((*suggested, found)[0]):
                suggested.append(found)
        return suggested


def _via(*vias: str) -> str:
    listed = " or ".join(map(repr, vias))
    return f"capture via {listed}, or for a watch, use capture.at({vias[0]!r})"


def _root(name: str) -> str:
    return name.partition(".")[0]


def _packet(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _bare(name: str) -> str:
    """Return what a module class, its function and its op have in common: `crossentropy`."""
    return base_name(name).replace("_", "").lower().removesuffix("loss")


def name_of(value: Any) -> str:
    """Return the op name of a node that calls `value`."""
    is_module = isinstance(value, type) and issubclass(value, torch.nn.Module)
    return class_name(value) if is_module else op_name(value)


def _is_python(name: str) -> bool:
    """Return True for a builtin, and for a function of the standard library or numpy."""
    return _root(name) in {"numpy", *sys.stdlib_module_names} or hasattr(builtins, name)


def _callables(op: Any, pattern: str) -> list[tuple[str, Any]]:
    """Return (qualified name, callable) pairs for a pattern; empty if it names no callable."""
    if not isinstance(op, str):  # a function defined in a function has no name to look up
        value = type(op) if isinstance(op, torch.nn.Module) else op
        return [] if registry.matching(pattern) else [(pattern, value)]
    root, value = _root(pattern), _resolve(pattern)
    is_python = root not in _OWN_ROOTS and _is_python(pattern)
    if is_python or (callable(value) and (root == "Tensor" or name_of(value) == pattern)):
        return [(pattern, value)]
    return [(name, value) for name, value in _candidates(pattern) if matches(name, pattern)]


def _wrapped() -> set[str]:
    """Return the names of functions that `torch.fx.wrap` keeps as nodes."""
    functions = [
        scope.get(name, getattr(builtins, name, None))
        for (_, name), scope in torch_private.get("fx_wrapped").items()
    ]
    return {op_name(function) for function in functions if function is not None}


def _candidates(pattern: str) -> Iterator[tuple[str, Any]]:
    """Yield the callables of torch, and of the root package of a pattern, by the names of nodes."""
    root = _root(pattern)
    modules = dict.fromkeys(_SEARCHED_MODULES)
    if root not in _OWN_ROOTS:
        modules |= {name: None for name in list(sys.modules) if f"{name}.".startswith(f"{root}.")}
    for name in modules:
        # Use vars() instead of getattr, which can import another module.
        for attribute, value in list(vars(sys.modules[name]).items()):
            if callable(value) and name_of(value) == f"{name}.{attribute}":
                yield f"{name}.{attribute}", value
    for name in dir(torch.Tensor):
        if callable(getattr(torch.Tensor, name, None)):
            yield f"Tensor.{name}", getattr(torch.Tensor, name)


def _resolve(name: str) -> Any:
    """Return the object of a dotted name in the loaded modules, or `None`."""
    root, _, path = name.partition(".")
    owner = torch.Tensor if root == "Tensor" else sys.modules.get(root)
    return attribute_at(owner, path) if path else owner
