"""Graphs of any size and single edits of them, for the tests and benchmarks of the diff."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_torchgraph.graph import Graph, Node, Ref, TensorMeta

META = TensorMeta("float32", (2, 16))
UNARY = ("sin", "cos", "relu")
BINARY = ("add", "mul")
Nodes = list[Node]


def call(name: str, word: str, operands: Sequence[str], module: str = "") -> Node:
    """Return a call of an op."""
    args = tuple(map(Ref, operands))
    return Node(name, "call_function", f"aten.{word}.default", args, {}, META, module)


def given(name: str, role: str = "input") -> Node:
    """Return an input node."""
    return Node(name, "placeholder", role, result=META)


def returned(*names: str) -> Node:
    """Return the output node."""
    refs = tuple(map(Ref, names))
    return Node("output", "output", "output", refs if len(refs) == 1 else (refs,))


def chain(
    length: int, seed: int = 0, words: Sequence[str] = (*UNARY, *BINARY), reach: int = 6
) -> Nodes:
    """Chain ops. A second operand is one of the last `reach` values."""
    rng = random.Random(seed)
    nodes, values = [given("x"), given("y")], ["x", "y"]
    for k in range(length):
        word = rng.choice(words)
        operands = [values[-1], rng.choice(values[-reach:])]
        nodes.append(call(f"n{k}", word, operands[: 1 + (word in BINARY)]))
        values.append(f"n{k}")
    return [*nodes, returned(values[-1])]


def layers(count: int, *, scoped: bool, weights: bool = False, size: int = 50) -> Nodes:
    """Repeat a layer of `size` ops, each in its own module or in none."""
    rng = random.Random(1)
    pattern = [(rng.choice((*UNARY, *BINARY)), rng.randrange(1, 6)) for _ in range(size)]
    inputs, nodes, values = [given("x")], [], ["x"]
    for layer in range(count):
        module = f"layers.{layer}" if scoped else ""
        weight = f"layers.{layer}.weight"
        if weights:
            inputs.append(given(weight, "parameter"))
        for k, (word, back) in enumerate(pattern):
            other = values[-min(back + 1, len(values))]
            operands = [values[-1], weight if weights and k % 7 == 0 else other]
            nodes.append(call(f"l{layer}n{k}", word, operands[: 1 + (word in BINARY)], module))
            values.append(nodes[-1].name)
    return [*inputs, *nodes, returned(values[-1])]


def graph(nodes: Nodes) -> Graph:
    """Return a graph of these nodes."""
    return Graph(tuple(nodes))


def topologically_shuffled(nodes: Nodes, rng: random.Random) -> Nodes:
    """Reorder nodes randomly within topological order, inputs first."""
    inputs = [node for node in nodes if node.kind == "placeholder"]
    waiting = {node.name: len(set(node.refs)) for node in nodes}
    users: dict[str, Nodes] = {}
    for node in nodes:
        for name in set(node.refs):
            users.setdefault(name, []).append(node)
    ready, order = list(inputs), []
    while ready:
        node = ready.pop(0 if len(order) < len(inputs) else rng.randrange(len(ready)))
        order.append(node)
        for user in users.get(node.name, ()):
            waiting[user.name] -= 1
            if not waiting[user.name] and user.kind != "output":
                ready.append(user)
    return [*order, nodes[-1]]


# -- edits -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """One edit, and the finding that a person would expect.

    Attributes:
        nodes: the edited nodes.
        kind: the kind of the expected finding.
        name: the node that the finding names.
    """

    nodes: Nodes
    kind: str
    name: str


def _instead(value: Any, old: str, new: str) -> Any:
    if isinstance(value, Ref):
        return Ref(new) if value.name == old else value
    return tuple(_instead(item, old, new) for item in value) if isinstance(value, tuple) else value


def _redirected(nodes: Nodes, old: str, new: str) -> Nodes:
    return [replace(node, args=_instead(node.args, old, new)) for node in nodes]


def insert(nodes: Nodes, at: int, rng: random.Random | None = None, word: str = "clone") -> Edit:
    """Insert an op between a node and all of its users."""
    before = nodes[at]
    new = call(f"new{at}", word, [before.name], before.module)
    rest = _redirected(nodes[at + 1 :], before.name, new.name)
    return Edit([*nodes[: at + 1], new, *rest], "added", new.name)


def repeat(nodes: Nodes, at: int, rng: random.Random | None = None) -> Edit:
    """Insert a copy of the op at `at`, with the same operand or with its result as operand."""
    word = nodes[at].op.split(".")[1]
    return insert(nodes, at, rng, word if word in UNARY else "sin")


def exchange(nodes: Nodes, at: int, rng: random.Random | None = None) -> Edit:
    """Replace an op by a different one."""
    new = replace(nodes[at], op="aten.tanh.default")
    return Edit([*nodes[:at], new, *nodes[at + 1 :]], "changed", new.name)


def remove(nodes: Nodes, at: int, rng: random.Random | None = None) -> Edit:
    """Remove an op. Its users take its first operand."""
    gone = nodes[at]
    rest = _redirected(nodes[at + 1 :], gone.name, gone.refs[0])
    return Edit([*nodes[:at], *rest], "removed", gone.name)


def swap(nodes: Nodes, at: int, rng: random.Random | None = None) -> Edit | None:
    """Swap the two operands of an op."""
    node = nodes[at]
    if len(set(node.refs)) < 2:
        return None
    new = replace(node, args=node.args[::-1])
    return Edit([*nodes[:at], new, *nodes[at + 1 :]], "rewired", node.name)


def rewire(nodes: Nodes, at: int, rng: random.Random | None = None) -> Edit | None:
    """Replace the second operand by one of the latest values."""
    node = nodes[at]
    others = [other.name for other in nodes[max(0, at - 8) : at] if other.name not in node.refs]
    if len(node.args) < 2 or not others:
        return None
    new = replace(node, args=(node.args[0], Ref(rng.choice(others))))
    return Edit([*nodes[:at], new, *nodes[at + 1 :]], "rewired", node.name)


EDITS: dict[str, Callable[[Nodes, int, random.Random], Edit | None]] = {
    "insert": insert,
    "repeat": repeat,
    "exchange": exchange,
    "remove": remove,
    "swap": swap,
    "rewire": rewire,
}


def scattered(
    nodes: Nodes,
    count: int,
    seed: int,
    kinds: Sequence[str] = ("insert", "exchange", "remove", "rewire"),
) -> tuple[Nodes, list[tuple[str, str]]]:
    """Apply `count` edits at least 12 nodes apart, and return the kind and node of each."""
    rng = random.Random(seed)
    first = next(k for k, node in enumerate(nodes) if node.kind != "placeholder") + 10
    places = sorted(rng.sample(range(first, len(nodes) - 2), min(count * 3, len(nodes) // 2)))
    done: list[tuple[str, str]] = []
    last = len(nodes)
    for at in reversed(places):
        if last - at < 12:
            continue
        edit = EDITS[rng.choice(kinds)](nodes, at, rng) or exchange(nodes, at, rng)
        nodes, last = edit.nodes, at
        done.append((edit.kind, edit.name))
        if len(done) == count:
            break
    assert len(done) == count, "the graph is too small for so many edits"
    return nodes, done
