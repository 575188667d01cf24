"""One edit in many comparisons is one cause. Two different edits are never one cause."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import pytest
from graph.build import difference, graph
from graph.edited_layers import LAYERS, Layer, edits_of, model_of
from graph.strategies import checked
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_torchgraph import Cost
from pytest_torchgraph.graph import (
    MAX_CAUSES,
    Finding,
    Graph,
    GraphDiff,
    Ref,
    Source,
    finding_lines,
    merge_edits,
)

COUNT = 6
SOME = st.sets(st.integers(0, COUNT - 1), min_size=1)


def causes_of(
    diffs: Sequence[tuple[str, GraphDiff]], upgraded: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Join the findings of several comparisons, directly and as read from another process."""
    items = [(label, finding) for label, diff in diffs for finding in diff.findings]
    sent = [(label, Finding.from_json(json.loads(json.dumps(f.to_json())))) for label, f in items]
    found = merge_edits(items, upgraded=upgraded)
    assert [f.to_json() for f in merge_edits(sent, upgraded=upgraded)] == [
        f.to_json() for f in found
    ]
    return found


def edited(layer: Layer, new: Layer, some: set[int], container: str = "model.layers") -> GraphDiff:
    """Compare a model with the same one after an edit of some layers."""
    base = model_of([layer] * COUNT, container)
    after = model_of([new if k in some else layer for k in range(COUNT)], container)
    return difference(base.graph, after.graph)


@checked
@given(LAYERS, SOME, SOME, st.data())
def test_edit_is_one_cause_in_any_layers_of_any_files(
    layer: Layer, first: set[int], second: set[int], data: st.DataObject
) -> None:
    edit = data.draw(edits_of(layer))
    diffs = [
        ("a", edited(layer, edit.of(layer), first)),
        ("b", edited(layer, edit.of(layer), second, "encoder.blocks")),
    ]
    (cause,) = causes_of(diffs)
    assert cause.files == ("a", "b")
    assert len(cause.places) == len(first) + len(second)
    assert cause.changes == diffs[0][1].findings[0].changes


@pytest.mark.slow("a search; test_graph_diff_places.py has one in every run")
@checked
@given(LAYERS, SOME, SOME, st.data())
def test_two_different_edits_of_one_model_are_two_causes(
    layer: Layer, first: set[int], second: set[int], data: st.DataObject
) -> None:
    one, other = data.draw(edits_of(layer)), data.draw(edits_of(layer))
    assume(one != other)
    diffs = [
        ("a", edited(layer, one.of(layer), first)),
        ("b", edited(layer, other.of(layer), second)),
    ]
    assert [cause.files for cause in causes_of(diffs)] == [("a",), ("b",)]


def model(module: str, ops: str, tail: str = "cos") -> Graph:
    """Return a model whose op `{module}/act` is followed by `tail`."""
    return graph(f"""
        %h = aten.mm.default(%x, %y) : f32[2, 3]
        {ops}
        %t = aten.{tail}.default(%{module}/act) : f32[2, 3] in "{module}"
        return %t
    """)


def activation(module: str, word: str, tail: str = "cos") -> Graph:
    return model(module, f'%{module}/act = aten.{word}.default(%h) : f32[2, 3] in "{module}"', tail)


def swapped(module: str, before: str, after: str, tail: str = "cos", line: int = 0) -> GraphDiff:
    new = activation(module, after, tail)
    return difference(activation(module, before, tail), on_line(new, line) if line else new)


def scaled(module: str, by: str, tail: str) -> GraphDiff:
    new = f'%{module}/act = aten.add.Tensor(%h, {by}) : f32[2, 3] in "{module}"'
    return difference(activation(module, "gelu", tail), model(module, new, tail))


def test_other_constants_are_another_cause() -> None:
    """Only the first node of a cause is printed, so it must not speak for another number."""
    for tails in (("cos", "sin"), ("cos", "cos")):  # other code, and nodes of the same names
        modules = ("encoder.act", "decoder.mlp.fn") if tails[1] == "sin" else ("act", "act")
        diffs = [
            (name, scaled(module, by, tail))
            for name, module, by, tail in zip("ab", modules, ("1", "1000"), tails, strict=True)
        ]
        assert [cause.files for cause in causes_of(diffs)] == [("a",), ("b",)]
        assert len(causes_of(diffs, upgraded=("a", "b"))) == 2
        alike = [(name, scaled(modules[0], "7", tails[0])) for name in "ab"]
        assert len(causes_of(alike)) == 1


