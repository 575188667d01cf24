"""A failed check has a picture: in the report's section, the artifacts, JUnit, and the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from projects import Run

PROJECT = """
    import unittest

    import pytest
    import pytest_torchgraph
    import torch
    from torch import nn


    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(8, 16)

        def forward(self, x):
            y = self.up(x)
            if y.sum() > 0:
                y = y.relu()
            return y * 2


    def watched():
        with pytest_torchgraph.watch() as capture:
            torch.compile(Gated(), backend="eager")(torch.ones(2, 8))
        return capture


    def test_breaks(graph_capture):
        watched().assert_no_graph_breaks()


    @pytest.mark.torchgraph
    def test_marker():
        torch.compile(Gated(), backend="eager")(torch.ones(2, 8))


    def test_counts(graph_capture):
        graph_capture(nn.Linear(2, 2), torch.ones(1, 2)).assert_op_counts({"aten.t": 1})


    def test_exact(graph_capture):
        graph_capture(nn.Linear(2, 2), torch.ones(1, 2)).forward.assert_op_counts(
            {"aten.addmm": 1}, exact=True
        )


    def test_ops(graph_capture):
        graph_capture(nn.Linear(2, 2), torch.ones(1, 2)).assert_no_ops("aten.addmm")


    def test_too_few(graph_capture):
        graph_capture(nn.Linear(2, 2), torch.ones(1, 2)).assert_op_counts({"aten.addmm": 2})


    def test_subtests(subtests, graph_capture):
        with subtests.test("one"):
            graph_capture(nn.Linear(2, 2), torch.ones(1, 2)).assert_no_ops("aten.addmm")


    def test_expected(graph_capture):
        with pytest.raises(AssertionError):
            graph_capture(nn.Linear(2, 2), torch.ones(1, 2)).assert_no_ops("aten.addmm")


    class TestCase(unittest.TestCase):
        def test_unittest(self):
            pytest_torchgraph.capture(nn.Linear(2, 2), torch.ones(1, 2)).assert_no_ops("aten.addmm")
"""

WITH_PICTURE = {
    "test_breaks": "graph break 1",
    "test_marker": "graph break 1",
    "test_counts": "! aten.t",
    "test_exact": "! aten.t",
    "test_ops": "! aten.addmm",
    "test_unittest": "! aten.addmm",
    "test_subtests": "! aten.addmm",
}


def sections(output: str) -> dict[str, str]:
    """Return the failures of a run by test name."""
    parts = re.split(r"^_{3,} (.+?) _{3,}$", output, flags=re.MULTILINE)
    failures: dict[str, str] = {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        name = title.rpartition(".")[2].partition(" ")[0]
        failures[name] = failures.get(name, "") + text  # a subtest has a separate section
    return failures


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
@pytest.mark.parametrize("how", ["rewrite", "plain"])
def test_failed_check_is_drawn(pytester: pytest.Pytester, run: Run, how: str) -> None:
    pytester.makepyfile(test_net=PROJECT)
    result = run(
        f"--assert={how}", "--torchgraph-artifacts=out", "--junitxml=junit.xml", "-o",
        "junit_family=xunit1",
    )  # fmt: skip
    assert result.parseoutcomes()["failed"] >= 8
    failures = sections(str(result.stdout))
    for name, words in WITH_PICTURE.items():
        (shown,) = re.findall(r"^picture: (out/\S+\.svg)", failures[name], re.MULTILINE)
        assert words in (pytester.path / shown).read_text(encoding="utf-8"), name
        assert str(Path("out") / Path(shown).name) in (pytester.path / "junit.xml").read_text()
    assert "picture:" not in failures["test_too_few"]
    assert "test_expected" not in failures
    assert len(list((pytester.path / "out").glob("*.svg"))) == len(WITH_PICTURE)


def test_undrawable_picture_changes_no_outcome(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=PROJECT)
    pytester.path.joinpath("file").write_text("")
    result = run("-k", "test_ops or test_expected", "--torchgraph-artifacts=file/out")
    result.assert_outcomes(failed=1, passed=1, deselected=7)
    assert re.search(r"^picture: none, \w+Error: ", str(result.stdout), re.MULTILINE)
    assert "AssertionError: unexpected ops" in str(result.stdout)
