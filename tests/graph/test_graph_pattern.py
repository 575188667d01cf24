"""Patterns of ops that use each other's results, and their order."""

from __future__ import annotations

import pytest
import torch

from pytest_torchgraph import Graph, capture

TEXT = """torchgraph 1
via aot, torch 2.13.0

forward {
  %x = input : f32[2, 4]
  %w = parameter : f32[4, 4]
  %a/mm = aten.mm.default(%x, %w) : f32[2, 4]
  %a/gelu = aten.gelu.default(%a/mm) : f32[2, 4]
  %b/addmm = aten.addmm.default(%x, %a/gelu, %w) : f32[2, 4]
  %b/max = aten.max.dim(%b/addmm, 1) : (f32[2], i64[2])
  %b/getitem = operator.getitem(%b/max, 0) : f32[2]
  %b/gelu = aten.gelu.default(%b/getitem) : f32[2]
  %c/sum = aten.sum.default(%b/gelu) : f32[]
  return %c/sum
}
"""


def graph(text: str = TEXT) -> Graph:
    return Graph.from_text(text)


def matches_of(pattern: str) -> list[str]:
    return [str(match) for match in graph().find_pattern(pattern)]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("aten.mm -> aten.gelu", ["%a/mm .. %a/gelu"]),
        ("aten.mm->aten.gelu", ["%a/mm .. %a/gelu"]),
        ("aten.max -> aten.gelu", ["%b/max .. %b/gelu"]),
        ("aten.mm ~> aten.gelu", ["%a/mm .. %a/gelu", "%a/mm .. %b/gelu"]),
        ("aten.gelu ~> aten.sum", ["%b/gelu .. %c/sum"]),
        ("aten.mm -> aten.gelu ~> aten.sum", ["%a/mm .. %a/gelu .. %c/sum"]),
        ("aten.mm -> aten.gelu -> aten.sum", []),
        ("aten.max | aten.mm -> aten.gelu", ["%a/mm .. %a/gelu", "%b/max .. %b/gelu"]),
        ("aten.gelu -> aten.mm | aten.addmm", ["%a/gelu .. %b/addmm"]),
        ("aten.gelu ~> aten.gelu", ["%a/gelu .. %b/gelu"]),
        ("aten.sum -> aten.mm", []),
        ("aten.*mm.default -> aten.*", ["%a/mm .. %a/gelu", "%b/addmm .. %b/max"]),
    ],
)
def test_pattern_finds_matching_nodes(pattern: str, matches: list[str]) -> None:
    assert matches_of(pattern) == matches
    if matches:
        graph().assert_pattern(pattern)
        graph().assert_pattern(pattern, count=len(matches))
        with pytest.raises(AssertionError, match="expected none, found"):
            graph().assert_no_pattern(pattern)
    else:
        graph().assert_no_pattern(pattern)
        with pytest.raises(AssertionError, match="expected at least 1, found 0"):
            graph().assert_pattern(pattern)


@pytest.mark.slow(
    "further cases; a few are in every run",
    only=["aten.mm -> aten.gelu | aten.gelo-'aten.gelo' names no op"],
)
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("aten.mm", "is a pattern of a single op"),
        ("", "is not a valid pattern: write"),
        ("aten.mm -> ", "is not a valid pattern: write"),
        ("aten.mm | -> aten.mm", "is not a valid pattern: write"),
        ("aten.mm > aten.gelu", "is not a valid pattern: write"),
        ("aten.mm aten.gelu -> aten.mm", "is not a valid pattern: write"),
        ("aten.mm -> aten.gelo", "'aten.gelo' names no op"),
        ("aten.mm -> aten.gelu | aten.gelo", "'aten.gelo' names no op"),
        ("aten.linear -> aten.gelu", "did you mean aten.addmm or aten.mm"),
    ],
)
def test_pattern_that_can_never_match_is_an_error(pattern: str, message: str) -> None:
    for check in (graph().find_pattern, graph().assert_pattern, graph().assert_no_pattern):
        with pytest.raises(ValueError, match=message):
            check(pattern)
    with pytest.raises(TypeError, match="3 is not a pattern"):
        graph().find_pattern(3)  # type: ignore[arg-type]


