"""Eager graphs have the same text in other processes, in another order, and with warm caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from mechanisms.islands.cases import CASES

from pytest_torchgraph import capture

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from mechanisms.islands.test_same_text import texts
names = sys.argv[2:]
texts(names)
print(json.dumps(texts(names)))
"""


def texts(names: list[str]) -> dict[str, str]:
    """Return the text of each case, in this order, at all levels of detail."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            torch.manual_seed(0)
            target, args = CASES[name]()
            captured = capture(target, *args)
            found[name] = captured.to_text("full") + captured.to_text("ops")
    return found


def elsewhere(names: list[str], seed: str) -> dict[str, str]:
    """Return the texts of a second round in another process, in reverse order."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[2]), *names[::-1]],
        env={
            "PATH": os.environ.get("PATH", ""),
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(Path.cwd()),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.slow("long models; short ones are in every run")
def test_eager_text_is_equal_in_another_process_order_and_round() -> None:
    here = texts(list(CASES))
    assert any("\neager_0" in text for text in here.values())
    assert elsewhere(list(CASES), "1") == here
    assert elsewhere(list(CASES), "22") == here