def test_other_constants_in_several_layers_are_another_cause() -> None:
    """The findings of all places are united before causes are compared."""

    def layers(op: str) -> Graph:
        ops = "\n".join(
            f"%layers.{n}/act = {op.format('%h' if not n else f'%layers.{n - 1}/act')}"
            f' : f32[2, 3] in "layers.{n}"'
            for n in range(3)
        )
        return graph(f"%h = aten.mm.default(%x, %y) : f32[2, 3]\n{ops}\nreturn %layers.2/act")

    old = layers("aten.gelu.default({})")
    diffs = [
        (name, difference(old, layers(f"aten.add.Tensor({{}}, {by})")))
        for name, by in (("a", "7"), ("b", "1000"), ("c", "7"))
    ]
    assert {len(diff.findings) for _, diff in diffs} == {1}
    assert [cause.files for cause in causes_of(diffs)] == [("a", "c"), ("b",)]


def test_rewrite_in_14_unrelated_models_is_one_cause() -> None:
    """Each split of a value becomes slices of it, at one to three places of each model."""
    rng = random.Random(14)

    def both(number: int) -> GraphDiff:
        texts: list[list[str]] = [[], []]
        value = "x"
        for k in range(rng.randrange(3, 9)):
            module = f"{rng.choice('abc')}.{rng.choice('def')}{number}"
            unary = f"%{module}/u{k} = aten.{rng.choice(['sin', 'cos', 'exp'])}.default(%{value})"
            for text in texts:
                text.append(f'{unary} : f32[2, 3] in "{module}"')
            value, here = f"{module}/u{k}", f'in "{module}"'
            if k % 3 == 0:
                texts[0] += [
                    f"%s{k} = aten.split.Tensor(%{value}, 2, 1) : (f32[2, 2], f32[2, 1]) {here}",
                    f"%s{k}#0 = operator.getitem(%s{k}, 0) : f32[2, 2] {here}",
                    f"%s{k}#1 = operator.getitem(%s{k}, 1) : f32[2, 1] {here}",
                ]
                texts[1] += [
                    f"%s{k}#0 = aten.slice.Tensor(%{value}, 1, 0, 2) : f32[2, 2] {here}",
                    f"%s{k}#1 = aten.slice.Tensor(%{value}, 1, 2, 3) : f32[2, 1] {here}",
                ]
                for text in texts:
                    text.append(f"%j{k} = aten.cat.default([%s{k}#0, %s{k}#1], 1) : f32[2, 3]")
                value = f"j{k}"
        return difference(*(graph("\n".join([*text, f"return %{value}"])) for text in texts))

    diffs = [(f"model {number}", both(number)) for number in range(14)]
    assert sum(len(diff.findings) for _, diff in diffs) > 20
    (cause,) = causes_of(diffs)
    assert len(cause.files) == 14


def test_edits_at_different_module_numbers_are_separate_causes() -> None:
    """The same op is inserted after the first and after the third module of a sequence."""

    def diff(number: int, layers: str) -> GraphDiff:
        def chain(edited: str) -> Graph:
            lines, value = [], "x"
            for layer in layers:
                for k in (0, 2):
                    module = f"blocks.{layer}.{k}"
                    words = ["mm", "erf"] if edited and k == number else ["mm"]
                    for word in words:
                        args = f"%{value}, %y" if word == "mm" else f"%{value}"
                        value = f"{module}/{word}"
                        lines.append(f"%{value} = aten.{word}.default({args}) : f32[2, 3]")
                        lines[-1] += f' in "{module}"'
            return graph("\n".join([*lines, f"return %{value}"]))

        return difference(chain(""), chain("x"))

    diffs = [("a", diff(0, "01")), ("b", diff(2, "01")), ("c", diff(0, "0123"))]
    assert [cause.files for cause in causes_of(diffs)] == [("a", "c"), ("b",)]


def test_op_replaced_in_one_of_several_places_is_a_separate_cause() -> None:
    def both(first: str, second: str) -> Graph:
        return graph(f"""
            %p/act = aten.{first}.default(%x) : f32[2, 3] in "p"
            %q/act = aten.{second}.default(%p/act) : f32[2, 3] in "q"
            return %q/act
        """)

    diffs = [
        ("a", difference(both("gelu", "gelu"), both("relu", "gelu"))),
        ("b", difference(both("gelu", "gelu"), both("gelu", "relu"))),
    ]
    assert [cause.files for cause in causes_of(diffs)] == [("a",), ("b",)]


