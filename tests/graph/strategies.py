"""Hypothesis strategies for random graphs: everything that the model can hold and text can say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from pytest_torchgraph.graph import (
    Atom,
    Device,
    Effect,
    Graph,
    Node,
    Ref,
    SubgraphRef,
    Symbol,
    TensorMeta,
)
from pytest_torchgraph.graph.model import GRAPH_KINDS, INPUT_OPS, LEVELS

checked = settings(deadline=None, database=None, max_examples=100)
"""No wall-clock deadline: two busy cores would make it a coin toss."""

HOSTILE = (
    *('"', "'", "\\", "`", "%", "%x", "@", "&", "#", "{", "}", "(", ")", "[", "]", ",", ", ", ":"),
    *(" : ", " = ", "=", "!", " !random", " after %x", ' in "m"', "...", " ", "", "\t", "\n"),
    *("\r\n", "\r", "\x00", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\ufeff", "\u200b"),
    *("return", "return %x", "save", "save %x", "}", "True", "None", "nan", "inf", "slice"),
    *(
        "device",
        "bytes",
        "complex",
        "torchgraph 1",
        "//",
        "a/b/c",
        "layer.0/",
        "/x",
        "é",
        "图",
        "𐀀",
    ),
    *("__import__('os').system('false')", "\\n", '\\"', "\\u2028", "-1", "1e5", "0x10"),
)
PATHS = st.from_regex(r"[a-z]{1,4}(\.[0-9a-z]{1,3}){0,2}/[a-z_]{1,6}(\.[0-9])?", fullmatch=True)
TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=8)
NAMES = PATHS | TEXTS
SYMBOLS = st.builds(
    Symbol,
    st.sampled_from(
        ["s0", "s1", "u0", "s0*s1", "s0 + 2", "Max(1, s0//2)", "Mod(s0, 8)", "-s0", "2*s0 > s1"]
    ),
)
DTYPES = st.sampled_from(
    ["float32", "bfloat16", "bool", "int64", "complex64", "float8_e4m3fn", "quint8", "uint7"]
)
SIZES = st.integers(0, 2**40) | SYMBOLS
SHAPES = st.lists(SIZES, max_size=4).map(tuple)
STRIDES = st.lists(st.integers(-3, 2**40) | SYMBOLS, max_size=4).map(tuple)
METAS = st.builds(
    TensorMeta,
    DTYPES,
    SHAPES,
    st.none() | STRIDES,
    st.none() | st.sampled_from(["cpu", "cuda", "cuda:1", "meta"]) | TEXTS,
)
ATOMS = st.builds(Atom, st.sampled_from(["torch.float32", "torch.strided", "int", "f"]) | TEXTS)
RESULTS = st.recursive(
    st.none() | METAS | SYMBOLS | ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple)
)
INTEGERS = st.integers() | st.sampled_from([0, 1, -1, 2**63, -(2**64), 10**399, -(10**398)])
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, 1e16, 1e-7, 5e-324, 1.7976931348623157e308])
CONSTANTS = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    FLOATS,
    st.complex_numbers() | st.builds(complex, FLOATS, FLOATS),
    TEXTS,
    st.binary(max_size=6),
    st.just(...),
    SYMBOLS,
    ATOMS,
    st.builds(Device, st.sampled_from(["cpu", "cuda:1"]) | TEXTS),
)
KEYS = st.one_of(TEXTS, INTEGERS, st.booleans(), st.tuples(TEXTS, INTEGERS))
CALL_OPS = {
    "call_function": st.sampled_from(
        ["aten.mm.default", "aten.add.Tensor", "operator.getitem", "higher_order.cond", "f"]
    )
    | TEXTS.filter(lambda op: op not in (*INPUT_OPS, "get_attr", "output")),
    "call_method": st.sampled_from(["Tensor.view", "Tensor.add_"])
    | TEXTS.map(lambda text: f"Tensor.{text}"),
    "call_module": st.sampled_from(["torch.nn.Linear", "mine.Block"]) | TEXTS,
}


def arguments(refs: Sequence[str], subgraphs: Sequence[str]) -> st.SearchStrategy[Any]:
    """Arguments that refer to these nodes and bodies, nested."""
    leaves = CONSTANTS
    if refs:
        leaves = leaves | st.sampled_from(refs).map(Ref)
    if subgraphs:
        leaves = leaves | st.sampled_from(subgraphs).map(SubgraphRef)
    bounds = leaves.filter(lambda value: not isinstance(value, str))
    return st.recursive(
        leaves | st.builds(slice, bounds, bounds, bounds),
        lambda inner: (
            st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(KEYS, inner, max_size=3)
            | st.builds(slice, inner, inner, inner)
        ),
        max_leaves=6,
    )


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1, max_calls: int = 6) -> Graph:
    """Any graph: every kind of node, argument, result and effect, with hostile names."""
    names = iter(draw(st.lists(NAMES, unique=True, min_size=max_calls + 8)))
    subgraphs: list[Graph] = []
    if depth:
        inner = st.lists(st.tuples(NAMES, graphs(depth - 1, 3)), max_size=2)
        for name, body in draw(inner):
            if all(name != other.name for other in subgraphs):
                subgraphs.append(replace(body, name=name))
    bodies = [sub.name for sub in subgraphs]
    nodes: list[Node] = []
    for role in draw(st.lists(st.sampled_from(INPUT_OPS), max_size=3)):
        default = draw(st.lists(CONSTANTS, max_size=1).map(tuple))
        nodes.append(draw(noted(Node(next(names), "placeholder", role, default), [])))
    for _ in range(draw(st.integers(0, max_calls))):
        before = [node.name for node in nodes]
        nodes.append(draw(inner_nodes(next(names), before, bodies)))
    before = [node.name for node in nodes]
    last = Node("output", "output", "output", (draw(arguments(before, bodies)),))
    if "output" not in before:
        nodes.append(draw(noted(last, before)))
        nodes[-1] = replace(nodes[-1], result=None)
    else:
        nodes.append(last)
    saved = draw(st.lists(st.sampled_from(before).map(Ref), max_size=3)) if before else []
    return Graph(
        tuple(nodes),
        draw(st.sampled_from(["main", *GRAPH_KINDS]) | NAMES),
        draw(st.sampled_from(GRAPH_KINDS)),
        draw(st.sampled_from(LEVELS)),
        tuple(saved),
        tuple(subgraphs),
    )


@st.composite
def inner_nodes(draw: st.DrawFn, name: str, before: list[str], bodies: list[str]) -> Node:
    """A node that is neither an input nor the output."""
    kind = draw(st.sampled_from(["get_attr", *CALL_OPS]))
    if kind == "get_attr":
        return draw(noted(Node(name, "get_attr", "get_attr", target=draw(TEXTS)), before))
    args = draw(st.lists(arguments(before, bodies), max_size=3))
    kwargs = draw(st.dictionaries(TEXTS, arguments(before, bodies), max_size=2))
    target = draw(TEXTS) if kind == "call_module" else ""
    op = draw(CALL_OPS[kind])
    if kind == "call_module" and op in (*INPUT_OPS, "get_attr"):
        op = "torch.nn.Linear"
    return draw(noted(Node(name, kind, op, tuple(args), kwargs, target=target), before))


@st.composite
def noted(draw: st.DrawFn, node: Node, before: list[str]) -> Node:
    """The node with a result, a module, effects and explicit order."""
    effects: list[Effect] = []
    after: list[Ref] = []
    if node.kind != "placeholder":
        for kind in draw(
            st.lists(st.sampled_from(["random", "communicates", "opaque"]), max_size=2)
        ):
            effects.append(Effect(kind))
        for target in draw(st.lists(st.sampled_from(before), max_size=1)) if before else ():
            effects.append(Effect("mutates", Ref(target)))
        after = draw(st.lists(st.sampled_from(before).map(Ref), max_size=2)) if before else []
    return replace(
        node,
        result=draw(RESULTS),
        module=draw(st.sampled_from([node.name.rpartition("/")[0], ""]) | TEXTS),
        effects=tuple(effects),
        after=tuple(after),
    )


# -- graphs that look like real ones ---------------------------------------------------------------

FEW = ("sin", "cos", "add", "mul")


@st.composite
def plain_graphs(draw: st.DrawFn, max_calls: int = 12, inputs: int = 2) -> Graph:
    """Small graphs of few ops, so that twins, dead code and near misses are common."""
    meta = TensorMeta("float32", (2, 3))
    nodes = [Node(f"x{i}", "placeholder", "input", result=meta) for i in range(inputs)]
    for buffer in draw(st.sets(st.sampled_from("ab"))):
        nodes.append(Node(buffer, "get_attr", "get_attr", target=f"self.{buffer}", result=meta))
    written: dict[str, str] = {}
    for i in range(draw(st.integers(1, max_calls))):
        before = [node.name for node in nodes]
        word = draw(st.sampled_from((*FEW, "rand", "add_", "reduce")))
        args = [draw(st.sampled_from(before)) for _ in range(1 + (word in ("add", "mul")))]
        effects: tuple[Effect, ...] = ()
        after = tuple(Ref(written[name]) for name in dict.fromkeys(args) if name in written)
        if word == "rand":
            args, effects, after = [], (Effect("random"),), ()
        elif word == "reduce":
            effects = (Effect("communicates"),)
        elif word == "add_":
            effects = (Effect("mutates", Ref(args[0])),)
            written[args[0]] = f"n{i}"
        refs = tuple(map(Ref, args))
        nodes.append(
            Node(
                f"n{i}",
                "call_function",
                f"aten.{word}",
                refs,
                {},
                meta,
                "",
                None,
                "",
                effects,
                after,
            )
        )
    names = [node.name for node in nodes]
    returned = draw(st.lists(st.sampled_from(names).map(Ref), min_size=1, max_size=3))
    nodes.append(Node("output", "output", "output", (tuple(returned),)))
    return Graph(tuple(nodes))


def shuffled(graph: Graph, rng: random.Random) -> Graph:
    """The same graph in another order that its operands and its side effects allow."""
    needs: dict[str, set[str]] = {}
    last: dict[Any, str] = {}
    previous_input = ""
    for node in graph.nodes:
        needs[node.name] = {*node.refs, *(ref.name for ref in node.after)}
        for effect in node.effects:
            if effect.target is not None:
                needs[node.name].add(effect.target.name)
            if effect.kind == "opaque":
                needs[node.name].update(last.values())
                last = dict.fromkeys([*last, "opaque"], node.name)
                continue
            resource = (effect.kind, effect.target)
            needs[node.name].update(last[key] for key in (resource, "opaque") if key in last)
            last[resource] = node.name
        if node.kind == "placeholder":
            needs[node.name].update({previous_input} - {""})
            previous_input = node.name
    *rest, output = graph.nodes
    order: list[Node] = []
    done: set[str] = set()
    while rest:
        ready = [node for node in rest if needs[node.name] - {node.name} <= done]
        chosen = rng.choice(ready)
        order.append(chosen)
        done.add(chosen.name)
        rest.remove(chosen)
    return replace(graph, nodes=(*order, output))


def renamed(graph: Graph, rng: random.Random) -> Graph:
    """The same graph under other names, module paths, strides and devices."""
    numbers = list(range(len(graph.nodes)))
    rng.shuffle(numbers)
    new = {node.name: f"v{k}" for node, k in zip(graph.nodes, numbers, strict=True)}

    def rename(value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(new[value.name])
        if isinstance(value, tuple):
            return tuple(map(rename, value))
        if isinstance(value, dict):
            return {key: rename(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(rename(value.start), rename(value.stop), rename(value.step))
        return value

    def result(value: Any) -> Any:
        if isinstance(value, TensorMeta):
            return replace(
                value, stride=tuple(range(len(value.shape))), device=f"cuda:{numbers[0]}"
            )
        return tuple(map(result, value)) if isinstance(value, tuple) else value

    nodes = [
        replace(
            node,
            name=new[node.name],
            args=rename(node.args),
            kwargs=rename(dict(node.kwargs)),
            effects=tuple(replace(e, target=rename(e.target)) for e in node.effects),
            after=rename(node.after),
            result=result(node.result),
            module=f"m{numbers[0]}",
        )
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes), saved=rename(graph.saved), name="other")
