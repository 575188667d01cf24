"""Different spellings of torch releases are equal: no finding, and the same stored text."""

from __future__ import annotations

import pytest

from pytest_torchgraph import Graph
from pytest_torchgraph.graph import canonical, diff_graphs
from pytest_torchgraph.graph.equality.canonical_form import canonical_graph

FORWARD = """torchgraph 1

forward @ {level} {{
  %x = input : f32[2, 4]
  %act/tanh = aten.tanh.default(%x) : f32[2, 4]
{aliases}  %act/view = aten.{reshape}.default(%act/tanh, [8]) : f32[8]
  return %act/view
{saved}}}
"""


def forward(
    level: str = "aot", aliases: tuple[str, ...] = (), reshape: str = "view", saved: str = "tanh"
) -> Graph:
    lines = [
        f"  %act/{name} = aten.detach.default(%act/{of}) : f32[2, 4]\n"
        for name, _, of in (alias.partition("=") for alias in aliases)
    ]
    text = FORWARD.format(
        level=level,
        aliases="".join(lines),
        reshape=reshape,
        saved="".join(f"  save %act/{name}\n" for name in saved.split()),
    )
    return Graph.from_text(text)


def backward(*saved: str) -> Graph:
    inputs = "".join(f"  %act/{name} = saved : f32[2, 4]\n" for name in saved)
    factors = ", ".join(f"%act/{name}" for name in (saved[0], saved[-1]))
    return Graph.from_text(
        "torchgraph 1\n\nbackward @ aot {\n"
        f"{inputs}"
        "  %tangent.0 = tangent : f32[2, 4]\n"
        f"  %mul = aten.mul.Tensor({factors}) : f32[2, 4]\n"
        "  %mul.1 = aten.mul.Tensor(%mul, %tangent.0) : f32[2, 4]\n"
        "  return %mul.1\n}\n"
    )


@pytest.mark.parametrize("reshape", ["_unsafe_view", "reshape"])
def test_reshapes_of_equal_values_are_equal(reshape: str) -> None:
    one, other = forward(), forward(reshape=reshape)
    assert one == other
    assert hash(one) == hash(other)
    assert not diff_graphs((one,), (other,))
    assert other.op_counts[f"aten.{reshape}.default"] == 1


def test_view_as_another_dtype_is_a_different_op() -> None:
    text = forward().to_text()
    assert Graph.from_text(text.replace("view.default", "view.dtype")) != forward()


def test_detach_below_autograd_is_an_alias() -> None:
    plain = forward()
    wrapped = forward(aliases=("detach=tanh", "detach.1=detach"), saved="detach.1")
    assert plain == wrapped
    assert hash(plain) == hash(wrapped)
    assert not diff_graphs((plain,), (wrapped,))
    assert wrapped.op_counts["aten.detach"] == 2


@pytest.mark.parametrize("level", ["export", "dynamo"])
def test_detach_above_autograd_counts(level: str) -> None:
    assert forward(level) != forward(level, aliases=("detach=tanh",), saved="detach")


EXPORTED = """torchgraph 1

forward @ {level} {{
  %x = input : f32[2, 4]
{before}  %view = aten.view.default({viewed}, [8]) : f32[8]
{after}  return %view
}}
"""


def exported(before: str = "", viewed: str = "%x", after: str = "", level: str = "export") -> Graph:
    return Graph.from_text(EXPORTED.format(before=before, viewed=viewed, after=after, level=level))


CONTIGUOUS = "  %contiguous = aten.contiguous.default(%x) : f32[2, 4]\n"
EMPTY = "  %empty = aten.empty.memory_format([0]) : f32[0]\n"


def test_exported_contiguous_and_view_are_a_reshape() -> None:
    plain, written_out = exported(), exported(CONTIGUOUS, "%contiguous")
    assert plain == written_out
    assert hash(plain) == hash(written_out)
    assert not diff_graphs((plain,), (written_out,))
    assert written_out.op_counts["aten.contiguous"] == 1
    assert canonical_graph(written_out).to_text() == plain.to_text()


@pytest.mark.parametrize(
    "other",
    [
        exported(CONTIGUOUS, "%contiguous", "  %sin = aten.sin.default(%contiguous) : f32[2, 4]\n"),
        exported(CONTIGUOUS),
        exported(
            CONTIGUOUS.replace("(%x)", "(%x, memory_format=torch.channels_last)"), "%contiguous"
        ),
        exported(CONTIGUOUS, "%contiguous", level="aot"),
    ],
    ids=["used by another op", "not used", "of another format", "of another level"],
)
def test_other_contiguous_ops_count(other: Graph) -> None:
    assert canonical_graph(other) is other


def test_unused_memory_of_an_exported_program_is_left_out() -> None:
    assert exported() == exported(EMPTY)
    assert not diff_graphs((exported(),), (exported(EMPTY),))


def test_memory_that_is_used_or_eager_counts() -> None:
    used = "  %fill_ = aten.fill_.Scalar(%empty, 1) : f32[0] !mutates %empty\n"
    assert exported() != exported(EMPTY + used)
    assert exported(level="dispatch") != exported(EMPTY, level="dispatch")


def test_backward_inputs_have_the_names_of_aliased_values() -> None:
    plain = forward(), backward("tanh")
    wrapped = forward(aliases=("detach=tanh",), saved="detach"), backward("detach")
    twice = forward(aliases=("detach=tanh",), saved="tanh detach"), backward("tanh", "detach")
    texts = {"".join(graph.to_text() for graph in canonical(each)) for each in (plain, wrapped)}
    assert len(texts) == 1
    assert canonical(twice)[1] == plain[1]
    assert not diff_graphs(plain, twice)


def test_backward_with_a_value_of_the_alias_name_keeps_it() -> None:
    taken = Graph.from_text(backward("detach").to_text().replace("%mul", "%act/tanh"))
    _, found = canonical((forward(aliases=("detach=tanh",), saved="detach"), taken))
    assert [node.name for node in found.inputs] == ["act/detach", "tangent.0"]
    assert found == taken


def test_bodies_of_higher_order_ops_are_unified_too() -> None:
    text = """torchgraph 1

forward @ aot {
  body: forward {
    %x = input : f32[2]
    %view = aten.VIEW.default(%x, [2, 1]) : f32[2, 1]
    return %view
  }
  %x = input : f32[2]
  %call = higher_order.wrap(@body, %x) : f32[2, 1]
  return %call
}
"""
    one, other = (Graph.from_text(text.replace("VIEW", op)) for op in ("view", "_unsafe_view"))
    assert one == other
    assert one.to_text() == canonical_graph(other).to_text()


def test_canonical_form_is_idempotent() -> None:
    wrapped = forward(aliases=("detach=tanh",), reshape="reshape", saved="detach")
    once = canonical_graph(wrapped)
    assert canonical_graph(once) is once
    assert once == wrapped


def test_alias_in_an_eager_graph_keeps_names_of_other_backwards() -> None:
    eager = """torchgraph 2

eager_0 {
  %x = input : f32[2]
  %detach = aten.detach.default(%x) : f32[2]
  %sin = aten.sin.default(%detach) : f32[2]
  return %sin
}
"""
    backward = """torchgraph 4

backward @ aot {
  %detach = saved : f32[2]
  %mul = aten.mul.Tensor(%detach, 2) : f32[2]
  return %mul
}
"""
    first, second = canonical([Graph.from_text(eager), Graph.from_text(backward)])

    assert "aten.sin.default(%x)" in first.to_text()
    assert (first.eager, first.runs) == (True, 1)
    assert second.to_text() == backward
