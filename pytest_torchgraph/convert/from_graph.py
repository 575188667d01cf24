"""Make a runnable torch.fx module from a `Graph`, which may have been read from text.

Op names are looked up in loaded modules. Nothing in a text is imported or evaluated. Values in the
nodes' meta are fake tensors with the dtypes, shapes, strides and devices of the `Graph`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import symbolic_shapes

from ..errors import CaptureError
from ..graph.higher_order import GRAPH_MODULE
from ..graph.model import (
    AnyFloat,
    Arg,
    Atom,
    Device,
    Graph,
    InputRef,
    Node,
    Ref,
    Result,
    SubgraphRef,
    Symbol,
    TensorMeta,
)
from ..graph.sizes import BINARY
from ..graph.text import format_node
from ..ops.qualified import op_name
from . import node_meta
from .canonical_names import CanonicalNames
from .printed.callables import class_named, qualified
from .to_fx import ORIGIN, FxOrigin

_HINT = 8
"""Size of the first symbol, if no sizes are given. Each further symbol is one larger."""


class SavedForBackwards(NamedTuple):
    """Description of an output that is saved; `placeholders.is_saved` knows it by its name."""


def module_of_graph(graph: Graph, constants: Mapping[str, Any]) -> torch.fx.GraphModule:
    """Return a module that runs a graph: inputs in its order, then outputs, then saved values.

    Args:
        graph: the graph.
        constants: tensors for constants, by node name. They replace the values in the graph.

    Raises:
        CaptureError: for a node that cannot run. The message names the node.
    """
    return _Builder(graph, constants, _Values()).build()


class _Builder:
    """Builder of the module of one graph.

    Attributes:
        source: the graph.
        graph: the fx graph.
        attributes: attributes of the module, by path.
        nodes: fx nodes by name in `source`.
        symbols: fx nodes with the value of a symbolic expression.
    """

    def __init__(self, graph: Graph, constants: Mapping[str, Any], values: _Values):
        self.source = graph
        self.constants = constants
        self.values = values
        self.graph = torch.fx.Graph()
        self.attributes: dict[str, Any] = {}
        self.nodes: dict[str, torch.fx.Node] = {}
        self.symbols: dict[str, torch.fx.Node] = {}
        self.inputs: dict[str, tuple[str, str]] = {}

    def build(self) -> torch.fx.GraphModule:
        for body in self.source.subgraphs:
            self.attributes[body.name] = _Builder(body, self.constants, self.values).build()
        for node in self.source.nodes:
            try:
                made = getattr(self, node.kind)(node)
            except (LookupError, ValueError) as error:
                raise CaptureError(
                    f"%{node.name} of graph {self.source.name} cannot run: {error}\n"
                    f"  {format_node(node)}"
                ) from None
            if node.kind != "output":
                self.keep(node, made)
        output = self.graph.output_node()
        canon = self.values.canon
        output.meta[ORIGIN] = FxOrigin(self.inputs, self.source.level, canon, self.input_values())
        return torch.fx.GraphModule(self.attributes, self.graph)

    def input_values(self) -> dict[str, tuple[Arg, ...]]:
        """Return the known values of constants that are inputs."""
        inputs = self.source.inputs
        return {self.nodes[n.name].name: n.args for n in inputs if n.op == "constant" and n.args}

    def keep(self, node: Node, made: torch.fx.Node) -> None:
        """Store a new fx node, and describe it."""
        self.nodes[node.name] = made
        if isinstance(node.result, Symbol):
            self.symbols.setdefault(node.result.expr, made)
        value = self.values.of(node.result)
        if made.target is operator.getitem and isinstance(made.args[0], torch.fx.Node):
            several = made.args[0].meta.get("val")
            if isinstance(several, tuple) and isinstance(made.args[1], int):
                value = several[made.args[1]]  # writes to it are writes to the result of its op
        made.meta[node_meta.RESULT if value is None else "val"] = (
            node.result if value is None else value
        )
        if node.module:
            made.meta["nn_module_stack"] = {node.module: (node.module, torch.nn.Module)}

    # -- kinds of nodes --------------------------------------------------------------------------

    def placeholder(self, node: Node) -> torch.fx.Node:
        defaults = () if node.op == "constant" else tuple([self.arg(arg) for arg in node.args])
        made = self.graph.create_node("placeholder", node.name, defaults, {}, node.name)
        made.target = made.name  # fx makes the name an identifier, but not the target
        self.inputs[made.name] = (node.op, node.name)
        return made

    def get_attr(self, node: Node) -> torch.fx.Node:
        path = node.target or f"_tensor_constant{len(self.attributes)}"
        value = self.constants.get(node.name)
        if value is None and node.args and isinstance(node.result, TensorMeta):
            value = tensor_of(node.args[0], node.result)
        if value is None:
            remedy = f"constants={{{node.name!r}: tensor}}"
            raise ValueError(f"the value of this constant is unknown, so pass {remedy}")
        self.attributes[path] = value
        return self.graph.create_node("get_attr", path, name=node.name)

    def call_function(self, node: Node) -> torch.fx.Node:
        target = function_named(node.op)
        as_list = isinstance(target, torch._ops.OpOverload)  # tuples index a tensor otherwise
        args = [self.arg(arg, as_list=as_list) for arg in node.args]
        if node.op == "higher_order.invoke_subgraph":
            args.insert(1, self.subgraph_name(node))  # the key in torch's cache
        kwargs = {name: self.arg(arg, as_list=as_list) for name, arg in node.kwargs.items()}
        return self.graph.create_node("call_function", target, tuple(args), kwargs, node.name)

    def call_method(self, node: Node) -> torch.fx.Node:
        return self.called(node, node.op.removeprefix("Tensor."), node.args)

    def call_module(self, node: Node) -> torch.fx.Node:
        if node.op != GRAPH_MODULE:
            raise ValueError(
                f"the parameters of a {node.op} are not in a graph, so capture via 'aot', which "
                "has them as inputs"
            )
        return self.called(node, self.subgraph_name(node), node.args[1:])

    def called(self, node: Node, target: str, args: tuple[Arg, ...]) -> torch.fx.Node:
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

    def output(self, node: Node) -> torch.fx.Node:
        value = self.arg(node.args[0] if len(node.args) == 1 else node.args)
        saved = [self.nodes[ref.name] for ref in self.source.saved]
        if not isinstance(value, tuple) and (saved or self.source.level != "fx"):
            value = (value,)
        if not saved:
            made: torch.fx.Node = self.graph.output(value)
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
                return constant_named(value.name)
            case Device():
                return torch.device(value.name)
            case AnyFloat():
                raise ValueError("the values of its floats were not stored (digits=0)")
            case InputRef():
                raise ValueError(f"{value.name} is no input of the graph")
            case tuple():
                items = [self.arg(item, as_list=as_list) for item in value]
                return items if as_list else tuple(items)
            case slice():
                return slice(*[self.arg(end) for end in (value.start, value.stop, value.step)])
            case Mapping():
                return {key: self.arg(item, as_list=as_list) for key, item in value.items()}
        return value

    def symbol(self, expr: str) -> Any:
        """Return a node that computes an expression from the sizes that the graph has as values."""
        if expr not in self.symbols:

            def size(name: str) -> torch.fx.Node:
                if name not in self.symbols:
                    raise ValueError(
                        f"no value of the graph is the size {name}, so pass sizes={{{name!r}: 8}}"
                    )
                return self.symbols[name]

            def call(function: Callable[..., Any], *args: Any) -> torch.fx.Node:
                return self.graph.call_function(function, args)

            self.symbols[expr] = _evaluate(expr, size, call)
        return self.symbols[expr]


class _Values:
    """Fake values of the nodes of one module, with symbolic sizes.

    Attributes:
        canon: names of the symbols in the `Graph`, by torch's names.
    """

    def __init__(self) -> None:
        self.canon = CanonicalNames({})
        self._mode = FakeTensorMode(
            allow_non_fake_inputs=True, shape_env=symbolic_shapes.ShapeEnv(duck_shape=False)
        )
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
                return None if None in map(_known, values) else values
        return None

    def size(self, size: int | Symbol) -> Any:
        """Return a size, as a `torch.SymInt` if it is symbolic."""
        if not isinstance(size, Symbol):
            return size
        return _evaluate(size.expr, self.symbol, lambda function, *args: function(*args))

    def symbol(self, name: str) -> Any:
        """Return the `torch.SymInt` of a symbol."""
        if name not in self._sizes:
            dynamic = symbolic_shapes.DimDynamic.DYNAMIC
            context: Any = symbolic_shapes.StatelessSymbolicContext([dynamic])
            example = torch.empty(_HINT + len(self._sizes), device="meta")
            fake = self._mode.from_tensor(example, symbolic_context=context)
            self._sizes[name] = fake.shape[0]
            self.canon.symbols[str(fake.shape[0])] = name
        return self._sizes[name]


def _known(value: Any) -> Any:
    return None if value is None else True


def tensor_of(value: Arg, result: TensorMeta) -> torch.Tensor:
    """Return the tensor of a constant whose value a graph has."""
    tensor = torch.tensor(value, dtype=getattr(torch, str(result.dtype)))
    return tensor.reshape([size for size in result.shape if isinstance(size, int)])


def function_named(name: str) -> Any:
    """Return the function or op with a qualified name; see `op_name`.

    Raises:
        LookupError: if there is none in the loaded modules.
    """
    namespace, _, rest = name.partition(".")
    if namespace == "triton":
        raise LookupError("the code of a Triton kernel is not in a graph")
    if namespace in ("operator", "torch"):
        found = getattr(operator, rest, None) if namespace == "operator" else _torch_named(name)
    else:
        found = _attribute(torch.ops, name) if rest else None
    if found is None:
        found = class_named(name)
    if not callable(found) or op_name(found) != name:
        raise LookupError(
            f"{name} is not loaded in this process, so import the module that defines it first"
        )
    return found


def constant_named(name: str) -> Any:
    """Return the constant that an `Atom` names.

    Raises:
        LookupError: if there is none in the loaded modules.
    """
    found = _torch_named(name)
    if found is None:
        owner, _, attribute = name.rpartition(".")
        found = getattr(class_named(owner), attribute, None) if owner else None
    return function_named(name) if found is None else found


def _torch_named(name: str) -> Any:
    try:
        return qualified(name)
    except LookupError:
        return None


def _attribute(owner: Any, path: str) -> Any:
    """Return an attribute of `torch.ops`, or `None`."""
    for name in path.split("."):
        try:
            owner = getattr(owner, name)
        except (AttributeError, RuntimeError):
            return None
    return owner


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "ToFloat": torch.sym_float,
    "TruncToInt": math.trunc,
}
"""Functions of sympy and of torch in sizes, as functions that take a `torch.SymInt`."""


def _evaluate(expr: str, size: Callable[[str], Any], call: Callable[..., Any]) -> Any:
    """Return the value of an expression over symbols.

    Args:
        expr: the expression.
        size: returns the value of a symbol.
        call: calls a function.

    Raises:
        ValueError: for an unknown part of the expression.
    """

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(int() | float() as number):
                return number
            case ast.Name(name):
                return size(name)
            case ast.UnaryOp(ast.USub(), operand):
                return call(operator.neg, value(operand))
            case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]) if (
                type(op) in BINARY
            ):
                return call(BINARY[type(op)], value(left), value(right))
            case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
                return call(_FUNCTIONS[name], *map(value, arguments))
        raise ValueError(f"the size {expr} cannot be computed")

    return value(ast.parse(expr, mode="eval").body)
