"""Compiled autograd's graph of a backward, to a `Graph` with ordinary inputs and stable names.

- `fold`: its fx graph -> the folded one, without the unpacking of lists and prologues.
- `nodes`: the folded graph -> `Graph`, with the names and modules that `fold` found.

Compiled autograd's graph takes five lists (tensors, sizes, scalars, hooks, packed data) and unpacks
them by `getitem`. An AOT backward in it begins with a prologue, a call that hands on its saved
values unchanged. Folding removes both, so that an edit that saves one value more moves no index of
another:

    inputs[3]             -> a placeholder, if it is used
    prologue(...)[k]      -> the saved value that the prologue hands on as its k-th result
    prologue(...)[n + k]  -> item k of the call that is left, of its own results alone
    any other node        -> itself

Which node is which is decided by the graph alone. Facts from the run serve names, module paths and
shapes; a printed graph has none.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx

from .. import torch_private
from ..graph.model import Effect, Node, Ref, Result, Source, Symbol, TensorMeta
from ..graph.module_paths import module_of
from ..ops.names import base_name
from .canonical_names import CanonicalNames
from .from_fx import Converted, GraphConverter, HasGraph, Naming
from .node_meta import RESULT

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


_COPIED = re.compile(r"aot(\d+)(?:_\d+)?_(.+)\Z")
"""The name of a node that was copied from an AOT backward: its id, and the node's name there."""
_NUMBER = re.compile(r"_\d+\Z")

_SIZE_SYMBOLS = 10**9
"""The first number of our raw symbols for sizes: above all that Dynamo gives."""


@dataclass
class RunFacts:
    """Observations from one run of a graph of compiled autograd; empty for a printed graph.

    Attributes:
        inputs: (role, name) of each known tensor, by its position in the list `inputs`.
        hooks: name of each element of the list `hooks`.
        backwards: the AOT backwards that were copied into the graph, by their ids.
        paths: module path of each step of the backward, where the forward ran eagerly.
        results: description of each node's value, by the node's name.
        numbers: values of the nodes that gave an int, by the node's name.
    """

    inputs: dict[int, tuple[str, str]] = field(default_factory=dict)
    hooks: list[str] = field(default_factory=list)
    backwards: dict[int, Converted] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


def fold(
    module: HasGraph, facts: RunFacts, canon: CanonicalNames, ranks: Mapping[str, int] | None = None
) -> Converted:
    """Convert a graph of compiled autograd.

    Args:
        module: the module that compiled autograd hands to its compiler, or a printed one.
        facts: observations from its run.
        canon: shared by the graphs of one capture.
        ranks: see `Naming.ranks`.
    """
    folded = _Fold(module, facts, canon)
    graph = folded.build()
    naming = Naming(inputs=folded.inputs, ranks=ranks or {})
    owner = Owner(module, graph, folded.bodies)
    converter = FoldedConverter(owner, canon, naming, folded.notes)
    return converter.run("backward", "backward", "compiled_autograd")


