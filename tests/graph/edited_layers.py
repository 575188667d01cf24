"""Random models of repeated layers with single layers edited, for tests of places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graph.edits import META, call, given, returned
from hypothesis import strategies as st

from pytest_torchgraph.graph import Graph, Node

UNARY = ("sin", "cos", "relu", "neg", "abs", "log")
BINARY = ("add", "mul")
PARTS = ("", "attention", "attention.out", "mlp.fc", "mlp.act")
INPUT = -1
"""The operand that is the input of the layer."""
WEIGHT = -2
"""The operand that is the parameter of the op's own module."""


@dataclass(frozen=True)
class Op:
    """An op of a layer.

    Attributes:
        word: the op's name.
        part: the op's module, relative to the layer.
        operands: the ids of earlier ops, `INPUT` or `WEIGHT`.
        edited: True if an edit made the op.
    """

    word: str
    part: str
    operands: tuple[int, ...]
    edited: bool = False


Layer = Mapping[int, Op]
"""The ops of a layer by id, in program order. The last one is the layer's result."""


@dataclass(frozen=True)
class Edit:
    """An edit of one layer.

    Attributes:
        kind: "exchange", "insert" or "remove".
        at: the id of the op to exchange or remove, or the op after which to insert.
        word: the name of the new op.
    """

    kind: str
    at: int
    word: str

    def of(self, layer: Layer) -> Layer:
        """Return the layer with this edit."""
        ops: dict[int, Op] = {}
        new = max(layer) + 1 if self.kind == "insert" else layer[self.at].operands[0]
        for key, op in layer.items():
            moved = tuple(new if p == self.at else p for p in op.operands)
            if self.kind == "exchange":
                ops[key] = replace(op, word=self.word, edited=True) if key == self.at else op
            elif key != self.at:
                ops[key] = replace(op, operands=moved)
            elif self.kind == "insert":
                ops[key] = op
                ops[new] = Op(self.word, op.part, (self.at,), edited=True)
        return ops


def layer_of(draw: st.DrawFn) -> Layer:
    """Draw a layer of a few ops in a few parts. Its last op depends on all of them.

    Equal ops never follow each other: of several equal ops, no diff can say which was removed.
    """
    layer: dict[int, Op] = {}
    parts = draw(st.lists(st.sampled_from(PARTS), min_size=4, max_size=9))
    for key, part in enumerate(parts):
        near = [(key + distance) % len(parts) for distance in (-3, -2, -1, 1, 2, 3)]
        taken = {layer[other].word for other in near if other in layer}
        word = draw(st.sampled_from([w for w in (*UNARY, *BINARY) if w not in taken]))
        operands = [key - 1]
        if word in BINARY:
            operands.append(draw(st.sampled_from([INPUT, WEIGHT, *range(key)])))
        layer[key] = Op(word, part, tuple(operands))
    return layer


LAYERS = st.composite(layer_of)()


@st.composite
def edits_of(draw: st.DrawFn, layer: Layer) -> Edit:
    """Draw an edit of a layer."""
    kind = draw(st.sampled_from(["exchange", "insert"]))
    return Edit(kind, draw(st.sampled_from(sorted(layer))), draw(st.sampled_from(["tanh", "erf"])))


@dataclass(frozen=True)
class Made:
    """A model of layers.

    Attributes:
        graph: its graph. Node names come from modules, as in captured graphs.
        edited: for each op that an edit made, the number of its layer.
    """

    graph: Graph
    edited: Mapping[str, int]


def model_of(layers: Sequence[Layer], container: str = "model.layers") -> Made:
    """Build a model: an embedding, these layers, and a final norm."""
    inputs: dict[str, Node] = {"x": given("x")}
    nodes: list[Node] = []
    taken: dict[str, int] = {}
    edited: dict[str, int] = {}

    def add(module: str, word: str, operands: Sequence[str]) -> str:
        name = f"{module}/{word}" if module else word
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            name += f".{taken[name] - 1}"
        nodes.append(call(name, word, operands, module))
        return name

    value = add("model.embeddings", "exp", ["x"])
    for number, layer in enumerate(layers):
        path = f"{container}.{number}"
        names = {INPUT: value}
        for key, op in layer.items():
            module = f"{path}.{op.part}" if op.part else path
            operands = []
            for p in op.operands:
                if p == WEIGHT:
                    weight = f"{module}.weight"
                    inputs.setdefault(weight, given(weight, "parameter"))
                    operands.append(weight)
                else:
                    operands.append(names[p])
            names[key] = add(module, op.word, operands)
            if op.edited:
                edited[names[key]] = number
        value = names[[*layer][-1]]
    value = add("model.norm", "exp", [value])
    every = (*inputs.values(), *nodes, returned(value))
    assert all(node.result == META or node.kind == "output" for node in every)
    return Made(Graph(every), edited)