def test_pattern_failure_lists_the_ops_found_instead() -> None:
    with pytest.raises(AssertionError) as error:
        graph().assert_pattern("aten.addmm -> aten.gelu", count=2)
    assert str(error.value) == (
        "aten.addmm -> aten.gelu: expected 2, found 0\n"
        "found 1 of aten.addmm\n"
        "found 2 of aten.gelu\n"
        "with ~> instead of -> (at any distance): found 1\n"
        "  aten.gelu.default uses aten.mm.default\n"
        "      %a/gelu\n"
        "  aten.gelu.default uses aten.max.dim\n"
        "      %b/gelu"
    )


BEGINS = "found 1 of aten.mm -> aten.gelu"
FAR = "with ~> instead of -> (at any distance): found 1"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("aten.mm -> aten.gelu -> aten.sum", [BEGINS, FAR]),
        ("aten.mm -> aten.gelu ~> aten.max -> aten.sum", [FAR]),
        ("aten.mm -> aten.sum", [FAR]),
        ("aten.sum ~> aten.mm", []),
    ],
)
def test_pattern_failure_has_the_longest_partial_match(pattern: str, expected: list[str]) -> None:
    with pytest.raises(AssertionError) as error:
        graph().assert_pattern(pattern)
    lines = str(error.value).splitlines()
    assert [line for line in (BEGINS, FAR) if line in lines] == expected


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.up(x))


def test_pattern_failure_names_modules_and_lines() -> None:
    captured = capture(Net(), torch.ones(2, 4))
    captured.assert_pattern("aten.addmm -> aten.gelu")
    with pytest.raises(AssertionError) as error:
        captured.assert_no_pattern("aten.addmm -> aten.gelu")
    lines = str(error.value).splitlines()
    assert lines[:2] == [
        "aten.addmm -> aten.gelu: expected none, found 1",
        "  %up/addmm .. %gelu",
    ]
    assert lines[2].startswith("      up  ")
    assert "return torch.nn.functional.gelu(self.up(x))" in lines[2]


def test_pattern_follows_reads_of_a_written_tensor() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.sin_()
        return y.cos()

    captured = capture(step, torch.ones(3), via="dispatch")
    captured.assert_pattern("aten.sin_ -> aten.cos")
    captured.assert_pattern("aten.mul ~> aten.cos", count=1)


def across_graphs(x: torch.Tensor) -> torch.Tensor:
    """`sin` uses `exp`, and `cos` uses `tan`, each across a graph break."""
    a, b = x.exp(), x.tan()
    torch._dynamo.graph_break()
    return a.relu().sin() + b.cos()


@pytest.mark.parametrize("via", ["dynamo", "aot"])
def test_pattern_crosses_a_graph_break(via: str) -> None:
    captured = capture(across_graphs, torch.ones(3), via=via, backward=False)
    exp, relu, tan, sin, cos = (
        f"{'Tensor' if via == 'dynamo' else 'aten'}.{op}"
        for op in ("exp", "relu", "tan", "sin", "cos")
    )
    assert len(captured.graphs) == 2
    captured.assert_pattern(f"{exp} ~> {sin}", count=1)
    captured.assert_pattern(f"{exp} ~> {relu} -> {sin}", count=1)
    captured.assert_pattern(f"{tan} ~> {cos}", count=1)
    with pytest.raises(AssertionError, match=r"expected none, found 1\n  %exp \.\. %sin\n"):
        captured.assert_no_pattern(f"{exp} ~> {sin}")
    captured.assert_pattern(f"{exp} -> {relu}", count=1)
    for absent in (f"{exp} ~> {cos}", f"{tan} ~> {sin}", f"{sin} ~> {exp}", f"{exp} -> {sin}"):
        captured.assert_no_pattern(absent)
    captured.graphs[1].assert_no_pattern(f"{relu} ~> {cos}")


def test_pattern_at_any_distance_follows_eager_ops_at_a_break() -> None:
    @torch.compiler.disable
    def eager(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def step(x: torch.Tensor) -> torch.Tensor:
        return eager(x.exp()).tan()

    captured = capture(step, torch.ones(3), via="aot", backward=False)
    for pattern in ("aten.exp ~> aten.sin ~> aten.tan", "aten.exp ~> aten.tan"):
        captured.assert_pattern(pattern, count=1)
    captured.assert_no_pattern("aten.tan ~> aten.sin")


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_pattern_at_any_distance_does_not_lead_into_the_backward(via: str) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x.exp().sin() * 2).tanh()

    captured = capture(step, torch.ones(3, requires_grad=True), via=via)
    assert captured.backward.count("aten.cos") == 1  # of the saved result of exp
    captured.assert_pattern("aten.exp ~> aten.tanh", count=1)
    captured.assert_no_pattern("aten.exp ~> aten.cos")


