"""`dtype=`, `module=` and `device=` of queries and assertions about ops."""

from __future__ import annotations

import pytest
import torch

from pytest_torchgraph import Graph, capture

TEXT = """torchgraph 1
via aot, torch 2.13.0

forward {
  %x = input : f32[2, 4] on "cpu"
  %w = parameter : f32[4, 4] on "cpu"
  %enc.0/mm = aten.mm.default(%x, %w) : f32[2, 4] on "cuda:1"
  %enc.0.act/to = aten._to_copy.default(%enc.0/mm, dtype=torch.bfloat16) : bf16[2, 4] on "cpu"
  %enc.1/mm = aten.mm.default(%enc.0.act/to, %w) : bf16[2, 4] on "cpu"
  %enc.10/max = aten.max.dim(%enc.1/mm, 1) : (bf16[2], i64[2]) on "cpu"
  %head/getitem = operator.getitem(%enc.10/max, 0) : bf16[2] on "cpu"
  return %head/getitem
}
"""


def graph() -> Graph:
    text = TEXT.replace('(bf16[2], i64[2]) on "cpu"', '(bf16[2] on "cpu", i64[2] on "cpu")')
    return Graph.from_text(text)


def test_select_by_each_name_of_a_dtype() -> None:
    for name in (torch.bfloat16, "bfloat16", "bf16", "torch.bfloat16"):
        assert graph().count("aten.mm", dtype=name) == 1
    assert graph().count("aten.mm", dtype="float64") == 0
    assert graph().count("aten.max", dtype=torch.int64) == 1
    dtype = graph()["x"].result.dtype
    assert dtype == torch.float32
    assert torch.float32 == dtype
    assert dtype == "float32" == dtype
    assert dtype == "f32"
    assert (dtype != "f32") is False
    assert dtype != torch.float64
    assert dtype != "f64"
    assert dtype != 32
    assert {dtype: 1} == {"float32": 1}


def test_select_by_module_includes_submodules() -> None:
    assert [node.name for node in graph().find("aten.*", module="enc.0")] == [
        "enc.0/mm",
        "enc.0.act/to",
    ]
    assert graph().count("aten.mm", module="enc.*") == 2
    assert graph().count("aten.mm", module="enc.1") == 1
    assert graph().count("aten.mm", module="*.act") == 0
    with pytest.raises(ValueError, match=r"matches 'enc.2': did you mean enc.1, enc.0, enc"):
        graph().count("aten.mm", module="enc.2")
    with pytest.raises(ValueError, match=r"matches 'xyz': choose from enc, head"):
        graph().assert_no_ops("aten.mm", module="xyz")


def test_select_by_device_with_and_without_index() -> None:
    assert graph().count("aten.mm", device="cuda") == 1
    assert graph().count("aten.mm", device=torch.device("cuda:1")) == 1
    assert graph().count("aten.mm", device="cuda:0") == 0
    assert graph().count("aten.mm", device="xpu") == 0


def test_select_by_device_ignores_the_index_of_a_cpu() -> None:
    assert graph().count("aten.mm", device=torch.device("cpu:0")) == 1
    with pytest.raises(AssertionError, match=r"aten\.mm: found 1"):
        graph().assert_no_ops("aten.mm", device="cpu:0")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dtype": "float31"}, ValueError, "unknown dtype 'float31': did you mean 'float32'"),
        ({"dtype": 32}, TypeError, "32 is not a dtype"),
        ({"device": "gpu"}, ValueError, "unknown device 'gpu': choose from cpu, cuda"),
        ({"device": 0}, TypeError, "0 is not a device"),
        ({"module": ""}, ValueError, "no op was captured in a module that matches ''"),
        ({"module": 3}, TypeError, "3 is not a module path"),
    ],
)
def test_select_with_an_impossible_value_is_an_error(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    for check in (
        lambda: graph().find("aten.mm", **options),
        lambda: graph().count("aten.mm", **options),
        lambda: graph().assert_op_counts({"aten.mm": 0}, **options),
        lambda: graph().assert_no_ops("aten.mm", **options),
    ):
        with pytest.raises(error, match=message):
            check()


def test_select_by_a_missing_fact_is_an_error() -> None:
    untyped = Graph.from_text(
        "torchgraph 1\nvia fx, torch 2.13.0\n\n"
        "forward {\n  %x = input\n  %relu = torch.relu(%x)\n  return %relu\n}\n"
    )
    with pytest.raises(ValueError, match="dtype='float32' matches nothing: these graphs do not"):
        untyped.assert_no_ops("torch.relu", dtype="f32")
    with pytest.raises(ValueError, match="device='cuda' matches nothing: these graphs do not"):
        untyped.assert_no_ops("torch.relu", device="cuda")


def test_select_failure_has_the_selection_and_the_alternatives() -> None:
    with pytest.raises(AssertionError) as error:
        graph().assert_no_ops("aten.mm", dtype="bf16", module="enc")
    assert str(error.value) == (
        "unexpected ops (dtype bfloat16, in module 'enc'):\n  aten.mm: found 1\n      %enc.1/mm"
    )
    with pytest.raises(AssertionError) as error:
        graph().assert_op_counts({"aten.mm": 2}, device="cpu", exact=True)
    assert str(error.value) == (
        "op counts differ (on cpu):\n"
        "  aten.mm: expected 2, found 1\n"
        "      %enc.1/mm\n"
        "  aten._to_copy.default: matches no pattern (exact=True), found 1\n"
        "  aten.max.dim: matches no pattern (exact=True), found 1\n"
        "ops captured:\n"
        "     1 aten._to_copy.default\n"
        "     1 aten.max.dim\n"
        "     1 aten.mm.default"
    )
    graph().assert_op_counts({"aten.mm": 1, "aten.max": 1}, device="cpu", dtype="bf16")


def test_select_on_a_capture_covers_all_graphs() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).double())
    captured = capture(lambda x: model[1](model[0](x).double()), torch.ones(2, 4))
    captured.assert_no_ops("aten.addmm", dtype=torch.float16)
    assert captured.count("aten.addmm", dtype=torch.float64) == 1
    with pytest.raises(AssertionError, match=r"found 2\n"):
        captured.assert_op_counts({"aten.addmm": 1})
    captured.assert_op_counts({"aten.addmm": 1}, dtype="f32", device="cpu")


def test_select_op_without_a_result_by_the_tensors_that_it_writes() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        torch._foreach_mul_([y], 2.0)
        return y

    captured = capture(scaled, torch.ones(2), via="dispatch")
    assert captured.count("aten._foreach_mul_", dtype="f32", device="cpu") == 1
    assert captured.count("aten._foreach_mul_", dtype="f64") == 0
    with pytest.raises(AssertionError, match=r"aten._foreach_mul_: found 1"):
        captured.assert_no_ops("aten._foreach_mul_", dtype="f32")


def test_select_by_dtype_of_ops_without_tensors_is_an_error() -> None:
    captured = capture(lambda x: x * x.sum().item(), torch.ones(2), via="dispatch")
    with pytest.raises(
        ValueError, match=r"dtype float32 can match no aten._local_scalar_dense, which neither"
    ):
        captured.assert_no_ops("aten._local_scalar_dense", dtype="f32")
    assert captured.count("aten.*", dtype="f32") == 2
