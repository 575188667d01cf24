"""Make a runnable torch.fx module from a `Graph`, which may have been read from text.

Op names are looked up in loaded modules. Nothing in a text is imported or evaluated. Values in the
nodes' meta are fake tensors with the dtypes, shapes, strides and devices of the `Graph`.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import fx

from .. import torch_private
from ..errors import CaptureError
from ..graph.higher_order import GRAPH_MODULE
from ..graph.model import (
    AnyFloat,
    Arg,
    Atom,
    Device,
    Graph,
    Node,
    Ref,
    Result,
    SubgraphRef,
    Symbol,
    TensorMeta,
)
from ..graph.sizes import SYMBOL, UnknownExpression, value_of
from ..graph.text import format_node
from ..ops.matching import DIALECTS
from ..ops.qualified import op_name, overload_of
from . import node_meta
from .canonical_names import CanonicalNames
from .placeholders import InputName
from .printed import class_named, qualified
from .to_fx import ORIGIN, FxOrigin

_BUILTINS = frozenset(
    "abs bool complex divmod float getattr int len max min pow range round slice sum tuple".split()
)
"""The builtins that a graph may call. A stored graph may come from a stranger, so not `eval`."""
_STANDARD_LIBRARY = sys.stdlib_module_names - {"math", "operator"}
_HINT = 8
"""Size of the first symbol, if no sizes are given. Each further symbol is one larger."""


class SavedForBackwards(NamedTuple):
    """Description of an output that is saved; `placeholders.is_saved` knows it by its name."""


class ModuleBuilder:
    """Builder of a module that runs a graph: inputs in its order, then outputs, then saved values.

    Args:
        graph: the graph.
        constants: tensors for constants, by node name. They replace the values in the graph.
        values: makes the values in the nodes' meta.

    Attributes:
        source: the graph.
        graph: the fx graph.
        attributes: attributes of the module, by path.
        nodes: fx nodes by name in `source`.
        symbols: fx nodes with the value of a symbolic expression.
    """

    def __init__(
        self, graph: Graph, constants: Mapping[str, Any], values: _FakeValues | None = None
    ):
        self.source = graph
        self.constants = constants
        self.values = values or _FakeValues()
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}
        self.nodes: dict[str, fx.Node] = {}
        self.symbols: dict[str, fx.Node] = {}
        self.inputs: dict[str, InputName] = {}

    def build(self) -> fx.GraphModule:
        """Return the module.

        Raises:
            CaptureError: for a node that cannot run. The message names the node.
        """
        for body in self.source.subgraphs:
            self.attributes[body.name] = ModuleBuilder(body, self.constants, self.values).build()
        for node in self.source.nodes:
            try:
                made = self.nodes[node.name] = getattr(self, node.kind)(node)
                if node.kind != "output":
                    self.describe(node, made)
            except Exception as error:  # whatever a text makes torch and fx raise
                reason = " ".join(str(error).split())
                raise CaptureError(
                    f"%{node.name} of graph {self.source.name} cannot run: {reason}\n"
                    f"  {format_node(node)}"
                ) from None
        output = self.graph.output_node()
        canon = self.values.canon
        constants = [node for node in self.source.inputs if node.op == "constant" and node.args]
        values = {self.nodes[node.name].name: node.args for node in constants}
        output.meta[ORIGIN] = FxOrigin(self.inputs, self.source.level, canon, values)
        return fx.GraphModule(self.attributes, self.graph)

    def describe(self, node: Node, made: fx.Node) -> None:
        """Write the meta of a new fx node."""
        if isinstance(node.result, Symbol):
            self.symbols.setdefault(node.result.expr, made)
        value = None
        with contextlib.suppress(UnknownExpression):
            value = self.values.of(node.result)
        if made.target is operator.getitem and isinstance(made.args[0], fx.Node):
            several = made.args[0].meta.get("val")
            if isinstance(several, tuple) and isinstance(made.args[1], int):
                value = several[made.args[1]]  # writes to it are writes to the result of its op
        if isinstance(node.result, Symbol) and isinstance(value, int) and made.op != "placeholder":
            value = None  # a symbolic size that is constant converts back to a number otherwise
        made.meta[node_meta.RESULT if value is None else "val"] = (
            node.result if value is None else value
        )
        if node.module:
            made.meta["nn_module_stack"] = {node.module: (node.module, torch.nn.Module)}

    # -- kinds of nodes --------------------------------------------------------------------------

    def placeholder(self, node: Node) -> fx.Node:
        """Add an input."""
        defaults = () if node.op == "constant" else tuple([self.arg(arg) for arg in node.args])
        made = self.graph.create_node("placeholder", node.name, defaults, {}, node.name)
        made.target = made.name  # fx makes the name an identifier, but not the target
        self.inputs[made.name] = (node.op, node.name)
        return made

    def get_attr(self, node: Node) -> fx.Node:
        """Add a constant, and its tensor to the module."""
        path = node.target or f"_tensor_constant{len(self.attributes)}"
        value = self.constants.get(node.name)
        if value is None and node.args and isinstance(node.result, TensorMeta):
            shape = [size for size in node.result.shape if isinstance(size, int)]
            dtype = getattr(torch, str(node.result.dtype))
            value = torch.tensor(node.args[0], dtype=dtype).reshape(shape)
        if value is None:
            remedy = f"constants={{{node.name!r}: tensor}}"
            raise ValueError(f"the value of this constant is unknown, so pass {remedy}")
        self.attributes[path] = value
        return self.graph.create_node("get_attr", path, name=node.name)

    def call_function(self, node: Node) -> fx.Node:
        """Add a call of a function or op."""
        target = function_named(node.op)
        as_list = overload_of(target) is not None  # tuples index a tensor otherwise
        args = [self.arg(arg, as_list=as_list) for arg in node.args]
        if node.op == "higher_order.invoke_subgraph":
            args.insert(1, self.subgraph_name(node))  # the key in torch's cache
        kwargs = {name: self.arg(arg, as_list=as_list) for name, arg in node.kwargs.items()}
        return self.graph.create_node("call_function", target, tuple(args), kwargs, node.name)

    def call_method(self, node: Node) -> fx.Node:
        """Add a call of a tensor's method."""
        return self.called(node, node.op.removeprefix("Tensor."), node.args)

    def call_module(self, node: Node) -> fx.Node:
        """Add a call of a body."""
        if node.op != GRAPH_MODULE:
            raise ValueError(
                f"the parameters of a {node.op} are not in a graph, so capture via 'aot', which "
                "has them as inputs"
            )
        return self.called(node, self.subgraph_name(node), node.args[1:])

    def called(self, node: Node, target: str, args: tuple[Arg, ...]) -> fx.Node:
        """Add a call of a method or module."""
        values = tuple([self.arg(arg) for arg in args])
        kwargs = {name: self.arg(arg) for name, arg in node.kwargs.items()}
        return self.graph.create_node(node.kind, target, values, kwargs, node.name)

    def subgraph_name(self, node: Node) -> str:
        """Return the name of the body that a node calls."""
        bodies = [arg.name for arg in node.args[:1] if isinstance(arg, SubgraphRef)]
        if not bodies:
            raise ValueError("it calls no graph")
        return bodies[0]

    def output(self, node: Node) -> fx.Node:
        """Add the output, with the saved values last."""
        value = self.arg(node.args[0] if len(node.args) == 1 else node.args)
        saved = [self.nodes[ref.name] for ref in self.source.saved]
        if not isinstance(value, tuple) and (saved or self.source.level != "fx"):
            value = (value,)
        if not saved:
            made: fx.Node = self.graph.output(value)
            return made
        made = self.graph.output((*value, *saved))
        made.meta["desc"] = [None] * len(value) + [SavedForBackwards()] * len(saved)
        return made

    # -- arguments -------------------------------------------------------------------------------

    def arg(self, value: Arg, *, as_list: bool = False) -> Any:
        """Return the argument of an fx node."""
        match value:
            case Ref():
                return self.nodes[value.name]
            case SubgraphRef():
                return self.graph.get_attr(value.name)
            case Symbol():
                return self.symbol(value.expr)
            case Atom():
                found = object_named(value.name)
                # `function_named` rejects the functions that a text may not name.
                return function_named(value.name) if found is None or callable(found) else found
            case Device():
                return torch.device(value.name)
            case AnyFloat():
                raise ValueError("the values of its floats were not stored (digits=0)")
            case tuple():
                items = [self.arg(item, as_list=as_list) for item in value]
                return items if as_list else tuple(items)
            case slice():
                return slice(*[self.arg(end) for end in (value.start, value.stop, value.step)])
            case Mapping():
                return {key: self.arg(item, as_list=as_list) for key, item in value.items()}
        return value

    def symbol(self, expr: str) -> fx.Node:
        """Return a node that computes an expression from the sizes that the graph has as values."""
        if expr not in self.symbols:
            # Computed with proxies, an expression adds the nodes that compute it.
            sizes: Any = {name: fx.Proxy(node) for name, node in self.symbols.items()}
            try:
                self.symbols[expr] = value_of(expr, sizes).node
            except UnknownExpression as error:
                raise ValueError(f"{error}, and no value is this size: pass sizes=") from None
        return self.symbols[expr]


