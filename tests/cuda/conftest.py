"""Tests of what only a GPU shows. `.ci/cuda` runs them. Without a GPU, all are skipped in one line.

A rehearsal, with `TORCHGRAPH_REHEARSAL=1`, runs on the CPU what needs no GPU, so that time on a GPU
is not spent on mistakes in the tests.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import torch


class WithoutGPU(pytest.Module):
    """A module that is skipped before it is imported: all of them are one line of the summary."""

    def collect(self) -> NoReturn:
        pytest.skip("no GPU: `.ci/cuda` runs these tests where there is one")


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    if torch.cuda.is_available() or os.environ.get("TORCHGRAPH_REHEARSAL"):
        return None
    module: pytest.Module = WithoutGPU.from_parent(parent, path=module_path)
    return module


@pytest.fixture(scope="session")
def gpu() -> torch.device:
    """Return the GPU, or the CPU in a rehearsal."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@pytest.fixture
def cuda(gpu: torch.device) -> torch.device:
    """Return the GPU. The test uses what no CPU has."""
    if gpu.type != "cuda":
        pytest.skip("the rehearsal has no GPU")
    return gpu


@pytest.fixture(autouse=True)
def torchs_own_warnings() -> Iterator[None]:
    """torch warns of what differs between GPUs: too few SMs, TF32, a missing profiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
