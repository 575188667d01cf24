"""Convert a backward graph of compiled autograd to a `Graph` with ordinary inputs and stable names.

- `fold`: fx graph -> folded fx graph -> `Graph`. The folded graph does not unpack lists and has
  no prologues.
- `FoldedConverter`: folded graph -> `Graph`, with the names and modules found while folding.

The graph of compiled autograd takes five lists (tensors, sizes, scalars, hooks, packed data) and
unpacks them with `getitem`. Each AOT backward in it begins with a prologue: a call that returns the
saved values unchanged. Folding removes both, because an edit that saves one more value would
otherwise shift the indices of the other values:

    inputs[3]             -> a placeholder, if any node uses it
    prologue(...)[k]      -> the saved value that the prologue returns as its k-th result
    prologue(...)[n + k]  -> item k of the remaining call, which returns only its own results
    any other node        -> itself

A number that eager autograd saved, such as the 2.5 of `x * 2.5`, becomes a constant. The engine
passes it as a tensor or, from a C++ function, in the list of scalars.

Nodes are classified from the graph only. Facts from the run supply names, module paths and
shapes; a printed graph has none.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from .. import torch_private
from ..graph.model import Arg, Effect, Node, Ref, Result, Source, Symbol, TensorMeta
from ..graph.module_paths import module_of
from ..ops.matching import base_name
from . import source_lines
from .canonical_names import CanonicalNames
from .from_fx import Converted, GraphConverter, HasGraph, Naming
from .node_meta import LINE, RESULT
from .placeholders import InputName

PROLOGUE = "call_aot_bwd_prologue"
"""Bare name of the function that begins an AOT backward. Each graph has its own function."""

CALLED_BY = "torchgraph_called_by"
"""Key of the Python call that ran an op; see `mechanisms.python_calls`."""

_STEP = re.compile(r"\(NodeCall (\d+)\)")
"""Number of the running autograd node, in the stack trace of an fx node."""
_CPP_FUNCTION = re.compile(r"(CppNode\w*?)\d+\Z")
"""Name of an autograd function defined in a C++ extension, with torch's number."""


@dataclass
class Note:
    """Module, parameter and source line of a node of the folded graph.

    Attributes:
        path: module path, "" if unknown.
        parameter: the module's parameter whose gradient the node accumulates or passes to a hook.
        source: line of the forward, for a node copied from an AOT backward.
    """

    path: str = ""
    parameter: str = ""
    source: Source | None = None

    def name(self, word: str) -> str:
        """Return a node name made from the name of an op: `fc/mm`, or `fc/weight.call_hook`."""
        word = f"{self.parameter}.{word}" if self.parameter else word
        return f"{self.path}/{word}" if self.path else word


class FoldedConverter(GraphConverter):
    """Converter for a folded graph.

    Attributes:
        notes: notes by node name.
    """

    def __init__(
        self,
        module: HasGraph | fx.Graph,
        canon: CanonicalNames,
        naming: Naming,
        notes: Mapping[str, Note] | None = None,
    ):
        super().__init__(module, canon, naming)
        self.notes = notes or {}

    def module_path(self, node: fx.Node) -> str:
        """Return `Node.module`; for a sum of gradients, the module of the last one computed."""
        if self.naming.plain:
            return super().module_path(node)
        note = self.notes.get(node.name, Note())
        if note.path or node.target not in (torch.add, operator.getitem):
            return note.path
        if node.target is torch.add:
            return self.path_of_sum(node)
        # A getitem is in the module of its producer.
        return self.paths.get(node.args[0], "")  # type: ignore[arg-type]

    def name(self, node: fx.Node, path: str, op: str, target: str) -> str:
        """Claim a new name, which contains the name of the note's parameter, if any."""
        note = self.notes.get(node.name)
        if note is not None and note.parameter:
            return self.namer.claim(note.name(base_name(op)))
        return super().name(node, path, op, target)

    def input(self, node: fx.Node, role: str) -> Node:
        """Convert a placeholder; a path in its name is its module."""
        converted = super().input(node, role)
        if "/" not in converted.name:
            return converted
        return replace(converted, module=module_of(converted.name))

    def unrecorded_result(self, node: fx.Node) -> Result:
        """Return the result of a node without a value in its meta: a tuple if it is indexed."""
        indexed = any(user.target is operator.getitem for user in node.users)
        return super().unrecorded_result(node) or (() if indexed else None)

    def source(self, node: fx.Node) -> Source | None:
        """Return `Node.source`: for a node of an AOT backward, the line in the forward."""
        note = self.notes.get(node.name)
        return note.source if note is not None else None

    def effects(
        self, node: fx.Node, by_bodies: Collection[str]
    ) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        """Return `Node.effects` and `Node.after`.

        Accumulating a gradient writes its parameter. A hook may do anything.
        """
        effects, after = super().effects(node, by_bodies)
        if calls(node, "accumulate_grad"):
            variable = node.args[0]
            return (Effect("mutates", Ref(self.names[variable])),), after  # type: ignore[index]
        if calls(node, "call_hook") or callee_name(node) in _RUN_UNKNOWN_CODE:
            return (Effect("opaque"),), after
        return effects, after


