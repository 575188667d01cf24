"""The plugin itself: its start-up cost, its options and fixtures, its refusals."""

from __future__ import annotations

import subprocess
import sys

import pytest
from projects import Run

HEAVY = (
    "torch",
    "graphviz",
    "jinja2",
    "pytest_torchgraph.graph",
    "pytest_torchgraph.api",
    "pytest_torchgraph.convert",
    "pytest_torchgraph.mechanisms",
    "pytest_torchgraph.watching",
    "pytest_torchgraph.render",
)


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest_torchgraph.plugin\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
        "print('pytest_torchgraph.settings.options' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True"]


@pytest.mark.slow("runs pytest several times")
@pytest.mark.usefixtures("new_interpreter")
def test_suite_without_the_plugin_never_imports_torch(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        f"""
        import sys, pytest

        class TestThings:
            @pytest.mark.parametrize("x", [1, 2])
            def test_x(self, x, tmp_path):
                assert x

        def test_failing():
            assert 0

        def test_loaded():
            assert "pytest_torchgraph.plugin" in sys.modules
            assert [name for name in {HEAVY} if name in sys.modules] == []
        """
    )
    run().assert_outcomes(passed=3, failed=1)


@pytest.mark.slow("runs pytest several times")
@pytest.mark.usefixtures("new_interpreter")
def test_collecting_tests_for_devices_does_not_import_torch(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(
        """
        import sys

        def pytest_collection_finish(session):
            assert len(session.items) == 2
            print("torch imported:", "torch" in sys.modules)
        """
    )
    pytester.makepyfile("def test_x(graph_device, graph_capture, graph_snapshot): pass")
    result = run("--collect-only", "-s")
    result.stdout.fnmatch_lines(["torch imported: False"])


def test_help_lists_the_options_in_one_group(pytester: pytest.Pytester, run: Run) -> None:
    result = run("--help")
    result.stdout.fnmatch_lines(
        [
            "graphs of PyTorch models:",
            "  --torchgraph-update*",
            "  --torchgraph-devices=NAMES*",
            "  --torchgraph-artifacts=DIR*",
            "*torchgraph_devices (string):*",
            "*torchgraph_artifacts (string):*",
        ]
    )
    assert "torchgraph_update (" not in result.stdout.str()


def test_fixtures_are_documented(pytester: pytest.Pytester, run: Run) -> None:
    result = run("--fixtures", "-v")
    result.stdout.fnmatch_lines(
        ["graph_capture [[]session scope[]]*", "    Capture the graphs of a model or function."]
    )
    result.stdout.fnmatch_lines(
        ["graph_snapshot -- *", "    Compare captured graphs with stored graphs: *"]
    )
    result.stdout.fnmatch_lines(
        ["graph_device [[]class scope[]]*", "    The `torch.device` to run on; *"]
    )


def test_strict_markers_and_config_are_satisfied(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_devices = cpu\ntorchgraph_artifacts = out\n")
    used = "@pytest.mark.usefixtures('graph_snapshot')"
    pytester.makepyfile(f"import pytest\n{used}\ndef test_x(): pass")
    run("--strict-markers", "--strict-config", "-W", "error").assert_outcomes(passed=1)


def test_without_syrupy_only_tests_with_snapshots_fail(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        def test_stored(graph_snapshot): pass
        def test_other(): pass
        """
    )
    result = run("-p", "no:syrupy")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*disabled in this run: remove '-p no:syrupy'*"])
    assert "AttributeError" not in result.stdout.str()


@pytest.mark.parametrize(
    ("directory", "problem"),
    [("file", "'*file' is not a directory"), ("", "empty path, expected a directory")],
)
def test_invalid_artifact_directory_is_a_usage_error(
    pytester: pytest.Pytester, run: Run, directory: str, problem: str
) -> None:
    pytester.makefile("", file="x")
    (pytester.path / "file").touch()
    result = run(f"--torchgraph-artifacts={directory}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --torchgraph-artifacts: {problem}"])


def test_graph_capture_can_be_used_by_fixtures_of_every_scope(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def mine(graph_capture):
            return graph_capture

        def test_x(mine, graph_capture):
            assert mine is graph_capture
            assert callable(mine)
        """
    )
    run().assert_outcomes(passed=1)
