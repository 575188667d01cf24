"""Hypothesis strategies for random graphs: everything that the model holds and text can say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from hypothesis import settings
from hypothesis import strategies as st

from pytest_torchgraph.graph import (
    EAGER_KINDS,
    Atom,
    Device,
    Effect,
    EffectKind,
    Graph,
    GraphKind,
    InputRef,
    Node,
    Ref,
    SubgraphRef,
    Symbol,
    TensorMeta,
)
from pytest_torchgraph.graph.model import GRAPH_KINDS, INPUT_OPS
from pytest_torchgraph.graph.text.format import EAGER_NAME, LAYOUTS
from pytest_torchgraph.ops import LEVELS, Level
from pytest_torchgraph.words import one_line

checked = settings(deadline=None, database=None, max_examples=40)
"""No deadline: on two busy cores, wall-clock time is random."""

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
OF_ANOTHER_GRAPH = st.builds("{}:{}".format, st.sampled_from(["forward_0", "eager_12"]), PATHS)
ONE_LINE = TEXTS.map(one_line)
"""Names as a file has them: a character that does not print is read as `?`."""
NAMES = PATHS | OF_ANOTHER_GRAPH | ONE_LINE
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
    st.none() | st.sampled_from(["cpu", "cuda", "cuda:1", "meta"]) | ONE_LINE,
    st.just("strided") | st.sampled_from(sorted(LAYOUTS)),
)
ATOMS = st.builds(Atom, st.sampled_from(["torch.float32", "torch.strided", "int", "f"]) | ONE_LINE)
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
NUMBERS = st.booleans() | INTEGERS | FLOATS
VALUES = NUMBERS | st.recursive(
    st.lists(NUMBERS, max_size=3).map(tuple), lambda inner: st.lists(inner, max_size=3).map(tuple)
)
"""Values for constant tensors."""
KEYS = st.one_of(TEXTS, INTEGERS, st.booleans(), st.tuples(TEXTS, INTEGERS))
OPS = st.sampled_from(
    ["aten.mm.default", "aten.add.Tensor", "operator.getitem", "higher_order.cond", "torch.relu"]
)


@dataclass(frozen=True)
class Hole:
    """A placeholder for a reference, filled once the earlier nodes exist."""

    number: int
    to_body: bool


HOLES = st.builds(Hole, st.integers(0, 20), st.booleans())
LEAVES = CONSTANTS | HOLES
ARGS = st.recursive(
    LEAVES | st.builds(slice, LEAVES, LEAVES, LEAVES),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.builds(slice, inner, inner, inner)
    ),
    max_leaves=6,
)
DRAFTS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["get_attr", "call_function", "call_method", "call_module"]),
        "name": NAMES,
        "op": OPS | ONE_LINE,
        "target": ONE_LINE,
        "value": st.lists(VALUES, max_size=1).map(tuple),
        "args": st.lists(ARGS, max_size=3).map(tuple),
        "kwargs": st.dictionaries(ONE_LINE, ARGS, max_size=2),
        "result": RESULTS,
        "module": st.none() | ONE_LINE,
        "effects": st.lists(st.sampled_from(get_args(EffectKind)), max_size=2),
        "after": st.lists(HOLES, max_size=2),
    }
)
INPUTS = st.fixed_dictionaries(
    {
        "kind": st.just("placeholder"),
        "name": NAMES,
        "op": st.sampled_from(INPUT_OPS),
        "args": st.lists(CONSTANTS, max_size=1).map(tuple),
        "result": RESULTS,
        "module": st.none() | ONE_LINE,
    }
)


class _Assembler:
    """Turns drafts into nodes with unique names and references to earlier nodes."""

    def __init__(self, bodies: Sequence[Graph]):
        self.bodies = bodies
        self.nodes: list[Node] = []

    def fill(self, value: Any) -> Any:
        if isinstance(value, Hole):
            there: Sequence[Any] = self.bodies if value.to_body else self.nodes
            if not there:
                return None
            name = there[value.number % len(there)].name
            return SubgraphRef(name) if value.to_body else Ref(name)
        if isinstance(value, tuple):
            return tuple(map(self.fill, value))
        if isinstance(value, dict):
            return {key: self.fill(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self.fill(value.start), self.fill(value.stop), self.fill(value.step))
        return value

    def refs(self, holes: Sequence[Hole]) -> tuple[Ref, ...]:
        """Fill holes with references to nodes only."""
        if not self.nodes:
            return ()
        return tuple(Ref(self.nodes[hole.number % len(self.nodes)].name) for hole in holes)

    def add(self, draft: dict[str, Any]) -> None:
        kind, op, name = draft["kind"], draft["op"], draft["name"]
        if kind == "get_attr":
            op = "get_attr"
        elif kind == "call_method":
            op = f"Tensor.{op}"
        elif kind != "placeholder" and (op in (*INPUT_OPS, "get_attr") or op[:7] == "Tensor."):
            op = "aten.mm.default"
        taken = {"output", *(node.name for node in self.nodes)}
        while name in taken:
            name += "'"
        module = name.rpartition("/")[0] if draft["module"] is None else draft["module"]
        after = self.refs(draft.get("after", ()))
        effects = tuple(
            Effect(kind, after[0] if kind == "mutates" else None)
            for kind in draft.get("effects", ())
            if kind != "mutates" or after
        )
        self.nodes.append(
            Node(
                *(name, kind, op),
                args=draft["value"] if kind == "get_attr" else self.fill(draft["args"]),
                kwargs={} if kind == "get_attr" else self.fill(draft.get("kwargs", {})),
                result=draft["result"],
                module=module,
                target=draft["target"] if kind in ("get_attr", "call_module") else "",
                effects=effects,
                after=after,
            )
        )


def graphs(depth: int = 1) -> st.SearchStrategy[Graph]:
    """Draw any graph: every kind of node, argument, result and effect, with hostile names."""
    bodies = st.lists(graphs(depth - 1), max_size=2) if depth else st.just([])
    return st.builds(
        _assembled,
        bodies,
        st.lists(INPUTS, max_size=2),
        st.lists(DRAFTS, max_size=6 if depth else 3),
        st.lists(ARGS, max_size=5).map(tuple) | ARGS,
        st.lists(HOLES, max_size=3),
        st.sampled_from(["main", "eager_0", *GRAPH_KINDS]) | NAMES,
        st.sampled_from(GRAPH_KINDS),
        st.sampled_from(LEVELS),
    )


OUTPUTS = st.lists(
    st.tuples(ONE_LINE | PATHS, CONSTANTS | HOLES | st.builds(InputRef, st.integers(0, 9), NAMES)),
    max_size=3,
    unique_by=lambda leaf: leaf[0],
)


def graphs_with_facts() -> st.SearchStrategy[Graph]:
    """Draw any graph with a run count, the target's output, and the level `given`."""
    return st.builds(
        _with_facts,
        graphs().filter(lambda graph: not EAGER_NAME.match(graph.name)),
        st.sampled_from([0, 1, 2, 3, 10**17]),
        OUTPUTS,
        st.booleans(),
    )