_RUN_UNKNOWN_CODE = frozenset(
    {"call_cpp_tensor_pre_hooks", "_exec_final_callbacks_stub", "self_invoke"}
)
"""Functions that run unknown code: C++ hooks, and hooks inside compiled regions."""


@dataclass(eq=False)
class FoldedOwner:
    """Owner of a folded graph: the captured module, with the bodies' names in the folded graph.

    Attributes:
        module: the captured module.
        graph: the folded graph.
        bodies: for each body of a higher-order op, its name in `graph` -> its name in `module`.
    """

    module: HasGraph
    graph: fx.Graph
    bodies: Mapping[str, str]

    def get_submodule(self, target: str) -> Any:
        """Return a body of a higher-order op."""
        return self.module.get_submodule(self.bodies.get(target, target))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, self.bodies.get(name, name))


def calls(node: fx.Node, name: str) -> bool:
    """Return True if a node calls the function `torch_private.get(name)`."""
    # Compare bare names: a printed graph has nothing else.
    return callee_name(node) == str(torch_private.get(name).__name__)


def callee_name(node: fx.Node) -> str:
    """Return the bare name of the function that a node calls."""
    name = str(getattr(node.target, "__name__", ""))
    return PROLOGUE if name.startswith(PROLOGUE) else name


def step_of(node: fx.Node) -> int | None:
    """Return the backward step of a node, or `None` for a copy from an AOT backward."""
    match = _STEP.search(node.meta.get("stack_trace") or "")
    return int(match[1]) if match else None


def stable_target(target: Any) -> Any:
    """Return a target with a stable name, which does not depend on how often the target occurs."""
    # torch numbers the ops it makes from C++ autograd functions. In a printed graph, it also
    # numbers functions that occur several times.
    name = getattr(target, "__name__", "")
    module = getattr(target, "__module__", None) or ""
    if not module.startswith("torch._dynamo"):
        return target
    numbered = _CPP_FUNCTION.match(name)
    if numbered is not None:
        return _rename_function(target, module, numbered[1])
    if not name.startswith(PROLOGUE):
        return target
    # The prologue of a folded graph does not take the values that it would only pass on.
    return _rename_function(lambda *lists: target([], [], [], list(lists[-1])), module, PROLOGUE)