def test_two_similar_edits_in_the_same_files_are_two_causes() -> None:
    def both(word: str) -> Graph:
        return graph(f"""
            %p/act = aten.{word}.default(%x) : f32[2, 3] in "p"
            %m = aten.mm.default(%p/act, %y) : f32[2, 3]
            %q/act = aten.{word}.default(%m) : f32[2, 3] in "q"
            return %q/act
        """)

    diff = difference(both("gelu"), both("relu"))
    assert len(diff.findings) == 2
    assert len(causes_of([("a", diff), ("b", diff)])) == 2
    other = swapped("encoder.act", "gelu", "relu")
    (cause,) = causes_of([("a", diff), ("b", other)])
    assert (cause.files, len(cause.places)) == (("a", "b"), 3)


def on_line(of: Graph, line: int, function: str = "activate") -> Graph:
    """Put the ops in modules on a line of the user's code."""
    source = Source("nets/blocks.py", line, "x = act(x)", function)
    nodes = (replace(node, source=source) if node.module else node for node in of.nodes)
    return replace(of, nodes=tuple(nodes))


def inserted(module: str, line: int, tail: str, function: str = "activate") -> GraphDiff:
    """Insert an op after the product, on a line of the user's code."""
    before = activation(module, "tanh", tail)
    after = model(
        module,
        f"""%{module}/more = aten.exp.default(%h) : f32[2, 3] in "{module}"
        %{module}/act = aten.tanh.default(%{module}/more) : f32[2, 3] in "{module}\"""",
        tail,
    )
    return difference(before, on_line(after, line, function))


@pytest.mark.parametrize("function", ["activate", "Block.forward"])
def test_edited_line_is_one_cause_in_different_models(function: str) -> None:
    """An added op alone does not identify an edit, and its neighbours differ in each model."""
    diffs = [
        ("a", inserted("p", 7, "sin", function)),
        ("b", inserted("q.r", 7, "cos", function)),
        ("c", inserted("s", 8, "log", function)),
    ]
    assert [cause.files for cause in causes_of(diffs)] == [("a", "b"), ("c",)]


def test_modules_called_on_one_line_are_separate_causes() -> None:
    """`self.first(self.last(x))` in the forward of a block: one of the two modules is edited."""

    def diff(block: str, edited: str, start: str) -> GraphDiff:
        def model(new: bool) -> Graph:
            lines, value = [f"%u = aten.{start}.default(%x) : f32[2, 3]"], "u"
            for name in ("last", "first"):
                module = f"{block}.{name}"
                for word in ("tanh", "exp") if new and name == edited else ("tanh",):
                    lines.append(f"%{module}/{word} = aten.{word}.default(%{value}) : f32[2, 3]")
                    lines[-1] += f' in "{module}"'
                    value = f"{module}/{word}"
            parsed = graph("\n".join([*lines, f"return %{value}"]))
            return on_line(parsed, 7, "Block.forward") if new else parsed

        return difference(model(False), model(True))

    diffs = [
        ("a", diff("p", "first", "sin")),
        ("b", diff("q", "last", "cos")),
        ("c", diff("r.s", "first", "log")),
    ]
    assert [cause.files for cause in causes_of(diffs)] == [("a", "c"), ("b",)]


def test_a_release_of_torch_that_drops_an_op_is_one_cause() -> None:
    def dropped(module: str, tail: str) -> GraphDiff:
        ops = f"""%{module}/drop = aten.clone.default(%h) : f32[2, 3] in "{module}"
        %{module}/act = aten.tanh.default(%{module}/drop) : f32[2, 3] in "{module}\""""
        return difference(model(module, ops, tail), activation(module, "tanh", tail))

    diffs = [("a", dropped("p", "sin")), ("b", dropped("q.r", "cos"))]
    assert len(causes_of(diffs)) == 2
    (cause,) = causes_of(diffs, upgraded=("a", "b"))
    assert cause.files == ("a", "b")
    assert len(causes_of(diffs, upgraded=("a",))) == 2


def test_causes_of_equal_graphs_are_empty() -> None:
    same = difference(activation("p", "tanh"), activation("p", "tanh"))
    assert causes_of([("a", same)]) == ()
    assert causes_of([]) == ()


