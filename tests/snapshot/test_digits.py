"""`graph_snapshot(digits=)` and the ini value `torchgraph_digits`."""

from __future__ import annotations

import pytest
from projects import Run

TEST = """
import os
from pytest_torchgraph import Graph

TEXT = '''torchgraph 1

main: forward @ fx {
  %x = input : f32[2]
  %y = aten.mul.Tensor(%x, SCALE) : f32[2]
  return %y
}
'''

def test_scale(graph_snapshot):
    assert Graph.from_text(TEXT.replace("SCALE", os.environ["SCALE"])) == graph_snapshot{}
"""


@pytest.fixture
def scaled(pytester: pytest.Pytester, run: Run) -> Run:
    """Run the test with a scale, with `digits` in its code, and with an ini file."""

    def scaled(scale: str, *args: str, digits: str = "", ini: str = "") -> pytest.RunResult:
        pytester.makepyfile(test_net=TEST.replace("graph_snapshot{}", f"graph_snapshot{digits}"))
        pytester.makeini(f"[pytest]\n{ini}\n")
        return run(*args, SCALE=scale)

    return scaled


def stored(pytester: pytest.Pytester) -> str:
    return (pytester.path / "__snapshots__/test_net/test_scale.tgraph").read_text("utf-8")


@pytest.mark.slow("a run of pytest of its own")
def test_stored_digits_apply_until_an_update(scaled: Run, pytester: pytest.Pytester) -> None:
    scaled("0.76151", "--torchgraph-update", digits="(digits=2)").assert_outcomes(passed=1)
    assert "(%x, 0.76)" in stored(pytester)
    assert "digits 2\n" in stored(pytester)
    scaled("0.7613").assert_outcomes(passed=1)
    result = scaled("0.78")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*only float constants differ:*torch.manual_seed(0)*graph_snapshot(digits=3)*"]
    )
    scaled("0.7613", "--torchgraph-update").stdout.fnmatch_lines(["*exact floats, was*2 digits*"])
    assert "0.7613" in stored(pytester)
    assert "digits" not in stored(pytester)


@pytest.mark.slow("a run of pytest of its own")
def test_exact_file_is_compared_with_the_digits_of_the_test(scaled, pytester):
    scaled("0.76151", "--torchgraph-update").assert_outcomes(passed=1)
    before = stored(pytester)
    scaled("0.7613", digits="(digits=3)").assert_outcomes(failed=1)
    scaled("0.7617", ini="torchgraph_digits = 3").assert_outcomes(passed=1)
    scaled("9.5", ini="torchgraph_digits = 0").assert_outcomes(passed=1)
    scaled("0.7617", digits="(digits=5)", ini="torchgraph_digits = 0").assert_outcomes(failed=1)
    assert stored(pytester) == before


def test_float_advice_only_if_nothing_else_differs(scaled, pytester):
    scaled("0.76151", "--torchgraph-update").assert_outcomes(passed=1)
    path = pytester.path / "__snapshots__/test_net/test_scale.tgraph"
    path.write_text(stored(pytester).replace("mul.Tensor", "div.Tensor"), "utf-8")
    result = scaled("0.5")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*only float constants*")


@pytest.mark.parametrize("ini", ["18", "x", "-1"])
def test_invalid_digits_are_refused(scaled, ini):
    result = scaled("0.5", ini=f"torchgraph_digits = {ini}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*torchgraph_digits: must be an int from 0 to 17, or not set*"])
