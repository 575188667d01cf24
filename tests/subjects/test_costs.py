"""The tables of costs: each entry equals torch's or differs for a checked reason."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator

import pytest
import torch
from subjects import costs
from subjects.checkpointed import POLICIES
from subjects.cost_table import kept
from subjects.kept_tables import spelt_out
from subjects.models import SUBJECTS


@pytest.fixture(autouse=True)
def torchs_own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def is_kept(row: costs.Row) -> None:
    assert list(row.wrong()) == []
    table = kept() if torch.__version__.startswith("2.13.") else {}  # kept for 2.13
    for column, entry in row.entries.items() if table else ():
        assert table[row.name, column] == spelt_out(entry.says, entry.reason)


@pytest.mark.slow("further models", unless=["mlp-FLOPs"])
@pytest.mark.parametrize(
    ("name", "section"), [*zip(SUBJECTS, itertools.cycle(costs.SECTIONS), strict=False)]
)
def test_entry_is_right_and_in_the_kept_table(name: str, section: str) -> None:
    is_kept(costs.SECTIONS[section](name))


@pytest.mark.slow("further models")
@pytest.mark.parametrize("policy", POLICIES)
def test_checkpointing_policy_costs_equal_torchs(policy: str) -> None:
    is_kept(costs.checkpointing(policy))


@pytest.mark.slow("further models")
@pytest.mark.parametrize("budget", costs.BUDGETS)
def test_min_cut_budget_costs_equal_torchs(budget: float) -> None:
    is_kept(costs.min_cut(budget))


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_saved_bytes_decrease_with_recomputation(via: str) -> None:
    table = kept()
    cuts = [f"min_cut, budget {budget}" for budget in costs.BUDGETS] if via == "aot" else []
    for rows in (POLICIES, cuts):
        flops = [_number(table[row, f"FLOPs via {via}"]) for row in rows]
        saved = [_number(table[row, f"saved via {via}"]) for row in rows]
        assert flops == sorted(flops)
        assert saved == sorted(saved, reverse=True)
        assert len(set(saved)) == len(saved)


def _number(figure: str) -> int:
    return int(figure.replace(",", ""))


def test_kept_cost_tables_have_each_subject_and_no_error() -> None:
    table = kept()
    assert {name for name, _ in table} >= SUBJECTS.keys()
    assert not [key for key, cell in table.items() if "WRONG" in cell]


def test_flops_and_saved_bytes_equal_torchs_with_listed_exceptions() -> None:
    differ: dict[str, set[str]] = {}
    for (name, column), cell in kept().items():
        of, _, via = column.partition(" via ")
        if name in SUBJECTS and via and of != "peak" and cell != "the same":
            differ.setdefault(f"{of} via {via}", set()).add(name)
    no_graph = {"transformer_with_masks_only", "lstm_tagger"}
    no_formula = {"lstm_tagger", "lstm_between_blocks", "mixtral", "transformer_encoder_fast_path"}
    attention = {"transformer_encoder_eval", "llama", "vit", "clip", "whisper"}
    assert differ == {
        "FLOPs via dispatch": no_formula | attention,
        "FLOPs via aot": no_formula | attention | no_graph,
        "saved via dispatch": {"early_exit", "graph_convolution"},
        "saved via aot": no_graph,
    }


def test_peak_estimate_is_close_for_nearly_all_subjects() -> None:
    for via in ("dispatch", "aot"):
        cells = [kept()[name, f"peak via {via}"] for name in SUBJECTS]
        off = [float(cell.rstrip("%")) for cell in cells if re.fullmatch(r"[+-][\d.]+%", cell)]
        assert cells.count("the same") + len(off) >= 21
        assert max(map(abs, off)) < 100 * costs.PEAK_TOLERANCE
