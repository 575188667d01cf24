"""From a folded graph of compiled autograd to a `Graph`, and what the calls in it are."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from ... import torch_private
from ...graph.model import Effect, Node, Ref, Result, Source
from ...graph.module_paths import module_of
from ...ops.names import base_name
from ..canonical_names import CanonicalNames
from ..from_fx import GraphConverter, HasGraph, Naming

PROLOGUE = "call_aot_bwd_prologue"
"""The bare name of the function with which an AOT backward begins; each graph has its own."""

_STEP = re.compile(r"\(NodeCall (\d+)\)")
"""The number of the autograd node that is run, in the stack trace of an fx node."""
_NUMBERED = re.compile(r"(CppNode\w*?)\d+\Z")
"""The name of an autograd function of a C++ extension."""


@dataclass
class Note:
    """Where a node of the folded graph belongs.

    Attributes:
        path: its module path, "" where unknown.
        parameter: the parameter of that module whose gradient it accumulates or hands to a hook.
        source: the line of the forward, for a node that was copied from an AOT backward.
    """

    path: str = ""
    parameter: str = ""
    source: Source | None = None

    def name(self, word: str) -> str:
        """A node's name there, from the name of its op: `fc/mm`, or `fc/weight.call_hook`."""
        word = f"{self.parameter}.{word}" if self.parameter else word
        return f"{self.path}/{word}" if self.path else word


class FoldedConverter(GraphConverter):
    """Converts a folded graph.

    Attributes:
        notes: where nodes belong, by their names.
    """

    def __init__(
        self,
        module: HasGraph | torch.fx.Graph,
        canon: CanonicalNames,
        naming: Naming,
        notes: Mapping[str, Note] | None = None,
    ):
        super().__init__(module, canon, naming)
        self.notes = notes or {}

    def module_path(self, node: torch.fx.Node) -> str:
        """`Node.module`; of a sum of gradients, that of the one that came last."""
        if self.naming.plain:
            return super().module_path(node)
        note = self.notes.get(node.name, Note())
        if note.path or node.target not in (torch.add, operator.getitem):
            return note.path
        if node.target is torch.add:
            return self.path_of_sum(node)
        return self.paths.get(node.args[0], "")  # type: ignore[arg-type]

    def name(self, node: torch.fx.Node, path: str, op: str, target: str) -> str:
        """`Node.name`, with the parameter's name in it where the node's note has one."""
        note = self.notes.get(node.name)
        if note is not None and note.parameter:
            return self.namer.claim(note.name(base_name(op)))
        return super().name(node, path, op, target)

    def input(self, node: torch.fx.Node, role: str) -> Node:
        """The node of a placeholder, which belongs to the module in its name."""
        converted = super().input(node, role)
        if "/" not in converted.name:
            return converted
        return replace(converted, module=module_of(converted.name))

    def unrecorded_result(self, node: torch.fx.Node) -> Result:
        """The result of a node without a value in its meta; one that is indexed is a tuple."""
        indexed = any(user.target is operator.getitem for user in node.users)
        return super().unrecorded_result(node) or (() if indexed else None)

    def source(self, node: torch.fx.Node) -> Source | None:
        """`Node.source`: the line of the forward, for a node of an AOT backward."""
        note = self.notes.get(node.name)
        return note.source if note is not None else None

    def effects(self, node: torch.fx.Node) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        """Effects: accumulating a gradient writes its parameter; a hook may do anything."""
        effects, after = super().effects(node)
        if calls(node, "accumulate_grad"):
            variable = node.args[0]
            return (Effect("mutates", Ref(self.names[variable])),), after  # type: ignore[index]
        if calls(node, "call_hook") or callee_name(node) in _UNKNOWN:
            return (Effect("opaque"),), after
        return effects, after


_UNKNOWN = frozenset({"call_cpp_tensor_pre_hooks", "_exec_final_callbacks_stub", "self_invoke"})
"""Functions that run code unknown here: hooks of C++, and hooks inside compiled regions."""


class Owner:
    """The module of a folded graph: the captured one's attributes, under the folded names.

    Attributes:
        module: the captured module.
        graph: the folded graph.
        bodies: attribute of each body of a higher-order op in `module`, by its name in `graph`.
    """

    def __init__(self, module: HasGraph, graph: torch.fx.Graph, bodies: Mapping[str, str]):
        self.module = module
        self.graph = graph
        self.bodies = bodies

    def get_submodule(self, target: str) -> Any:
        """A body of a higher-order op."""
        return self.module.get_submodule(self.bodies.get(target, target))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, self.bodies.get(name, name))


def calls(node: torch.fx.Node, name: str) -> bool:
    """Whether a node calls the function `torch_private.get(name)`, told by its bare name.

    A printed graph has the name alone.
    """
    return callee_name(node) == str(torch_private.get(name).__name__)


def callee_name(node: torch.fx.Node) -> str:
    """The bare name of the function that a node calls."""
    name = str(getattr(node.target, "__name__", ""))
    return PROLOGUE if name.startswith(PROLOGUE) else name


def step_of(node: torch.fx.Node) -> int | None:
    """The step of the backward that a node belongs to; None for a copy of an AOT node."""
    match = _STEP.search(node.meta.get("stack_trace") or "")
    return int(match[1]) if match else None


def stable_target(target: Any) -> Any:
    """A target with a stable name: the same in each process and however often it occurs.

    torch numbers the ops that it makes of C++ autograd functions, and in a printed graph also the
    functions that occur several times.
    """
    name = getattr(target, "__name__", "")
    module = getattr(target, "__module__", None) or ""
    if not module.startswith("torch._dynamo"):
        return target
    numbered = _NUMBERED.match(name)
    if numbered is not None:
        return _renamed(target, module, numbered[1])
    return _renamed(_rest_of(target), module, PROLOGUE) if name.startswith(PROLOGUE) else target


def _renamed(target: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
    """A function that does the same under another name."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    run.__module__ = module
    run.__name__ = run.__qualname__ = name
    return run


def _rest_of(prologue: Callable[..., Any]) -> Callable[..., Any]:
    """The prologue of a folded graph, which is not given the values that it would hand on."""
    return lambda *lists: prologue([], [], [], list(lists[-1]))
