"""Stored graphs: `.tgraph` files beside the tests, kept by syrupy, compared as graphs.

What a test leaves behind for its report is in its stash, under the keys here. This module imports
nothing but pytest, so that tests without graphs pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .compare import Mismatch

MISMATCHES: pytest.StashKey[list[Mismatch]] = pytest.StashKey()
"""The comparisons that failed in the running phase of a test."""

WRITTEN: pytest.StashKey[list[tuple[str, str]]] = pytest.StashKey()
"""The files written in the running phase of a test: "created" or "updated", and the path."""

COMPARED: pytest.StashKey[list[str]] = pytest.StashKey()
"""The stored files that the running phase of a test compared with."""
