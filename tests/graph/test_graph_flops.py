"""Floating-point operations from graphs, against `FlopCounterMode` in an eager run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from subjects.counting import forward
from subjects.models import SUBJECTS
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

from pytest_torchgraph import Aot, CaptureError, Graph, capture, load
from pytest_torchgraph.ops import formula_of, registry


class Broken(torch.nn.Module):
    """A block that is compiled by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return self.linear(x)


def test_flops_are_multiplied_by_runs_via_compiled_autograd() -> None:
    """Blocks of one class share one forward graph."""
    blocks = torch.nn.Sequential(Broken(), Broken(), Broken())
    captured = capture(blocks, torch.ones(4, 8), via="compiled_autograd")
    one = 2 * 4 * 8 * 8
    assert captured.flops == captured.at("aot").flops == (3 + 3 + 2) * one


def test_flops_of_a_stored_file(tmp_path: Path) -> None:
    captured = capture(torch.nn.Linear(8, 4), torch.ones(2, 8))
    file = tmp_path / "graphs.tgraph"
    file.write_text(captured.to_text())
    assert load(file).flops == captured.flops == 2 * 2 * (2 * 8 * 4)


def attention(q: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, q, q)


def test_flops_of_attention_are_equal_on_cpu_and_gpu() -> None:
    q = torch.ones(2, 3, 16, 8, requires_grad=True)
    captured = capture(attention, q)
    captured.assert_op_counts({"aten._scaled_dot_product_flash_attention_for_cpu": 1})
    product = 2 * 2 * 3 * 16 * 16 * 8
    assert captured.forward.flops == 2 * product
    assert captured.backward.flops == 5 * product  # the scores again, and two per product


def test_flops_error_names_an_op_without_a_formula() -> None:
    captured = capture(lambda x: torch.linalg.inv(x @ x), torch.eye(4), via="dispatch")
    with pytest.raises(CaptureError, match=r"torch has no formula for aten.linalg_inv_ex.default"):
        _ = captured.flops


def test_flops_error_advises_no_formula_for_an_unknown_number_of_runs() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda x: x.sum() < 100, lambda x: (x @ x,), (x,))[0]

    captured = capture(doubled, 2 * torch.eye(2), backward=False)
    with pytest.raises(CaptureError, match=r"no formula for higher_order\.while_loop\. To count 0"):
        _ = captured.flops
    with pytest.raises(AssertionError, match=r"no FLOPs were counted, .*while_loop\Z"):
        captured.assert_budget(flops=1, unknown="ignore")


def test_formula_registered_after_other_flops_were_counted_is_used() -> None:
    assert capture(lambda x: x @ x, torch.eye(2)).flops == 16
    captured = capture(lambda x: torch.linalg.inv(x @ x), torch.eye(4), via="dispatch")
    packet = torch.ops.aten.linalg_inv_ex
    flop_counter.register_flop_formula(packet)(lambda shape, *args, **kwargs: 7)
    try:
        assert captured.flops == 2 * 64 + 7
    finally:
        del flop_counter.flop_registry[packet]
        formula_of.cache_clear()


def test_flops_of_ops_without_products_are_zero() -> None:
    assert capture(lambda x: torch.relu(x).sum(0).t().softmax(-1), torch.ones(4, 4)).flops == 0


def test_flops_error_names_a_symbolic_size() -> None:
    captured = capture(torch.nn.Linear(8, 4), torch.ones(2, 8), via=Aot(dynamic=True))
    with pytest.raises(CaptureError, match=r"the FLOPs of %addmm \(aten.addmm.default\) depend on"):
        _ = captured.flops


def test_flops_of_torch_functions_are_refused() -> None:
    captured = capture(torch.nn.Linear(8, 4), torch.ones(2, 8), via="dynamo")
    with pytest.raises(CaptureError, match="FLOPs are unknown in a graph at level 'dynamo'"):
        _ = captured.flops


