"""The estimate of a peak. `tests/subjects/test_costs.py` compares it with real runs."""

from __future__ import annotations

import torch

from pytest_torchgraph import capture


def test_peak_of_a_chain_is_two_values() -> None:
    with torch.no_grad():
        captured = capture(lambda x: x.sin().cos().exp().tanh(), torch.ones(256))
    assert captured.peak_bytes == 2 * 256 * 4


def test_peak_includes_saved_values_until_the_backward_reads_them() -> None:
    x = torch.ones(256, requires_grad=True)
    captured = capture(lambda x: x.exp().exp().exp(), x)
    assert captured.saved_bytes == 3 * 256 * 4
    assert captured.peak_bytes >= 4 * 256 * 4  # and the first gradient


def test_peak_includes_a_storage_until_both_saved_views_are_read() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        first, second = (x * 2).view(2, 256)
        return first.sin() + second.sin().sin().sin()

    x = torch.ones(512, requires_grad=True)
    captured = capture(halves, x, via="dispatch")
    assert [ref.name for ref in captured.forward.saved][:2] == ["unbind#0", "unbind#1"]
    # At the last cosine the product, the output, the gradient and the cosine are alive.
    assert captured.peak_bytes == (2 + 1 + 4) * 256 * 4


def test_peak_includes_all_results_of_an_op() -> None:
    with torch.no_grad():
        captured = capture(
            lambda x: torch.topk(x.exp(), 128).values, torch.ones(256), via="dispatch"
        )
    assert captured.peak_bytes == 256 * 4 + 128 * (4 + 8)  # includes the unused indices


def test_peak_of_two_graphs_that_save_values_with_one_name() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x.exp()
        torch._dynamo.graph_break()
        return x.exp()

    x = torch.ones(256, requires_grad=True)
    captured = capture(broken, x)
    first, second = ([ref.name for ref in graph.saved] for graph in captured.forwards)
    assert first == second
    size = 256 * 4
    # Both results (one belongs to the step), then a gradient and the next one.
    assert captured.peak_bytes == 4 * size
