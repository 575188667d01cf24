"""All subjects via all mechanisms on a GPU: equal to torch's account and to their stored text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from subjects.models import SUBJECTS, on
from subjects.subject_results import MECHANISMS, look
from subjects.table import kept
from torch import Tensor, nn

from pytest_torchgraph import Capture, CaptureError, capture, load
from pytest_torchgraph.graph import TensorMeta


def need_a_gpu(gpu: torch.device, name: str) -> None:
    """Skip in a rehearsal what `tests/subjects` has on the CPU."""
    if gpu.type == "cpu" and name != "mlp":
        pytest.skip("the rehearsal has no GPU")


def devices_of(captured: Capture) -> set[str]:
    """Return the devices of all results of ops."""
    return {
        str(meta.device)
        for graph in captured.program
        for node in graph.nodes
        for meta in (node.result if isinstance(node.result, tuple) else [node.result])
        if node.is_call and isinstance(meta, TensorMeta)
    }


@pytest.mark.parametrize("via", MECHANISMS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_subject_equals_the_account(name: str, via: str, gpu: torch.device) -> None:
    need_a_gpu(gpu, name)
    found = look(name, via, gpu)
    assert found.wrong == []
    # What Dynamo and torch.export refuse does not depend on the device.
    assert found.refused == ("graph" not in kept()[name, via].split(",")[0]), found.says


@pytest.mark.parametrize("via", MECHANISMS)
@pytest.mark.parametrize("name", ["mlp", "residual_cnn", "bert", "mlp_checkpointed"])
def test_subject_equals_its_stored_text(
    name: str, via: str, gpu: torch.device, tmp_path: Path
) -> None:
    need_a_gpu(gpu, name)
    subject = on(SUBJECTS[name](), gpu)
    try:
        captured = capture(subject.model, *subject.args, via=via, **subject.kwargs)
    except CaptureError:
        assert (via, name) == ("fx", "bert")
        return
    path = tmp_path / "a.tgraph"
    path.write_text(captured.to_text())
    assert captured == load(path)
    assert load(path) == captured
    again = capture(subject.model, *subject.args, via=via, **subject.kwargs)
    assert again.to_text() == captured.to_text()


@pytest.mark.parametrize("via", MECHANISMS)
def test_ops_are_on_the_gpu(via: str, gpu: torch.device) -> None:
    subject = SUBJECTS["mlp"]()
    captured = capture(subject.model, *subject.args, via=via, device=gpu)
    assert {torch.device(each).type for each in devices_of(captured)} == {gpu.type}
    # `device=` runs copies.
    assert {each.device.type for each in subject.model.parameters()} == {"cpu"}


def test_attention_on_a_gpu_is_another_graph_than_on_the_cpu(cuda: torch.device) -> None:
    """The reason for which each device has a stored graph of its own."""

    def attention(x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)

    x = torch.randn(1, 2, 8, 16, dtype=torch.float16, requires_grad=True)
    ops = [Counter(capture(attention, x, device=each).op_counts) for each in ("cpu", cuda)]
    assert ops[0] != ops[1]
