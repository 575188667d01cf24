"""The table of transformers' plans: its entries are correct."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

import pytest
import torch
from subjects import plans
from subjects.kept_tables import spelt_out
from subjects.plans_table import kept


@pytest.fixture(autouse=True)
def torchs_own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow("further models")
@pytest.mark.parametrize("name", ["llama", "cohere", "deepseek_v3", "doge", "gemma4_text"])
def test_entry_is_right_and_in_the_kept_table(name: str) -> None:
    table = kept() if torch.__version__.startswith("2.13.") else {}  # kept for 2.13
    for size, says, reason in plans.results(name):
        assert says != "WRONG", reason
        if table:
            assert table[name, f"tp={size}"] == spelt_out(says, reason)


@pytest.mark.slow("further models")
def test_compiled_plan_has_the_same_collectives() -> None:
    assert list(plans.results("llama", via="aot")) == list(plans.results("llama"))


def test_kept_plans_table_has_no_error_and_nearly_all_types() -> None:
    cells = list(kept().values())
    captured = [cell for cell in cells if re.match(r"\d+ \+ \d+ all_", cell)]
    assert not [cell for cell in cells if "WRONG" in cell]
    assert len(captured) >= len(plans.SIZES) * 115
