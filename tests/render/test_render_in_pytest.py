"""A missing or broken renderer does not change the result of a test run."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from projects import Run, section

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fake renderers are shell scripts")

RENDERERS = {
    "missing": (None, "dot: not found on the PATH"),
    "crashes": ("echo out of cheese >&2; kill -SEGV $$", "dot: killed by signal 11: out of cheese"),
    "garbage": (
        'echo garbage > "$3"; echo garbage',
        "dot: wrote a file that is not a complete SVG",
    ),
}


@pytest.fixture
def differing(pytester: pytest.Pytester, run: Run) -> Run:
    """A project whose graph differs from the stored one."""
    pytester.makepyfile(
        test_net="""
        import sys
        sys.modules["pygraphviz"] = None  # as if it were not installed

        from graphs import graph

        def test_step(graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=1)
    return run


def outcome(result: pytest.RunResult) -> list[str]:
    """Return the section without artifacts, and the message of the assertion."""
    lines = [line for line in section(result) if not line.startswith(("picture: ", "review: "))]
    return [*lines, *(line for line in result.outlines if line.startswith("E "))]


@pytest.mark.slow("further cases; a few are in every run", unless=["garbage"])
@pytest.mark.parametrize(("script", "problem"), RENDERERS.values(), ids=RENDERERS)
def test_broken_renderer_keeps_the_result_and_is_reported(
    pytester: pytest.Pytester, differing: Run, script: str | None, problem: str
) -> None:
    if shutil.which("dot") is None:
        pytest.skip("no `dot` on the PATH to compare with")
    usual = differing(OP="gelu")
    folder = pytester.mkdir("bin")
    if script is not None:
        dot = folder / "dot"
        dot.write_text(f"#!/bin/sh\n{script}\n")
        dot.chmod(dot.stat().st_mode | stat.S_IXUSR)

    result = differing("--torchgraph-artifacts=out", OP="gelu", PATH=_path(folder, script))

    result.assert_outcomes(failed=1)
    assert outcome(result) == outcome(usual)
    (picture_line,) = (line for line in section(result) if line.startswith("picture: "))
    assert picture_line.startswith("picture: none, dot: ")
    assert problem in picture_line
    (dot_file,) = (path for path in (pytester.path / "out").iterdir() if path.suffix == ".dot")
    assert str(dot_file) in picture_line
    assert dot_file.read_text().startswith("digraph")
    suffixes = {path.suffix for path in (pytester.path / "out").iterdir()}
    assert suffixes == {".dot", ".txt", ".diff", ".tgraph", ".json"}


def _path(folder: Path, script: str | None) -> str:
    return str(folder) if script is None else f"{folder}{os.pathsep}{os.defpath}"
