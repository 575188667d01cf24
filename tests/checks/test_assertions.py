"""Each assertion is shown failing, with its message, and refused if it would check nothing."""

from __future__ import annotations

import operator
import re
from typing import Any

import pytest
import torch
from mechanisms.models import example, mlp
from torch import Tensor, nn

from pytest_torchgraph import Capture, Graph, capture, from_fx
from pytest_torchgraph.api.contents import Contents
from pytest_torchgraph.graph import Header


@pytest.fixture(scope="module")
def captured() -> Capture:
    return capture(mlp(), example(4, 8))


@pytest.fixture(scope="module")
def traced() -> Graph:
    return from_fx(torch.fx.symbolic_trace(mlp()))


@pytest.mark.slow("further cases; a few are in every run", only=["aten.addmm-4"])
@pytest.mark.parametrize(
    ("op", "count"),
    [
        ("aten.addmm", 4),
        ("aten.add*", 9),
        (torch.ops.aten.addmm, 4),
        ("aten.addmm", (4, None)),
        ("aten.addmm", (None, 4)),
        ("aten.addmm", (3, 5)),
        ("aten.addmm", {"cpu": 4, "cuda": 1}),
        ("aten.addmm", {"cpu": (1, 4)}),
        ("aten.sin", 0),
    ],
)
def test_correct_counts_pass(captured: Capture, op: Any, count: Any) -> None:
    captured.assert_op_counts({op: count})


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (5, "expected 5, found 4"),
        (3, "expected 3, found 4"),
        ((5, None), "expected at least 5, found 4"),
        ((0, 3), "expected at most 3, found 4"),
        ({"cpu": 0}, "expected 0, found 4"),
    ],
)
def test_wrong_counts_fail_and_list_the_ops(captured: Capture, count: Any, expected: str) -> None:
    with pytest.raises(AssertionError) as caught:
        captured.assert_op_counts({"aten.addmm": count})
    message = str(caught.value)
    assert f"aten.addmm: {expected}" in message
    assert "models.py" in message
    assert "blocks.0" in message
    assert re.search(r"ops captured:\n +\d+ aten\.", message)


def test_assertions_on_a_single_graph(captured: Capture) -> None:
    captured.forward.assert_op_counts({"aten.addmm": 4, "aten.mm": 0})
    with pytest.raises(AssertionError, match=r"aten\.mm: expected 0, found 7"):
        captured.backward.assert_op_counts({"aten.mm": 0})


def test_exact_names_the_ops_that_no_pattern_matches(captured: Capture) -> None:
    captured.forward.assert_op_counts({"aten.*": (1, None)}, exact=True)
    with pytest.raises(AssertionError, match=r"aten\.relu\.default: matches no pattern"):
        captured.forward.assert_op_counts({"aten.addmm": 4}, exact=True)


@pytest.mark.parametrize("glob", ["aten.*_", "aten.[!_]*_", "aten.su?_"])
def test_glob_that_ends_before_the_overload_finds_the_op(glob: str) -> None:
    written = capture(lambda x: x.clone().sub_(1.0), torch.ones(2), via="dispatch")
    with pytest.raises(AssertionError, match=rf"{re.escape(glob)}: found 1\n.*sub_\(1\.0\)"):
        written.assert_no_ops(glob)


def test_missing_device_in_a_count_is_named(captured: Capture) -> None:
    with pytest.raises(ValueError, match=r"missing count for device 'cpu' \(given: 'cuda'"):
        captured.assert_op_counts({"aten.addmm": {"cuda": 4}})


def test_places_of_a_glob_name_the_ops() -> None:
    def target(x: Tensor) -> Tensor:
        return (x.double().cos() * 2).float()

    doubles = capture(target, torch.ones(3))
    with pytest.raises(AssertionError) as caught:
        doubles.assert_no_ops("*", dtype="f64")
    for op in ("_to_copy.default", "cos.default", "mul.Tensor"):
        assert re.search(rf"^ +aten\.{op}  .*return \(x\.double", str(caught.value), re.MULTILINE)


