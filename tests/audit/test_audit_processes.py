"""An audit under torchrun with several processes, each of them with its own baseline."""

from __future__ import annotations

import pytest
from projects import Run

SUITE = """
import os

def test_nothing():
    assert os.environ
"""


def process(rank: int, world: int = 2) -> dict[str, str]:
    """Return the environment of one process, as torchrun sets it."""
    return {"RANK": str(rank), "WORLD_SIZE": str(world)}


def test_each_process_records_and_checks_its_own_baseline(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=SUITE)
    for env in (process(0), process(1), {}):
        assert run("--torchgraph-audit=record", **env).ret == 0
    names = sorted(path.name for path in pytester.path.glob("torchgraph-audit*"))
    assert names == [
        "torchgraph-audit.json",
        "torchgraph-audit@rank-0-of-2.json",
        "torchgraph-audit@rank-1-of-2.json",
    ]
    (pytester.path / names[1]).unlink()
    assert run("--torchgraph-audit=check", **process(1)).ret == 0
    result = run("--torchgraph-audit=check", **process(0))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*torchgraph-audit@rank-0-of-2.json: no baseline exists. To create it: "
            "torchrun --nproc-per-node=2 -m pytest --torchgraph-audit=record"
        ]
    )
