"""Each test begins with a fresh compiler, and must leave torch as it found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from watching.hooks_installed import patched


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = patched()
    yield
    assert patched() == before
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