@pytest.mark.parametrize("count", ["4", 4.0, True, None, (1, 2, 3), [None], {"cpu": "x"}])
def test_invalid_op_count_is_refused(captured: Capture, count: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a valid count"):
        captured.assert_op_counts({"aten.addmm": count})


def test_counts_that_no_number_satisfies_are_refused(captured: Capture) -> None:
    for count in (-1, (3, 2)):
        with pytest.raises(ValueError, match=r"no number satisfies the count"):
            captured.assert_op_counts({"aten.addmm": count})


def test_ops_that_must_not_occur_are_shown_with_their_lines(captured: Capture) -> None:
    captured.assert_no_ops("aten._local_scalar_dense", "aten._to_copy")
    with pytest.raises(AssertionError) as caught:
        captured.assert_no_ops("aten._to_copy", "aten.relu")
    message = str(caught.value)
    assert "aten.relu: found 3" in message
    assert "x = x + torch.relu(block(x))" in message
    assert "_to_copy" not in message


def test_checks_without_an_expectation_are_refused(captured: Capture) -> None:
    with pytest.raises(TypeError, match=r"checks nothing"):
        captured.assert_no_ops()
    with pytest.raises(TypeError, match=r"checks nothing"):
        captured.assert_op_counts({})
    with pytest.raises(TypeError, match=r"checks nothing"):
        captured.forward.assert_op_counts({})
    with pytest.raises(TypeError, match=r"expected a mapping"):
        captured.assert_op_counts(["aten.mm"])  # type: ignore[arg-type]


def test_count_that_allows_any_number_is_refused_alone(captured: Capture) -> None:
    for check in (
        lambda: captured.assert_op_counts({"aten.relu": (0, None), "aten.mm": (None, None)}),
        lambda: captured.assert_op_counts({"aten.relu": {"cpu": (0, None), "cuda": 1}}),
        lambda: captured.assert_pattern("aten.addmm -> aten.relu", count=(0, None)),
        lambda: captured.assert_graph_count(forward=(0, None)),
        lambda: captured.assert_graph_breaks(count=(0, None)),
        lambda: captured.assert_graph_breaks(max={"cpu": (0, None)}),
    ):
        with pytest.raises(TypeError, match=r"checks nothing, because \(0, None\)"):
            check()
    captured.assert_op_counts({"aten.relu": (0, None), "aten.add": (1, None)})
    captured.assert_graph_count(forward=1, backward=(0, None))
    with pytest.raises(AssertionError, match=r"matches no pattern"):
        captured.assert_op_counts({"aten.relu": (0, None)}, exact=True)


def test_empty_capture_fails_every_check() -> None:
    empty = Capture(Contents.of_program(()), Header("aot"))
    with pytest.raises(AssertionError, match=r"no graph was captured"):
        empty.assert_no_ops("aten.mm")
    with pytest.raises(AssertionError, match=r"no graph was captured"):
        empty.assert_op_counts({"aten.mm": 0})
    with pytest.raises(AssertionError, match=r"forward: expected 1, found 0"):
        empty.assert_graph_count()


def test_graph_counts(captured: Capture) -> None:
    captured.assert_graph_count(forward=1, backward=1)
    captured.assert_graph_count(total=2)
    captured.assert_graph_count()
    with pytest.raises(AssertionError) as caught:
        captured.assert_graph_count(forward=2, backward=(2, None), total=(0, 1))
    message = str(caught.value)
    assert "forward: expected 2, found 1" in message
    assert "backward: expected at least 2, found 1" in message
    assert "total: expected at most 1, found 2" in message
    assert re.search(r"backward: backward, \d+ ops", message)


def test_an_inference_graph_counts_as_a_forward() -> None:
    with torch.no_grad():
        captured = capture(mlp(), example(4, 8))
    captured.assert_graph_count(forward=1, backward=0)


# -- patterns --------------------------------------------------------------------------------------


@pytest.mark.slow(
    "further cases; a few are in every run",
    only=[
        "*names no op",
        "a*.item-did you mean aten\\\\._local_scalar_dense\\\\?",
        "all_reduce-names no op .*: did you mean .*_c10d_functional\\\\.all_reduce\\\\b",
        "aten.adm-names no op that can occur .*did you mean .*aten\\\\.addmm|aten\\\\.add",
        "aten.mm.defualt-did you mean .*aten\\\\.mm\\\\.default",
    ],
)
@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("aten.item", r"composite op.*did you mean aten\._local_scalar_dense\?"),
        ("aten.adm", r"names no op that can occur .*did you mean .*aten\.addmm|aten\.add"),
        ("aten.mm.defualt", r"did you mean .*aten\.mm\.default"),
        ("mm", r"names no op .*: did you mean aten\.mm\b"),
        ("all_reduce", r"names no op .*: did you mean .*_c10d_functional\.all_reduce\b"),
        (
            "torch.relu",
            r"capture via 'dynamo' or 'fx', or for a watch, use capture\.at\('dynamo'\)",
        ),
        (torch.relu, r"'torch\.relu' cannot occur in a graph at level 'aot'"),
        ("aten.zzz*", r"names no op .*: did you mean"),
        ("*itemm*", "names no op"),
        ("math.qqqqqqq*", r"names no op .*: capture\.op_counts lists the captured ops"),
        ("a*.item", r"did you mean aten\._local_scalar_dense\?"),
        ("aten.relu_", r"functional .*did you mean aten\.relu\?"),
        ("aten.mul.out", r"functional .*did you mean aten\.mul\?"),
        ("torch.ops.aten.mm", r"names no op .*: did you mean aten\.mm\?"),
    ],
)
def test_pattern_that_can_never_match_is_refused(
    captured: Capture, pattern: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        captured.assert_no_ops(pattern)


def test_graph_without_nodes_fails_every_assertion() -> None:
    graph = from_fx(torch.fx.Graph())
    for check in (
        lambda: graph.assert_no_ops("torch.relu"),
        lambda: graph.assert_op_counts({"torch.relu": 0}),
        lambda: graph.assert_no_pattern("torch.relu -> torch.relu"),
        lambda: graph.assert_collectives({}),
    ):
        with pytest.raises(AssertionError, match="the graph has no node"):
            check()


def test_a_torch_function_graph_refuses_dispatched_ops(traced: Graph) -> None:
    assert traced.count(torch.relu) == 3
    assert traced.count(nn.Linear) == 4
    assert traced.count("torch.nn.Linear") == 4
    assert traced.count(operator.add) == 3
    with pytest.raises(
        ValueError, match=r"capture via 'aot', or for a watch, use capture\.at\('aot'\)"
    ):
        traced.assert_no_ops("aten.mm")
    with pytest.raises(ValueError, match=r"names no op .*: did you mean torch\.relu\b"):
        traced.count("torch.rleu")


@pytest.mark.parametrize("pattern", ["", 3, None])
def test_pattern_without_an_op_name_is_refused(captured: Capture, pattern: Any) -> None:
    with pytest.raises(TypeError, match=r"names no op"):
        captured.assert_no_ops(pattern)


def test_custom_op_is_a_valid_pattern_once_registered(captured: Capture) -> None:
    with pytest.raises(ValueError, match=r"names no op"):
        captured.assert_no_ops("torchgraph_tests.twice")

    @torch.library.custom_op("torchgraph_tests::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    captured.assert_no_ops("torchgraph_tests.twice")
    ran = capture(lambda x: torch.ops.torchgraph_tests.twice(x) + 1, example(4))
    assert ran.forward.count("torchgraph_tests.twice") == 1
    assert ran.op_counts["torchgraph_tests.twice.default"] == 1


def test_op_counts_sum_a_packet_and_refuse_what_does_not_occur(captured: Capture) -> None:
    counts = captured.op_counts
    assert counts["aten.addmm"] == counts["aten.addmm.default"] == 4
    with pytest.raises(KeyError, match=r"'aten.sin' does not occur; ops: aten.add"):
        counts["aten.sin"]
    assert "operator.getitem" not in counts
    assert captured.forward.count("operator.getitem") == 3


# -- tolerances ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inexact() -> Capture:
    """Differs from the eager run by one in a thousand."""

    def scaled(x: Tensor) -> tuple[Tensor, Tensor]:
        factor = 1.001 if torch.compiler.is_compiling() else 1.0
        return x * factor, (x * factor).double()

    return capture(scaled, torch.full((3,), 100.0))


@pytest.mark.parametrize(
    "tolerance",
    [
        {"rtol": 1e-2},
        {"atol": 1.0},
        {"rtol": 1e-2, "atol": 0},
        {"rtol": {"cpu": 1e-2, "cuda": 0}},
        {"rtol": {torch.float32: 1e-2, "float64": 1e-2}},
        {"rtol": {"cpu": {torch.float32: 1e-2, torch.float64: 1e-2}}},
        {"atol": {torch.float32: 1.0}, "rtol": {"float64": 1e-2}},
    ],
    ids=str,
)
def test_a_tolerance_is_for_a_device_or_a_dtype(inexact: Capture, tolerance: Any) -> None:
    inexact.assert_matches_eager(**tolerance)


@pytest.mark.parametrize(
    ("tolerance", "which"),
    [
        ({}, 0),
        ({"rtol": 1e-6}, 0),
        ({"atol": 1e-6}, 0),
        ({"rtol": {"cpu": 0, "cuda": 1e-2}}, 0),
        ({"rtol": {torch.bfloat16: 1e-2}}, 0),
        ({"rtol": {torch.float32: 1e-2}}, 1),
        ({"rtol": {"cpu": {torch.float32: 1e-2}}}, 1),
    ],
    ids=str,
)
def test_value_beyond_the_tolerance_is_named(inexact: Capture, tolerance: Any, which: int) -> None:
    with pytest.raises(AssertionError, match=rf"output\[{which}\] differs from the eager run:"):
        inexact.assert_matches_eager(**tolerance)


def test_invalid_tolerance_is_an_error(inexact: Capture) -> None:
    for wrong, error, message in (
        ({"cuda": 1e-2}, ValueError, r"missing rtol for device 'cpu' \(given: 'cuda'"),
        (-1, ValueError, "rtol=-1 is not a valid tolerance"),
        (float("nan"), ValueError, "rtol=nan is not a valid tolerance"),
        (float("inf"), ValueError, "rtol=inf allows any difference, so nothing is checked"),
        ("1e-2", TypeError, "rtol='1e-2' is not a valid tolerance: pass a number"),
        (True, TypeError, "rtol=True is not a valid tolerance"),
    ):
        with pytest.raises(error, match=message):
            inexact.assert_matches_eager(rtol=wrong)  # type: ignore[arg-type]


def all_nan(x: torch.Tensor) -> torch.Tensor:
    return x * float("nan")


def test_parity_of_all_nan_values_fails() -> None:
    x, grad = torch.ones(3), torch.ones(3, requires_grad=True)
    negative = torch.full((3,), -1.0, requires_grad=True)
    for captured, named in (
        (capture(all_nan, grad), "output, gradient of 'x' contain only NaN"),
        (capture(lambda x: (x + 1, all_nan(x)), x), r"output\[1\] contains only NaN"),
        (capture(lambda x: x.sqrt().nansum(), negative), r"gradient of '\S+' contains only NaN"),
    ):
        with pytest.raises(AssertionError, match=f"nothing compared: {named}"):
            captured.assert_matches_eager()


def test_parity_of_empty_outputs_fails() -> None:
    x = torch.ones(3)
    for captured, named in (
        (capture(lambda x: x[:0] * 2, x), "output has no elements"),
        (
            capture(lambda x: (x[:0] * 2, x[3:] + 1), x),
            r"output\[0\], output\[1\] have no ",
        ),
    ):
        with pytest.raises(AssertionError, match=f"nothing compared: {named}"):
            captured.assert_matches_eager()
    capture(lambda x: (x[:0] * 2, x + 1), x).assert_matches_eager()


def test_parity_compares_values_with_nan_and_infinity() -> None:
    x = torch.ones(3)
    for target in (
        lambda x: torch.stack([x, all_nan(x)]),
        lambda x: torch.softmax(torch.stack([x, x - float("inf")]), -1),
        lambda x: x / 0,
        lambda x: x > 0,
        lambda x: (x, all_nan(x)[:0]),
    ):
        capture(target, x).assert_matches_eager()


def test_sparse_gradients_are_compared() -> None:
    embedding = torch.nn.Embedding(12, 4, sparse=True)
    capture(embedding, torch.tensor([[3, 4]]), via="dispatch").assert_matches_eager()


class Hooked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin()


def shifted(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (args[0] + 1,)


def test_wrong_graph_count_has_a_line_for_each_graph_and_names_hooks() -> None:
    model = Hooked()
    model.register_forward_pre_hook(shifted)
    with pytest.raises(AssertionError, match="forward: expected 1, found 2") as error:
        capture(model, torch.ones(3)).assert_graph_count(forward=1)
    lines = str(error.value).splitlines()
    assert re.fullmatch(r"  inference_0: .*:\d+ in shifted: return \(args\[0\] \+ 1,\)", lines[3])
    assert re.fullmatch(r"  inference_1: .*:\d+ in forward: return x.sin\(\)", lines[4])
    assert lines[5].startswith("hooks of the compiled root module are frames of their own: ")
    calling = capture(lambda x: model(x), torch.ones(3))
    with pytest.raises(AssertionError) as error:
        calling.assert_graph_count(forward=2)
    assert "hooks" not in str(error.value)
