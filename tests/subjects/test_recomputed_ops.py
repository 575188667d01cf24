"""Recomputed ops of real models, against a count that uses no graph."""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config
from subjects.models import SUBJECTS, Subject
from subjects.recomputed_ops import NodesCopied, OpsRunAgain, blocks_of, checkpoint_blocks
from torch import Tensor
from torch.utils._pytree import tree_leaves

import pytest_torchgraph as tg
from pytest_torchgraph import Capture, CaptureError

HOW = ("none", "every block", "selective")
TRAINED = [name for name in SUBJECTS if name != "transformer_encoder_fast_path"]
FORMULAS = {"clip": {"aten.div.Tensor": 2}}
"""Autograd's derivative of `x / y` recomputes `x / y`."""


@pytest.fixture(autouse=True)
def torchs_own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def loss_of(output: Any) -> Tensor:
    floats = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
    return torch.stack([x.float().sum() for x in floats]).sum()


def counted(capture: Capture, *, formula: bool = False) -> Counter[str]:
    counts: Counter[str] = Counter()
    for entry in capture.recomputed:
        if (entry.by == "formula") is formula:
            counts[entry.op] += entry.times
    return counts


def stored(capture: Capture, folder: Path) -> Counter[str]:
    """Count all ops in the stored graphs of a capture."""
    file = folder / "step.tgraph"
    file.write_text(capture.to_text())
    return counted(tg.load(file))  # type: ignore[arg-type]


def captured(subject: Subject, via: Any = "dispatch") -> Capture:
    return tg.capture(
        subject.model, *subject.args, **subject.kwargs, via=via, backward=True, loss_fn=loss_of
    )


@pytest.mark.slow("each subject", unless=["selective-mlp"])
@pytest.mark.parametrize(("how", "name"), [*zip(itertools.cycle(HOW), TRAINED)])
def test_recomputed_ops_of_an_eager_backward(name: str, how: str, tmp_path: Path) -> None:
    twin, subject = SUBJECTS[name](), SUBJECTS[name]()
    blocks = blocks_of(twin.model)
    ops = OpsRunAgain()
    ops.watch(blocks)
    checkpoint_blocks(blocks, how)
    with torch.random.fork_rng(), ops:
        torch.manual_seed(0)
        loss = loss_of(twin.model(*twin.args, **twin.kwargs))
        ops.in_backward = True
        loss.backward()

    checkpoint_blocks(blocks_of(subject.model), how)
    capture = captured(subject)
    assert counted(capture) == ops.counts
    assert counted(capture, formula=True) == Counter(FORMULAS.get(name, {}))
    assert stored(capture, tmp_path) == counted(capture) + counted(capture, formula=True)


WAYS = [("default", 1.0, "every block"), ("min_cut", 0.5, "none"), ("min_cut", 0.0, "selective")]


@pytest.mark.slow("each subject", unless=["min_cut-0.0-selective-mlp"])
@pytest.mark.parametrize(
    ("partition", "budget", "how", "name"),
    [(*way, name) for way, name in zip(itertools.cycle(WAYS), TRAINED)],
)
def test_recomputed_ops_of_a_compiled_backward(
    name: str, how: str, partition: Any, budget: float, tmp_path: Path
) -> None:
    twin, subject = SUBJECTS[name](), SUBJECTS[name]()
    checkpoint_blocks(blocks_of(twin.model), how)
    checkpoint_blocks(blocks_of(subject.model), how)
    nodes = NodesCopied(partition)
    with torch._functorch.config.patch(activation_memory_budget=budget):
        torch._dynamo.reset()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            loss = loss_of(nodes.compiled(twin.model)(*twin.args, **twin.kwargs))
            with contextlib.suppress(RuntimeError):
                loss.backward()
        torch._dynamo.reset()
        if not nodes.ran:  # nothing compiles, or batch norm's statistics are written too early
            refused = "nothing was captured|has been modified by an inplace operation"
            with pytest.raises((CaptureError, RuntimeError), match=refused):
                captured(subject, tg.Aot(partition=partition))
            return
        capture = captured(subject, tg.Aot(partition=partition))
    assert counted(capture) == nodes.counts
    assert stored(capture, tmp_path) == counted(capture) + counted(capture, formula=True)


CHECKPOINTED = ("bert", "gpt2", "llama", "t5", "vit")


def _watched(ops: OpsRunAgain, run: Any, block: Any, *args: Any, **kwargs: Any) -> Any:
    return run(ops.watched(block), *args, **kwargs)


@pytest.mark.slow("models of transformers")
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not_reentrant"])
@pytest.mark.parametrize("name", CHECKPOINTED)
def test_recomputed_ops_of_transformers_gradient_checkpointing(name: str, reentrant: bool) -> None:
    def checkpointed() -> Subject:
        subject = SUBJECTS[name]()
        subject.model.train()
        options = {"use_reentrant": reentrant}
        subject.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        if hasattr(subject.model, "enable_input_require_grads"):
            subject.model.enable_input_require_grads()
        return subject

    twin, subject = checkpointed(), checkpointed()
    ops = OpsRunAgain()
    for layer in twin.model.modules():
        run = getattr(layer, "_gradient_checkpointing_func", None)
        if run is not None:
            layer._gradient_checkpointing_func = functools.partial(_watched, ops, run)
    with torch.random.fork_rng(), ops:
        torch.manual_seed(0)
        loss = loss_of(twin.model(*twin.args, **twin.kwargs))
        ops.in_backward = True
        loss.backward()
    capture = captured(subject)
    assert ops.counts
    assert counted(capture) == ops.counts
    with pytest.raises(AssertionError, match=r"aten\.(add)?mm"):
        capture.assert_not_recomputed("aten.mm", "aten.addmm")