class _FakeValues:
    """Fake values of the nodes of one module, with symbolic sizes.

    Attributes:
        canon: names of the symbols in the `Graph`, by torch's names.
    """

    def __init__(self) -> None:
        self.canon = CanonicalNames({})
        shape_env = torch_private.get("shape_env")(duck_shape=False)
        make = torch_private.get("fake_tensor_mode")
        self._mode = make(allow_non_fake_inputs=True, shape_env=shape_env)
        self._sizes: dict[str, Any] = {}

    def of(self, result: Result) -> Any:
        """Return the value for a description, or `None` if it has none."""
        match result:
            case TensorMeta(layout="strided"):
                shape = [self.size(size) for size in result.shape]
                stride = [self.size(size) for size in result.stride or ()]
                dtype = getattr(torch, str(result.dtype))
                device = result.device or "cpu"
                with self._mode:
                    if result.stride is None:
                        return torch.empty(shape, dtype=dtype, device=device)
                    return torch.empty_strided(shape, stride, dtype=dtype, device=device)
            case Symbol():
                return self.size(result)
            case tuple():
                values = tuple([self.of(item) for item in result])
                return None if any(value is None for value in values) else values
        return None

    def size(self, size: int | Symbol) -> Any:
        """Return a size, as a `torch.SymInt` if it is symbolic."""
        if not isinstance(size, Symbol):
            return size
        for name in SYMBOL.findall(size.expr):
            self.add_symbol(name)
        return value_of(size.expr, self._sizes)

    def add_symbol(self, name: str) -> None:
        """Make a `torch.SymInt` for a symbol: a size of a tensor with a dynamic dimension."""
        if name not in self._sizes:
            dynamic = torch_private.get("dim_dynamic").DYNAMIC
            context = torch_private.get("symbolic_context")([dynamic])
            example = torch.empty(_HINT + len(self._sizes), device="meta")
            fake = self._mode.from_tensor(example, symbolic_context=context)
            self._sizes[name] = fake.shape[0]
            self.canon.symbols[str(fake.shape[0])] = name