def _with_facts(graph: Graph, runs: int, output: list[Any], given: bool) -> Graph:
    names = [node.name for node in graph.nodes if node.kind != "output"]

    def filled(value: Any) -> Any:
        if not isinstance(value, Hole):
            return value
        return Ref(names[value.number % len(names)]) if names else None

    leaves = tuple((path, filled(value)) for path, value in output)
    return replace(graph, runs=runs, counted=True, output=leaves, given=given)


def eager_graphs() -> st.SearchStrategy[Graph]:
    """Draw any eager graph."""
    return st.builds(
        lambda graph, number, kind, runs: replace(
            graph, name=f"eager_{number}", kind=kind, level="dispatch", eager=True, runs=runs
        ),
        graphs(),
        st.integers(0, 99),
        st.sampled_from(EAGER_KINDS),
        st.integers(1, 3) | st.integers(1, 10**17),
    )


def _assembled(
    bodies: list[Graph],
    inputs: list[dict[str, Any]],
    drafts: list[dict[str, Any]],
    returned: Any,
    saved: list[Hole],
    name: str,
    kind: GraphKind,
    level: Level,
) -> Graph:
    bodies = list({body.name: body for body in bodies}.values())
    assembler = _Assembler(bodies)
    for draft in (*inputs, *drafts):
        assembler.add(draft)
    kept = assembler.refs(saved)
    output = Node("output", "output", "output", (assembler.fill(returned),))
    return Graph((*assembler.nodes, output), name, kind, level, kept, tuple(bodies))


# -- graphs that look like real ones ---------------------------------------------------------------

FEW = ("sin", "cos", "add", "mul")
EFFECTS: dict[str, EffectKind] = {"reduce": "communicates", "item": "syncs", "unknown": "opaque"}


@st.composite
def plain_graphs(draw: st.DrawFn, max_calls: int = 12, inputs: int = 2) -> Graph:
    """Draw small graphs of few ops, so that twins, dead code and near misses are common."""
    meta = TensorMeta("float32", (2, 3))
    nodes = [Node(f"x{i}", "placeholder", "input", result=meta) for i in range(inputs)]
    for i, buffer in enumerate(
        draw(st.lists(st.sampled_from(["self.a", "self.b", ""]), max_size=3))
    ):
        nodes.append(Node(f"buffer{i}", "get_attr", "get_attr", target=buffer, result=meta))
    written: dict[str, str] = {}
    for i in range(draw(st.integers(1, max_calls))):
        before = [node.name for node in nodes]
        word = draw(st.sampled_from((*FEW, "rand", "add_", "reduce", "item", "unknown")))
        args = [draw(st.sampled_from(before)) for _ in range(1 + (word in ("add", "mul")))]
        effects: tuple[Effect, ...] = ()
        after = tuple(Ref(written[name]) for name in dict.fromkeys(args) if name in written)
        if word == "rand":
            args, effects, after = [], (Effect("random"),), ()
        elif word in EFFECTS:
            effects = (Effect(EFFECTS[word]),)
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
    """Reorder a graph as its operands and side effects allow."""
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
            owner = graph.by_name[effect.target.name] if effect.target else None
            attribute = owner is not None and owner.kind == "get_attr"
            resource = (effect.kind, owner.target if attribute else effect.target)
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
    """Change all names, module paths, strides and devices of a graph."""
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
