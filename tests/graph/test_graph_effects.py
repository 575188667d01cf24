"""Side effects on one resource keep their order, and independent ones are unordered."""

from __future__ import annotations

import itertools

import pytest
from graph.build import INPUTS, difference, graph

from pytest_torchgraph.graph import Graph


def orders(*lines: str, tail: str) -> list[Graph]:
    """Return the graphs that have these lines in every order."""
    return [graph("\n".join([*order, tail])) for order in itertools.permutations(lines)]


def test_random_draws_with_swapped_consumers_differ() -> None:
    draws = "%a = aten.rand([2]) : f32[2] !random\n%b = aten.rand([2]) : f32[2] !random\n"
    used = draws + "%p = aten.sin(%a)\n%q = aten.cos(%b)\nreturn [%p, %q]"
    swapped = draws + "%p = aten.sin(%b)\n%q = aten.cos(%a)\nreturn [%p, %q]"
    assert graph(used) != graph(swapped)
    assert graph(used.replace(" !random", "")) == graph(swapped.replace(" !random", ""))


def test_read_before_a_write_differs_from_a_read_after_it() -> None:
    write = "%w = aten.add_(%x, 1) : f32[2, 3] !mutates %x"
    before = graph(f"%r = aten.sin(%x)\n{write}\nreturn %r")
    after = graph(f"{write}\n%r = aten.sin(%x) after %w\nreturn %r")
    assert before != after
    assert before == graph(f"{write}\n%r = aten.sin(%x)\nreturn %r"), (
        "position without an effect counted"
    )


def test_a_read_between_two_writes_knows_which_it_follows() -> None:
    writes = [
        "%v = aten.add_(%x, 1) !mutates %x",
        "%w = aten.add_(%x, 1) !mutates %x after %v",
    ]
    first, second = (
        graph("\n".join([*writes, f"%r = aten.sin(%x) after {name}", "return %r"]))
        for name in ("%v", "%w")
    )
    assert first != second


def test_two_writes_to_a_value_born_in_the_graph_keep_their_order() -> None:
    text = """
        %c = aten.clone(%x)
        %v = aten.{}(%c, 2) !mutates %c
        %w = aten.{}(%c, 2) !mutates %c after %v
        return %c
    """
    assert graph(text.format("add_", "mul_")) != graph(text.format("mul_", "add_"))
    assert graph(text.format("add_", "mul_")) == graph(text.format("add_", "mul_"))


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
    forth, back = orders(f"%a = f(1) {one}", f"%b = g(2) {two}", tail="return %x")
    assert (forth != back) is ordered


def test_an_op_that_writes_to_its_other_argument_is_another_op() -> None:
    first, second = (
        graph(f"%a = own.write(%x, %y) : f32[2] !mutates %{name}\nreturn %a") for name in "xy"
    )
    assert first != second
    assert len(difference(first, second).findings) == 1


def test_opaque_effect_is_a_barrier() -> None:
    lines = ["%a = f() !random", "%b = g() !opaque", "%c = h() !mutates %x"]
    abc, acb, bac, bca, cab, cba = orders(*lines, tail="return %x")
    assert acb == cab
    assert bac == bca
    for one, two in itertools.combinations((abc, acb, bac, cba), 2):
        assert one != two


def test_write_targets_are_compared() -> None:
    write = "%w = f(%x, %y) !mutates {}\nreturn %w"
    assert graph(write.format("%x")) == graph(write.format("%x"))
    to_x, to_y = (
        graph(f"%w = f(%x, %y) !mutates {name}\n%v = aten.add_(%x) !mutates %x\nreturn %w")
        for name in ("%x", "%y")
    )
    assert to_x != to_y


@pytest.mark.parametrize("name", ["n", ""])
def test_two_reads_of_one_attribute_are_one_storage(name: str) -> None:
    reads = f'%a = get_attr["{name}"] : i64[]\n%b = get_attr["{name}"] : i64[]\n'
    forth, back = (
        graph(
            f"{reads}%v = aten.{p}_({i}) !mutates {i}\n%w = aten.{q}_({j}) !mutates {j}\nreturn %x"
        )
        for p, q, i, j in (("add", "mul", "%a", "%b"), ("mul", "add", "%b", "%a"))
    )
    assert forth != back


def test_an_effect_counts_although_nothing_uses_its_result() -> None:
    assert graph("%w = aten.add_(%x, 1) !mutates %x\nreturn %y") != graph("return %y")
    pure, random = graph("%w = f()\nreturn %y"), graph("%w = f() !random\nreturn %y")
    assert pure != random


def test_an_effect_that_is_named_twice_is_one() -> None:
    once, twice = (
        graph(f"%a = f() {effects}\nreturn %a") for effects in ("!random", "!random !random")
    )
    assert difference(once, twice)
    assert not difference(twice, twice)
    for effects in ("!opaque !random", "!random !opaque", "!mutates %x !mutates %x"):
        assert difference(once, graph(f"%a = f() {effects}\nreturn %a"))


def test_a_call_has_the_effects_of_its_body() -> None:
    body = """
body: forward {
  %a = input : f32[2, 3]
  %n = aten.native_dropout.default(%a, 0.5, True) !random
  return %n
}"""
    call = "%c = higher_order.invoke_subgraph(@body, %x)\n"
    draw = "%d = aten.rand.default([5]) !random\n"

    def swapped(inputs: str) -> list[Graph]:
        orders = (call + draw, draw + call)
        return [graph(order + "return [%c, %d]", inputs=inputs) for order in orders]

    first, second = swapped(body + INPUTS)
    assert first != second
    assert difference(first, second)
    first, second = swapped(body.replace(" !random", "") + INPUTS)
    assert first == second


def test_saving_the_random_state_of_a_draw_is_a_draw() -> None:
    call = "%c = higher_order.run_and_save_rng_state(aten.native_dropout.default, %x, 0.5, True)\n"
    draw = "%d = aten.rand.default([5]) !random\n"
    tail = "return [%c, %d]"
    assert graph(call + draw + tail) != graph(draw + call + tail)
