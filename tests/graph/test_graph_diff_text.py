"""The text of a difference: added and removed graphs, bodies, consequences, headings, limits."""

from __future__ import annotations

from dataclasses import replace

from graph.build import difference, graph
from graph.edits import exchange, layers
from graph.edits import graph as graph_of

from pytest_torchgraph.graph import Source

FORWARD = graph("%m/a = aten.mul(%x, %y)\n%m/b = aten.sin(%m/a)\nreturn %m/b\nsave %x\nsave %m/a")


def test_diff_text_has_module_and_line_of_an_added_op() -> None:
    after = graph(
        """
        %m/a = aten.mul(%x, %y)
        %m/n = aten.clone(%m/a)
        %m/b = aten.sin(%m/n)
        return %m/b
        save %x
        save %m/a
        """
    )
    source = Source("net.py", 12, "return h.clone()")
    nodes = tuple(replace(n, source=source) if n.name == "m/n" else n for n in after.nodes)
    diff = difference(FORWARD, replace(after, nodes=nodes))
    assert str(diff) == (
        "1 edit: aten.clone added in m (net.py:12)\n"
        "+ added in m [forward]  net.py:12: return h.clone()\n"
        "    after   %m/n = aten.clone(%m/a)"
    )
    assert diff.findings[0].source == source


def test_outputs_in_another_order_are_a_finding() -> None:
    body = "%a = aten.sub(%x, %w)\n%b = aten.sin(%w)\nreturn [%a, %b]"
    x, w = "%x = input : f32[2]\n", "%w = parameter : f32[3]\n"
    swapped = difference(
        graph(body, inputs=x + w), graph(body.replace("[%a, %b]", "[%b, %a]"), inputs=x + w)
    )
    assert [(f.kind, f.after.kind) for f in swapped.findings if f.after] == [("rewired", "output")]


def test_long_difference_counts_the_unlisted_findings() -> None:
    base = layers(4, scoped=False)
    nodes = base
    for at in range(20, 170, 10):
        nodes = exchange(nodes, at, None).nodes
    diff = difference(graph_of(base), graph_of(nodes))
    assert len(diff.findings) == 15
    text = diff.to_text(limit=10)
    assert text.count("~ changed in") == 10
    assert text.endswith("\n... and 5 more findings")
    assert diff.to_text(limit=20).count("~ changed in") == 15


def test_long_finding_counts_the_unlisted_nodes() -> None:
    lines = [f"%n{i} = aten.{op}(%{f'n{i - 1}' if i else 'x'})" for i, op in enumerate(["new"] * 8)]
    diff = difference(graph("return %x"), graph("\n".join([*lines, "return %n7"])))
    (finding,) = diff.findings
    assert len([c for c in finding.changes if c.kind == "added"]) == 8
    assert (
        finding.to_text(limit=3).splitlines()[-1].startswith("    with    ... and 4 more (4 added")
    )
    assert "..." not in finding.to_text(limit=8)


def test_json_of_a_finding_has_its_sign_words_and_first_nodes() -> None:
    one = graph("%norm = aten.native_layer_norm(%x) : f32[2, 3]\nreturn %norm")
    many = graph(
        "%mean = aten.mean(%x) : f32[2, 1]\n%hand = aten.sub(%x, %mean) : f32[2, 3]\nreturn %hand"
    )
    (finding,) = difference(one, many).findings
    data = finding.to_json()
    assert (data["sign"], data["what"]) == ("~", "aten.native_layer_norm -> aten.sub (and 1 added)")
    assert data["before"].startswith("%norm = ")
    assert data["after"].startswith("%hand = ")
    (added,) = difference(graph("return %x"), graph("%n = aten.neg(%x)\nreturn %n")).findings
    assert added.to_json()["before"] == ""
