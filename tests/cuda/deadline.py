"""Skip the tests that are left at `TORCHGRAPH_DEADLINE`: `-p deadline`, in seconds of `time.time`.

A signal would end the session before it has written its results.
"""

from __future__ import annotations

import os
import time

import pytest

OVER = "not run: the time of this part is over"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ["TORCHGRAPH_DEADLINE"]):
        pytest.skip(OVER)
