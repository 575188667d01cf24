"""The nodes of a graph of compiled autograd: what they call, and what they become."""

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
from ...graph.module_paths import common_path, module_of
from ...ops.names import base_name
from ..canonical_names import CanonicalNames
from ..from_fx import HasGraph, Naming, _Converter

PROLOGUE = "call_aot_bwd_prologue"
"""The function that AOTAutograd's own code in front of a backward is, made anew for each graph."""

_STEP = re.compile(r"\(NodeCall (\d+)\)")
_NUMBERED = re.compile(r"(CppNode\w*?)\d+\Z")


@dataclass
class Note:
    """What is known of a node: its module, the parameter whose gradient it is about, its line."""

    path: str = ""
    parameter: str = ""
    source: Source | None = None

    def name(self, word: str) -> str:
        """A name in that module: `fc/mm`, or `fc/weight.call_hook`."""
        word = f"{self.parameter}.{word}" if self.parameter else word
        return f"{self.path}/{word}" if self.path else word


class FoldedConverter(_Converter):
    """Converts a folded graph, with what is known of its nodes by their names."""

    def __init__(
        self,
        module: HasGraph | torch.fx.Graph,
        canon: CanonicalNames,
        naming: Naming,
        notes: Mapping[str, Note] | None = None,
    ):
        super().__init__(module, canon, naming)
        self.notes = notes or {}

    def module(self, node: torch.fx.Node) -> str:
        """The module of a node; of a sum of gradients, the innermost one with all of them."""
        if self.naming.plain:
            return super().module(node)
        note = self.notes.get(node.name, Note())
        if note.path or node.target not in (torch.add, operator.getitem):
            return note.path
        if node.target is torch.add:
            return common_path(self.paths[o] for o in node.all_input_nodes if o in self.paths)
        return self.paths.get(node.args[0], "")  # type: ignore[arg-type]

    def name(self, node: torch.fx.Node, path: str, op: str, target: str) -> str:
        """The name of a node; about a parameter's gradient, that of the parameter is in it."""
        note = self.notes.get(node.name)
        if note is not None and note.parameter:
            return self.namer.claim(note.name(base_name(op)))
        return super().name(node, path, op, target)

    def node(self, node: torch.fx.Node, role: str) -> Node:
        """One node; an input belongs to the module in its name."""
        made = super().node(node, role)
        if node.op != "placeholder" or "/" not in made.name:
            return made
        return replace(made, module=module_of(made.name))

    def unknown(self, node: torch.fx.Node) -> Result:
        """What is known of a result that nobody noted: what is indexed here is never a tensor."""
        taken = any(user.target is operator.getitem for user in node.users)
        return super().unknown(node) or (() if taken else None)

    def source(self, node: torch.fx.Node) -> Source | None:
        """The line of the forward that an AOT backward's node is from."""
        note = self.notes.get(node.name)
        return note.source if note is not None else None

    def effects(self, node: torch.fx.Node, name: str) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        """A gradient that is accumulated changes its parameter; a hook may do anything."""
        found, after = super().effects(node, name)
        if calls(node, "accumulate_grad"):
            variable = node.args[0]
            return (Effect("mutates", Ref(self.names[variable])),), after  # type: ignore[index]
        if calls(node, "call_hook") or called(node) in _UNKNOWN:
            return (Effect("opaque"),), after
        return found, after


_UNKNOWN = frozenset({"call_cpp_tensor_pre_hooks", "_exec_final_callbacks_stub", "self_invoke"})
"""What runs code that nobody can see from here: hooks of C++, and hooks inside compiled regions."""


class Owner:
    """The attributes of the captured module, with the folded graph.

    Attributes:
        bodies: which attribute a body is, by the name that it has in the folded graph.
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
    """Whether a node calls one of `torch_private.NAMES`; by name, which a printed graph has."""
    return called(node) == str(torch_private.get(name).__name__)


def called(node: torch.fx.Node) -> str:
    """The bare name of the function that a node calls."""
    name = str(getattr(node.target, "__name__", ""))
    return PROLOGUE if name.startswith(PROLOGUE) else name


def step_of(node: torch.fx.Node) -> int | None:
    """Which step of the backward a node belongs to; copies of AOT nodes do not say."""
    match = _STEP.search(node.meta.get("stack_trace") or "")
    return int(match[1]) if match else None


def lasting(target: Any) -> Any:
    """A target whose name is the same in each process and however often it occurs.

    Ops that are made from C++ functions of extensions are numbered, and where a graph is printed
    also the functions of which it has several.
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
    def run(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    run.__module__ = module
    run.__name__ = run.__qualname__ = name
    return run


def _rest_of(prologue: Callable[..., Any]) -> Callable[..., Any]:
    """The prologue without the values that it only hands on: in the folded graph nobody asks it."""
    return lambda *lists: prologue([], [], [], list(lists[-1]))
