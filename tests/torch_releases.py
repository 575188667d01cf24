"""Skips for tests of what only later releases of torch do."""

from __future__ import annotations

import pytest
import torch

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def skip_before(release: str, difference: str) -> None:
    """Skip the running test before a release. `difference` says what the older ones do."""
    if tuple(map(int, release.split("."))) > RELEASE:
        pytest.skip(f"before torch {release}, {difference}")
