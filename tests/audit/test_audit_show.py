"""`--torchgraph-audit=show` on suites that do not use the plugin."""

from __future__ import annotations

import itertools
import re

import pytest
from projects import Run

SUITE = """
    import pytest
    import torch


    def helper(x):
        y = x.sin()
        print("hi")
        return y.cos()


    @pytest.fixture(scope="module")
    def compiled():
        function = torch.compile(lambda x: x.sin(), backend="eager")
        function(torch.ones(3))
        return function


    @pytest.mark.parametrize("size", [3, 4])
    def test_break(size):
        torch.compile(helper, backend="eager", dynamic=False)(torch.ones(size))


    def test_fixture(compiled):
        compiled(torch.ones(3))


    def test_empty():
        torch.compile(lambda x: 3, backend="eager")(torch.ones(3))


    def test_eager():
        assert torch.ones(3).sin().sum() > 0


    def test_ours(graph_capture):
        graph_capture(lambda x: x.sin(), torch.ones(3)).assert_graph_count(1)


    def test_fails():
        torch.compile(helper, backend="eager", fullgraph=True)(torch.ones(3))


    @pytest.mark.skip(reason="not today")
    def test_skipped():
        pass
"""


def section(result: pytest.RunResult) -> list[str]:
    lines = iter(result.outlines)
    assert any(line.strip("= ") == "torchgraph audit" for line in lines)
    return list(itertools.takewhile(lambda line: line and not line.startswith("=="), lines))


def outcomes(result: pytest.RunResult) -> list[str]:
    return sorted(re.findall(r"^(\S+ (?:PASSED|FAILED|SKIPPED))", "\n".join(result.outlines), re.M))


@pytest.mark.slow("runs pytest several times")
def test_audit_section_lists_compilations(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=SUITE)
    plain = run("-v")
    audited = run("-v", "--torchgraph-audit=show")
    assert outcomes(audited) == outcomes(plain)
    assert len(outcomes(plain)) == 8
    assert audited.ret == plain.ret == 1
    text = " ".join(map(str.strip, section(audited)))
    assert re.match(
        r"5 of 8 tests use torch.compile: 2 compile nothing, \d+ graphs, \d+ ops, "
        r"3 graph breaks in 3 tests, \d+ recompiles? ",
        text,
    )
    assert 'graph break at test_net.py:7 in helper: print("hi")' in text
    assert "nothing compiled: Dynamo found no tensor operation" in text
    assert "test_net.py::test_empty" in text
    assert "test_ours" not in text
    assert "compiling took " in text


@pytest.mark.slow("the same without workers is in every run")
def test_audit_under_xdist_is_reported_by_the_controller(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=SUITE)
    result = run("-p", "xdist", "-n", "2", "--torchgraph-audit=show")
    totals, *causes, _ = section(result)
    assert totals.startswith("5 of 8 tests use torch.compile")
    assert any("test_net.py:7 in helper" in line for line in causes)


def test_suite_that_does_not_import_torch_runs_without_it(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_plain="""
        import sys

        def test_nothing():
            assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
        """
    )
    result = run("--torchgraph-audit=show")
    result.assert_outcomes(passed=1)
    assert section(result) == ["none of 1 test uses torch.compile"]


@pytest.mark.slow("runs pytest in a new process")
@pytest.mark.usefixtures("new_interpreter")
def test_audit_sees_the_test_that_imports_dynamo_first(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_first="""
        import sys

        import torch

        def test_first():
            assert "torch._dynamo" not in sys.modules
            torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
            loader = type(sys.modules["torch._dynamo"].__spec__.loader)
            assert loader.__module__.startswith("_frozen_importlib")

        def test_nothing_stays():
            import torch._dynamo
            assert not any(type(finder).__name__ == "_DynamoFinder" for finder in sys.meta_path)
        """
    )
    result = run("--torchgraph-audit=show")
    result.assert_outcomes(passed=2)
    totals, *causes, cost = section(result)
    assert causes == []
    assert totals == ("1 of 2 tests uses torch.compile: 1 graph, 1 op, 0 graph breaks")
    assert cost.startswith("compiling took ")


def test_an_unknown_mode_is_a_usage_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_one(): pass")
    result = run("--torchgraph-audit=tell")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "invalid choice: 'tell'" in result.stderr.str()
