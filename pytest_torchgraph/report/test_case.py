"""Isolation and snapshot comparisons of `GraphTestCase` tests that pytest runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pytest

from ..settings import config as settings
from ..torch_release import why_unsupported

if TYPE_CHECKING:
    from ..graph.model import Detail


class PytestTestRun:
    """Implementation of `api.testcase.PytestRun` for a running `GraphTestCase` test.

    Args:
        request: the request of a fixture of the test.
        is_isolated: True if a fixture isolates the whole test.
    """

    def __init__(self, request: pytest.FixtureRequest, is_isolated: bool) -> None:
        self._request = request
        self._is_isolated = is_isolated

    def isolated(self, fresh: bool) -> AbstractContextManager[None]:
        """Return a context that isolates the rest of the test.

        The context does nothing if the test is already isolated, or if isolation is off.
        """
        if reason := why_unsupported():
            pytest.skip(reason)
        from ..isolation import isolated

        config = self._request.config
        if self._is_isolated or not settings.get(config).isolation:
            return nullcontext()
        worker = getattr(config, "workerinput", {}).get("workerid", "")
        return isolated(worker, fresh=fresh)

    def compare(self, value: object, name: str | None, detail: Detail | None) -> None:
        """Compare a value with its stored graph.

        Raises:
            AssertionError: if the graphs differ.
        """
        snapshot = self._request.getfixturevalue("graph_snapshot")(name=name, detail=detail)
        snapshot.function = "assertGraph"
        if value == snapshot:
            return
        from .mismatch import assertion_lines

        raise AssertionError("\n".join(assertion_lines("==", snapshot)))