def _rename_function(target: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
    """Wrap a function under another name."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    run.__module__ = module
    run.__name__ = run.__qualname__ = name
    return run


_COPIED = re.compile(r"aot(\d+)(?:_\d+)?_(.+)\Z")
"""Name of a node copied from an AOT backward: id of the backward, and name of the node there."""
_NUMBER = re.compile(r"_\d+\Z")

_SIZE_SYMBOLS = 10**9
"""Number of the first raw symbol that this module makes for a size. Dynamo's numbers are lower."""


@dataclass
class RunFacts:
    """Facts observed while a compiled-autograd graph ran; empty for a printed graph.

    Attributes:
        inputs: (role, name) of each known tensor, by position in the graph's argument `inputs`.
        hooks: name of each element of the graph's argument `hooks`.
        backwards: AOT backwards copied into the graph, by id.
        paths: module path of each backward step, if the forward ran eagerly.
        results: description of each node's value, by node name.
        numbers: values of the nodes that returned an int, by node name.
        constant_inputs: the Python number that eager autograd saved for its backward, by name of
            the node that reads it from a list.
        outside: (role, name) of each tensor that a Python call got elsewhere, by placeholder name.
        constants: the constants that Python calls read, each with True if the call made it.
    """

    inputs: dict[int, InputName] = field(default_factory=dict)
    hooks: list[str] = field(default_factory=list)
    backwards: dict[int, Converted] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    constant_inputs: dict[str, tuple[Arg]] = field(default_factory=dict)
    outside: dict[str, InputName] = field(default_factory=dict)
    constants: list[tuple[torch.Tensor, bool]] = field(default_factory=list)


def fold(
    module: HasGraph,
    facts: RunFacts,
    canon: CanonicalNames,
    input_order: Mapping[str, int] | None = None,
) -> Converted:
    """Convert a compiled-autograd graph.

    Args:
        module: the module that compiled autograd passes to its compiler, or a printed one.
        facts: observations from its run.
        canon: names shared by the graphs of one capture.
        input_order: see `Naming.input_order`.
    """
    folded = _GraphFolder(module, facts, canon)
    graph = folded.build()
    made = {id(tensor): is_made for tensor, is_made in facts.constants}
    naming = Naming(
        inputs=folded.inputs,
        input_order=input_order or {},
        values=facts.constant_inputs,
        # Only Python calls read constants that existed before. All others are made by the code.
        is_made=lambda tensor: made.get(id(tensor), True),
    )
    owner = FoldedOwner(module, graph, folded.bodies)
    converter = FoldedConverter(owner, canon, naming, folded.notes)
    return converter.run("backward", "backward", "compiled_autograd")


class _GraphFolder:
    """Folder of one graph, which classifies all nodes and then builds the new graph.

    Attributes:
        elements: element of an input list -> (name of the list, index).
        alias: value passed through a prologue -> the prologue's operand.
        offsets: result of a prologue's own -> number of values passed through before it.
        copied: copy from an AOT backward -> the node in that backward.
        kept: nodes that remain in the folded graph, in order.
        parameters: backward step -> (role, name) of the input into which it accumulates.
        users: node -> the first kept node that uses it.
        symbols: value of an input size -> symbol.
        inputs: placeholder of the folded graph -> (role, name).
        notes: name of any other node of the folded graph -> note.
        bodies: see `FoldedOwner`.
        claimed: (id of an AOT backward, name of a body there) -> name in the folded graph.
    """

    def __init__(self, module: HasGraph, facts: RunFacts, canon: CanonicalNames):
        self.fx = module.graph
        self.facts = facts
        self.canon = canon
        self.inputs: dict[str, InputName] = {}
        self.notes: dict[str, Note] = {}
        self.bodies: dict[str, str] = {}
        self.claimed: dict[tuple[str, str], str] = {}
        self.elements: dict[fx.Node, tuple[str, int]] = {}
        self.alias: dict[fx.Node, fx.Node] = {}
        self.offsets: dict[fx.Node, int] = {}
        self.copied: dict[fx.Node, Node] = {}
        self.kept: list[fx.Node] = []
        for node in self.fx.nodes:
            self._classify(node)
        self.parameters = dict(self._parameters())
        self.users: dict[fx.Node, fx.Node] = {}
        for node in self.kept:
            for operand in self._operands(node):
                self.users.setdefault(self._resolve(operand), node)
        self.symbols: dict[int, Symbol] = {}

    # -- classifying nodes ----------------------------------------------------------------------

    def _classify(self, node: fx.Node) -> None:
        """Add a node to `elements`, `alias` or `kept`."""
        if node.op == "placeholder":
            if node.name in self.facts.outside:
                self.elements[node] = ("outside", 0)
            return
        origin = self._copied_from(node)
        if origin is not None:
            self.copied[node] = origin
        operand = node.args[0] if node.args else None
        if calls(node, "unwrap_size"):  # the element is a tensor in whose shape the size is
            self.elements[node] = self.elements.pop(operand)  # type: ignore[arg-type]
        elif node.target is not operator.getitem or not isinstance(operand, fx.Node):
            self.kept.append(node)
        elif operand.op == "placeholder":
            self.elements[node] = (operand.name, node.args[1])  # type: ignore[assignment]
        elif callee_name(operand) == PROLOGUE:
            self._classify_result(node, operand, node.args[1])  # type: ignore[arg-type]
        else:
            self.kept.append(node)

    def _classify_result(self, node: fx.Node, prologue: fx.Node, index: int) -> None:
        """Add the node of a prologue's result to `alias`, or to `offsets` and `kept`."""
        passed = _passed_through(prologue)
        if index < len(passed):
            self.alias[node] = passed[index]
            if node in self.copied:
                self.copied.setdefault(self._resolve(node), self.copied[node])
        else:
            self.offsets[node] = len(passed)
            self.kept.append(node)

    def _copied_from(self, node: fx.Node) -> Node | None:
        """Return the original of a copied node in its AOT backward: `mm` for `aot0_mm`."""
        match = _COPIED.match(node.name)
        backward = self.facts.backwards.get(int(match[1])) if match else None
        if match is None or backward is None or match[2] not in backward.names:
            return None
        return backward.graph.by_name[backward.names[match[2]]]

    def _resolve(self, node: fx.Node) -> fx.Node:
        """Return the operand of a value passed through a prologue; other nodes unchanged."""
        while (operand := self.alias.get(node)) is not None:
            node = operand
        return node

    def _operands(self, node: fx.Node) -> list[fx.Node]:
        """Return the operands in the folded graph; a prologue has no saved values and sizes."""
        if callee_name(node) != PROLOGUE:
            return node.all_input_nodes
        operands: list[fx.Node] = []
        fx.node.map_arg(node.args[2:], operands.append)
        return operands

    def _parameters(self) -> Iterator[tuple[int, InputName]]:
        """Yield each backward step that accumulates a gradient, with (role, name) of its input."""
        for node in self.kept:
            if calls(node, "accumulate_grad"):
                role_and_name = self._tensor_name(node.args[0])
                step = step_of(node)
                if role_and_name is not None and step is not None:
                    yield step, role_and_name

    def _tensor_name(self, node: Any) -> InputName | None:
        """Return (role, name) of a known tensor, `None` for any other node."""
        group, index = self.elements.get(node, ("", 0))
        if group == "outside":
            return self.facts.outside[node.name]
        return self.facts.inputs.get(index) if group == "inputs" else None

    # -- the folded graph ------------------------------------------------------------------------

    def build(self) -> fx.Graph:
        """Build the folded graph, and fill `inputs` and `notes`."""
        notes = {node: self._locate_node(node) for node in self.kept}
        used = [node for node in self.elements if node in self.users]
        self._find_symbols(used)
        graph = fx.Graph()
        new: dict[fx.Node, fx.Node] = {}
        for node in used:
            placeholder = new[node] = graph.placeholder(node.name)
            placeholder.meta[RESULT] = self._input_result(node)
            self.inputs[placeholder.name] = self._input_name(node, notes)
        for node in self.kept:
            copy = new[node] = self._copy(graph, node, lambda n: new[self._resolve(n)])
            self.notes[copy.name] = notes[node]
        return graph

    def _copy(
        self,
        graph: fx.Graph,
        node: fx.Node,
        operand: Callable[[fx.Node], fx.Node],
    ) -> fx.Node:
        """Append a copy of a kept node; `operand` maps old nodes to new ones."""
        args = node.args
        if callee_name(node) == PROLOGUE:
            # Sizes and saved values, the first two, are only passed through.
            *opaque_lists, grads = args[2:]
            args = (*(opaque for opaque in opaque_lists if opaque), grads)
        elif node in self.offsets:
            args = (args[0], args[1] - self.offsets[node])  # type: ignore[operator]
        if node.op == "output":
            output: fx.Node = graph.output(fx.node.map_arg(args[0], operand))
            return output
        copy = graph.create_node(
            node.op,
            self._body(node) if node.op == "get_attr" else stable_target(node.target),
            fx.node.map_arg(args, operand),
            fx.node.map_arg(node.kwargs, operand),
            node.name,
        )
        copy.meta[RESULT] = self._result(node)
        return copy

    def _body(self, node: fx.Node) -> str:
        """Return the name in the folded graph of the body that a get_attr reads."""
        # Compiled autograd makes one attribute for each *use* of a body in an AOT backward:
        # true_graph_1 becomes true_graph_10. Merge these attributes again.
        target = str(node.target)
        copy = _COPIED.match(node.name)
        if copy is None:
            return target
        # Drop final digits until the name is that of the node in the AOT backward, whose number
        # torch.fx may have changed. Otherwise the attribute is no copy of a body.
        name = target
        while name[-1:].isdigit():
            name = name[:-1]
            if _NUMBER.sub("", name) == _NUMBER.sub("", copy[2]):
                break
        else:
            return target
        key = (copy[1], name)
        if key not in self.claimed:
            free_name, number = name, 0
            while free_name in self.bodies:
                number += 1
                free_name = f"{name}_{number}"
            self.claimed[key] = free_name
            self.bodies[free_name] = target
        return self.claimed[key]

    def _locate_node(self, node: fx.Node) -> Note:
        """Return the module, parameter and line of a kept node; each is empty if unknown."""
        call = node.meta.get(CALLED_BY)
        if call is not None:
            source = source_lines.source_of(node.meta.get(LINE))
            return replace(self._locate_node(call), source=source)
        origin = self.copied.get(node) or self._copied_from(node)
        if origin is not None:
            return Note(origin.module, source=origin.source)
        step = step_of(node)
        if step is None:
            return Note()
        parameter = self.parameters.get(step)
        if parameter is not None and (calls(node, "accumulate_grad") or calls(node, "call_hook")):
            role, name = parameter
            owner, _, leaf = name.rpartition(".") if role == "parameter" else ("", "", name)
            return Note(owner, leaf)
        return Note(self.facts.paths[step] if step < len(self.facts.paths) else "")

    # -- inputs ----------------------------------------------------------------------------------

    def _input_name(self, node: fx.Node, notes: dict[fx.Node, Note]) -> InputName:
        """Return (role, name) of an element. An unknown element is named after its first user."""
        group, index = self.elements[node]
        role_and_name = self._tensor_name(node)
        if role_and_name is not None:
            return role_and_name
        origin = self.copied.get(node)
        if origin is not None and group != "hooks":
            return origin.op, origin.name
        user = self.users[node]
        note = notes[user]
        if node.name in self.facts.constant_inputs:
            return "constant", note.name("constant")
        if group == "inputs":
            if step_of(user) == 0:  # the first step takes the gradients of the outputs
                return "tangent", f"tangent.{user.all_input_nodes.index(node)}"
            if calls(user, "accumulate_grad"):  # into a tensor that no module has
                return "input", "leaf"
            return "saved", note.name("saved")
        word = {"sizes": "size", "scalars": "scalar", "packed_data": "packed"}.get(group, "hook")
        if group == "hooks" and index < len(self.facts.hooks):
            word = self.facts.hooks[index]
        return "input", note.name(word)

    def _input_result(self, node: fx.Node) -> Result:
        """Return the description of an element's value."""
        group, _ = self.elements[node]
        if group == "sizes":
            return self.symbols.get(self.facts.numbers.get(node.name, -1))  # -1 is no size
        role, _ = self._tensor_name(node) or ("", "")
        if self.facts.backwards and role in ("parameter", "buffer"):
            return self.facts.results.get(node.name)  # static sizes in the compiled forward
        result = self._result(node)
        return result if group != "packed_data" or isinstance(result, TensorMeta) else None

    # -- shapes ----------------------------------------------------------------------------------

    def _result(self, node: fx.Node) -> Result:
        """Return the description of a kept node's value, with symbols for sizes that are inputs."""
        origin = self.copied.get(node)
        if origin is not None and origin.result is not None:
            return origin.result
        results = self.facts.results
        result = results.get(node.name)
        if callee_name(node) == PROLOGUE and isinstance(result, tuple):
            result = result[len(_passed_through(node)) :]
        if calls(node, "accumulate_grad") or calls(node, "call_hook"):
            # A gradient has the shape of its variable, which `accumulate_grad` takes first. A hook
            # is followed by the gradient, and usually returns one of the same shape.
            operand = node.args[calls(node, "call_hook")]
            if isinstance(operand, fx.Node) and results.get(operand.name) == result:
                operand = self._resolve(operand)
                is_input = operand in self.elements
                return self._input_result(operand) if is_input else self._result(operand)
        return self._symbolic(result)

    def _find_symbols(self, used: list[fx.Node]) -> None:
        """Assign a symbol to each size that is an input.

        Equal sizes share a symbol, as in Dynamo. Sizes of an AOT backward keep the symbols of its
        forward.
        """
        sizes = [node for node in used if self.elements[node][0] == "sizes"]
        for node in used if sizes else ():
            if node in self.copied:
                self._adopt_symbols(node, self.copied[node].result)
        for node in sizes:
            number = self.facts.numbers.get(node.name, -1)
            if number not in self.symbols:
                symbol = self.canon.expression(f"s{_SIZE_SYMBOLS + number}")
                self.symbols[number] = Symbol(symbol)

    def _adopt_symbols(self, node: fx.Node, result: Result) -> None:
        """Map the sizes observed in the run to the symbols of an AOT backward's input.

        Args:
            node: the element of a list that is passed as this input.
            result: the description of the input in the AOT backward.
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
        """Replace sizes in a description with their symbols."""
        if isinstance(result, tuple):
            return tuple(self._symbolic(item) for item in result)
        if not self.symbols or not isinstance(result, TensorMeta):
            return result
        shape = tuple(self.symbols.get(n, n) if isinstance(n, int) else n for n in result.shape)
        return result if shape == result.shape else replace(result, shape=shape, stride=None)


def _passed_through(prologue: fx.Node) -> list[Any]:
    """Return the operands that a prologue passes through: sizes, saved values, opaque objects."""
    # Before torch 2.11, no opaque objects are passed, and the gradients follow here.
    saved, sizes, opaque, *_ = prologue.args
    parts = (sizes, saved, opaque if isinstance(opaque, tuple | list) else ())
    return [item for part in parts for item in part]  # type: ignore[union-attr]
