"""The table of subjects and mechanisms: its entries are correct and complete.

The command checks the expensive pairs: `python tests/subjects/table.py --check`.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator

import pytest
from subjects.counting import COUNTED
from subjects.models import SUBJECTS
from subjects.subject_results import MECHANISMS, look, miscounted, misread
from subjects.table import COLUMNS, EAGER, kept

from pytest_torchgraph import capture

CHEAP = ("dispatch", "fx", "export")
SMALL = (
    "transformer_encoder_eval",
    "transformer_encoder_fast_path",
    "transformer_with_masks_only",
    "lstm_tagger",
    "residual_cnn",
    "mlp_checkpointed",
    "mlp",
    "graph_convolution",
    "lstm_between_blocks",
    "early_exit",
    "gpt2",
    "wav2vec2",
)
TRACED_BY_FX = {
    "lstm_tagger",
    "lstm_between_blocks",
    "residual_cnn",
    "mlp",
    "mlp_checkpointed",
    "graph_convolution",
    "transformer_block",
}
PAIRS = [
    *((name, via) for name in SUBJECTS for via in CHEAP),
    *zip(SMALL, itertools.cycle(("dynamo", "aot", "compiled_autograd")), strict=False),
    *((name, "inductor") for name in ("mlp", "lstm_tagger")),
]


@pytest.fixture(autouse=True)
def torchs_own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow(
    "long models; short ones are in every run",
    unless=[
        "transformer_encoder_eval-fx",
        "transformer_encoder_fast_path-dispatch",
        "transformer_encoder_fast_path-fx",
        "transformer_encoder_train-fx",
        "transformer_with_masks-fx",
        "transformer_with_masks_only-fx",
    ],
)
@pytest.mark.parametrize(("name", "via"), PAIRS)
def test_entry_is_right_and_in_the_kept_table(name: str, via: str) -> None:
    found = look(name, via)
    assert found.wrong == []
    assert kept()[name, via] == found.says
    if found.eager:
        assert kept()[name, EAGER] == found.eager


@pytest.mark.slow("long models; short ones are in every run")
@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("residual_cnn", "inductor"),
        ("gpt2", "engine"),
        ("wav2vec2", "engine"),
    ],
)
def test_printed_text_of_subjects_is_read_exactly(name: str, run: str) -> None:
    graphs, wrong = misread(name, run)
    assert graphs > 5
    assert wrong == []


def test_kept_subjects_table_has_each_subject_and_no_error() -> None:
    table = kept()
    assert set(table) == {(name, via) for name in SUBJECTS for via in COLUMNS}
    assert not [cell for cell in table.values() if "WRONG" in cell]


def test_kept_subjects_table_has_only_expected_refusals() -> None:
    via = {key: cell for key, cell in kept().items() if key[1] in MECHANISMS}
    refused = {key for key, cell in via.items() if not re.fullmatch(r"\d+ graphs?, \d+ ops", cell)}
    looks_at_data = {"dynamo", "aot", "compiled_autograd", "inductor"}
    assert refused == {
        *((name, "fx") for name in SUBJECTS if name not in TRACED_BY_FX),
        ("early_exit", "export"),
        *(("lstm_tagger", via) for via in looks_at_data),
        *(("transformer_with_masks_only", via) for via in {*looks_at_data, "export"}),
        ("transformer_encoder_fast_path", "compiled_autograd"),
    }


def test_kept_subjects_table_has_eager_ops() -> None:
    found = {name: cell for (name, via), cell in kept().items() if via == EAGER}
    assert {name: cell for name, cell in found.items() if cell not in ("0", "none")} == {
        "lstm_between_blocks": "19 in 2 graphs",
        "early_exit": "1 in 1 graph",
        "gpt2": "1 in 1 graph, 1 by the engine",
        "t5": "2 in 1 graph, 2 by the engine",
        "vit": "1 in 1 graph, 1 by the engine",
        "clip": "7 in 1 graph, 7 by the engine",
        "whisper": "2 in 1 graph, 2 by the engine",
    }
    assert {name for name, cell in found.items() if cell == "none"} == {
        name for name in SUBJECTS if re.match("Dynamo|graph break in", kept()[name, "aot"])
    }


def test_count_that_is_off_by_one_is_an_error() -> None:
    subject = SUBJECTS["mlp"]()
    captured = capture(subject.model, *subject.args, via="aot")
    counts = COUNTED["aot"](subject)
    assert miscounted(captured, counts) == []
    counts[1]["aten.mm.default"] += 1
    assert miscounted(captured, counts) == [
        "backward: too many {}, too few {'aten.mm.default': 1}",
    ]
    assert miscounted(captured, counts[:1]) == ["2 graphs, torch made 1"]
