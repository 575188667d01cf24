"""A regression of a suite is named with its line, and an improvement is offered."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import Run
from sample_suite import FILES, IMPROVEMENTS, PART_DETACHED, REGRESSIONS, Edit

FILE = "torchgraph-audit.json"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def kept() -> dict[str, bytes]:
    """A cache for the suite's recorded baseline."""
    return {}


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run, kept: dict[str, bytes]) -> Run:
    """The suite with its baseline."""
    write(pytester.path, FILES)
    if not kept:
        run("--torchgraph-audit=record").assert_outcomes(passed=27, skipped=1, xfailed=1)
        kept[FILE] = (pytester.path / FILE).read_bytes()
    (pytester.path / FILE).write_bytes(kept[FILE])
    return run


def changed(pytester: pytest.Pytester, *edits: Edit) -> dict[str, str]:
    files = FILES
    for edit in edits:
        files = edit.applied(files)
    write(pytester.path, files)
    return files


def verdict(result: pytest.RunResult, heading: str) -> str:
    """Return the text below a heading."""
    printed = result.stdout.str()
    assert f"\n{heading} {FILE}" in printed, printed
    return printed.partition(f"\n{heading} {FILE}")[2].partition("\n==")[0]


NAMES = {edit.name: edit for edit in REGRESSIONS}
ONCE = ("print", "break in a loop", "compiler.disable", "no_grad", "dynamic=False", "a guard")
TOGETHER = (
    ONCE,
    (
        *("item", "stance force_eager", "suppressed errors", "fullgraph dropped, and a break"),
        *("a known break more often", "half of the model"),
    ),
    ("if on data", "ops moved out", "a break in shared code"),
    ("graph_break()", "another backend", "shared code that is not compiled any more"),
    ("nothing compiled", "a test that returns early", "shared code of another backend"),
    (
        *("compiled and never called", "torch.compile removed"),
        "shared code that compiles nothing",
    ),
    ("a break in a shared helper", "a limit lowered"),
    ("stance eager_on_recompile",),
)
"""Edits that do not hide each other. What stays for later tests is the last of its suite."""


def test_each_regression_is_in_a_group() -> None:
    names = [name for group in TOGETHER for name in group]
    assert sorted([*names, PART_DETACHED]) == sorted(NAMES)


@pytest.mark.slow("runs pytest several times")
@pytest.mark.parametrize("group", TOGETHER, ids=lambda group: group[0])
def test_regressions_are_named_with_their_lines(
    pytester: pytest.Pytester, suite: Run, group: tuple[str, ...]
) -> None:
    edits = [NAMES[name] for name in group]
    files = changed(pytester, *edits)
    result = suite("--torchgraph-audit=check")
    result.assert_outcomes(passed=27, skipped=1, xfailed=1)
    assert result.ret == 1
    text = verdict(result, "worse than")
    for edit in edits:
        assert edit.place(files) in text
        assert edit.says in text
    if group is ONCE:
        assert text.count(" tests  ") + text.count(" test  ") == len(edits)


@pytest.mark.slow("several changes at once are in every run")
def test_detach_beside_another_gradient_path_is_not_detected(
    pytester: pytest.Pytester, suite: Run
) -> None:
    changed(pytester, NAMES[PART_DETACHED])
    result = suite("--torchgraph-audit=check")
    assert result.ret == 0
    assert "more ops" in verdict(result, "better than")


@pytest.mark.slow("several changes at once are in every run")
def test_improvements_are_reported(pytester: pytest.Pytester, suite: Run) -> None:
    changed(pytester, *IMPROVEMENTS)
    result = suite("--torchgraph-audit=check")
    result.assert_outcomes(passed=27, skipped=1, xfailed=1)
    assert result.ret == 0, result.stdout.str()
    better = verdict(result, "better than")
    assert [edit.name for edit in IMPROVEMENTS if edit.says not in better] == [], better
    assert better.count("test_own.py::") >= len(IMPROVEMENTS)
    suite("--torchgraph-audit=record")
    assert "better than" not in suite("--torchgraph-audit=check").stdout.str()