def test_flops_of_a_cond_are_those_of_the_larger_branch() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x + 1, (x,))

    assert capture(step, torch.ones(4, 4)).flops == 2 * 4 * 4 * 4


def test_flops_error_names_impossible_shapes() -> None:
    text = "%x = input : f32[2, 3]\n  %a = aten.mm.default(%x, %x) : f32[2, 3]\n  return %a"
    parsed = Graph.from_text(f"torchgraph 1\n\nforward @ aot {{\n  {text}\n}}\n")
    with pytest.raises(
        CaptureError, match=r"no formula for the arguments of %a \(aten.mm.default: "
    ):
        _ = parsed.flops


def test_flops_of_composite_ops_are_those_of_their_parts() -> None:
    subject = SUBJECTS["residual_cnn"]()
    captured = capture(subject.model, *subject.args, via="export", **subject.kwargs)
    with FlopCounterMode(display=False) as counter:
        forward(subject)
    assert captured.flops == counter.get_total_flops() > 0


def test_flops_error_names_a_part_of_a_composite_op() -> None:
    captured = capture(torch.matmul, torch.ones(4, 3), torch.ones(3), via="export")
    assert captured.op_counts["aten.matmul"] == 1
    with pytest.raises(CaptureError, match=r"torch has no formula for aten\.matmul\.default"):
        _ = captured.flops


@pytest.mark.parametrize("via", ["dispatch", "export"])
@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda x: x.clone().addmm_(x, x), 128),  # in-place: the formula of addmm
        (lambda x: torch.mm(x, x, out=torch.empty(4, 4)), 128),
        (lambda x: torch.linalg.multi_dot([x, x, x]), 256),
        (lambda x: torch.matrix_power(x, 3), 256),
        (lambda x: torch.addbmm(x, x[None], x[None]), None),
        (lambda x: torch.cdist(x.repeat(8, 1), x), None),  # more than 25 rows: a product
        (lambda x: torch.nn.functional.affine_grid(x[None, :2, :3], (1, 1, 8, 8), True), None),
        (torch.det, None),
        (torch.matrix_exp, None),
        (lambda x: torch.stft(x.flatten(), 4, window=x[0], return_complex=True).real, None),
    ],
)
def test_flops_of_products_in_other_forms(function: object, flops: int | None, via: str) -> None:
    captured = capture(function, torch.eye(4) + 1, via=via)
    if flops is not None:
        assert captured.flops == flops
        return
    with pytest.raises(CaptureError, match="torch has no formula for aten"):
        _ = captured.flops


def test_flops_of_ops_that_multiply_are_never_zero() -> None:
    """They are found by a name that says so, among ops that only lay out memory."""
    names = {op.split(".")[1] for op in registry.registered() if op.startswith("aten.")}
    multiplies = {
        name
        for name in names
        if {"mm", "bmm", "addmm", "addbmm", "matmul", "convolution", "linear"} & {*name.split("_")}
    }
    free = {name for name in multiplies if is_free(f"aten.{name}")}
    assert len(multiplies) > 30
    assert free <= {
        "_wrapped_linear_prepack",
        "fbgemm_pack_gemm_matrix_fp16",
    }


def is_free(op: str) -> bool:
    try:
        return formula_of(op) is None
    except KeyError:
        return False


def test_flops_inside_an_exported_transform_are_unknown() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda row: row @ x)(torch.stack([x, x]))

    assert capture(rows, torch.eye(4)).flops == 2 * 128
    exported = capture(rows, torch.eye(4), via="export")
    assert exported.count("aten.matmul") == 1
    with pytest.raises(CaptureError, match=r"_vmap_increment_nesting: capture via 'aot' or 'disp"):
        _ = exported.flops
    sums = capture(lambda x: torch.func.vmap(torch.sin)(x) @ x, torch.eye(4), via="export")
    assert sums.flops == 128
