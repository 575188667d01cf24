"""Counts of each op in the graphs that torch creates, without this package.

Each function runs a subject with torch only and returns a count for each graph, in the order in
which they are created. Two rules of the package are applied; "Rule:" marks them.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from subjects.models import Subject
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

Counts = list[Counter[str]]


# -- running a step --------------------------------------------------------------------------------


def forward(subject: Subject, call: Callable[..., Any] | None = None) -> Any:
    with torch.random.fork_rng():
        return (subject.model if call is None else call)(*subject.args, **subject.kwargs)


def start(output: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the start of the backward: the output's loss, or each output that requires grad."""
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    if isinstance(output, dict) and output.get("loss") is not None:
        leaves = [output["loss"]]
    roots = [leaf for leaf in leaves if leaf.requires_grad]
    return roots, [
        torch.linspace(0.5, 1.5, root.numel(), device=root.device).reshape(root.shape)
        for root in roots
    ]


def backward(output: Any) -> None:
    roots, gradients = start(output)
    if roots:
        torch.autograd.backward(roots, gradients)


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()


# -- counting a graph ------------------------------------------------------------------------------

NAMESPACES = (torch, torch.nn.functional, operator)


def name_of(node: torch.fx.Node, owner: torch.nn.Module | None) -> str:
    target: Any = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    if node.op == "call_module":
        assert owner is not None
        return f"torch.nn.{type(owner.get_submodule(target)).__name__}"
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._opname}.{target._overloadname}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.replace("::", ".")
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target}"
    for space in NAMESPACES:
        if getattr(space, target.__name__, None) is target:
            return f"{space.__name__}.{target.__name__}"
    prefix = "" if target.__module__ == "builtins" else f"{target.__module__}."
    return prefix + str(getattr(target, "__qualname__", target.__name__)).rpartition("<locals>.")[2]


def is_tuple(node: Any) -> bool:
    value = node.meta.get("val", node.meta.get("example_value", node.meta.get("ran")))
    of_higher_order = isinstance(node.target, torch._ops.HigherOrderOperator)
    return of_higher_order or isinstance(value, tuple | list)


def count(graph: torch.fx.Graph) -> Counter[str]:
    """Count the calls in a graph and in the bodies of its higher-order ops, each body once.

    Rule: a getitem that selects one of several results belongs to its producer and is not counted.
    """
    found: Counter[str] = Counter()
    bodies = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(graph.owning_module)
            if isinstance(value, torch.fx.GraphModule):
                bodies[node.target] = value
        elif node.op.startswith("call_"):
            taken = node.target is operator.getitem and isinstance(node.args[1], int)
            if not (taken and is_tuple(node.args[0])):
                found[name_of(node, graph.owning_module)] += 1
    for body in bodies.values():
        found += count(body.graph)
    return found


# -- the mechanisms --------------------------------------------------------------------------------


@dataclass
class Op:
    """An op that ran, with the numbers of its tensors."""

    name: str
    taken: set[int]
    given: set[int]
    is_view: bool


