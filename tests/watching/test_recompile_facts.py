"""Our message about a recompile has every fact of torch's message, and the new value."""

from __future__ import annotations

import re

import pytest
import torch
from watching.recompile_kinds import KINDS, facts, run
from watching.recompile_table import KEPT, RELEASE, text


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["a device", "autocast", "grad mode", "requires_grad", "the default dtype"],
)
@pytest.mark.parametrize("name", KINDS)
def test_recompile_message_has_torchs_facts_and_the_new_value(name: str) -> None:
    log, recompile = run(name)
    said = str(recompile)
    expected = facts(log)
    assert len(expected) >= 3, log
    assert {fact for fact in expected if fact not in said} == set(), f"{log}\n{said}"
    assert KINDS[name].new in said
    assert not re.search(r"0x[0-9a-f]{6}|\b\d{9,}\b|/site-packages/|___check", said)


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
@pytest.mark.skipif(not torch.__version__.startswith(RELEASE), reason="made by another torch")
def test_kept_recompile_table_is_current() -> None:
    assert KEPT.read_text() == text()
