"""`assert_cacheable`, a restart here and a second process agree on each case."""

from __future__ import annotations

import pytest
from subjects.cache_cases import CASES, answers


@pytest.mark.slow("further cases and a process each")
@pytest.mark.parametrize("name", CASES)
def test_capture_restart_and_process_agree(name: str) -> None:
    case = CASES[name]
    assert not answers(case).wrong(case.expected)
