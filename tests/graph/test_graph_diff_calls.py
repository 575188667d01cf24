"""An edit of shared code is one edit, regardless of how often the code is called."""

from __future__ import annotations

from dataclasses import replace

from graph.build import difference, graph

from pytest_torchgraph.graph import Graph, Source, diff_graphs

SIAMESE = """
    %enc.fc/mm = aten.mm(%x, %enc.fc.weight)
    %enc.act/gelu = aten.gelu(%enc.fc/mm)
    %enc/mul = aten.mul(%enc.act/gelu, 2)
    %enc.fc/mm.1 = aten.mm(%y, %enc.fc.weight)
    %enc.act/gelu.1 = aten.gelu(%enc.fc/mm.1)
    %enc/mul.1 = aten.mul(%enc.act/gelu.1, 2)
    %sub = aten.sub(%enc/mul, %enc/mul.1)
    return %sub
"""
INPUTS = "%x = input\n%y = input\n%enc.fc.weight = parameter"


def siamese(body: str = SIAMESE) -> Graph:
    return graph(body, inputs=INPUTS)


def test_an_edit_of_a_module_that_is_called_twice_is_one_edit() -> None:
    diff = difference(siamese(), siamese(SIAMESE.replace("gelu", "relu")))
    (finding,) = diff.findings
    assert [place.module for place in finding.places] == ["enc.act", "enc.act"]
    assert [place.changes[0].after.name for place in finding.places] == [
        "enc.act/relu",
        "enc.act/relu.1",
    ]
    assert diff.heading() == (
        "1 edit in 2 places: aten.gelu -> aten.relu in enc.act × 2, fed by enc.fc"
    )


def test_an_op_inserted_in_a_module_that_is_called_twice_is_one_edit() -> None:
    after = SIAMESE
    for n in ("", ".1"):
        after = after.replace(
            f"%enc/mul{n} = aten.mul(%enc.act/gelu{n}, 2)",
            f"%enc/tanh{n} = aten.tanh(%enc.act/gelu{n})\n"
            f"    %enc/mul{n} = aten.mul(%enc/tanh{n}, 2)",
        )
    diff = difference(siamese(), siamese(after))
    assert [len(finding.places) for finding in diff.findings] == [2], diff


def test_two_edits_in_two_calls_of_a_module_are_two() -> None:
    after = SIAMESE.replace(
        "%enc/mul = aten.mul(%enc.act/gelu, 2)",
        "%enc/tanh = aten.tanh(%enc.act/gelu)\n    %enc/mul = aten.mul(%enc/tanh, 2)",
    ).replace(
        "%enc.act/gelu.1 = aten.gelu(%enc.fc/mm.1)",
        "%enc/tanh.1 = aten.tanh(%enc.fc/mm.1)\n    %enc.act/gelu.1 = aten.gelu(%enc/tanh.1)",
    )
    diff = difference(siamese(), siamese(after))
    assert [len(finding.places) for finding in diff.findings] == [1, 1], diff


def test_two_edits_of_one_call_of_a_module_are_two() -> None:
    body = """
        %m/neg = aten.neg(%x)
        %m/sin = aten.sin(%m/neg)
        %m/cos = aten.cos(%m/sin)
        %m/exp = aten.exp(%m/cos)
        return %m/exp
    """
    after = """
        %m/neg = aten.neg(%x)
        %m/tanh = aten.tanh(%m/neg)
        %m/sin = aten.sin(%m/tanh)
        %m/cos = aten.cos(%m/sin)
        %m/tanh.1 = aten.tanh(%m/cos)
        %m/exp = aten.exp(%m/tanh.1)
        return %m/exp
    """
    diff = difference(graph(body), graph(after))
    assert [len(finding.places) for finding in diff.findings] == [1, 1], diff


def at(g: Graph, lines: dict[str, tuple[str, int]], function: str = "") -> Graph:
    """Return the graph with source lines for the named nodes."""
    nodes = (
        replace(node, source=Source(*lines[node.name], function=function))
        if node.name in lines
        else node
        for node in g.nodes
    )
    return replace(g, nodes=tuple(nodes))


def test_an_edit_of_a_function_is_one_edit_wherever_it_is_called() -> None:
    def body(op: str, other: str) -> str:
        return f"""
            %left/sin = aten.sin(%x)
            %left/{op} = aten.{op}(%left/sin)
            %right/cos = aten.cos(%y)
            %right/{op} = aten.{op}(%right/cos)
            %head/exp = aten.exp(%right/{op})
            %head/{other} = aten.{other}(%head/exp)
            %sub = aten.sub(%left/{op}, %head/{other})
            return %sub
        """

    before = graph(body("gelu", "gelu"))
    after = graph(body("relu", "relu"))
    assert len(difference(before, after).findings) == 3
    lines = {"left/relu": ("act.py", 3), "right/relu": ("act.py", 3), "head/relu": ("net.py", 9)}
    diff = difference(before, at(after, lines, "act"))
    assert [[p.module for p in f.places] for f in diff.findings] == [["left", "right"], ["head"]]
    in_methods = difference(before, at(after, lines, "Net.forward"))
    assert len(in_methods.findings) == 3, "each class has a `forward` of its own"


def test_an_edit_in_two_graphs_of_a_capture_is_one_edit() -> None:
    def program(op: str) -> list[Graph]:
        body = f"%fc/mm = aten.mm(%x, %y)\n%act/{op} = aten.{op}(%fc/mm)\nreturn %act/{op}"
        more = body.replace("return", f"%neg = aten.neg(%act/{op})\nreturn")
        return [
            graph(body, "forward_0: forward @ aot"),
            graph(more, "forward_1: forward @ aot"),
        ]

    diff = diff_graphs(program("gelu"), program("relu"))
    (finding,) = diff.findings
    assert [(place.graph, place.module) for place in finding.places] == [
        ("forward_0", "act"),
        ("forward_1", "act"),
    ]
    assert "2 places [forward_0, forward_1]: act × 2" in str(diff)


def test_second_call_of_an_existing_layer_is_not_an_added_module() -> None:
    layer = "%l.0/sin = aten.sin(%x)\n%l.0/cos = aten.cos(%l.0/sin)\n"
    first = graph(f"{layer}return %l.0/cos", "forward_0: forward @ aot")
    before = graph("%h/neg = aten.neg(%x)\nreturn %h/neg", "forward_1: forward @ aot")
    more = f"{layer}%h/neg = aten.neg(%l.0/cos)\nreturn %h/neg"
    after = graph(more, "forward_1: forward @ aot")
    (finding,) = diff_graphs([first, before], [first, after]).findings
    assert finding.kind == "added"
    assert finding.modules == ()
