"""Suites with tests that depend on each other: wider fixture scopes, settings, isolation."""

from __future__ import annotations

import json

import pytest
from projects import Run

SUITE = """
    import pytest
    import torch
    import torch._dynamo


    @pytest.fixture(scope="module")
    def compiled():
        torch._dynamo.config.suppress_errors = True
        function = torch.compile(lambda x: x.sin(), backend="eager")
        function(torch.ones(3))
        yield function
        torch._dynamo.config.suppress_errors = False


    @torch.compile(backend="eager")
    def decorated(x):
        return x.sin() + 1


    def test_one(compiled):
        compiled(torch.ones(3))


    def test_two(compiled):
        compiled(torch.ones(3))


    def test_first_call():
        decorated(torch.ones(3))


    def test_second_call():
        decorated(torch.ones(3))


    def test_only_compiles():
        torch.compile(decorated, backend="eager")


    def test_zz_monkeypatch():
        torch._dynamo.config.specialize_float = True
        del torch._dynamo.config.verbose  # as monkeypatch.setattr of pytest 9 does at its end


    def test_zz_monkeypatch_again():
        torch._dynamo.config.specialize_float = False
"""
FILE = "torchgraph-audit.json"


@pytest.mark.slow("several changes at once are in every run", unless=[""])
@pytest.mark.parametrize(
    "how", [(), ("-p", "xdist", "-n", "2", "--dist", "loadfile")], ids=["", "n2"]
)
def test_audit_of_odd_suites_reports_settings_and_calls(
    pytester: pytest.Pytester, run: Run, how: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_odd=SUITE)
    result = run("-v", *how, "--torchgraph-audit=show")
    result.assert_outcomes(passed=7)
    result.stdout.fnmatch_lines(
        [
            "*nothing compiled: test_odd.py:* in test_only_compiles: the result of torch.compile *",
            "*torch._dynamo.config.verbose: False -> gone*test_odd.py::test_zz_monkeypatch*",
        ]
    )
    result.stdout.no_fnmatch_line("*suppress_errors*")
    result.stdout.no_fnmatch_line("*specialize_float*")


@pytest.mark.slow("three runs of pytest")
def test_baseline_is_valid_with_and_without_isolation(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_odd=SUITE)
    isolated = ("-o", "torchgraph_audit_isolation=on")
    assert run(*isolated, "--torchgraph-audit=record").ret == 0
    (section,) = json.loads((pytester.path / FILE).read_text())["torch"].values()
    shared = [
        name.partition("::")[2]
        for name, each in section["tests"].items()
        if each and "shared" in each
    ]
    assert shared == ["test_one"]
    result = run("--torchgraph-audit=check")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [f"nothing is worse than {FILE} (5 tests and 2 functions compared)"]
    )
