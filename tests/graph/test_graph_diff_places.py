"""The same edit in many places is one finding. Two different edits are never one finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

import pytest
from graph.build import difference, graph, written
from graph.edited_layers import LAYERS, Layer, edits_of, model_of
from graph.edits import call, returned
from graph.edits import given as input_node
from graph.strategies import checked, graphs, plain_graphs
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_torchgraph.graph import Finding, Graph, diff_graphs, find_changes
from pytest_torchgraph.graph.diff.places import merge_equal_edits

COUNT = 8
SOME = st.sets(st.integers(0, COUNT - 1), min_size=1)


def paths(finding: Finding) -> list[str]:
    return [place.module for place in finding.places]


def numbers(finding: Finding) -> list[int]:
    """Return the numbers of the layers in which a finding has its places."""
    return [int(path.split(".")[2]) for path in paths(finding)]


# -- properties ------------------------------------------------------------------------------------


@pytest.mark.slow("a search; the next one is in every run")
@checked
@given(LAYERS, SOME, st.data())
def test_edit_of_some_layers_is_one_finding_with_a_place_in_each(
    layer: Layer, some: set[int], data: st.DataObject
) -> None:
    edit = data.draw(edits_of(layer))
    base = model_of([layer] * COUNT)
    after = model_of([edit.of(layer) if k in some else layer for k in range(COUNT)])
    diff = difference(base.graph, after.graph)
    assert len(diff.findings) == 1, diff
    (finding,) = diff.findings
    assert numbers(finding) == sorted(some)
    assert {len(place.changes) for place in finding.places} == {1}


@pytest.mark.slow("many random graphs")
@checked
@given(LAYERS, SOME, SOME, st.data())
def test_two_different_edits_are_never_one_finding(
    layer: Layer, first: set[int], second: set[int], data: st.DataObject
) -> None:
    one, other = data.draw(edits_of(layer)), data.draw(edits_of(layer))
    second = {k for k in second if first.isdisjoint((k - 1, k, k + 1))}  # adjacent edits may touch
    assume(one != other)
    assume(second)

    def edited(number: int) -> Layer:
        if number in first:
            return one.of(layer)
        return other.of(layer) if number in second else layer

    after = model_of([edited(k) for k in range(COUNT)])
    diff = difference(model_of([layer] * COUNT).graph, after.graph)
    for finding in diff.findings:
        places = set(numbers(finding))
        assert places <= first or places <= second, diff
    assert sum(len(finding.places) for finding in diff.findings) == len(first | second)


def test_an_edit_before_and_after_a_removed_layer_is_one_finding() -> None:
    words = ["sin", "cos", "tan", "abs", "log", "erf"]

    def model(kept: list[str], edited: Container[str] = ()) -> Graph:
        nodes, value = [], "x"
        for k, word in enumerate(kept):
            ops = [word, "neg", *(["exp"] if word in edited else []), "relu"]
            for op in ops:
                nodes.append(call(f"l.{k}/{op}", op, [value], f"l.{k}"))
                value = f"l.{k}/{op}"
        return Graph((input_node("x"), *nodes, returned(value)))

    diff = difference(model(words), model([w for w in words if w != "tan"], ("cos", "log")))
    assert [paths(finding) for finding in diff.findings] == [["l.1", "l.3"], ["l.2"]]


def residual(layers: int, kept: bool, container: str = "layers.", ops: int = 1) -> Graph:
    """Return layers with residual adds, which read the sum of the layer before, or without."""
    lines, value = [], "x"
    for path in (f"{container}{k}" for k in range(layers)):
        for k in range(ops):
            name, number = f"{path}.fc.{k}/sin", f".{k}" * (k > 0)
            lines.append(f"%{name} = aten.sin(%{value})")
            if kept:
                lines.append(f"%{path}/add{number} = aten.add(%{value}, %{name})")
                name = f"{path}/add{number}"
            value = name
    return graph("\n".join([*lines, f"return %{value}"]))


@pytest.mark.parametrize("ops", [1, 2])
@pytest.mark.parametrize("container", ["layers.", ""], ids=["a list", "at the top"])
def test_residual_that_each_layer_lost_has_a_place_in_each(container: str, ops: int) -> None:
    for before, verb in ((True, "removed"), (False, "added")):
        sides = (residual(3, kept, container, ops) for kept in (before, not before))
        found = difference(*sides)
        places = [place.module for place in found.findings[0].places]
        assert places == [f"{container}{k}" for k in range(3)], found
        count = "2 " * (ops > 1)
        assert found.heading() == (
            f"1 edit in 3 places: {count}aten.add {verb} in {container}{{0 … 2}}"
        )


def test_an_op_before_all_uses_and_one_before_some_are_two_edits() -> None:
    def model(edited: dict[int, str]) -> Graph:
        lines, value = [], "x"
        for k in range(6):
            fc = f"%l.{k}/fc"
            lines += [
                f"%l.{k}/norm = aten.exp(%{value})",
                f"{fc} = aten.add(%l.{k}/norm, %{value})",
            ]
            value = f"l.{k}/fc"
            if k in edited:
                lines.append(f"%l.{k}/clone = aten.clone({fc})")
                uses = {"all": ("l.{}/clone",) * 2, "first": ("l.{}/clone", "l.{}/fc")}
                uses["second"] = uses["first"][::-1]
                one, two = (use.format(k) for use in uses[edited[k]])
            else:
                one = two = value
            lines += [f"%l.{k + 1}.in/a = aten.sin(%{one})", f"%l.{k + 1}.in/b = aten.cos(%{two})"]
            lines.append(f"%l.{k + 1}.in/c = aten.mul(%l.{k + 1}.in/a, %l.{k + 1}.in/b)")
            value = f"l.{k + 1}.in/c"
        return graph("\n".join([*lines, f"return %{value}"]))

    base = model({})
    for one in ("all", "first", "second"):
        diff = difference(base, model({1: one, 3: one}))
        assert [numbers_of(finding) for finding in diff.findings] == [[1, 3]], diff
        for other in {"all", "first", "second"} - {one}:
            diff = difference(base, model({1: one, 3: other}))
            assert [numbers_of(finding) for finding in diff.findings] == [[1], [3]], diff


def numbers_of(finding: Finding) -> list[int]:
    return [int(place.changes[0].node.name.split(".")[1].split("/")[0]) for place in finding.places]


SAME = "aten.mul.Tensor(%{}, %{}) : f32[2, 4]", "parameter : f32[4]"
OF_OP = {
    "layout": (f"{SAME[0]} sparse_coo", SAME[1]),
    "size": ("aten.mul.Tensor(%{}, %{}) : f32[9]", SAME[1]),
    "sizes exchanged": ("aten.mul.Tensor(%{}, %{}) : f32[4, 2]", SAME[1]),
    "order": (f"{SAME[0]} after %x", SAME[1]),
}
OF_PARAMETER = {
    "role": (SAME[0], "buffer : f32[4]"),
    "layout": (SAME[0], "parameter : f32[4] sparse_coo"),
    "dimensions": (SAME[0], "parameter : f32[2, 4]"),
}


def inserted(other: tuple[str, str] | None, *, shared: bool = False, sizes: str = "4444") -> Graph:
    """Return a graph with four modules, or with four calls of one, and with an op added to each.

    Args:
        other: the op and its parameter in the third module; `None` for no op in any.
        shared: True for one module.
        sizes: the size of each module.
    """
    heads, lines, last = [], [], []
    for k, size in enumerate(sizes):
        module, suffix = ("act", f".{k}" * (k > 0)) if shared else (f"layers.{k}", "")
        heads.append(f"%x{k} = input : f32[2, {size}]")
        own = f"{module}/relu{suffix}"
        lines.append(f"%{own} = aten.relu.default(%x{k}) : f32[2, {size}]")
        if other is not None:
            parameter = f"x{k}" if shared else f"layers.{k}.w"
            call, role = [text.replace("4", size) for text in (other if k == 2 else SAME)]
            heads += [] if shared else [f"%{parameter} = {role}"]
            lines.append(f"%{module}/mul{suffix} = {call.format(own, parameter)}")
            own = f"{module}/mul{suffix}"
        last.append(f"%{module}/cos{suffix}")
        lines.append(f"{last[-1]} = aten.cos.default(%{own}) : f32[2, {size}]")
    lines.append(f"return [{', '.join(last)}]")
    text = "\n".join(["%x = input : f32[2, 4]", *heads, *lines])
    return Graph.from_text(written(text))


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        *((other, False) for other in (*OF_OP.values(), *OF_PARAMETER.values())),
        *((other, True) for other in OF_OP.values()),
    ],
)
def test_places_that_differ_in_what_was_added_are_two_edits(
    other: tuple[str, str], shared: bool
) -> None:
    base = inserted(None, shared=shared)
    (finding,) = difference(base, inserted(SAME, shared=shared)).findings
    assert len(finding.places) == 4
    diff = difference(base, inserted(other, shared=shared))
    assert sorted(len(finding.places) for finding in diff.findings) == [1, 3]
    assert other[0].partition(") : ")[2] in diff.to_text(None)


def test_an_op_added_at_other_sizes_is_one_edit() -> None:
    base, new = (inserted(other, sizes="3456") for other in (None, SAME))
    (finding,) = difference(base, new).findings
    assert len(finding.places) == 4


@checked
@given(plain_graphs(), plain_graphs())
def test_changes_are_neither_lost_nor_added(a: Graph, b: Graph) -> None:
    findings, _, origins = find_changes([a], [b])
    placed = merge_equal_edits(findings, [a], [b], origins)
    places = [place for each in placed for place in each.places]
    before = Counter(
        id(c) for finding in findings for c in (*finding.changes, *finding.consequences)
    )
    assert before == Counter(
        id(c) for place in places for c in (*place.changes, *place.consequences)
    )


@pytest.mark.slow("a search; the one before it is in every run")
@checked
@given(LAYERS, LAYERS, st.integers(1, 6), st.integers(1, 6), st.data())
def test_changes_are_not_lost_with_added_and_removed_modules(
    layer: Layer, other: Layer, old: int, new: int, data: st.DataObject
) -> None:
    edit = data.draw(edits_of(layer))
    before = model_of([layer] * old + [other]).graph
    after = model_of([edit.of(layer)] * new + [other]).graph
    findings, _, origins = find_changes([before], [after])
    placed = merge_equal_edits(findings, [before], [after], origins)
    places = [place for each in placed for place in each.places]
    assert Counter(id(c) for finding in findings for c in finding.changes) == Counter(
        id(c) for place in places for c in place.changes
    )


@pytest.mark.slow("many random graphs")
@checked
@given(st.lists(graphs(), max_size=3), st.lists(graphs(), max_size=3))
def test_any_captures_have_a_difference_in_words(a: list[Graph], b: list[Graph]) -> None:
    diff = diff_graphs(a, b)
    for finding in diff.findings:
        assert finding.places
        assert finding.summary or "\n" in finding.to_text(limit=100)
        assert len(finding.modules) in (0, len(finding.places))
    assert "\n" not in diff.heading()
    assert bool(diff) == (diff.heading() != "no difference")
