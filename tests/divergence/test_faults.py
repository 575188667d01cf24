"""Planted faults are named."""

from __future__ import annotations

import pytest

from pytest_torchgraph.graph import Divergence

from .faults import FAULTS, Fault
from .measure import answer


@pytest.mark.slow("seconds for each; four faults of quick tests are in test_first_difference.py")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_fault_is_named(fault: Fault) -> None:
    result = answer(fault)
    assert isinstance(result.first, Divergence)
    assert result.stage, result.first
    assert result.holds or not result.first.sure, result.first
