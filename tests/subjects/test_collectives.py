"""The table of collectives by mechanism: its entries are correct, and no cell is empty."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from subjects.collectives_table import ROWS_, VIAS, entries, kept
from subjects.kept_tables import spelt_out


@pytest.fixture(autouse=True)
def torchs_own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow("two mechanisms are in every run")
@pytest.mark.parametrize("name", ROWS_)
def test_collectives_row_is_right_and_in_the_kept_table(name: str) -> None:
    table = kept() if torch.__version__.startswith("2.13.") else {}  # kept for 2.13
    for column, says, reason in entries(name):
        assert says != "WRONG", reason
        if table:
            assert table[name, column] == spelt_out(says, reason)


def test_kept_collectives_table_has_each_row_and_mechanism() -> None:
    table = kept()
    assert table.keys() == {
        (name, column) for name in ROWS_ for column in ("by torch", "bytes", *VIAS)
    }
    for (_, column), cell in table.items():
        if column in VIAS:
            unknown = cell.startswith(("no capture: ", "not known: "))
            assert cell == "equal" or (column == "compiled_autograd" and unknown)
