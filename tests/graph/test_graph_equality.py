"""Two graphs are equal if and only if they compute the same."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from graph.build import document, graph
from graph.strategies import checked, graphs, plain_graphs, renamed, shuffled
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph.graph import Graph, Node, Source, TensorMeta
from pytest_torchgraph.graph.model import INPUT_OPS

SEEDS = st.integers(0, 2**32)


def unequal(a: Graph, b: Graph) -> bool:
    """Return True if two graphs differ, compared in both directions."""
    assert (a == b) == (b == a)
    different = a != b
    assert different is not (a == b)
    return different


# -- what does not count ---------------------------------------------------------------------------


@pytest.mark.slow("many random graphs")
@checked
@given(plain_graphs() | graphs(), SEEDS)
def test_the_order_of_independent_nodes_does_not_count(g: Graph, seed: int) -> None:
    rng = random.Random(seed)
    other = shuffled(renamed(g, rng), rng)
    assert not unequal(g, other)
    assert hash(g) == hash(other)


def test_sources_names_of_graphs_and_the_use_of_inputs_do_not_count() -> None:
    g = graph("%a = aten.sin(%x)\nreturn %a")
    marked = replace(
        g,
        name="other",
        nodes=tuple(replace(node, source=Source("f.py", i)) for i, node in enumerate(g.nodes)),
    )
    assert not unequal(g, marked)
    for role in INPUT_OPS:
        assert not unequal(
            g,
            graph(
                "%a = aten.sin(%x)\nreturn %a",
                inputs=f"%x = {role} : f32[2, 3]\n%y = {role} : f32[2, 3]",
            ),
        )


# -- what counts -----------------------------------------------------------------------------------

BASE = """
    %a = aten.sub.Tensor(%x, %y, alpha=2) : f32[2, 3]
    %b = aten.topk.default(%a, 2) : (f32[2, 2], i64[2, 2])
    %b#0 = operator.getitem(%b, 0) : f32[2, 2]
    %b#1 = operator.getitem(%b, 1) : i64[2, 2]
    %c = aten.gather.default(%a, 1, %b#1) : f32[2, 2]
    return [%c, %b#0, 7]
"""
CHANGES = {
    "another op": ("aten.sub.Tensor", "aten.div.Tensor"),
    "another overload": ("aten.sub.Tensor", "aten.sub.Scalar"),
    "the operands swapped": ("(%x, %y", "(%y, %x"),
    "another operand": ("gather.default(%a", "gather.default(%x"),
    "one operand twice": ("(%x, %y", "(%x, %x"),
    "another constant": ("(%a, 2)", "(%a, 3)"),
    "another keyword's value": ("alpha=2", "alpha=3"),
    "another keyword": ("alpha=2", "beta=2"),
    "a keyword given by position": ("alpha=2", "2"),
    "an argument more": ("(%a, 2)", "(%a, 2, None)"),
    "a float for an int": ("alpha=2", "alpha=2.0"),
    "a bool for an int": ("(%a, 1, %b#1)", "(%a, True, %b#1)"),
    "a string for an int": ("alpha=2", 'alpha="2"'),
    "another dtype": ("alpha=2) : f32[2, 3]", "alpha=2) : f16[2, 3]"),
    "another shape": ("alpha=2) : f32[2, 3]", "alpha=2) : f32[3, 2]"),
    "another rank": ("alpha=2) : f32[2, 3]", "alpha=2) : f32[2, 3, 1]"),
    "a symbolic size": ("alpha=2) : f32[2, 3]", "alpha=2) : f32[s0, 3]"),
    "an unknown result": (" : f32[2, 2]\n    return", "\n    return"),
    "another shape of one of several outputs": ("(%b, 1) : i64[2, 2]", "(%b, 1) : i64[2, 4]"),
    "another output of the same op": ("(%b, 0) : f32", "(%b, 2) : f32"),
    "the outputs swapped": ("[%c, %b#0", "[%b#0, %c"),
    "an output less": ("[%c, %b#0, 7]", "[%c, 7]"),
    "a constant output": ("7]", "8]"),
    "nested outputs": ("[%c, %b#0, 7]", "[[%c, %b#0], 7]"),
    "a saved value": ("7]", "7]\n    save %a"),
    "a side effect": ("f32[2, 2]\n    return", "f32[2, 2] !random\n    return"),
    "dead code": ("    return", "    %dead = aten.sin(%x)\n    return"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_single_change_makes_graphs_unequal(change: str) -> None:
    old, new = CHANGES[change]
    assert BASE.count(old) == 1, "the change is ambiguous"
    assert unequal(graph(BASE), graph(BASE.replace(old, new)))


@pytest.mark.parametrize("kind", ["another dtype", "another shape", "one input more", "swapped"])
def test_inputs_count_with_their_order(kind: str) -> None:
    x, y, z = "%x = input : f32[2, 3]\n", "%y = input : f32[2, 3]\n", "%z = input : f32[1]\n"
    other = {
        "another dtype": x + y.replace("f32", "f16"),
        "another shape": x + y.replace("3", "4"),
        "one input more": x + y + z,
        "swapped": y + x,
    }[kind]
    assert unequal(graph(BASE), graph(BASE, inputs=other))


CONSTANTS = [
    *("0", "-0.0", "0.0", "False", "None", '"0"', '"None"', '""', "[]", "{}", "...", "nan", "inf"),
    *("-inf", "1e-05", "1e-06", "9007199254740992", "9007199254740993", "complex(0.0, 0.0)"),
    *("complex(0.0, -0.0)", 'bytes("")', 'bytes("00")', "[[]]", "[0]", "[0, 0]", "[[0], 0]"),
    *("{0: 0}", '{"0": 0}', "slice(0, None, None)", "slice(None, 0, None)", "`s0`", "`s0 + 1`"),
    *("s0", "torch.float32", "torch.float64", '&"torch float32"', '"torch.float32"', "[%x]", "%x"),
    *("{0: %x}", "slice(%x, None, None)", 'device("cpu")', "@b", "@c", '"@b"', '"%"'),
]


def test_different_constants_are_unequal() -> None:
    bodies = "".join(
        f"{name}: inference @ aot {{\n  %p = input : f32[2]\n  %q = {op}(%p)\n  return %q\n}}\n"
        for name, op in (("b", "aten.sin"), ("c", "aten.cos"))
    )
    made = [
        Graph.from_text(document(f"{bodies}%x = input\n%a = f({value})\nreturn %a"))
        for value in CONSTANTS
    ]
    same = [
        (CONSTANTS[i], CONSTANTS[j])
        for i in range(len(made))
        for j in range(len(made))
        if (made[i] == made[j]) != (i == j)
    ]
    assert not same


def test_dead_code_is_compared_as_a_graph_too() -> None:
    def ring(lengths: list[int], seed: int) -> Graph:
        """Dead sums of neighbours in rings of equal values."""
        lines, start = [], 0
        for length in lengths:
            for i in range(length):
                j = start + (i + 1) % length
                lines.append(f"%sum{start + i} = aten.add(%s{start + i}, %s{j})")
            start += length
        random.Random(seed).shuffle(lines)
        values = [f"%s{i} = aten.sin(%x)" for i in range(start)]
        return graph("\n".join([*values, *lines, "return %x"]))

    for seed in range(8):
        assert not unequal(ring([6], 0), ring([6], seed))
        assert not unequal(ring([3, 3], 0), ring([3, 3], seed))
        assert unequal(ring([6], 0), ring([5], seed))
        # What each op takes and what takes it are equal, and no result depends on the rest.
        assert not unequal(ring([6], 0), ring([3, 3], seed))


def same_dead_code(a: Graph, b: Graph) -> bool:
    """Return True if two graphs of unused ops are equal in any order of their nodes."""
    values = [[node for node in g.nodes if node.is_call] for g in (a, b)]
    if len(values[0]) != len(values[1]):
        return False
    inputs = {one.name: two.name for one, two in zip(a.inputs, b.inputs, strict=True)}
    return any(
        all(
            (one.op, tuple(names[ref] for ref in one.refs)) == (two.op, two.refs)
            for one, two in zip(values[0], order, strict=True)
        )
        for order in itertools.permutations(values[1])
        for names in [inputs | {n.name: m.name for n, m in zip(values[0], order, strict=True)}]
    )


DEAD_OPS = st.lists(
    st.tuples(st.sampled_from("fg"), st.lists(st.integers(0, 9), min_size=1, max_size=2)),
    min_size=2,
    max_size=6,
)


def dead(ops: list[tuple[str, list[int]]], order: random.Random) -> Graph:
    """Return ops on the input and on each other. The last one has no user."""
    lines = []
    for k, (op, operands) in enumerate(ops):
        refs = ", ".join(f"%{'x' if o % (k + 1) == k else f'n{o % (k + 1)}'}" for o in operands)
        lines.append(f"%n{k} = {op}({refs})")
    return shuffled(renamed(graph("\n".join([*lines, "return %x"])), order), order)


@pytest.mark.slow("many random graphs")
@settings(checked, max_examples=150)
@given(DEAD_OPS, st.data(), SEEDS)
def test_dead_code_is_compared_exactly(
    ops: list[tuple[str, list[int]]], data: st.DataObject, seed: int
) -> None:
    rng = random.Random(seed)
    one = dead(ops, rng)
    assert not unequal(one, dead(ops, rng))
    at = data.draw(st.integers(0, len(ops) - 1))
    op, operands = ops[at]
    operands = [*operands[:-1], data.draw(st.integers(0, 9))]
    other = dead([*ops[:at], (op, operands), *ops[at + 1 :]], rng)
    assert unequal(one, other) != same_dead_code(one, other)


@pytest.mark.parametrize(
    ("one", "two", "ordered"),
    [
        ("!random", "!random", True),
        ("!communicates", "!communicates", True),
        ("!syncs", "!syncs", True),
        ("!syncs", "!random", False),
        ("!opaque", "!opaque", True),
        ("!mutates %x", "!mutates %x", True),
        ("!opaque", "!random", True),
        ("!communicates", "!opaque", True),
        ("!mutates %x", "!opaque", True),
        ("!random !mutates %x", "!mutates %x", True),
        ("!random", "!communicates", False),
        ("!mutates %x", "!mutates %y", False),
        ("!mutates %x", "!random", False),
    ],
)
def test_effects_on_one_resource_are_ordered_and_others_are_not(
    one: str, two: str, ordered: bool
) -> None:
    lines = f"%a = f(1) {one}", f"%b = g(2) {two}"
    forth, back = (graph("\n".join([*order, "return %x"])) for order in (lines, lines[::-1]))
    assert unequal(forth, back) is ordered


# -- equality as such ------------------------------------------------------------------------------


@checked
@given(st.lists(plain_graphs(4, 1), min_size=3, max_size=3), SEEDS)
def test_equality_is_an_equivalence_relation(three: list[Graph], seed: int) -> None:
    rng = random.Random(seed)
    a, b, c = (shuffled(renamed(g, rng), rng) for g in three)
    for g in (a, b, c):
        assert not unequal(g, g)
    if a == b and b == c:
        assert a == c
    again = shuffled(renamed(a, rng), rng)
    assert not unequal(a, again)
    assert (again == b) == (a == b)
    if a == b:
        assert hash(a) == hash(b)
    assert (a == b) == (three[0] == three[1])


def test_a_graph_is_not_equal_to_anything_else() -> None:
    g = graph("return %x")
    assert g != g.to_text()
    assert g != g.nodes


def test_nodes_are_compared_by_identity() -> None:
    meta = TensorMeta("float32", (2,))
    assert Node("a", "placeholder", "input", result=meta) != Node(
        "a", "placeholder", "input", result=meta
    )


@pytest.mark.slow("large graphs")
def test_a_graph_of_many_nodes_in_a_row_needs_no_recursion() -> None:
    lines = [f"%n{i} = aten.sin(%{'x' if not i else f'n{i - 1}'})" for i in range(5000)]
    long = "\n".join([*lines, "return %n4999"])
    assert not unequal(graph(long), graph(long))
    assert unequal(graph(long), graph(long.replace("%n9 = aten.sin", "%n9 = aten.cos")))
