"""The same target gives the same text: again, in another process, and under another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mechanisms.islands.cases import Looped
from mechanisms.models import MECHANISMS, Norm, example, mlp

from pytest_torchgraph import Capture, capture, load

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from mechanisms.test_repeatable import texts
print(texts())
"""

PATHS = {"PATH": os.environ.get("PATH", "")}
"""Variables by which inductor finds its compiler."""


def texts() -> str:
    cases = (mlp(), (4, 8)), (Norm().train(), (2, 2, 8, 8)), (Looped(), (2, 4))
    return "\n".join(
        capture(model, example(*shape), via=via).to_text("full")
        for via in MECHANISMS
        for model, shape in cases
    )


@pytest.mark.slow("long models; short ones are in every run")
def test_another_process_with_another_hash_seed_prints_the_same_bytes() -> None:
    other = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[1])],
        env={
            **PATHS,
            "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2",
            "PYTHONPATH": str(Path.cwd()),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.count("torchgraph ") == 3 * len(MECHANISMS)
    assert other.stdout == texts() + "\n"


@pytest.mark.slow(
    "inductor compiles C++ for each case", unless=["dispatch", "dynamo", "export", "fx"]
)
@pytest.mark.parametrize("via", MECHANISMS)
def test_a_second_or_stored_capture_is_equal_and_prints_the_same_bytes(
    via: str, tmp_path: Path
) -> None:
    first = capture(mlp(), example(4, 8), via=via)
    capture(Norm(), example(2, 2, 8, 8), via=via)
    second = capture(mlp(), example(4, 8), via=via)
    assert first == second
    path = tmp_path / "mlp.tgraph"
    path.write_text(first.to_text("full"))
    stored = load(path)
    assert isinstance(stored, Capture)
    assert stored == first
    assert first.to_text("full") == second.to_text("full") == stored.to_text("full")
    assert stored.via == via
    assert "memory" not in stored.to_text().partition("\n\n")[0]


def test_warm_caches_change_nothing() -> None:
    model = mlp()
    x = example(4, 8)
    cold = capture(model, x)
    torch.compile(model, backend="aot_eager")(x).sum().backward()
    assert capture(model, x).to_text("full") == cold.to_text("full")
    torch._dynamo.reset()
    model.zero_grad()
