"""`GraphTestCase`: eight ways to write a suite, isolation, and tests without pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from projects import Run

HEAD = """
import unittest
import torch
from pytest_torchgraph import GraphTestCase, assert_graph_text

TEXT = "inference {\\n1 aten.%s.default\\n}"

def checked(test, op, name=None):
    capture = test.graph_capture(getattr(torch, op), torch.ones(2))
    assert_graph_text(capture, TEXT % op, detail="ops")
    test.assertGraph(capture, name=name)
"""
SUITES = {
    "plain": """
class TestNet(GraphTestCase):
    def test_step(self):
        checked(self, "sin")
""",
    "mixin": """
class Common:
    def test_step(self):
        checked(self, self.op)

class TestSin(Common, GraphTestCase):
    op = "sin"

class TestCos(Common, GraphTestCase):
    op = "cos"
""",
    "setUp": """
class TestNet(GraphTestCase):
    def setUp(self):
        self.seen = self.graph_capture(torch.sin, torch.ones(2))

    def test_step(self):
        self.assertGraph(self.seen)
        assert_graph_text(self.seen, TEXT % "sin", detail="ops")
""",
    "setUpClass": """
class TestNet(GraphTestCase):
    @classmethod
    def setUpClass(cls):
        cls.seen = cls.graph_capture(torch.sin, torch.ones(2))

    def test_step(self):
        self.assertGraph(self.seen)
        assert_graph_text(self.seen, TEXT % "sin", detail="ops")
""",
    "subTest": """
class TestNet(GraphTestCase):
    def test_step(self):
        for op in ("sin", "cos"):
            with self.subTest(op=op):
                checked(self, op)
""",
    "parameterized": """
from parameterized import parameterized

class TestNet(GraphTestCase):
    @parameterized.expand(["sin", "cos"])
    def test_step(self, op):
        checked(self, op)
""",
    "instantiate_parametrized_tests": """
from torch.testing._internal.common_utils import instantiate_parametrized_tests, parametrize

class TestNet(GraphTestCase):
    @parametrize("op", ["sin", "cos"])
    def test_step(self, op):
        checked(self, op)

instantiate_parametrized_tests(TestNet)
""",
    "async": """
class TestNet(GraphTestCase, unittest.IsolatedAsyncioTestCase):
    async def test_step(self):
        checked(self, "sin")
""",
}
NEEDED = {"parameterized": "parameterized", "instantiate_parametrized_tests": "expecttest"}
"""The package that a suite needs. torch's own test utilities import expecttest."""
FILES = {
    "mixin": ["TestCos.test_step", "TestSin.test_step"],
    "subTest": ["TestNet.test_step[op=cos]", "TestNet.test_step[op=sin]"],
    "parameterized": ["TestNet.test_step_0_sin", "TestNet.test_step_1_cos"],
    "instantiate_parametrized_tests": ["TestNet.test_step_op_cos", "TestNet.test_step_op_sin"],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of all suites that can be imported, with stored graphs."""
    project = tmp_path_factory.mktemp("suites")
    (project / "pytest.ini").write_text("[pytest]\n")
    for suite, source in SUITES.items():
        if find_spec(NEEDED.get(suite, "unittest")):
            (project / f"test_{suite}.py").write_text(HEAD + source)
    done = pytest_in(project, "--torchgraph-update")
    assert done.returncode == 0, done.stdout
    return project


@pytest.fixture(scope="module")
def outputs(project: Path) -> tuple[str, str]:
    """The output of a run, and of a run with another op than sin and the same names."""
    same = pytest_in(project)
    for suite in SUITES:
        path = project / f"test_{suite}.py"
        if path.exists():
            path.write_text(path.read_text().replace("getattr(torch, op)", "torch.tan"))
            path.write_text(
                path.read_text().replace("graph_capture(torch.sin", "graph_capture(torch.tan")
            )
    return same.stdout, pytest_in(project).stdout


def pytest_in(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_torchgraph.plugin", "-rA", *options]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


@pytest.mark.slow("pytest three times; the others here are near neighbours")
@pytest.mark.parametrize("suite", SUITES)
def test_suite_stores_compares_and_fails(
    suite: str, project: Path, outputs: tuple[str, str]
) -> None:
    if needed := NEEDED.get(suite):
        pytest.importorskip(needed)
    stored = sorted(path.stem for path in (project / "__snapshots__" / f"test_{suite}").iterdir())
    assert stored == FILES.get(suite, ["TestNet.test_step"])
    same, changed = outputs
    assert f"PASSED test_{suite}.py" in same
    assert f"FAILED test_{suite}.py" not in same
    # In a suite whose tests compare the text first, its message shows the difference.
    failed_lines = [
        line for line in changed.splitlines() if "FAILED" in line and f"test_{suite}.py" in line
    ]
    assert len(failed_lines) == len(stored)
    assert all(
        "aten.tan" in line or "graphs differ" in line or "1 edit" in line for line in failed_lines
    )


@pytest.mark.slow("a new interpreter that imports torch")
@pytest.mark.usefixtures("new_interpreter")
def test_plain_test_imports_no_compiler(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import sys
        import torch
        from pytest_torchgraph import GraphTestCase

        class TestNet(GraphTestCase):
            def test_plain(self):
                assert "pytest_torchgraph.isolation" not in sys.modules
                assert "pytest_torchgraph.torch_private" not in sys.modules
                assert "torch._dynamo" not in sys.modules
        """
    )
    run("test_net.py").assert_outcomes(passed=1)


