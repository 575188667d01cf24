"""Drawings of graph breaks and of unexpected ops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_torchgraph.graph import Graph, GraphBreak, Node, Ref, TensorMeta
from pytest_torchgraph.render import Drawing, difference, program

META = TensorMeta("float32", (2,))
RED = "#C24E00"
SIGN = "\N{BLACK SCISSORS}"


BREAK = GraphBreak(
    kind="Data-dependent branching",
    reason="Detected data-dependent branching, which is not supported.",
    hint="Use torch.cond",
    file="model.py",
    line=1,
    code="    if y.sum() > 0:",
    function="forward",
    stack=(),
    module="",
    compile_id="0/0",
)


def graph_break(line: int, compile_id: str) -> GraphBreak:
    return replace(BREAK, line=line, compile_id=compile_id)


@dataclass
class Capture:
    """The part of a `Capture` that the drawing reads."""

    forwards: tuple[Graph, ...]
    breaks: tuple[GraphBreak, ...]
    executions: dict[str, int] = field(default_factory=dict)
    eager: tuple[Graph, ...] = ()

    @property
    def program(self) -> tuple[Graph, ...]:
        """Return the program. The eager graphs follow the first compiled one."""
        return (*self.forwards[:1], *self.eager, *self.forwards[1:])


def of_breaks(capture: Capture) -> Drawing:
    return program.drawing_of_breaks(
        capture.forwards, capture.breaks, capture.executions, capture.program
    )


def chain(name: str, *ops: str, module: str = "") -> Graph:
    nodes = [Node("x", "placeholder", "input", result=META)]
    for number, op in enumerate(ops):
        operand = (Ref(nodes[-1].name),)
        nodes.append(
            Node(f"n{number}", "call_function", f"aten.{op}.default", operand, {}, META, module)
        )
    output = Node("output", "output", "output", (Ref(nodes[-1].name),))
    return Graph((*nodes, output), name=name, level="aot")


def cut(*compile_ids: str, break_ids: tuple[str, ...] = ("0/0",)) -> Any:
    """Return graphs `sin` and `cos` with breaks between them."""
    return Capture(
        (chain("forward_0", "sin"), chain("forward_1", "cos")),
        tuple(graph_break(10 + number, compile_id) for number, compile_id in enumerate(break_ids)),
        dict.fromkeys(compile_ids, 1) | {"0/0 backward": 1, "!0": 1},
    )


def test_break_is_drawn_between_the_graphs_that_it_separates(look):
    seen = look(of_breaks(cut("0/0", "1/0")).digraph)

    (shown,) = (text for text in seen.boxes if text.startswith(SIGN))
    assert shown.splitlines() == [
        f"{SIGN} graph break 1: Data-dependent branching",
        "model.py:10 in forward",
        "    if y.sum() > 0:",
        "Detected data-dependent branching, which is not supported.",
    ]
    above, below = (e for e in seen.edges if SIGN in e[0] + e[1])
    assert (above[0], below[1]) == ("return", "x\nf32[2]")
    assert {above[2]["color"], below[2]["color"]} == {RED}
    heights = [
        float(seen.box(name)["pos"].split(",")[1]) for name in ("aten.sin", SIGN, "aten.cos")
    ]
    assert heights == sorted(heights, reverse=True)
    assert "aten.sin" in seen.clusters["forward_0: 1 op"]
    assert "aten.cos" in seen.clusters["forward_1: 1 op"]


def test_break_before_any_compiled_graph_follows_the_previous_break(look):
    seen = look(of_breaks(cut("0/0", "2/0", break_ids=("0/0", "1/0"))).digraph)

    assert seen.has_edge("return", f"{SIGN} graph break 1")
    assert seen.has_edge(f"{SIGN} graph break 1", f"{SIGN} graph break 2")
    assert seen.has_edge(f"{SIGN} graph break 2", "x")


def test_recompiled_graph_is_not_drawn_as_a_continuation(look):
    seen = look(of_breaks(cut("0/0", "0/1")).digraph)

    assert any("aten.sin" in text for text in seen.boxes)
    assert not any("aten.cos" in text for text in seen.boxes)
    assert "not drawn: 1 graph from recompiles" in of_breaks(cut("0/0", "0/1")).digraph.source


def test_unknown_order_of_graphs_is_labelled(look):
    source = of_breaks(cut()).digraph.source

    assert "it is unknown which break ended which graph" in source
    assert "which graph" not in of_breaks(cut("0/0", "1/0")).digraph.source


def test_break_without_compiled_graphs_is_drawn_alone(look):
    seen = look(of_breaks(Capture((), (graph_break(3, "0/0"),))).digraph)  # type: ignore[arg-type]

    assert [text.splitlines()[1] for text in seen.boxes] == ["model.py:3 in forward"]


def test_large_graphs_are_folded_except_next_to_the_break(look):
    ops = [f"op{i}" for i in range(800)]
    capture = cut("0/0", "1/0")
    capture.forwards = (chain("forward_0", *ops), chain("forward_1", *ops))

    seen = look(of_breaks(capture).digraph)

    assert seen.count < 150
    assert seen.has_edge("aten.op799", "return")
    assert seen.has_edge("return", SIGN)
    assert seen.has_edge(SIGN, "x")
    assert seen.has_edge("x", "aten.op0")


def test_break_tooltip_has_the_hint_and_the_whole_reason(look):
    capture = cut("0/0", "1/0")
    capture.breaks = (replace(BREAK, reason="word " * 200 + "end"),)

    box = look(of_breaks(capture).digraph).box(SIGN)

    assert box["label"].count("\\n") < 12
    assert "end" in box["tooltip"]
    assert "hint: Use torch.cond" in box["tooltip"]


# -- eager graphs ----------------------------------------------------------------------------------


def eager(number: int, *ops: str, cause: Any = None, of: str = "", **changes: Any) -> Graph:
    """Return an eager graph. Its input is the value of another graph, `of`."""
    graph = chain("forward", *ops)
    if of:
        renamed = graph.to_text().replace("%x", f'%"{of}"')
        graph = Graph.from_text(renamed)
    changes = {"runs": 1, "cause": cause, **changes}
    return replace(graph, name=f"eager_{number}", level="dispatch", eager=True, **changes)


def top(seen: Any, *texts: str) -> list[float]:
    """Return the vertical positions of these boxes."""
    return [-float(seen.box(text)["pos"].split(",")[1]) for text in texts]


def test_eager_graph_is_drawn_after_its_break_in_a_frame(look):
    capture = cut("0/0", "1/0")
    (cause,) = capture.breaks
    capture.eager = (
        eager(0, "neg", cause=cause, runs=3),
        eager(1, "exp", kind="backward", cause=cause),
    )

    seen = look(of_breaks(capture).digraph)

    heights = top(seen, "aten.sin", f"{SIGN} graph break 1", "aten.neg", "aten.cos")
    assert heights == sorted(heights)
    assert "aten.neg" in seen.clusters["eager_0: eager, ran 3 times, 1 op"]
    assert not any("aten.exp" in text for text in seen.boxes), "an op of the backward is drawn"
    assert "1 graph break, 2 graphs, 1 eager" in of_breaks(capture).digraph.source


def step() -> list[Graph]:
    first, second = graph_break(10, "0/0"), graph_break(20, "1/0")
    return [
        chain("forward_0", "sin"),
        eager(0, "neg", cause=first, of="forward_0:n0", runs=2),
        eager(1, "exp", cause=first, of="eager_0:n0"),
        chain("forward_1", "cos"),
        eager(2, "log", cause=second),
        eager(3, "tan", cause=first, kind="backward"),
    ]


def test_step_is_drawn_as_one_program_with_its_breaks(look):
    seen = look(program.drawing(step()).digraph)

    ops = ("aten.sin", "aten.neg", "aten.exp", "aten.cos", "aten.log", "aten.tan")
    assert top(seen, *ops) == sorted(top(seen, *ops))
    assert "aten.sin" in seen.clusters["forward_0: 1 op"]
    assert "aten.neg" in seen.clusters["eager_0: eager, ran 2 times, 1 op"]
    assert "aten.tan" in seen.clusters["eager_3: eager backward, ran once, 1 op"]
    shown = [text.split("\n")[:2] for text in seen.boxes if text.startswith(SIGN)]
    kind = BREAK.kind
    assert [f"{SIGN} graph break 1: {kind}", "model.py:10 in forward"] in shown
    assert [f"{SIGN} graph break 2: {kind}", "model.py:20 in forward"] in shown
    assert "6 graphs: 2 compiled, 4 eager" in program.drawing(step()).digraph.source


def test_break_is_drawn_once_before_its_eager_graphs():
    picture = program.drawing(step())

    labels = [e.label for e in picture.elements.values() if e.kind == "break"]
    assert [label.split()[0] for label in labels] == ["model.py:10", "model.py:20", "model.py:10"]


def test_value_of_another_graph_is_an_edge_from_it(look):
    seen = look(program.drawing(step()).digraph)

    assert seen.has_edge("aten.sin", "forward_0:n0")
    assert seen.has_edge("aten.neg", "eager_0:n0")
    assert seen.edge("return", "x\n")["style"] == "dotted", "the order is known, the value is not"


def test_parameter_that_another_graph_only_returns_comes_from_its_return(look):
    first = chain("forward_0", *(f"op{i}" for i in range(9)))
    weight = Node("w", "placeholder", "parameter", result=META)
    output = Node(
        "output", "output", "output", tuple(Ref(n.name) for n in (*first.nodes[:-1], weight))
    )
    first = replace(first, nodes=(weight, *first.nodes[:-1], output))

    seen = look(program.drawing([first, eager(0, "neg", of="forward_0:w")]).digraph)

    assert [
        tail
        for tail, head, edge in seen.edges
        if head.startswith("forward_0:w") and edge.get("style") != "dotted"
    ] == ["return\nw f32[2]"]


def test_frame_of_an_eager_graph_has_its_own_style():
    picture = program.drawing(step())

    assert {e.kind for e in picture.elements.values()} >= {"graph", "eager", "break", "node"}
    assert "filled,rounded,dashed" in picture.digraph.source


# -- surplus ---------------------------------------------------------------------------------------


def test_surplus_ops_are_marked_among_their_neighbours(look):
    graph = chain("forward", *(f"op{i}" for i in range(50)))

    problem = "aten.op20: expected 0, found 1"
    digraph = difference.surplus_drawing([graph], [graph["n20"]], problem).digraph

    assert problem in digraph.source
    seen = look(digraph)
    assert seen.box("! aten.op20")["color"] == RED
    assert seen.has_edge("aten.op19", "! aten.op20")
    assert seen.has_edge("! aten.op20", "aten.op21")
    assert seen.count == 5, "three ops, and a box before and after them"


def test_graphs_without_surplus_ops_are_left_out(look):
    one, other = chain("forward", "sin"), chain("backward", "clone")

    seen = look(difference.surplus_drawing([one, other], [other["n0"]]).digraph)

    assert "backward: 1 op" in seen.clusters
    assert not any("aten.sin" in text for text in seen.boxes)


def test_a_surplus_op_in_a_body_is_marked(look):
    body = chain("body_0", "clone")
    call = Node("call", "call_function", "higher_order.wrap")
    graph = Graph((call,), name="forward", subgraphs=(body,))

    seen = look(difference.surplus_drawing([graph], [body["n0"]]).digraph)

    assert "! aten.clone" in seen.boxes


def test_excess_surplus_ops_are_counted_in_their_groups(look):
    graph = chain("forward", *(["clone", "sin"] * 600))

    digraph = difference.surplus_drawing([graph], graph.find("aten.clone")).digraph

    seen = look(digraph)
    assert seen.count <= 250
    assert "! 600 ops in 1 graph" in digraph.source
    assert "of them are counted in folded boxes" in digraph.source
    assert any("surplus" in text for text in seen.boxes)


@pytest.mark.parametrize("graphs", [[], [chain("forward", "sin")]])
def test_drawing_without_surplus_ops_says_so(look, graphs):
    digraph = difference.surplus_drawing(graphs, []).digraph

    assert look(digraph).count == 0
    assert "! 0 ops in 0 graphs" in digraph.source
