"""Our message about a recompile has every fact of torch's message, and the new value."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import torch
from watching import recompile_cases
from watching.recompile_kinds import KINDS, facts, run
from watching.recompile_table import KEPT, RELEASE, text

LINES = Path(recompile_cases.__file__).read_text().splitlines()


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=[
        "None for a tensor",
        "a device",
        "another function",
        "autocast",
        "grad mode",
        "requires_grad",
        "strides",
        "the default dtype",
        "the same tensor twice",
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_recompile_message_has_torchs_facts_and_the_new_value(name: str) -> None:
    log, seen = run(name)
    recompile = seen.recompiles[-1]
    said = str(recompile)
    expected = facts(log)
    assert len(expected) >= 3, log
    assert {fact for fact in expected if fact not in said} == set(), f"{log}\n{said}"
    assert KINDS[name].new in said
    assert not re.search(r"0x[0-9a-f]{6}|\b\d{7,}\b|/site-packages/|___check", said)
    assert recompile.file == "tests/watching/recompile_cases.py"
    assert recompile.function in LINES[recompile.line - 1]
    with pytest.raises(AssertionError, match="recompil") as failure:
        seen.assert_no_recompiles()
    assert textwrap.indent(str(seen.recompiles[0]), "  ") in str(failure.value)


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
@pytest.mark.skipif(not torch.__version__.startswith(RELEASE), reason="made by another torch")
def test_kept_recompile_table_is_current() -> None:
    assert KEPT.read_text() == text()