@pytest.mark.slow("a run of pytest of its own")
def test_only_capturing_tests_are_isolated(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import torch
        from pytest_torchgraph import GraphTestCase

        class TestNet(GraphTestCase):
            def test_2_compiles(self):
                type(self).compiled = staticmethod(torch.compile(torch.sin, backend="eager"))
                self.compiled(torch.ones(2))
                type(self).frames = dict(torch._dynamo.utils.counters["frames"])

            def test_3_plain(self):
                self.assertEqual(self.frames, torch._dynamo.utils.counters["frames"])

            def test_4_captures(self):
                torch._dynamo.config.recompile_limit = 3
                self.graph_capture(torch.cos, torch.ones(2))
                self.assertNotIn("total", torch._dynamo.utils.counters["frames"])
                torch._dynamo.config.recompile_limit = 2

            def test_5_plain(self):
                self.assertEqual(torch._dynamo.config.recompile_limit, 3)
                self.assertEqual(self.frames, torch._dynamo.utils.counters["frames"])
        """
    )
    run("test_net.py").assert_outcomes(passed=4)


@pytest.mark.slow("a new interpreter that compiles")
def test_watch_sees_recompilation_of_what_the_test_compiled(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        import torch
        from pytest_torchgraph import GraphTestCase

        class TestNet(GraphTestCase):
            def test_step(self):
                compiled = torch.compile(torch.sin, backend="eager")
                compiled(torch.ones(2))
                with self.graph_watch() as seen:
                    compiled(torch.ones(3))
                self.assertEqual(len(seen.recompiles), 1)
        """
    )
    run("test_net.py").assert_outcomes(passed=1)


@pytest.mark.slow("a new interpreter that compiles")
def test_unittest_runs_all_but_assert_graph(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net=HEAD
        + SUITES["plain"]
        + SUITES["plain"]
        .replace("TestNet", "TestCapture")
        .replace("checked", "self.graph_capture")
        .replace('(self, "sin")', "(torch.sin, torch.ones(2)).assert_graph_count(1)")
    )
    command = [sys.executable, "-W", "ignore", "-m", "unittest", "-v", "test_net"]
    done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True)
    assert "OK (skipped=1)" in done.stderr
    assert "skipped 'assertGraph needs pytest" in done.stderr


def test_import_imports_neither_pytest_nor_torch() -> None:
    code = (
        "import sys; from pytest_torchgraph import GraphTestCase; "
        "print([m for m in ('torch', 'pytest', 'syrupy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow("two runs of pytest")
def test_assert_graph_in_a_loop_names_the_line_of_the_test(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph
        from pytest_torchgraph import GraphTestCase

        class TestNet(GraphTestCase):
            def test_step(self):
                for _ in range(2):
                    self.assertGraph(graph())
        """
    )
    run("test_net.py", "--torchgraph-update").stdout.fnmatch_lines(
        ["*test_net.py:7: second comparison without a name*Pass name=...*"]
    )


@pytest.mark.slow("a run of pytest of its own")
def test_assert_graph_refuses_unusable_arguments(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph
        from pytest_torchgraph import GraphTestCase

        class Net:
            def __repr__(self):
                return "Net(\\n  (up): Linear()\\n)"

        class TestNet(GraphTestCase):
            def test_address(self):
                with self.subTest(layer=object()):
                    self.assertGraph(graph())

            def test_lines(self):
                with self.subTest(net=Net()):
                    self.assertGraph(graph())

            def test_model(self):
                self.assertGraph(Net())
        """
    )
    run("test_net.py", "-p", "no:randomly").stdout.fnmatch_lines(
        [
            "E * ValueError: the text of a subTest parameter differs between runs: layer=*",
            "E * ValueError: the text of a subTest parameter has several lines: net=Net(. Pass *",
            "E * TypeError: assertGraph cannot compare a test_net.Net: pass a capture, as in "
            "`graph_capture(model, [*]inputs)`, *",
        ]
    )