@checked
@given(LAYERS)
def test_added_module_is_one_cause(layer: Layer) -> None:
    diff = difference(model_of([layer] * 3).graph, model_of([layer] * 4).graph)
    (cause,) = causes_of([("a", diff), ("b", diff)])
    assert cause.modules == ("model.layers.3",) * 2
    assert cause.files == ("a", "b")


# -- in words --------------------------------------------------------------------------------------


def test_cause_text_names_all_modules_and_counts_the_lines() -> None:
    diffs = [
        ("a", swapped("layers.0.act", "gelu", "relu", line=7)),
        ("b", swapped("layers.1.act", "gelu", "relu", line=8)),
    ]
    (cause,) = causes_of(diffs)
    assert [*finding_lines([cause], "test")] == [
        "~ aten.gelu -> aten.relu in layers.{0, 1}.act  (2 tests)",
        "    nets/blocks.py:7: x = act(x) and 1 more",
        "    before  %layers.0.act/act = aten.gelu.default(%h) : f32[2, 3]",
        "    after   %layers.0.act/act = aten.relu.default(%h) : f32[2, 3]",
        "    in a, b",
    ]
    assert (
        Finding.from_json(cause.to_json()).to_text().splitlines()[2:]
        == [*finding_lines([cause])][2:]
    )


def test_cause_cost_is_the_sum_over_files_if_all_are_known() -> None:
    def kept(op: str, *saved: str, level: str = "aot") -> Graph:
        parsed = graph(f"%act = aten.{op}(%x) : f32[2, 3]\nreturn %act", f"forward @ {level}")
        return replace(parsed, saved=tuple(map(Ref, saved)))

    diffs = [(file, difference(kept("gelu"), kept("relu", "act"))) for file in "ab"]
    (cause,) = causes_of(diffs)
    assert cause.cost.saved_bytes == 48
    assert [*finding_lines([cause])][-2].endswith("+48 B saved in all")
    unknown = difference(kept("gelu", level="dynamo"), kept("relu", level="dynamo"))
    (cause,) = causes_of([*diffs, ("c", unknown)])
    assert cause.cost == Cost(None, None)
    assert "costs" not in "".join(finding_lines([cause]))


def test_long_texts_are_cut_and_many_causes_counted() -> None:
    diffs = [
        (f"test {'x' * 500} {k}", swapped("m" * 500, "gelu", f"{'w' * 500}{k}"))
        for k in range(MAX_CAUSES + 2)
    ]
    lines = [*finding_lines(causes_of(diffs))]
    assert lines[-1] == "... and 2 more causes in 2 files"
    assert max(map(len, lines)) < 1000


def test_added_nodes_of_the_same_name_may_be_two_edits() -> None:
    """Removed nodes are identified by name. The name of an added node says little."""

    def diff(taken: str) -> GraphDiff:
        def made(operands: str, more: str = "") -> Graph:
            lines = [
                '%m/sin = aten.sin.default(%x) : f32[2, 3] in "m"',
                '%m/cos = aten.cos.default(%x) : f32[2, 3] in "m"',
                *([more] if more else []),
                f'%m/sub = aten.sub.Tensor({operands}) : f32[2, 3] in "m"',
                "return %m/sub",
            ]
            return graph("\n".join(lines))

        operands = "%m/sin, %m/cos"
        clone = f'%m/clone = aten.clone.default({taken}) : f32[2, 3] in "m"'
        return difference(made(operands), made(operands.replace(taken, "%m/clone"), clone))

    diffs = [("a", diff("%m/sin")), ("b", diff("%m/cos"))]
    assert [cause.files for cause in causes_of(diffs)] == [("a",), ("b",)]


def test_results_of_a_long_return_in_another_order_take_little_work() -> None:
    """The work is limited inside the loop over the results, too."""
    rng = random.Random(0)
    ops = "\n".join(f"%a{n} = aten.relu.default(%x) : f32[2]" for n in range(100))
    texts = [", ".join(f"%a{rng.randrange(100)}" for _ in range(1000)) for _ in range(2)]
    graphs = [graph(f"{ops}\nreturn [{text}]") for text in texts]
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == "agreement"

    sys.setprofile(count)
    try:
        found = difference(*graphs)
    finally:
        sys.setprofile(None)
    assert found
    assert 0 < calls < 50_000