class _Fold:
    """Folds one graph: all nodes are classified first, then the new graph is built.

    Attributes:
        elements: nodes that are an element of an input list: the list's name and the index.
        alias: nodes that a prologue hands on: the node that it was given.
        offsets: other results of a prologue: how many it hands on before them.
        copied: nodes that were copied from an AOT backward: the node there.
        kept: the nodes that the folded graph has too, in order.
        parameters: (role, name) of the input that a step of the backward accumulates into.
        users: the first kept node that uses each node.
        symbols: the symbol of each size that is an input, by its value.
        inputs: (role, name) of each placeholder of the folded graph.
        notes: the note of each other node of it, by name.
        bodies: attribute of each body of a higher-order op, by its name in the folded graph.
        claimed: that name, by the id of an AOT backward and the body's name there.
    """

    def __init__(self, module: HasGraph, facts: RunFacts, canon: CanonicalNames):
        self.fx = module.graph
        self.facts = facts
        self.canon = canon
        self.inputs: dict[str, tuple[str, str]] = {}
        self.notes: dict[str, Note] = {}
        self.bodies: dict[str, str] = {}
        self.claimed: dict[tuple[str, str], str] = {}
        self.elements: dict[torch.fx.Node, tuple[str, int]] = {}
        self.alias: dict[torch.fx.Node, torch.fx.Node] = {}
        self.offsets: dict[torch.fx.Node, int] = {}
        self.copied: dict[torch.fx.Node, Node] = {}
        self.kept: list[torch.fx.Node] = []
        for node in self.fx.nodes:
            self._classify(node)
        self.parameters = dict(self._parameters())
        self.users: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self.kept:
            for operand in self._operands(node):
                self.users.setdefault(self._of(operand), node)
        self.symbols: dict[int, Symbol] = {}

    # -- classifying nodes ----------------------------------------------------------------------

    def _classify(self, node: torch.fx.Node) -> None:
        """Add a node to `elements`, `alias` or `kept`."""
        if node.op == "placeholder":
            return
        origin = self._copied_from(node)
        if origin is not None:
            self.copied[node] = origin
        taken = node.args[0] if node.args else None
        if calls(node, "unwrap_size"):
            self.elements[node] = self.elements.pop(taken)  # type: ignore[arg-type]
        elif node.target is not operator.getitem or not isinstance(taken, torch.fx.Node):
            self.kept.append(node)
        elif taken.op == "placeholder":
            self.elements[node] = (taken.name, node.args[1])  # type: ignore[assignment]
        elif callee_name(taken) == PROLOGUE:
            self._from_prologue(node, taken, node.args[1])  # type: ignore[arg-type]
        else:
            self.kept.append(node)

    def _from_prologue(self, node: torch.fx.Node, prologue: torch.fx.Node, index: int) -> None:
        """Add a node that takes one result of a prologue."""
        passed = _handed_on(prologue)
        if index < len(passed):
            self.alias[node] = passed[index]
            if node in self.copied:
                self.copied.setdefault(self._of(node), self.copied[node])
        else:
            self.offsets[node] = len(passed)
            self.kept.append(node)

    def _copied_from(self, node: torch.fx.Node) -> Node | None:
        """The node of an AOT backward that was copied here: its `mm` for `aot0_mm`."""
        match = _COPIED.match(node.name)
        known = self.facts.backwards.get(int(match[1])) if match else None
        if match is None or known is None or match[2] not in known.names:
            return None
        return known.graph.by_name[known.names[match[2]]]

    def _of(self, node: torch.fx.Node) -> torch.fx.Node:
        """The node that a prologue was given, of one that it hands on; any other itself."""
        while (other := self.alias.get(node)) is not None:
            node = other
        return node

    def _operands(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """The operands in the folded graph: of a prologue those that it does not hand on."""
        if callee_name(node) != PROLOGUE:
            return node.all_input_nodes
        operands: list[torch.fx.Node] = []
        torch.fx.node.map_arg(node.args[2:], operands.append)
        return operands

    def _parameters(self) -> Iterator[tuple[int, tuple[str, str]]]:
        """Steps of the backward, and (role, name) of the inputs that they accumulate into."""
        for node in self.kept:
            if calls(node, "accumulate_grad"):
                known = self._known(node.args[0])
                step = step_of(node)
                if known is not None and step is not None:
                    yield step, known

    def _known(self, node: Any) -> tuple[str, str] | None:
        """(role, name) of a node that is a known tensor, None of any other."""
        group, index = self.elements.get(node, ("", 0))
        return self.facts.inputs.get(index) if group == "inputs" else None

    # -- the folded graph ------------------------------------------------------------------------

    def build(self) -> torch.fx.Graph:
        """The folded graph; fills `inputs` and `notes`."""
        notes = {node: self._note(node) for node in self.kept}
        used = [node for node in self.elements if node in self.users]
        self._find_symbols(used)
        graph = torch.fx.Graph()
        new: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in used:
            placeholder = new[node] = graph.placeholder(node.name)
            placeholder.meta[RESULT] = self._input_result(node)
            self.inputs[placeholder.name] = self._input_name(node, notes)
        for node in self.kept:
            copy = new[node] = self._copy(graph, node, lambda n: new[self._of(n)])
            self.notes[copy.name] = notes[node]
        return graph

    def _copy(
        self,
        graph: torch.fx.Graph,
        node: torch.fx.Node,
        operand: Callable[[torch.fx.Node], torch.fx.Node],
    ) -> torch.fx.Node:
        """Append a copy of a kept node; `operand` gives the new node of an old one."""
        args = node.args
        if callee_name(node) == PROLOGUE:
            *others, grads = args[2:]
            args = (*(other for other in others if other), grads)
        elif node in self.offsets:
            args = (args[0], args[1] - self.offsets[node])  # type: ignore[operator]
        if node.op == "output":
            output: torch.fx.Node = graph.output(torch.fx.node.map_arg(args[0], operand))
            return output
        copy = graph.create_node(
            node.op,
            self._body(node) if node.op == "get_attr" else stable_target(node.target),
            torch.fx.node.map_arg(args, operand),
            torch.fx.node.map_arg(node.kwargs, operand),
            node.name,
        )
        copy.meta[RESULT] = self._result(node)
        return copy

    def _body(self, node: torch.fx.Node) -> str:
        """The name of a body, as in the AOT backward that it was copied with.

        Compiled autograd makes an attribute for each *use* of a body, `true_graph_1` becoming
        `true_graph_10`. Here all uses in one AOT backward have one again.
        """
        target = str(node.target)
        copy = _COPIED.match(node.name)
        if copy is None:
            return target
        name = target
        while name[-1:].isdigit():
            name = name[:-1]
            if _NUMBER.sub("", name) == _NUMBER.sub("", copy[2]):
                break
        else:
            return target
        key = (copy[1], name)
        if key not in self.claimed:
            taken, number = name, 0
            while taken in self.bodies:
                number += 1
                taken = f"{name}_{number}"
            self.claimed[key] = taken
            self.bodies[taken] = target
        return self.claimed[key]

    def _note(self, node: torch.fx.Node) -> Note:
        """The module, parameter and line of a kept node, as far as they are known."""
        origin = self.copied.get(node)
        if origin is not None:
            return Note(origin.module, source=origin.source)
        step = step_of(node)
        path = self.facts.paths[step] if step is not None and step < len(self.facts.paths) else ""
        parameter = self.parameters.get(-1 if step is None else step)
        if parameter is not None and (calls(node, "accumulate_grad") or calls(node, "call_hook")):
            role, name = parameter
            owner, _, leaf = name.rpartition(".") if role == "parameter" else ("", "", name)
            return Note(owner, leaf)
        return Note(path)

    # -- inputs ----------------------------------------------------------------------------------

    def _input_name(self, node: torch.fx.Node, notes: dict[torch.fx.Node, Note]) -> tuple[str, str]:
        """(role, name) of an element: its own where it is known, else after its first user."""
        group, index = self.elements[node]
        known = self._known(node)
        if known is not None:
            return known
        origin = self.copied.get(node)
        if origin is not None and group != "hooks":
            return origin.op, origin.name
        user = self.users[node]
        note = notes[user]
        if group == "inputs":
            if step_of(user) == 0:
                return "tangent", f"tangent.{user.all_input_nodes.index(node)}"
            if calls(user, "accumulate_grad"):
                return "input", "leaf"
            return "saved", note.name("saved")
        word = {"sizes": "size", "scalars": "scalar", "packed_data": "packed"}.get(group, "hook")
        if group == "hooks" and index < len(self.facts.hooks):
            word = self.facts.hooks[index]
        return "input", note.name(word)

    def _input_result(self, node: torch.fx.Node) -> Result:
        """The description of an element's value."""
        group, _ = self.elements[node]
        if group == "sizes":
            return self.symbols.get(self.facts.numbers.get(node.name, -1))
        known = self._known(node)
        if self.facts.backwards and known is not None and known[0] in ("parameter", "buffer"):
            return self.facts.results.get(node.name)  # the compiled forward says: not dynamic
        result = self._result(node)
        return result if group != "packed_data" or isinstance(result, TensorMeta) else None

    # -- shapes ----------------------------------------------------------------------------------

    def _result(self, node: torch.fx.Node) -> Result:
        """The description of a kept node's value, with symbols for sizes that are inputs."""
        origin = self.copied.get(node)
        result = self.facts.results.get(node.name)
        if origin is not None and origin.result is not None:
            return origin.result
        if callee_name(node) == PROLOGUE and isinstance(result, tuple):
            result = result[len(_handed_on(node)) :]
        if calls(node, "accumulate_grad") or calls(node, "call_hook"):
            like = node.args[calls(node, "call_hook")]
            if isinstance(like, torch.fx.Node) and self.facts.results.get(like.name) == result:
                like = self._of(like)
                return self._input_result(like) if like in self.elements else self._result(like)
        return self._symbolic(result)

    def _find_symbols(self, used: list[torch.fx.Node]) -> None:
        """Give each size that is an input a symbol: equal sizes share one, as they do in Dynamo.

        Sizes of an AOT backward have the symbols of its forward.
        """
        sizes = [node for node in used if self.elements[node][0] == "sizes"]
        for node in used if sizes else ():
            if node in self.copied:
                self._take_symbols(node, self.copied[node].result)
        for node in sizes:
            number = self.facts.numbers.get(node.name, -1)
            if number not in self.symbols:
                symbol = self.canon.expression(f"s{_SIZE_SYMBOLS + number}")
                self.symbols[number] = Symbol(symbol)

    def _take_symbols(self, node: torch.fx.Node, result: Result) -> None:
        """Take the symbols of an AOT backward's input: what was a number in the run is one there.

        Args:
            node: the element that is that input.
            result: the description of the input there.
        """
        observed = self.facts.results.get(node.name)
        if isinstance(result, Symbol) and node.name in self.facts.numbers:
            self.symbols.setdefault(self.facts.numbers[node.name], result)
        elif isinstance(result, TensorMeta) and isinstance(observed, TensorMeta):
            for size, number in zip(result.shape, observed.shape, strict=False):
                if isinstance(size, Symbol) and size.expr.isidentifier():
                    assert isinstance(number, int)  # the shape of a real tensor
                    self.symbols.setdefault(number, size)

    def _symbolic(self, result: Result) -> Result:
        """The description with symbols for the sizes that have one."""
        if isinstance(result, tuple):
            return tuple(self._symbolic(item) for item in result)
        if not self.symbols or not isinstance(result, TensorMeta):
            return result
        shape = tuple(self.symbols.get(n, n) if isinstance(n, int) else n for n in result.shape)
        return result if shape == result.shape else replace(result, shape=shape, stride=None)


def _handed_on(prologue: torch.fx.Node) -> list[Any]:
    """What a prologue is given and gives first: sizes, saved values, and opaque objects.

    Before torch 2.10 it is given no opaque objects. Its last argument is the gradient.
    """
    saved, sizes, *others, _ = prologue.args
    return [item for part in (sizes, saved, *others) for item in part]  # type: ignore[union-attr]
