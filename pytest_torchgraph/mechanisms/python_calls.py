"""Records the ops of the Python code that a backward graph of compiled autograd calls.

The engine's graph has one node for each call of a tensor hook, a module hook or the backward of an
`autograd.Function`. `RecordedGraph` is built while the engine's graph runs: a copy in which the ops
that the code dispatched replace the call. A call whose ops are not all known stays one node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..convert.compiled_autograd import CALLED_BY, FoldedOwner, RunFacts
from ..convert.node_meta import LINE
from ..convert.source_lines import current_line
from ..ops.collectives import calls_python
from ..ops.qualified import op_name
from .recording import (
    LIFT,
    OpRecord,
    RecordingMode,
    UnwrittenReads,
    Value,
    parts_of,
)
from .step import STEP, NamedTensors


def runs_python(node: fx.Node) -> bool:
    """Return True for a node that calls the user's Python code."""
    return node.op == "call_function" and calls_python(op_name(node.target))


class RecordedGraph(RecordingMode):  # type: ignore[no-untyped-call]
    """A copy of a backward graph with the ops of Python calls, and the mode that records them.

    Args:
        module: the engine's graph.
        named: the tensors and modules with names.
        canon: canonical names of symbols and devices.
        facts: receives the results and the inputs of the ops.
        is_computed: returns True for a tensor that the recorded forward computed.

    Attributes:
        owner: holds the copy, and the constants that its ops read.
        _copies: for each node of the engine's graph, its copy; for a call that its ops replaced,
            the nodes of its results.
        _producers: the node of each tensor, or a node and an index in its result.
        _call: the Python call that is running.
        _is_complete: False once the call did something that a graph of its ops would not show.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        module: fx.GraphModule,
        named: NamedTensors,
        canon: CanonicalNames,
        facts: RunFacts,
        is_computed: Callable[[torch.Tensor], bool],
    ):
        super().__init__(named)
        self.canon = canon
        self.facts = facts
        self.owner = FoldedOwner(module, fx.Graph(), {})
        self.kept: dict[int, torch.Tensor] = {}  # not `None`: the copy reads the constants
        self._graph = self.owner.graph
        self._is_computed = is_computed
        self._copies: dict[fx.Node, Any] = {}
        self._producers: dict[Value, fx.Node | tuple[fx.Node, int]] = {}
        self._unwritten = UnwrittenReads(self)
        self._call: fx.Node | None = None
        self._is_complete = True

    def run(self, node: fx.Node, run: Callable[[], Any]) -> Any:
        """Run a node, and copy it. Replace a Python call by its ops if all of them are known."""
        if not runs_python(node):
            value = run()
            self._copy(node, value)
            return value
        count, producers = len(self._graph.nodes), dict(self._producers)
        self._call, self._is_complete = node, True
        # What the call queues for the end of the backward runs after its graph.
        queued = torch_private.on_final_callback(self._leave)
        with torch_private.on_compiled_region(self._leave), queued, self:
            value = run()
        result = self._results(value)
        self._unwritten.read(parts_of(self.encode(value), Value))
        if self._is_complete and self._unwritten.first_unwritten is None:
            self._copies[node] = result
            return value
        # Undo the recording of the call, users before their operands.
        for new in reversed([*self._graph.nodes][count:]):
            self._graph.erase_node(new)
        self._producers = producers
        self._copy(node, value)
        return value

    def _copy(self, node: fx.Node, value: Any) -> None:
        """Copy a node of the engine's graph that has just returned a value."""
        operand = self._copies.get(node.args[0]) if node.target is operator.getitem else None  # type: ignore[arg-type]
        if isinstance(operand, tuple):  # the results of a call that was replaced by its ops
            self._copies[node] = operand[node.args[1]]  # type: ignore[index]
            return
        new = self._copies[node] = self._graph.node_copy(node, self._copies.__getitem__)
        if isinstance(value, torch.Tensor):
            self._producers[self.encode(value, True)] = new

    def left_torch(self, method: str, _: Any) -> None:
        """Note a method call that reads a tensor, or starts a thread, without an op.

        `cpu` is an op, or does nothing.
        """
        self._is_complete &= method == "cpu"

    def _leave(self, _: Any) -> None:
        """Note that the call runs compiled code, or code after the backward."""
        self._is_complete = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an op of the running call, and add a node of it to the copy."""
        kwargs = kwargs or {}
        if types and torch_private.stands_for_others(types):
            return NotImplemented
        if not isinstance(func, torch._ops.OpOverload):
            if func.name() == "trace_wrapped":  # calls a hook that compiled code registered
                with self:
                    return kwargs.pop("fn")(*args, **kwargs)
            self._is_complete = False
            return func(*args, **kwargs)
        if func.namespace in ("prim", "profiler"):  # it computes nothing
            return func(*args, **kwargs)
        if self.is_composite(func):  # inside `trace_wrapped`, torch does not decompose it
            with self:
                return func.decompose(*args, **kwargs)
        if func is LIFT:
            self.lifted(args[0])
        encoded = self.encode_all(args)
        named = {key: self.encode(value) for key, value in kwargs.items()}
        output = func(*args, **kwargs)
        # The code may compute with a number that it has read, and a graph does not show that.
        if type(output) in (int, float, complex):
            self._is_complete = False
        result = self.encode(output, True)
        self._unwritten.ran(OpRecord(func, encoded, named, result, 0, 0, None))
        operands = self._argument(encoded), self._argument(named)
        node = self._node("call_function", func, *operands, value=output)
        node.meta[LINE] = current_line(STEP)
        for index, value in enumerate(result if type(result) is tuple else ()):
            if type(value) is Value:
                self._producers[value] = node, index
        if type(result) is Value:
            self._producers[result] = node
        return output

    def _node(
        self, kind: str, target: Any, args: Any = (), kwargs: Any = None, *, value: Any
    ) -> fx.Node:
        """Add a node for the running call, with the value that it returned."""
        name = f"called_{len(self._graph.nodes)}"
        node = self._graph.create_node(kind, target, args, kwargs, name)
        node.meta[CALLED_BY] = self._call
        self.facts.results[node.name] = self.canon.result(value)
        return node

    def _argument(self, value: Any) -> Any:
        """Return a recorded argument with nodes instead of values."""
        if type(value) is Value:
            return self._producer(value)
        if type(value) is dict:
            return {key: self._argument(item) for key, item in value.items()}
        return tuple(map(self._argument, value)) if type(value) is tuple else value

    def _producer(self, value: Value) -> fx.Node:
        """Return the node of a tensor, creating one for a tensor from outside the backward."""
        producer = self._producers.get(value)
        if isinstance(producer, fx.Node):
            return producer
        tensor = next(tensor for tensor in self.alive() if self.find_value(tensor) == value)
        if producer is not None:
            node = self._node("call_function", operator.getitem, producer, value=tensor)
        elif value in self.views:
            _, shape, stride, *_, offset = self.meta[value]
            base = self._producer(self.values[self.views[value]])
            op = torch.ops.aten.as_strided.default
            node = self._node("call_function", op, (base, shape, stride, offset), value=tensor)
        else:
            # A tensor without an origin is the result of a call that stayed one node.
            role, name = self.origin.get(value, ("", ""))
            self._is_complete &= bool(role)
            if role == "constant":
                is_made = value in self.constants  # by the call, from numbers
                if not is_made and self._is_computed(tensor):
                    self._is_complete = False
                name = f"_tensor_constant_{len(self.facts.constants)}"
                self.facts.constants.append((self.kept[value], is_made))
                setattr(self.owner, name, self.kept[value])
                node = self._node("get_attr", name, value=tensor)
            else:
                node = self._node("placeholder", f"outside_{len(self.facts.outside)}", value=tensor)
                self.facts.outside[node.name] = role, name
        self._producers[value] = node
        return node

    def _results(self, value: Any) -> Any:
        """Return the nodes of what a call returned. Anything but tensors makes it incomplete."""
        if isinstance(value, torch.Tensor):
            return self._producer(self.number_of(value))
        if isinstance(value, tuple | list):
            return tuple(map(self._results, value))
        if value is not None:
            self._is_complete = False
        return None