def function_named(name: str) -> Any:
    """Return the function or op with a qualified name; see `op_name`.

    Raises:
        LookupError: if there is none in the loaded modules.
    """
    namespace, _, rest = name.partition(".")
    if namespace == "triton":
        raise LookupError("the code of a Triton kernel is not in a graph")
    if namespace in _STANDARD_LIBRARY or (not rest and name not in _BUILTINS):
        raise LookupError(f"{name} is no function of torch, and a text may not call it")
    found = object_named(name)
    if not callable(found) or op_name(found) != name:
        raise LookupError(
            f"{name} is not loaded in this process, so import the module that defines it first"
        )
    return found


def object_named(name: str) -> Any:
    """Return the op, or the object of a loaded module, with a qualified name; `None` without."""
    owner, _, attribute = name.rpartition(".")
    if name.startswith("torch."):
        with contextlib.suppress(LookupError):
            return qualified(name)
    elif owner and not name.startswith("operator."):
        in_dialect = name.split(".")[0] in DIALECTS
        ops = class_named("executorch.exir.dialects._ops.ops") if in_dialect else torch.ops
        with contextlib.suppress(AttributeError, RuntimeError):
            return functools.reduce(getattr, name.split("."), ops)
    # `getattr` finds a member of an enumeration, and `class_named` does not.
    return class_named(name) or getattr(class_named(owner) if owner else None, attribute, None)
