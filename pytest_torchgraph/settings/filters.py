"""Options of pytest that leave out tests."""

from __future__ import annotations

import pytest

FILTERS = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "lf": "--last-failed",
    "last_failed": "--last-failed",
    "stepwise": "--stepwise",
    "collectonly": "--collect-only",
}
"""The options, each with the text that a user types."""


def filter_given(config: pytest.Config) -> str:
    """The option that leaves out tests of this run, "" for none."""
    given = (shown for name, shown in FILTERS.items() if getattr(config.option, name, None))
    return next(given, "")
