"""The plugin's imports: nothing of torch and Dynamo unless the suite imports it."""

from __future__ import annotations

import pytest
from projects import Run

LIMITS = "[pytest]\ntorchgraph_max_graph_breaks = 0\n"

pytestmark = pytest.mark.usefixtures("new_interpreter")


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
@pytest.mark.parametrize(
    ("ini", "options"),
    [
        ("[pytest]\n", ("--torchgraph-audit=record",)),
        (LIMITS, ()),
        (LIMITS, ("--torchgraph-audit=show", "-p", "xdist", "-n1")),
    ],
    ids=["audit", "limits", "both, in a worker"],
)
def test_plugin_imports_nothing_that_the_suite_does_not(
    pytester: pytest.Pytester, run: Run, ini: str, options: tuple[str, ...]
) -> None:
    pytester.makeini(ini)
    pytester.makepyfile(
        test_1="""
        import sys
        import pytest

        def test_plain(tmp_path): pass

        def test_nothing():
            assert [name for name in sys.modules if name.partition(".")[0] == "torch"] == []
        """,
        test_2="""
        import sys

        def test_eager():
            import torch
            assert torch.ones(3).sum() == 3

        def test_no_dynamo():
            assert "torch._dynamo" not in sys.modules
        """,
        test_3="""
        import pytest

        @pytest.mark.skip
        @pytest.mark.torchgraph
        def test_elsewhere(): pass
        """,
    )
    run(*options).assert_outcomes(passed=4, skipped=1)


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
@pytest.mark.parametrize("options", [(), ("--torchgraph-audit=show",)], ids=["run", "audit"])
def test_ini_limits_apply_to_the_test_that_imports_dynamo_first(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...]
) -> None:
    pytester.makeini(LIMITS)
    pytester.makepyfile(
        """
        import importlib.util
        import sys

        import torch

        def broken(x):
            y = x.sin()
            print("hi")
            return y.cos()

        def test_first():
            assert importlib.util.find_spec("torch._dynamo")
            assert "torch._dynamo" not in sys.modules
            torch._dynamo.config.recompile_limit = 77
            torch.compile(broken, backend="eager")(torch.ones(3))

        def test_settings_are_put_back():
            assert torch._dynamo.config.recompile_limit != 77

        def test_later():
            torch.compile(broken, backend="eager")(torch.ones(3))
        """
    )
    result = run(*options)
    result.assert_outcomes(passed=1, failed=2)
    failure_lines = [
        line for line in result.outlines if line == "graph breaks: expected 0, found 1"
    ]
    assert len(failure_lines) == 2


@pytest.mark.slow("runs pytest several times")
def test_import_system_is_restored(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini(LIMITS)
    pytester.makepyfile(
        """
        import sys

        def finders():
            return [each for each in sys.meta_path if type(each).__name__ == "DynamoFinder"]

        def test_one():
            assert len(finders()) == 2

        def test_two():
            assert len(finders()) == 2
        """
    )
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("left:", [each for each in sys.meta_path if "Dynamo" in type(each).__name__])
        """
    )
    result = run("-s")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*left: [[][]]"])
