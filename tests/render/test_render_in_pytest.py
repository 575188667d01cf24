"""A missing or broken renderer does not change the result of a test run."""

from __future__ import annotations

import os

import pytest
from projects import Run, section

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fake renderers are shell scripts")


def test_broken_renderer_keeps_the_result_and_is_reported(
    pytester: pytest.Pytester, run: Run
) -> None:
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
    dot = pytester.mkdir("bin") / "dot"
    dot.write_text('#!/bin/sh\necho garbage > "$3"\n')
    dot.chmod(0o755)
    path = f"{dot.parent}{os.pathsep}{os.defpath}"
    result = run("--torchgraph-artifacts=out", OP="gelu", PATH=path)
    result.assert_outcomes(failed=1)
    lines = section(result)
    assert lines[0] == "1 edit: aten.relu -> aten.gelu in layer.0"
    (picture,) = (line for line in lines if line.startswith("picture: "))
    assert picture.startswith("picture: none, dot: wrote a file that is not a complete SVG")
    (dot_file,) = (pytester.path / "out").glob("*.dot")
    assert str(dot_file) in picture
    assert dot_file.read_text().startswith("digraph")
    assert not [*(pytester.path / "out").glob("*.svg")]