def test_assert_order_compares_every_pair() -> None:
    graph().assert_order("aten.mm", "aten.addmm")
    graph().assert_order("aten.gelu", "aten.sum")
    with pytest.raises(AssertionError) as error:
        graph().assert_order("aten.gelu", "aten.max")
    assert str(error.value) == (
        "aten.gelu after aten.max in forward: expected every aten.gelu before every aten.max\n"
        "  %b/max comes first\n"
        "      %b/max\n"
        "  %b/gelu comes later\n"
        "      %b/gelu"
    )
    with pytest.raises(
        AssertionError, match=r"aten.cos does not occur, .*: capture.op_counts lists"
    ):
        graph().assert_order("aten.mm", "aten.cos")
    with pytest.raises(ValueError, match=r"'aten.coss' names no op"):
        graph().assert_order("aten.mm", "aten.coss")


def test_assert_order_checks_each_graph_with_both_ops() -> None:
    captured = capture(Net(), torch.ones(2, 4))
    captured.assert_order("aten.addmm", "aten.gelu")
    with pytest.raises(AssertionError, match=r"no graph runs both aten.gelu and aten.mm"):
        captured.assert_order("aten.gelu", "aten.mm")


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
def test_pattern_search_in_a_long_chain_is_fast() -> None:
    lines = [f"  %n{i} = aten.relu.default(%n{i - 1}) : f32[2]" for i in range(1, 20_000)]
    text = "\n".join(
        ["torchgraph 1", "via aot, torch 2.13.0", "", "forward {", "  %n0 = input : f32[2]", *lines]
    )
    long = graph(f"{text}\n  %end = aten.sum.default(%n19999) : f32[]\n  return %end\n}}\n")
    (match,) = long.find_pattern("aten.relu ~> aten.sum")
    assert match.nodes[0].name == "n19999"
    assert len(long.find_pattern("aten.relu ~> aten.relu")) == 19_998


def test_assert_order_ignores_ops_in_two_branches() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(
            x.sum() > 0, lambda x: (x @ x.t()).relu(), lambda x: (x @ x.t()).sin().neg(), (x,)
        ).exp()

    captured = capture(branches, torch.ones(4, 4))
    captured.assert_order("aten.mm", "aten.relu")  # the second product is in the other branch
    captured.assert_order("aten.sin", "aten.neg")
    captured.assert_order("aten.sum", "aten.mm")
    captured.assert_order("aten.mm", "aten.exp")
    with pytest.raises(AssertionError, match=r"aten\.neg after aten\.sin"):
        captured.assert_order("aten.neg", "aten.sin")
    with pytest.raises(AssertionError, match=r"aten\.exp after aten\.relu"):
        captured.assert_order("aten.exp", "aten.relu")
    with pytest.raises(AssertionError, match=r"both aten\.relu and aten\.sin, so they") as error:
        captured.assert_order(torch.ops.aten.relu, "aten.sin")
    place = "  inference: 1 of aten.relu, 1 of aten.sin, in different subgraphs of one op"
    assert str(error.value).splitlines()[1:] == [place]


def test_scores_of_an_attention_do_not_depend_on_its_value() -> None:
    attention = Graph.from_text("""torchgraph 4

forward: forward @ aot {
  score: forward {
    %s = input : f32[]
    %b = input : i32[]
    %h = input : i32[]
    %m = input : i32[]
    %n = input : i32[]
    %sin = aten.sin.default(%s) : f32[]
    return %sin
  }
  mask: forward {
    %b = input : i32[]
    %h = input : i32[]
    %m = input : i32[]
    %n = input : i32[]
    %ge = aten.ge.Tensor(%m, %n) : b8[]
    return %ge
  }
  %q = input : f32[1, 1, 8, 8]
  %k = input : f32[1, 1, 8, 8]
  %v = input : f32[1, 1, 8, 8]
  %cos = aten.cos.default(%q) : f32[1, 1, 8, 8]
  %relu = aten.relu.default(%v) : f32[1, 1, 8, 8]
  %flex = higher_order.flex_attention(%cos, %k, %relu, @score, [8, @mask], 1.0, {}, [], [])
  return %flex
}
""")
    assert attention.find_pattern("aten.cos ~> aten.sin")
    assert not attention.find_pattern("aten.relu ~> aten.sin")
