"""Helpers shared by tests that run pytest on a separate project."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

GRAPHS = '''
"""Graphs without torch, for the tests inside the test."""
import os

from pytest_torchgraph.graph import Graph
from pytest_torchgraph.graph.text.format import Header


def text(*ops, name="forward", torch="2.13.0", tail="", stride=""):
    """Return a chain of ops, by default those in the environment variable OP.

    If the variable SAVE is set, the result is saved for a backward.
    """
    lines = [f"torchgraph 1\\nvia aot, torch {torch}{tail}\\n\\n{name} {{"]
    lines.append(f"  %x = input : f32[2, 16]{stride}")
    last = "x"
    for i, op in enumerate(ops or os.environ.get("OP", "relu").split()):
        lines.append(f"  %layer.{i}/{op} = aten.{op}.default(%{last}) : f32[2, 16]{stride}")
        last = f"layer.{i}/{op}"
    saved = [f"  save %{last}"] if "SAVE" in os.environ else []
    return "\\n".join([*lines, f"  return %{last}", *saved, "}\\n"])


def graph(*ops, **kwargs):
    return Graph.from_text(text(*ops, **kwargs))


class Capture:
    """As much of a capture as a stored graph needs."""

    def __init__(self, *graphs, torch="2.13.0"):
        self.graphs = graphs
        self.header = Header(via="aot", torch=torch)
'''


def section(result: pytest.RunResult) -> list[str]:
    """Return the lines of the only torchgraph section of a run."""
    heads = [i for i, line in enumerate(result.outlines) if line.strip("-") == " torchgraph "]
    assert len(heads) == 1, f"{len(heads)} torchgraph sections in\n{result.stdout}"
    lines = result.outlines[heads[0] + 1 :]
    ends = [i for i, line in enumerate(lines) if line[:3] in ("---", "===", "___")]
    return lines[: ends[0]]


def stored_graphs(result: pytest.RunResult) -> list[str]:
    """Return the lines of a run's section "stored graphs", or [] if it has no such section."""
    heads = [i for i, line in enumerate(result.outlines) if line.strip("= ") == "stored graphs"]
    if not heads:
        return []
    rest = result.outlines[heads[0] + 1 :]
    return rest[: next(i for i, line in enumerate(rest) if line.startswith("="))]


def files(pytester: pytest.Pytester) -> dict[str, bytes]:
    """Return all stored files of a project, and all files beside them."""
    return {
        path.relative_to(pytester.path).as_posix(): path.read_bytes()
        for directory in pytester.path.rglob("__snapshots__")
        for path in directory.rglob("*")
        if path.is_file()
    }
