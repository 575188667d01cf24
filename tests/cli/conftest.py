"""Commands, run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_torchgraph.cli import main

Run = Callable[..., str]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
NAMES = frozenset(
    {"ops", "costs", "cache", "counts", "releases", "unreadable", "not_compared"}
    | {"identity", "source"}
)
"""Keys of objects whose own keys are names, or are documented elsewhere."""


def undocumented(document: object) -> list[str]:
    """Return the keys of a JSON document that the reference does not name."""
    page = PAGE.read_text(encoding="utf-8")
    return sorted(key for key in _keys(document) if f"`{key}`" not in page)


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        inner = [item for key, item in value.items() if key not in NAMES]
        return {*value}.union(*map(_keys, inner))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that exits with `code`, and return its output, or its error if it has none."""

    def run(*words: object, code: int) -> str:
        assert main([str(word) for word in words]) == code
        out, err = capsys.readouterr()
        return out or err

    return run
