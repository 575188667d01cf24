"""Kinds of blocks in the subjects, against a table that was written by hand."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from subjects.blocks_table import KINDS
from subjects.models import SUBJECTS

import pytest_torchgraph as tg


@pytest.mark.slow("further models and mechanisms", unless=["mlp-dispatch"])
@pytest.mark.parametrize(
    ("name", "via"),
    [
        *((name, "dispatch") for name in KINDS),
        *zip(KINDS, itertools.cycle(["aot", "dynamo", "export"]), strict=False),
    ],
)
def test_block_kinds_agree_with_the_table(name, via, tmp_path):
    subject = SUBJECTS[name]()
    with torch.set_grad_enabled(subject.grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        capture = tg.capture(subject.model, *subject.args, via=via, **subject.kwargs)
    path = tmp_path / "stored.tgraph"
    path.write_text(capture.to_text(), encoding="utf-8")
    stored = tg.load(path)
    for glob, expected in KINDS[name].items():
        for of, kinds in (("live", capture.repeated(glob)), ("file", stored.repeated(glob))):
            found = [len(kind.members) for kind in kinds]
            assert found == expected, f"{glob}, {of}: {[kind.members for kind in kinds]}"
