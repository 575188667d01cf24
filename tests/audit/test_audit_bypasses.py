"""The audit of a suite with cache bypasses: shown, recorded, checked."""

from __future__ import annotations

import pytest

SUITE = """
import pytest, torch

@torch.compiler.allow_in_graph
def opaque(x):
    return x @ x

def step(x):
    return {step}

def choose(x, left):
    return {choose}

def plain(x):
    return x @ x.t()

def square(x):
    return x @ x

LEFT = torch.tensor(True)

@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()

@pytest.mark.parametrize("size", [2, 3, 4])
def test_step(size):
    torch.compile(step)(torch.ones(size, size))

@pytest.mark.parametrize("size", [2, 3])
def test_choose(size):
    torch.compile(choose)(torch.ones(size, size), LEFT)

def test_both():
    torch.compile(step)(torch.ones(2, 2))
    torch.compile(choose)(torch.ones(2, 2), LEFT)

def test_plain():
    torch.compile(plain)(torch.ones(2, 2))
"""
CACHED = SUITE.format(step="x @ x", choose="x @ x @ x")
REFUSED = SUITE.format(step="opaque(x)", choose="torch.cond(left, square, plain, (x,))")


@pytest.mark.slow("five runs of pytest")
def test_two_new_bypasses_are_two_causes_and_fail_the_check(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # so that a line of the audit fits the terminal
    pytester.makepyfile(test_it=CACHED)
    recorded = pytester.runpytest("--torchgraph-audit=record")
    assert recorded.ret == 0
    recorded.stdout.no_fnmatch_line("*cache bypass*")
    pytester.makepyfile(test_it=REFUSED)
    lines = [
        "*4 tests*cache bypass, so compiled in every process: test_it.py:8 in step*opaque*",
        "*3 tests*cache bypass, so compiled in every process: test_it.py:11 in choose*cond*",
    ]
    shown = pytester.runpytest("--torchgraph-audit=show")
    assert shown.ret == 0
    for line in lines:
        assert len(_matching(shown, line)) == 1
    checked = pytester.runpytest("--torchgraph-audit=check", "-v")
    assert checked.ret == 1
    for line in lines:
        assert len(_matching(checked, line)) == 2  # in this run, and in the regressions
    checked.stdout.no_fnmatch_line("*cache bypass*in plain*")
    assert pytester.runpytest("--torchgraph-audit=record").ret == 0
    assert pytester.runpytest("--torchgraph-audit=check").ret == 0


def _matching(result: pytest.RunResult, glob: str) -> list[str]:
    from fnmatch import fnmatchcase

    return [line for line in result.outlines if fnmatchcase(line, glob)]
