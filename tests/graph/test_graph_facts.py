"""Facts in addition to the dataflow: returned values, runs, values of constants, and order."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from graph.build import document, graph
from graph.strategies import checked, graphs_with_facts, plain_graphs, shuffled
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph.graph import (
    Graph,
    InputRef,
    Ref,
    canonical,
    diff_graphs,
    equal_programs,
    format_document,
    parse_document,
    with_savers,
)


def with_facts(lines: str, title: str = "forward @ aot") -> Graph:
    """Return the graph of a text of version 4."""
    return Graph.from_text(document(lines, title).replace("torchgraph 1", "torchgraph 4"))


TWO = """
%x = input : f32[2]
%sin = aten.sin.default(%x) : f32[2]
%cos = aten.cos.default(%x) : f32[2]
return [%sin, %cos]
"""


# -- text ------------------------------------------------------------------------------------------


@settings(checked, max_examples=15)
@given(graphs_with_facts(), st.booleans())
def test_facts_survive_the_text(original: Graph, fold: bool) -> None:
    text = original.to_text(fold=fold)
    again = Graph.from_text(text)
    assert again == original
    assert again.to_text(fold=fold) == text
    if text.startswith("torchgraph 4\n"):
        assert again.runs == original.runs
        assert again.given == original.given
        if original.kind in ("forward", "inference") or original.output:
            assert repr(again.output) == repr(original.output)


def test_text_shows_each_fact() -> None:
    facts = '\noutput end = %cos\noutput x = input(1, "y")'
    constant = '%c = get_attr[""]([0, 1]) : i64[2]'
    made = with_facts(f"{constant}{TWO.rstrip()}{facts}", "forward @ aot × 3")
    assert made.output == (("end", Ref("cos")), ("x", InputRef(1, "y")))
    assert made.runs == 3
    assert made.counted
    assert made["c"].args == ((0, 1),)
    assert Graph.from_text(made.to_text()).to_text() == made.to_text()
    assert "forward @ aot × 3 {" in made.to_text("ops")


def test_older_text_does_not_say_facts() -> None:
    old = graph("return %x")
    assert old.output is None
    assert not old.counted


# -- outputs ---------------------------------------------------------------------------------------


def test_unknown_output_equals_any() -> None:
    known = with_facts(TWO + "output start = %sin\noutput end = %cos")
    unknown = Graph.from_text(document(TWO))
    assert known == unknown
    assert not diff_graphs([known], [unknown])
    assert with_facts(TWO) != known


# -- runs ------------------------------------------------------------------------------------------


def test_another_number_of_runs_is_one_finding() -> None:
    a, b = with_facts(TWO, "forward @ aot × 2"), with_facts(TWO, "forward @ aot × 6")
    assert not equal_programs([a], [b])
    assert diff_graphs([a], [b]).findings[0].summary == "forward ran 6 times, before: 2"
    once = with_facts(TWO)
    assert diff_graphs([once], [b]).findings[0].summary == "forward ran 6 times, before: 1"
    backward = [with_facts(TWO, f"backward @ aot × {n}") for n in (2, 6)]
    diff = diff_graphs([a, backward[0]], [b, backward[1]])
    assert [finding.summary for finding in diff.findings] == [
        "forward, backward ran 6 times, before: 2"
    ]


def test_unknown_runs_equal_any() -> None:
    unknown = Graph.from_text(document(TWO))
    assert equal_programs([unknown], [with_facts(TWO, "forward @ aot × 6")])
    assert not diff_graphs([unknown], [with_facts(TWO, "forward @ aot × 6")])


# -- constants -------------------------------------------------------------------------------------


def test_options_of_an_added_module_are_a_difference() -> None:
    """A graph without modules lacks no options; a module of an older version has unknown ones."""

    def made(line: str, version: int = 4) -> Graph:
        text = document(f"%x = input : f32[2]\n{line} : f32[2]\nreturn %y")
        return Graph.from_text(text.replace("torchgraph 1", f"torchgraph {version}"))

    plain = made("%y = aten.relu.default(%x)")
    linear = '%y = torch.nn.Linear["fc", "bias={}"](%x)'
    fine, evil = (made(linear.format(bias)) for bias in (False, True))
    unknown = made('%y = torch.nn.Linear["fc"](%x)', version=1)
    assert fine != evil
    assert (fine, evil) == (unknown, unknown)
    assert "bias=True" in str(diff_graphs([plain], [evil]))
    assert "bias=True" in str(diff_graphs([evil], [plain]))
    # Modules of the user's classes have no known options, in no version.
    (own,) = (replace(n, op="Own", options=None) for n in evil.nodes if n.kind == "call_module")
    added = replace(evil.nodes[1], name="z", args=(Ref("y"),))
    before, after = ([evil.nodes[0], own, *rest, evil.nodes[-1]] for rest in ([], [added]))
    diff = diff_graphs(*([replace(evil, nodes=tuple(nodes))] for nodes in (before, after)))
    assert "bias=True" in str(diff)


# -- graphs that the user passes in ----------------------------------------------------------------

# -- order -----------------------------------------------------------------------------------------

FORWARD = """
%x = input : f32[2, 2]
{lines}
%mm = aten.mm.default(%sin, %cos) : f32[2, 2]
return %mm
{saves}
"""
BACKWARD = """
{inputs}
%tangent = tangent : f32[2, 2]
%a = aten.mm.default(%tangent, %cos) : f32[2, 2]
%b = aten.mm.default(%sin, %tangent) : f32[2, 2]
%c = aten.mul.Tensor(%tangent, %tangent) : f32[2, 2]
{sums}
return %out
"""


def step(order: tuple[str, ...], terms: str, saved: tuple[str, ...] | None = None) -> list[Graph]:
    """Return a forward and its backward with this order of statements and of gradient sums."""
    saved = saved or order
    lines = "\n".join(f"%{name} = aten.{name}.default(%x) : f32[2, 2]" for name in order)
    saves = "\n".join(f"save %{name}" for name in saved)
    inputs = "\n".join(f"%{name} = saved : f32[2, 2]" for name in saved)
    first, second, third = terms
    sums = (
        f"%s = aten.add.Tensor(%{first}, %{second}) : f32[2, 2]\n"
        f"%out = aten.add.Tensor(%s, %{third}) : f32[2, 2]"
    )
    text = [
        document(FORWARD.format(lines=lines, saves=saves)),
        document(BACKWARD.format(inputs=inputs, sums=sums), "backward @ aot"),
    ]
    return [Graph.from_text(each) for each in text]


@pytest.mark.parametrize("terms", ["abc", "bac", "cba", "acb"])
def test_order_of_statements_does_not_count_in_training(terms: str) -> None:
    before, after = step(("sin", "cos"), "abc"), step(("cos", "sin"), terms)
    assert equal_programs(before, after)
    assert not diff_graphs(before, after)


def test_gradient_sum_compares_each_term() -> None:
    before, after = step(("sin", "cos"), "abc"), step(("sin", "cos"), "abb")
    assert not equal_programs(before, after)
    assert diff_graphs(before, after)


@checked
@given(plain_graphs(), st.integers(), st.data())
def test_saved_values_in_any_order_are_equal(original: Graph, seed: int, data: Any) -> None:
    names = [node.name for node in original.nodes if node.kind != "output"]
    saved = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    refs = tuple(map(Ref, saved))
    other = shuffled(original, random.Random(seed))
    before = replace(original, saved=refs)
    after = replace(other, saved=refs[::-1])
    assert before == after
    assert not diff_graphs([before], [after])


def test_canonical_form_knows_the_forward_of_each_backward() -> None:
    forward, backward = canonical(step(("sin", "cos"), "abc"))
    assert backward.saver is forward
    text = format_document((forward, backward))
    assert parse_document(text).graphs[1] == backward


def _step(first: str, second: str) -> tuple[Graph, ...]:
    """Return a forward that saves `p` and `q`, and a backward that takes them in this order."""
    text = f"""torchgraph 1

forward @ aot {{
  %x = input : f32[3]
  %p = aten.sin.default(%x) : f32[3]
  %q = aten.cos.default(%x) : f32[3]
  %z = aten.mul.Tensor(%p, %q) : f32[3]
  return %z
  save %p
  save %q
}}

backward @ aot {{
  %{first} = saved : f32[3]
  %{second} = saved : f32[3]
  %g = tangent : f32[3]
  %s = aten.sub.Tensor(%{first}, %{second}) : f32[3]
  %r = aten.mul.Tensor(%s, %g) : f32[3]
  return %r
}}
"""
    return with_savers(parse_document(text).graphs)


def test_backward_that_takes_saved_values_in_another_order_differs() -> None:
    old, new = _step("p", "q"), _step("q", "p")
    assert old[1] != new[1]
    assert old[0] == new[0]
    assert old[1] != new[1]  # although the forwards save the same values
    assert _step("p", "q")[1] == _step("p", "q")[1]
