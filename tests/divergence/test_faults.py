"""Planted faults are named, including faults that were never used to tune a rule."""

from __future__ import annotations

import pytest

from pytest_torchgraph.graph import Divergence

from .faults import HELD, VISIBLE, Fault
from .measure import answer


@pytest.mark.slow("further faults", unless=["convolution-aot-removed*"])
@pytest.mark.parametrize("fault", VISIBLE, ids=lambda fault: fault.name)
def test_planted_fault_is_named(fault: Fault) -> None:
    result = answer(fault)
    assert isinstance(result.first, Divergence)
    assert result.stage, result.first
    assert result.holds or not result.first.sure, result.first


@pytest.mark.slow("the faults that were held back")
@pytest.mark.parametrize("fault", HELD, ids=lambda fault: fault.name)
def test_held_back_fault_is_named(fault: Fault) -> None:
    result = answer(fault)
    assert isinstance(result.first, Divergence)
    assert result.stage, result.first
    assert result.holds or not result.first.sure, result.first
