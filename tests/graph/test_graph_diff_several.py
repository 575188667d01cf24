"""An inserted op is the edit, several edits are several findings, one call is one finding."""

from __future__ import annotations

import pytest
from graph.build import difference, graph

# -- changed sizes are consequences, not the edit -------------------------------------------------

CONVOLVED = """
    %w = parameter : f32[3, 3]{op}
    %norm = aten.group_norm_like(%{x}, 2, {pixels}) : f32[2, {n}]
    %conv = aten.conv_like(%norm, %w, [{stride}]) : f32[2, {n}]
    %view = aten.view.default(%conv, [{flat}]) : f32[{flat}]
    return %view
    """


def convolved(op: str = "", x: str = "x", n: int = 3, stride: int = 1) -> str:
    return CONVOLVED.format(op=op, x=x, n=n, pixels=2 * n, flat=2 * n, stride=stride)


POOLED = "\n    %pool = aten.max_pool_like(%x) : f32[2, 1]"


def test_inserted_op_is_the_edit_although_later_sizes_change() -> None:
    sides = graph(convolved()), graph(convolved(POOLED, "pool", 1))
    diff = difference(*sides)
    assert diff.heading() == "1 edit: aten.max_pool_like added (and 3 changed)"
    assert str(diff).splitlines()[1].startswith("+ added in ")
    diff = difference(*sides[::-1])
    assert diff.heading() == "1 edit: aten.max_pool_like removed (and 3 changed)"


def test_changed_constant_is_named_before_an_inserted_op() -> None:
    diff = difference(graph(convolved()), graph(convolved(POOLED, "pool", 1, stride=2)))
    assert diff.heading() == (
        "1 edit: argument 2: [1] -> [2] of aten.conv_like (and 1 added, 2 changed)"
    )


def test_inserted_casts_are_the_edit_not_the_changed_dtype() -> None:
    cast = """
        %up = aten._to_copy.default(%x, dtype=torch.float64) : f64[2, 3]
        %soft = aten._softmax.default(%up, -1, False) : f64[2, 3]
        %down = aten._to_copy.default(%soft, dtype=torch.float32) : f32[2, 3]
        return %down
        """
    plain = "%soft = aten._softmax.default(%x, -1, False) : f32[2, 3]\nreturn %soft"
    diff = difference(graph(plain), graph(cast))
    assert diff.heading() == "1 edit: 2 aten._to_copy added (and 1 changed)"


# -- words ----------------------------------------------------------------------------------------

HALVES = """
    %a = aten.sin(%x) : f32[2, 3]
    %a.1 = aten.{first}(%a) : f32[2, 3]
    %a.2 = aten.{second}(%a) : f32[2, 3]
    {rest}
    """


@pytest.mark.parametrize(
    "rest",
    ["%sub = aten.sub(%a.1, %a.2) : f32[2, 3]\nreturn %sub", "return [%a.1, %a.2]"],
    ids=["an op", "the return"],
)
def test_names_with_a_new_meaning_are_reported(rest: str) -> None:
    rest = rest.replace("\n", "\n    ")
    before, after = (
        graph(HALVES.format(first=one, second=two, rest=rest))
        for one, two in (("cos", "exp"), ("exp", "cos"))
    )
    diff = difference(before, after)
    lines = str(diff).splitlines()
    assert lines[2].split() == ["before", *lines[3].split()[1:]]
    assert lines[4] == "    names   %a.1 is now %a.2, %a.2 is now %a.1"


def test_changed_return_value_is_not_reported_as_saved() -> None:
    diff = difference(
        graph("%n = aten.sin(%x) : f32[2, 3]\nreturn [%n, %y]"),
        graph("%n = aten.sin(%y) : f32[2, 3]\nreturn [%x, %n]"),
    )
    (finding,) = diff.findings
    assert [change.node.kind for change in finding.consequences] == ["output"]
    assert str(diff).splitlines()[-1] == "    follows in forward: the returned values differ"
