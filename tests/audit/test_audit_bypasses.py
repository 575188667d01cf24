"""The audit of a suite whose compiled functions no cache serves: shown, recorded, checked."""

from __future__ import annotations

import pytest

SUITE = """
import torch

@torch.compiler.allow_in_graph
def opaque(x):
    return x @ x

def step(x):
    return {step}

def test_one():
    torch._dynamo.reset()
    torch.compile(step)(torch.ones(4, 4))

def test_two():
    torch._dynamo.reset()
    torch.compile(step)(torch.ones(4, 4))
"""


@pytest.mark.slow("four runs of pytest")
def test_new_bypass_is_one_cause_with_its_tests_and_fails_the_check(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_it=SUITE.format(step="x @ x"))
    recorded = pytester.runpytest("--torchgraph-audit=record")
    assert recorded.ret == 0
    recorded.stdout.no_fnmatch_line("*compiled anew*")
    pytester.makepyfile(test_it=SUITE.format(step="opaque(x)"))
    checked = pytester.runpytest("--torchgraph-audit=check", "-v")
    assert checked.ret == 1
    checked.stdout.fnmatch_lines(
        ["*2 tests*cache bypass, compiled in every process: test_it.py:8 in step*opaque*"]
    )
    assert pytester.runpytest("--torchgraph-audit=record").ret == 0
    assert pytester.runpytest("--torchgraph-audit=check").ret == 0
