"""The text of a difference: added and removed graphs, bodies, consequences, headings, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graph.build import difference, document, graph
from graph.edits import exchange, layers
from graph.edits import graph as graph_of

from pytest_torchgraph.graph import Graph, Source, diff_graphs

FORWARD = graph("%m/a = aten.mul(%x, %y)\n%m/b = aten.sin(%m/a)\nreturn %m/b\nsave %x\nsave %m/a")
BACKWARD = graph(
    """
    %m/c = aten.cos(%m/a)
    %m/d = aten.mul(%tangent, %m/c)
    %m/e = aten.mul(%m/d, %x)
    return [%m/d, %m/e]
    """,
    "backward @ aot",
    "%x = saved\n%m/a = saved\n%tangent = tangent",
)


def edited(g: Graph, old: str, new: str) -> Graph:
    """Return the graph with its text changed in one place."""
    text = g.to_text()
    assert old in text
    return Graph.from_text(text.replace(old, new))


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


def test_diff_text_has_a_removed_op_as_it_was() -> None:
    after = graph("%m/a = aten.mul(%x, %y)\nreturn %m/a\nsave %x\nsave %m/a")
    assert str(difference(FORWARD, after)) == (
        "1 edit: aten.sin removed in m\n- removed in m [forward]\n    before  %m/b = aten.sin(%m/a)"
    )


def test_diff_text_marks_an_edit_outside_all_modules() -> None:
    diff = difference(graph("%a = f(%x)\nreturn %a"), graph("%a = g(%x)\nreturn %a"))
    assert str(diff).splitlines()[:2] == ["1 edit: f -> g", "~ changed in (no module) [forward]"]


def test_backward_differences_are_consequences_of_the_forward() -> None:
    forward = edited(FORWARD, "aten.sin", "aten.tan")
    backward = edited(BACKWARD, "aten.cos", "aten.sec")
    diff = diff_graphs([FORWARD, BACKWARD], [forward, backward])
    assert str(diff) == (
        "1 edit: aten.sin -> aten.tan in m\n"
        "~ changed in m [forward]\n"
        "    before  %m/b = aten.sin(%m/a)\n"
        "    after   %m/b = aten.tan(%m/a)\n"
        "    follows in backward: 1 changed\n"
        "            ~ %m/c = aten.sec(%m/a)"
    )
    assert [change.graph for change in diff.findings[0].consequences] == ["backward"]
    assert len(diff.changed) == 2


def test_difference_only_in_the_backward_is_a_separate_finding() -> None:
    backward = edited(BACKWARD, "aten.cos", "aten.sec")
    diff = diff_graphs([FORWARD, BACKWARD], [FORWARD, backward])
    assert [(f.kind, f.graph, f.consequences) for f in diff.findings] == [
        ("changed", "backward", ())
    ]


@pytest.mark.parametrize("edit", [False, True], ids=["forward as it was", "forward edited"])
def test_added_or_removed_backward_is_a_finding(edit: bool) -> None:
    forward = edited(FORWARD, "aten.sin", "aten.tan") if edit else FORWARD
    gone = diff_graphs([FORWARD, BACKWARD], [forward])
    came = diff_graphs([FORWARD], [forward, BACKWARD])
    assert [f.kind for f in gone.findings] == ["changed"] * edit + ["removed"]
    assert [f.kind for f in came.findings] == ["changed"] * edit + ["added"]
    assert gone.to_text().endswith("- backward graph 'backward' removed (3 ops)")
    assert came.to_text().endswith("+ backward graph 'backward' added (3 ops)")


def test_added_or_removed_graph_among_several_is_named() -> None:
    ops = ["aten.sin", "aten.cos", "aten.tan"]
    several = [
        graph(f"%a = {op}(%x)\nreturn %a", f"forward_{i}: forward @ aot")
        for i, op in enumerate(ops)
    ]
    diff = diff_graphs(several, [several[0], several[2]])
    assert str(diff) == ("1 graph removed\n- forward graph 'forward_1' removed (1 op)")
    diff = diff_graphs([several[1]], several)
    assert [str(f) for f in diff.findings] == [
        "+ forward graph 'forward_0' added (1 op)",
        "+ forward graph 'forward_2' added (1 op)",
    ]
    assert diff.heading() == "2 graphs added"


def test_model_without_training_has_a_removed_backward() -> None:
    inference = graph("%m/a = aten.mul(%x, %y)\nreturn %m/a", "inference @ aot")
    diff = diff_graphs([FORWARD, BACKWARD], [inference])
    assert [finding.summary.partition(" (")[0] for finding in diff.findings] == [
        "forward graph 'forward' removed",
        "inference graph 'inference' added",
        "backward graph 'backward' removed",
    ]


def test_added_input_is_a_finding() -> None:
    body = "%a = aten.add(%x, %y)\nreturn %a"
    more = graph(
        body, inputs="%x = input : f32[2, 3]\n%bias = parameter : f32[3]\n%y = input : f32[2, 3]"
    )
    diff = difference(graph(body), more)
    assert [(f.kind, f.after.name) for f in diff.findings if f.after] == [("added", "bias")]


def test_outputs_in_another_order_are_a_finding() -> None:
    body = "%a = aten.sub(%x, %w)\n%b = aten.sin(%w)\nreturn [%a, %b]"
    x, w = "%x = input : f32[2]\n", "%w = parameter : f32[3]\n"
    swapped = difference(
        graph(body, inputs=x + w), graph(body.replace("[%a, %b]", "[%b, %a]"), inputs=x + w)
    )
    assert [(f.kind, f.after.kind) for f in swapped.findings if f.after] == [("rewired", "output")]


def test_write_moved_before_a_read_is_a_finding() -> None:
    write = "%w = aten.add_(%x, 1) !mutates %x\n"
    before = graph(f"{write}%r = aten.sin(%x)\nreturn [%r, %w]")
    after = graph(f"{write}%r = aten.sin(%x) after %w\nreturn [%r, %w]")
    for old, new in ((before, after), (after, before)):
        diff = difference(old, new)
        assert [(f.kind, f.after.name) for f in diff.findings if f.after] == [("rewired", "r")]


# -- bodies of higher-order ops --------------------------------------------------------------------


def wrapped(op: str, inner: str, call: str = "@body") -> Graph:
    return Graph.from_text(
        document(
            f"""
            body: forward {{
              deep: forward {{
                %q = input
                %r = {inner}(%q)
                return %r
              }}
              %p = input
              %q = higher_order.wrap(@deep, %p)
              %s = {op}(%q)
              return %s
            }}
            %x = input
            %h = higher_order.cond({call}, %x)
            return %h
            """
        )
    )


@pytest.mark.parametrize("call", ["@body", "[1, (2), [@body]]".replace("(2)", "2"), '{"f": @body}'])
def test_a_change_in_a_body_is_found_there_at_any_depth(call: str) -> None:
    base = wrapped("aten.sin", "aten.cos", call)
    diff = difference(base, wrapped("aten.tan", "aten.cos", call))
    assert [(f.kind, f.graph, f.after.op) for f in diff.findings if f.after] == [
        ("changed", "body", "aten.tan")
    ]
    diff = difference(base, wrapped("aten.sin", "aten.exp", call))
    assert [(f.kind, f.graph, f.after.op) for f in diff.findings if f.after] == [
        ("changed", "deep", "aten.exp")
    ]


def test_changes_in_a_body_and_around_it_are_all_found() -> None:
    diff = difference(wrapped("aten.sin", "aten.cos"), wrapped("aten.tan", "aten.exp", "@body, 1"))
    assert {(f.kind, f.graph) for f in diff.findings} == {
        ("changed", "forward"),
        ("changed", "body"),
        ("changed", "deep"),
    }


# -- the whole -------------------------------------------------------------------------------------


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


def test_a_body_with_another_effect_is_no_other_saved_value() -> None:
    """A false first cause named saved values in a graph that saves none."""
    body = "  body_0: forward {\n    %a = input\n    %m = aten.add(%a, 1)\n    return %m\n  }\n"
    call = "  %x = input\n  %y = higher_order.tag_activation_checkpoint(@body_0, %x)\n  return %y\n"
    before = Graph.from_text(f"torchgraph 4\n\ninference @ aot {{\n{body}{call}}}\n")
    after = edited(before, "aten.add(%a, 1)", "aten.add(%a, 1) !random")
    text = difference(before, after).to_text()
    assert "    after   %m = aten.add(%a, 1) !random" in text
    assert "saved" not in text
