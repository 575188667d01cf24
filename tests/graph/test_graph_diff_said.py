"""Reports of an edit: its ops and places, saved values, and reordered inputs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from graph.build import difference, graph

from pytest_torchgraph.graph import Graph, diff_graphs

# -- ops that replace others

NORM = """%n/norm = aten.native_layer_norm.default(%x) : f32[2, 3]
%out = aten.exp(%n/norm)
return %out"""
BY_HAND = """%mean = aten.mean(%x) : f32[2, 1]
%sub = aten.sub(%x, %mean) : f32[2, 3]
%var = aten.var(%sub) : f32[2, 1]
%rsqrt = aten.rsqrt(%var) : f32[2, 1]
%neg = aten.neg(%rsqrt) : f32[2, 1]
%hand = aten.lerp(%sub, %neg) : f32[2, 3]
%out = aten.exp(%hand)
return %out"""


@pytest.mark.parametrize("reverse", [False, True], ids=["by many", "by one"])
def test_replaced_ops_are_listed_before_their_replacements(reverse: bool) -> None:
    sides = [graph(NORM), graph(BY_HAND)]
    diff = difference(*(sides[::-1] if reverse else sides))
    (finding,) = diff.findings
    one, many = "aten.native_layer_norm", "6 ops"
    edit = f"{many} -> {one}" if reverse else f"{one} -> {many}"
    assert diff.heading().startswith(f"1 edit: {edit}")
    head, before, after, *rest = finding.to_text().splitlines()
    assert head.startswith("~ replaced in ")
    assert before.startswith("    before  %")
    assert after.startswith("    after   %")
    assert ("native_layer_norm" in before, "native_layer_norm" in after) == (not reverse, reverse)
    assert not [line for line in rest if "native_layer_norm" in line]
    data = finding.to_json()
    assert (data["sign"], data["what"]) == ("~", edit)
    assert data["before"]
    assert data["after"]


def test_ops_that_were_only_added_are_added() -> None:
    (finding,) = difference(layers({}), layers({1: "noise"})).findings
    assert finding.to_text().startswith("+ added in layers.1.drop")
    assert finding.to_json()["before"] == ""


# -- ops that take turns ---------------------------------------------------------------------------


def layers(ops: Mapping[int, str], effect: str = "random") -> Graph:
    """Return layers of two ops, some of them with an additional op that has an effect."""
    lines, value = [], "x"
    for k in range(4):
        lines.append(f"%layers.{k}.fc/mul = aten.mul(%{value}, 2)")
        value = f"layers.{k}.fc/mul"
        if k in ops:
            lines.append(f"%layers.{k}.drop/{ops[k]} = aten.{ops[k]}(%{value}) !{effect}")
            value = f"layers.{k}.drop/{ops[k]}"
        lines.append(f"%layers.{k}.act/relu = aten.relu(%{value})")
        value = f"layers.{k}.act/relu"
    return graph("\n".join([*lines, f"return %{value}"]))


@pytest.mark.parametrize("effect", ["random", "communicates", "opaque"])
@pytest.mark.parametrize("only", [(0, 1, 2, 3), (0, 1), (1, 3)])
def test_reordered_random_ops_are_one_edit_in_many_places(
    effect: str, only: tuple[int, ...]
) -> None:
    plain, edited = layers({}), layers(dict.fromkeys(only, "noise"), effect)
    for before, after, kind in ((plain, edited, "added"), (edited, plain, "removed")):
        diff = difference(before, after)
        (finding,) = diff.findings
        assert [place.module for place in finding.places] == [f"layers.{k}.drop" for k in only]
        assert diff.heading().startswith(f"1 edit in {len(only)} places: aten.noise {kind}")


def test_two_kinds_of_random_ops_are_two_edits() -> None:
    diff = difference(layers({}), layers({0: "noise", 1: "noise", 2: "drop", 3: "drop"}))
    assert [[place.module for place in finding.places] for finding in diff.findings] == [
        ["layers.0.drop", "layers.1.drop"],
        ["layers.2.drop", "layers.3.drop"],
    ]


def test_ops_that_write_to_one_storage_are_one_edit() -> None:
    head = "%buf = buffer : f32[2, 3]\n%x = input : f32[2, 3]"
    writes = (
        "%a.0/add_ = aten.add_(%buf, 1) !mutates %buf\n%a.1/mul_ = aten.mul_(%buf, 2) !mutates %buf"
    )
    plain = graph("%end = aten.sin(%x)\nreturn %end", inputs=head)
    edited = graph(f"{writes}\n%end = aten.sin(%x)\nreturn %end", inputs=head)
    (finding,) = difference(plain, edited).findings
    assert len(finding.places[0].changes) == 2


# -- values saved for the backward -----------------------------------------------------------------


def step(op: str, saved: str, count: int = 3) -> list[Graph]:
    """Return forward and backward of some layers that save one value each.

    Args:
        op: the activation; "" if absent.
        saved: the value that the activation's backward takes: "in", "out", or "" if none.
    """
    forward, backward, keep, value, grad = [], [], [], "x", "tangent"
    taken = ["%tangent = tangent : f32[2, 3]"]
    for k in range(count):
        forward.append(f"%l.{k}.fc/neg = aten.neg(%{value})")
        value = f"l.{k}.fc/neg"
        if op:
            forward.append(f"%l.{k}.act/{op} = aten.{op}(%{value})")
            kept = value if saved == "in" else f"l.{k}.act/{op}"
            value = f"l.{k}.act/{op}"
            if saved:
                keep.append(f"save %{kept}")
                taken.append(f"%{kept} = saved : f32[2, 3]")
    for k in reversed(range(count)):
        if op:
            kept = f"l.{k}.fc/neg" if saved == "in" else f"l.{k}.act/{op}"
            operands = f"%{grad}, %{kept}" if saved else f"%{grad}"
            backward.append(f"%l.{k}.act/{op}_backward = aten.{op}_backward({operands})")
            grad = f"l.{k}.act/{op}_backward"
        backward.append(f"%l.{k}.fc/neg.1 = aten.neg(%{grad})")
        grad = f"l.{k}.fc/neg.1"
    return [
        graph("\n".join([*forward, f"return %{value}", *keep])),
        graph("\n".join([*taken, *backward, f"return %{grad}"]), "backward @ aot", inputs=""),
    ]


def lines_about_saved(before: list[Graph], after: list[Graph]) -> list[str]:
    diff = diff_graphs(before, after)
    assert len(diff.findings) == 1, diff
    return [line.strip() for line in str(diff).splitlines() if "for the backward" in line]


def test_added_or_removed_saved_values_are_counted_once() -> None:
    none, gelu = step("", ""), step("gelu", "in")
    assert lines_about_saved(none, gelu) == [
        "saves 3 more values for the backward: + %l.0.fc/neg, + %l.1.fc/neg and 1 more"
    ]
    assert lines_about_saved(gelu, none) == [
        "saves 3 fewer values for the backward: - %l.0.fc/neg, - %l.1.fc/neg and 1 more"
    ]
    assert lines_about_saved(step("", "", 1), step("gelu", "in", 1)) == [
        "saves 1 more value for the backward: + %l.0.fc/neg"
    ]


def test_replaced_saved_values_are_reported() -> None:
    assert lines_about_saved(step("gelu", "in"), step("relu", "out")) == [
        "saves 3 other values for the backward (+ %l.0.act/relu, + %l.1.act/relu and 1 more) "
        "in place of 3 (- %l.0.fc/neg, - %l.1.fc/neg and 1 more)"
    ]


def test_unchanged_saved_values_are_not_mentioned() -> None:
    assert lines_about_saved(step("gelu", "in"), step("silu", "in")) == []
    assert lines_about_saved(step("relu", "out"), step("tanh", "out")) == []


# -- inputs in a different order ------------------------------------------------------------------


def inputs(*names: str, role: str = "input") -> Graph:
    lines = ["%x = input : f32[2, 3]", *(f"%{n} = {role} : f32[2, 3]" for n in names)]
    body = ["%y = aten.mul(%x, %b)", *(f"%{n}/add = aten.add(%y, %{n})" for n in "abcd")]
    returned = ", ".join(f"%{n}/add" for n in "abcd")
    return graph("\n".join([*body, f"return [{returned}]"]), inputs="\n".join(lines))


@pytest.mark.parametrize(
    ("order", "moved"),
    [("abdc", "%c"), ("dbca", "%d, %a"), ("dcba", "%c, %b and 1 more")],
)
def test_reordered_inputs_are_one_finding(order: str, moved: str) -> None:
    diff = difference(inputs(*"abcd"), inputs(*order))
    assert len(diff.findings) == 1
    assert diff.heading() == (f"1 edit: forward: the same 5 inputs in a different order ({moved})")


def test_parameters_of_the_same_names_may_be_in_any_order() -> None:
    assert not difference(inputs(*"abcd", role="parameter"), inputs(*"dbca", role="parameter"))


BACKWARD = """
%x = saved : f32[2]
%t = tangent : f32[2]
%k = own.grad(%t, %x) : (f32[2], f32[2])
%k#0 = operator.getitem(%k, 0) : f32[2]
%k#1 = operator.getitem(%k, {}) : f32[2]
return [%k#0, %k#1]
"""


def test_another_projection_in_the_backward_is_listed_beside_an_edit() -> None:
    sides = [
        (
            graph(f"%a = aten.{op}.default(%x) : f32[2]\nreturn %a\nsave %x"),
            graph(BACKWARD.format(place), "backward @ aot", inputs=""),
        )
        for op, place in (("relu", 1), ("tanh", 0))
    ]
    (finding,) = diff_graphs(*sides).findings
    assert "~ %k#1 = operator.getitem(%k, 0)" in finding.to_text()


@pytest.mark.parametrize(
    ("returned", "line"),
    [("%t, %g", ""), ("%g, %t", "~ return [%g, %t, %b]"), ("None, %t", "~ return [None, %t, %b]")],
)
def test_exchanged_gradients_are_listed_beside_an_edit(returned: str, line: str) -> None:
    before = "%t, None" if "None" in returned else "%t, %g"
    sides = [
        (
            graph(f"%a = aten.{op}.default(%x) : f32[2]\nreturn %a\nsave %x"),
            graph(
                "%t = tangent : f32[2]\n%g = aten.neg.default(%t) : f32[2]\n"
                f"%b = aten.{op}_backward.default(%t) : f32[2]\nreturn [{values}, %b]",
                "backward @ aot",
                inputs="",
            ),
        )
        for op, values in (("relu", before), ("tanh", returned))
    ]
    text = str(diff_graphs(*sides))
    assert line in text
    assert ("~ return" in text) == bool(line)


def test_backward_that_only_takes_other_saved_values_is_not_listed() -> None:
    backward = """
        %a = saved : f32[2]
        %t = tangent : f32[2]
        %b = aten.mul.Tensor(%t, %a) : f32[2]
        return [None, %b]
        """
    forward = "%a = aten.add.Tensor(%x, {}) : f32[2]\n%m = aten.mul(%y, %a) : f32[2]\nreturn %m"
    before, after = (
        [graph(f"{forward.format(eps)}\nsave %a"), graph(backward, "backward @ aot", inputs="")]
        for eps in ("1e-06", "1e-05")
    )
    (finding,) = diff_graphs(before, after).findings
    assert not finding.consequences
    assert len(finding.to_text().splitlines()) == 3


def test_what_follows_from_other_saved_values_is_listed() -> None:
    sides = [
        (
            graph(f"%a = aten.tanh.default(%x) : f32[2]\nreturn %a\nsave %{saved}"),
            graph(
                f"%{saved} = {'saved' if saved == 'a' else 'input'} : f32[2]\n"
                f"%b = aten.{op}.default(%{saved}) : f32[2]\nreturn %b",
                "backward @ aot",
                inputs="",
            ),
        )
        for saved, op in (("x", "sin"), ("a", "exp"))
    ]
    (finding,) = diff_graphs(*sides).findings
    assert finding.summary
    assert "aten.exp" in finding.to_text()


REGION = """%on = torch._C._set_grad_enabled(False)
{}%off = torch._C._set_grad_enabled(True)
{}return %a
"""


@pytest.mark.parametrize("changed", [False, True], ids=["only that", "beside a constant"])
def test_op_that_left_a_region_says_so(changed: bool) -> None:
    line = "%a = torch.add(%x, %y, alpha={})\n"
    diff = difference(
        graph(REGION.format(line.format(1), ""), "forward @ dynamo"),
        graph(REGION.format("", line.format(2 if changed else 1)), "forward @ dynamo"),
    )
    assert "    order   %a follows nothing, before: %on" in str(diff).splitlines()
    assert "alpha: 1 -> 2" in diff.heading() or not changed
    assert any("%a follows nothing" in line for line in diff.findings[0].to_json()["with"])


def test_what_enters_an_added_region_is_listed() -> None:
    line = "%a = torch.add(%x, %y)\n"
    amp = "torch.amp.autocast_mode"
    scope = f'%in = {amp}._enter_autocast("cpu")\n{{}}%out = {amp}._exit_autocast(%in)\n'
    sides = [
        graph(REGION.format(line, ""), "forward @ dynamo"),
        graph(REGION.format("", scope.format(line)), "forward @ dynamo"),
        graph(REGION.format(line, scope.format("")), "forward @ dynamo"),
    ]
    followed = "%in is followed by %a (followed %on)"
    assert followed in str(difference(sides[0], sides[1]))
    assert "followed by" not in str(difference(sides[0], sides[2]))


def test_what_an_added_write_precedes_is_listed() -> None:
    write = "%w = aten.mul_.Tensor(%x, 2) : f32[2, 3] !mutates %x\n"
    read = "%a = aten.sin.default(%x) : f32[2, 3]{}\n"
    old = graph(read.format("") + "return %a")
    before = graph(write + read.format(" after %w") + "return %a")
    after = graph(read.format("") + write + "return %a")
    assert "    order   %w is followed by %a" in str(difference(old, before)).splitlines()
    assert "followed by %a" not in str(difference(old, after))


def test_another_dtype_of_an_input_is_listed_beside_an_edit_of_its_reader() -> None:
    sides = [
        graph(
            f"%a = aten.embedding.default(%w, %i, {padding}) : f32[2]\nreturn %a",
            inputs=f"%w = input : f32[4]\n%i = input : {dtype}[2]",
        )
        for padding, dtype in ((0, "i64"), (1, "i32"), (1, "i64"))
    ]
    larger = graph(
        "%a = aten.embedding.default(%w, %i, 1) : f32[2]\nreturn %a",
        inputs="%w = input : f32[5]\n%i = input : i64[2]",
    )
    assert "~ %w = input : f32[5]" in str(difference(sides[0], larger))
    line = "    with    ~ %i = input : i32[2]"
    assert line in str(difference(sides[0], sides[1])).splitlines()
    assert line not in str(difference(sides[0], sides[2])).splitlines()


def test_gradients_in_another_order_are_said_beside_an_edit_of_the_forward() -> None:
    forward = "%a = aten.{}.default(%x) : f32[4]\nreturn %a\nsave %a"
    backward = """
        %a = saved : f32[4]
        %t = tangent : f32[4]
        %c = aten.cos.default(%a) : f32[4]
        %m = aten.mul.Tensor(%t, %c) : f32[4]
        return [%m, %c]
    """
    swapped = backward.replace("[%m, %c]", "[%c, %m]")
    old, same, new = (
        [graph(forward.format(op)), graph(text, "backward @ aot", inputs="")]
        for op, text in (("relu", backward), ("tanh", backward), ("tanh", swapped))
    )
    said = "the returned values differ"
    assert said not in diff_graphs(old, same).to_text()
    assert said in diff_graphs(old, new).to_text()
