"""Stored graphs: `.tgraph` files beside the tests, kept by syrupy, compared as graphs.

What a test leaves behind for its report is in its stash, under the keys here. This module imports
nothing but pytest, so that tests without graphs pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .compare import Mismatch

MISMATCHES: pytest.StashKey[dict[str, Mismatch]] = pytest.StashKey()
"""The comparisons that failed in the running phase of a test, the last one for each stored file."""

STORED: pytest.StashKey[list[tuple[str, str, str]]] = pytest.StashKey()
"""What an update did in the running phase of a test: "created", "updated" or "unchanged", the file,
and what is new in it, "" where nothing is."""

USED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether a test has compared anything with the `graph_snapshot` that was made for it."""

COMPARED: pytest.StashKey[list[str]] = pytest.StashKey()
"""The stored files that the running phase of a test compared with."""
