"""A project of 16 tests, and the artifacts of one run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TESTS = '''
"""14 tests have the edit of OP, two of them also the edit of OTHER; two have only the latter."""
import os

import pytest
from graphs import Capture, graph

OP, OTHER = os.environ.get("OP", "gelu"), os.environ.get("OTHER", "log")


@pytest.mark.parametrize("k", range(14))
def test_net(graph_snapshot, k):
    ops = ["sin", *["cos", "exp"] * (k % 4), OP, "tan"]
    if k >= 12:
        ops.append(OTHER)
    elif k == 11:
        ops = [OP] * 12
    detail = {9: "ops", 10: "full"}.get(k, "dataflow")
    stride = " stride [16, 1]" if detail == "full" else ""
    assert Capture(graph(*ops, stride=stride)) == graph_snapshot(detail=detail)


@pytest.mark.parametrize("k", range(2))
def test_other(graph_snapshot, k):
    assert Capture(graph(*["neg"] * (k + 1), OTHER)) == graph_snapshot(name="last")


if "NEW" in os.environ:

    def test_new(graph_snapshot):
        assert Capture(graph("abs")) == graph_snapshot
'''
CONFTEST = '''
"""No picture is drawn: many take long."""
import pytest_torchgraph.render.output as output


def draw(*args):
    raise OSError("not in this run")


output.draw = draw
'''
EDITED = {"OP": "relu", "OTHER": "abs", "NEW": "1"}
"""The environment in which the tests capture different graphs."""

FIRST, SECOND, COUNTS, NEW = 1, 2, 3, 4
"""The numbers of the causes: of OP, of OTHER, of OP in stored op counts, and of a missing
snapshot."""


HOME = "__snapshots__/test_a"


class Left(NamedTuple):
    """A checkout with the artifacts of a run on another machine.

    Attributes:
        root: the checkout.
        directory: the artifacts.
    """

    root: Path
    directory: Path

    def stored(self) -> dict[str, bytes]:
        """Return all stored files of the checkout, and all files beside them."""
        return stored_in(self.root)


def stored_in(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in (root / "__snapshots__").rglob("*")
        if path.is_file()
    }
