"""No argument of a public function ends the process or raises an undocumented exception."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import odd_arguments
import pytest
from odd_arguments import ODD, Subject, named, supervise
from projects import Run

from pytest_torchgraph import from_fx

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


@pytest.mark.slow("9,500 calls in two processes and their children")
@pytest.mark.parametrize("shard", [0, 1])
def test_every_public_function_with_odd_arguments(shard: int) -> None:
    """See `odd_arguments`. Each parameter gets at least six odd values."""
    result = subprocess.run(
        [sys.executable, odd_arguments.__file__, str(shard), "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["problems"] == []
    assert report["calls"] > 4000
    assert report["subjects"] > 200


def test_from_fx_with_odd_arguments() -> None:
    arguments = odd_arguments.ARGUMENTS["from_fx"](None)  # type: ignore[arg-type]
    count, problems = supervise(
        Subject("from_fx", from_fx, (), arguments, named(from_fx), tuple(ODD))
    )
    assert count == 3 * len(ODD)
    assert problems == []


@pytest.mark.slow("runs pytest; the fixture is not available without it")
def test_graph_snapshot_with_odd_arguments(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import torch
        from odd_arguments import ODD, Subject, named, supervise

        def test_x(graph_snapshot, graph_capture):
            options = {{"name": "a", "detail": "full", "digits": 3}}
            allowed = named(type(graph_snapshot).__call__)
            count, problems = supervise(
                Subject("graph_snapshot", graph_snapshot, (), options, allowed, tuple(ODD))
            )
            assert count == 3 * len(ODD)
            assert problems == []
            assert graph_capture(torch.relu, torch.ones(2), via="dispatch") == graph_snapshot
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=1)


def test_each_kind_of_problem_is_reported() -> None:
    """An undocumented exception, the end of the process by a signal and by an exit."""

    def fragile(value: Any = 1, other: int = 1) -> None:
        """Raise TypeError or ValueError, and worse."""
        if other != 1:
            raise ValueError
        if value is None:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == "":
            os._exit(0)
        if value == 0:
            raise LookupError("undocumented")
        raise TypeError

    values = ("None", "''", "-1", "0", "refusing")
    subject = Subject("fragile", fragile, (), {"value": 1, "other": 1}, named(fragile), values)
    count, problems = supervise(subject)
    assert count == 10
    assert [problem.partition(" [")[0] for problem in problems] == [
        "fragile(value=None): the process ended, signal 9",
        "fragile(value=''): the process ended, status 0",
        "fragile(value=0): LookupError: 'undocumented'",
    ]


def test_a_public_function_without_a_row_is_an_error() -> None:
    def new(required: int) -> None: ...

    with pytest.raises(LookupError, match="new needs a row in ARGUMENTS"):
        odd_arguments._subject("new", new, None, frozenset())  # type: ignore[arg-type]


def test_docstrings_name_exceptions_also_of_other_functions() -> None:
    assert named("Raises:\n    TypeError: if.\n    OSError: see `load`.") == named(
        "TypeError"
    ) | named("see `load`")
    assert "GraphFormatError" in named("see `pytest_torchgraph.load`")
    assert Path(odd_arguments.__file__).exists()