class Dispatched(TorchDispatchMode):
    """Records every op. Holds no tensor, because autograd copies a gradient with a second owner."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.numbers = WeakIdKeyDictionary()
        self.met = itertools.count()

    def number(self, tensor: Tensor) -> int:
        if tensor not in self.numbers:
            self.numbers[tensor] = next(self.met)
        return int(self.numbers[tensor])

    def all(self, value: Any) -> set[int]:
        leaves = pytree.tree_leaves(value)
        return {self.number(leaf) for leaf in leaves if isinstance(leaf, Tensor)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = self.all((args, kwargs))
        output = func(*args, **(kwargs or {}))
        given = self.all(output)
        self.ops.append(Op(str(func), taken, given, func.is_view))
        return output

    def live(self, first: int, last: int, needed: set[int]) -> Counter[str]:
        """Count the live ops of a range. `needed` has the values that they must give, and grows.

        Rule: a view is left out if nothing uses it.
        """
        found: Counter[str] = Counter()
        for op in self.ops[first:last][::-1]:
            if op.given & needed or not op.is_view:
                found[op.name] += 1
                needed |= op.taken
        return found


def dispatch(subject: Subject) -> Counts:
    with Dispatched() as ran:
        output = forward(subject)
        middle = len(ran.ops)
    roots, gradients = start(output)
    returned = ran.all(output)
    if not roots:
        return [ran.live(0, middle, returned)]
    with ran:
        torch.autograd.backward(roots, gradients)
    needed = ran.all([leaf.grad for leaf in list(ran.numbers) if leaf.is_leaf])
    backwards = ran.live(middle, len(ran.ops), needed)
    return [ran.live(0, middle, returned | needed), backwards]


class Typed(torch.fx.Interpreter):
    def run_node(self, n: torch.fx.Node) -> Any:
        n.meta["ran"] = super().run_node(n)
        return n.meta["ran"]


def fx(subject: Subject) -> Counts:
    module = torch.fx.symbolic_trace(subject.model)
    forward(subject, Typed(module).run)
    return [count(module.graph)]


def dynamo(subject: Subject) -> Counts:
    found: Counts = []

    def backend(gm: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        found.append(count(gm.graph))
        return gm.forward

    with fresh():
        forward(subject, torch.compile(subject.model, backend=backend))
    return found


def aot(subject: Subject) -> Counts:
    found: Counts = []

    def compiler(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        found.append(count(gm.graph))
        return _boxed(gm)

    with fresh():
        call = torch.compile(subject.model, backend=aot_autograd(fw_compiler=compiler))
        backward(forward(subject, call))
    return found


def _boxed(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    from functorch.compile import make_boxed_func

    return make_boxed_func(gm.forward)  # type: ignore[no-any-return]


def compiled_autograd(subject: Subject) -> Counts:
    """Return the forwards of AOTAutograd and, in place of its backwards, the engine's graphs.

    Rule: unpacking the engine's five lists of inputs is not counted. A number that torch appends
    to a name is left out, except in the names of autograd's own nodes.
    """
    found: Counts = []

    def compiler(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        found.append(count(gm.graph))
        return _boxed(gm)

    def engine(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
        calls = Counter(
            re.sub(r"(?<!Backward)_?\d+$", "", name_of(node, gm))
            if node.target.__module__.startswith("torch._dynamo")
            else name_of(node, gm)
            for node in gm.graph.nodes
            if node.op == "call_function"
        )
        del calls["operator.getitem"]
        del calls["torch._dynamo.external_utils.unwrap_maybe_dynamic_int"]
        found.append(calls)
        return gm

    with fresh():
        both = aot_autograd(fw_compiler=compiler, bw_compiler=lambda gm, _: _boxed(gm))
        output = forward(subject, torch.compile(subject.model, backend=both))
        with torch._dynamo.compiled_autograd._enable(engine):
            backward(output)
    return found


def export(subject: Subject) -> Counts:
    program = torch.export.export(subject.model, subject.args, subject.kwargs)
    return [count(program.graph)]


class PostGrad(logging.Handler):
    """Counts the calls in the text of each post-grad graph that torch's trace prints."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: Counts = []

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", {})
        artifact = metadata.get("artifact") or {}
        if "inductor_post_grad_graph" in (artifact.get("name"), *metadata):
            text = str(getattr(record, "payload", ""))
            self.found.append(Counter(re.findall(r"= torch\.ops\.([\w.]+)\(", text)))


@contextlib.contextmanager
def post_grad() -> Iterator[Counts]:
    """Count the post-grad graphs of everything that inductor compiles inside the block.

    Compiling them a second time would take minutes.
    """
    handler = PostGrad()
    logger = logging.getLogger("torch.__trace")
    logger.addHandler(handler)
    try:
        yield handler.found
    finally:
        logger.removeHandler(handler)


COUNTED = {
    "dispatch": dispatch,
    "fx": fx,
    "dynamo": dynamo,
    "aot": aot,
    "compiled_autograd": compiled_autograd,
    "export": export,
}
