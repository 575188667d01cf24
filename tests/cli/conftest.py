"""Commands, run in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_torchgraph.cli import main

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that exits with `code`, and return its output, or its error if it has none."""

    def run(*words: object, code: int) -> str:
        assert main([str(word) for word in words]) == code
        out, err = capsys.readouterr()
        return out or err

    return run
