"""Each test begins with a fresh compiler, and must restore torch's state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from watching.hooks_installed import patched


@pytest.fixture(autouse=True)
def _fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = patched()
    yield
    if not request.config.getoption("--torchgraph-audit"):  # an audit of this suite keeps its watch
        assert patched() == before
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
