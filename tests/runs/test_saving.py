"""`pytest --torchgraph-save-run=DIR` on suites that do not use the plugin otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from projects import Run

from pytest_torchgraph import RunDiff, diff
from pytest_torchgraph.runs import read_run

LAYERS = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        y = self.fc(x)
        z = x * 2
        return y.relu() + z


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@torch.compile(backend="eager")
def shared(x):
    return x.sin() + 1


def make():
    return torch.compile(Net(), backend="eager")
"""
SUITE = """
import unittest

import pytest
import torch

from layers import Net, make, shared


@pytest.fixture(scope="module")
def net():
    net = make()
    net(torch.randn(2, 4))
    return net


def test_twice():
    net = make()
    net(torch.randn(2, 4))
    net(torch.randn(2, 4))


def test_sizes():
    net = make()
    for size in (2, 3):
        net(torch.randn(size, 4))


@pytest.mark.parametrize("number", [0, 1])
def test_shared(number):
    shared(torch.randn(3))


def test_fixture(net):
    net(torch.randn(2, 4))


def test_fixture_again(net):
    net(torch.randn(2, 4))


def test_capture(graph_capture):
    graph_capture(Net(), torch.randn(2, 4), backward=False)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.net = make()
        cls.net(torch.randn(1, 4))

    def test_class(self):
        for size in (2, 5):
            with self.subTest(size=size):
                shared(torch.randn(size))


def test_plain():
    pass
"""
ORDER = """
import os



def pytest_collection_modifyitems(items):
    if os.environ.get("REVERSED"):
        items.reverse()
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run) -> Run:
    pytester.makepyfile(layers=LAYERS, test_net=SUITE)
    pytester.makeconftest(ORDER)
    return run


def save(run: Run, name: str, *args: str, **environment: str) -> pytest.RunResult:
    return run(f"--torchgraph-save-run={name}", *args, **environment)


def compare(pytester: pytest.Pytester, base: str = "base", head: str = "head") -> RunDiff:
    found = diff(pytester.path / base, pytester.path / head)
    assert isinstance(found, RunDiff)
    return found


def edit(pytester: pytest.Pytester, *changes: tuple[str, str], file: str = "layers.py") -> None:
    path = pytester.path / file
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.slow("a run of pytest of its own")
def test_the_same_commit_has_no_difference_in_any_order(
    pytester: pytest.Pytester, suite: Run
) -> None:
    outcomes = suite().parseoutcomes()
    result = save(suite, "base")
    assert result.parseoutcomes() == outcomes
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["* torchgraph saved run *", "base: 9 tests. It has lines of your*"]
    )
    info = json.loads((pytester.path / "base" / "run.json").read_text())
    assert (info["format"], info["complete"]) == (1, True)
    assert info["torch"].startswith("2.")
    assert info["versions"]["pytest"] == pytest.__version__
    lines = (pytester.path / "base" / "facts" / "main.jsonl").read_text().splitlines()
    assert len([line for line in lines if '"fixture": false' in line]) == 9
    for name, args, environment in (
        ("reversed", (), {"REVERSED": "1"}),
        ("workers", ("-p", "xdist", "-n", "2"), {}),
        ("chosen", ("-k", "not sizes"), {"REVERSED": "1"}),
    ):
        assert save(suite, name, *args, **environment).ret == 0
        found = compare(pytester, "base", name)
        assert not found, str(found)
        assert len(found.compared) == (7 if name == "chosen" else 8)
        assert not found.not_compared
    assert found.removed == ("test_net.py::test_sizes",)


EDITS = {
    "op": ([("y.relu() + z", "y.relu() + 0.5 * z")], ["edit"], "layers.py:14"),

    "break": ([("z = x * 2", "z = x * 2\n        print(1)")], ["break"], "layers.py:14"),
    "counter": (
        [("z = x * 2", "z = x * 2\n        self.calls += 1\n        z = z + self.calls")],
        ["recompile", "edit"],
        "layers.py:14",
    ),
    "nothing": ([('backend="eager")\n', 'backend="eager", disable=True)\n')], ["share"], ""),


    "lines": (
        [("y = self.fc(x)\n        z = x * 2\n", "z = x * 2\n        y = self.fc(x)\n")],
        [],
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.slow("two runs each; test_run_diff.py compares saved runs")
def test_edits_of_a_model(pytester: pytest.Pytester, suite: Run, name: str) -> None:
    changes, kinds, place = EDITS[name]
    save(suite, "base")
    edit(pytester, *changes)
    save(suite, "head")
    found = compare(pytester)
    assert list(dict.fromkeys(cause.kind for cause in found.causes)) == kinds, str(found)
    assert len(found.causes) <= max(1, len(kinds)), str(found)
    if place:
        assert str(found.causes[0].source) == place
    if name == "op":
        [cause] = found.causes
        assert {test.rpartition("::")[2] for test in cause.tests} == {
            "test_twice", "test_sizes", "test_fixture", "test_fixture_again", "test_capture",
            "test_class",
        }  # fmt: skip


BESIDE = """
import torch


def half(x):
    return x / 2


def twice(x):
    return x * 2


def apply(function, x):
    return function(x)
"""
BESIDE_TEST = """
import torch

from beside import apply, half, twice


def test_both():
    torch.compile(half, backend="eager")(torch.ones(2))
    compiled = torch.compile(twice, backend="eager")
    for _ in range(3):
        apply(compiled, torch.ones(2))


def test_one():
    torch.compile(half, backend="eager")(torch.ones(2))
"""
EAGER = """
    with torch.compiler.set_stance("force_eager"):
        return function(x)"""


def test_calls_that_run_eagerly(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(beside=BESIDE, test_beside=BESIDE_TEST)
    save(run, "base")
    edit(pytester, ("\n    return function(x)", EAGER), file="beside.py")
    assert save(run, "head").ret == 0
    [cause] = compare(pytester).causes
    assert (cause.kind, cause.tests) == ("eager", ("test_beside.py::test_both",))
    assert cause.text == (
        "a compiled callable now runs eagerly: torch.compiler.set_stance('force_eager') is active "
        "(1 graph of these tests not compared)"
    )
    [cause] = compare(pytester, "head", "base").causes
    assert cause.text.startswith("a compiled callable no longer runs eagerly: ")


def test_calls_past_the_recompile_limit(pytester: pytest.Pytester, run: Run) -> None:
    test = """
        import torch

        def scale(x, n):
            return x * n

        def test_scale():
            f = torch.compile(scale, backend="eager", dynamic=False)
            for n in range(10):
                f(torch.ones(2), n)
    """
    pytester.makepyfile(test_scale=test)
    assert save(run, "base").ret == 0
    pytester.makepyfile(test_scale=test.replace("range(10)", "range(20)"))
    assert save(run, "head").ret == 0
    [cause] = compare(pytester).causes
    assert (cause.kind, cause.tests) == ("eager", ("test_scale.py::test_scale",))
    assert cause.text == (
        "scale (test_scale.py:3) 12 calls run eagerly, was 2: the recompile limit"
    )


@pytest.mark.slow("two runs of pytest")
def test_a_class_that_moved_is_no_difference(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        layers=LAYERS,
        test_net="from layers import *\n\ndef test_net():\n    make()(torch.ones(2, 4))\n",
    )
    save(run, "base")
    start, end = LAYERS.index("class Layer"), LAYERS.index("class Net")
    head = "import torch\nfrom torch import nn\n\n\n"
    pytester.makepyfile(other=head + LAYERS[start:end])
    edit(pytester, (LAYERS[start:end], "from other import Layer\n\n\n"))
    edit(pytester, ("def test_net", "def test_renamed"), file="test_net.py")
    save(run, "head")
    found = compare(pytester)
    assert not found, str(found)
    assert found.renamed == (("test_net.py::test_net", "test_net.py::test_renamed"),)


BAD = """
import os
import pytest
import torch

f = torch.compile(lambda x: x + 1, backend="eager")

def test_first():
    f(torch.ones(3))

def test_second():
    f(torch.ones(3))
    if os.environ.get("HOW") == "fail":
        assert False
    if os.environ.get("HOW") == "crash":
        os.kill(os.getpid(), 9)
    if os.environ.get("HOW") == "exit":
        pytest.exit("enough")

def test_third():
    f(torch.ones(3))
"""


@pytest.mark.parametrize(
    ("how", "args", "tests", "complete"),
    [
        ("fail", [], 3, True),
        ("fail", ["-x"], 2, False),
        ("crash", [], 1, False),
        ("crash", ["-p", "xdist", "-n", "1"], 2, False),
        ("exit", [], 1, False),
    ],
)
@pytest.mark.slow("further ends", unless=["crash-args2*"])
def test_a_run_that_ends_early(
    pytester: pytest.Pytester, run: Run, how: str, args: list[str], tests: int, complete: bool
) -> None:
    pytester.makepyfile(test_net=BAD)
    save(run, "base")
    result = save(run, "head", *args, HOW=how)
    saved = read_run(pytester.path / "head")
    assert len(saved.tests) == tests
    assert saved.info.complete is complete
    if saved.info.problem:
        result.stdout.fnmatch_lines(["not complete: *"])
    found = compare(pytester)
    assert found.exit_status == (0 if complete else 2)
    assert "test_net.py::test_first" in found.compared
    if how == "fail":
        assert found.not_compared == {"test_net.py::test_second": "failed in head"}


def test_a_file_that_cannot_be_collected_is_missing(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_good="def test_one(): pass", test_bad="import no_such_module")
    result = save(run, "run", "--continue-on-collection-errors")
    result.stdout.fnmatch_lines(["not complete: test_bad.py could not be collected"])
    assert not read_run(pytester.path / "run").info.complete


@pytest.mark.slow("runs pytest for a second")
def test_the_last_attempt_of_a_repeated_test_counts(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import torch

        f = torch.compile(lambda x: x + 1, backend="eager")
        g = torch.compile(lambda x: x + 2, backend="eager")
        tried = []

        def test_flaky():
            tried.append(1)
            (f if len(tried) == 1 else g)(torch.ones(3))
            assert len(tried) == 2
        """
    )
    save(run, "base", "-p", "rerunfailures", "--reruns=1")
    saved = read_run(pytester.path / "base")
    assert saved.info.complete
    [record] = saved.tests.values()
    assert record.outcome == "passed"
    assert "2)" in saved.texts(record.graphs)[0]


@pytest.mark.slow("a run of pytest of its own")
def test_without_isolation_shared_code_is_not_compared_in_another_order(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(ORDER)
    pytester.makeini("[pytest]\ntorchgraph_save_run_isolation = off\n")
    pytester.makepyfile(test_net=BAD)
    for name, environment in (("base", {}), ("same", {}), ("head", {"REVERSED": "1"})):
        save(run, name, **environment)
    assert len(compare(pytester, "base", "same").compared) == 3
    found = compare(pytester)
    assert not found.compared
    assert {*found.not_compared.values()} == {
        "runs code that another test compiled: set torchgraph_save_run_isolation = on"
    }
    assert found.exit_status == 2


@pytest.mark.parametrize(
    ("files", "args", "words"),
    [
        (["run/notes.txt"], [], "no saved run, such as 'notes.txt'"),
        (["run"], [], "is not a directory"),
        ([], ["--collect-only"], "no test runs with --collect-only"),
    ],
)
def test_usage_errors(
    pytester: pytest.Pytester, run: Run, files: Iterable[str], args: list[str], words: str
) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    for file in files:
        path = pytester.path / file
        path.parent.mkdir(exist_ok=True)
        path.touch()
    result = save(run, "run", *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str()
    assert all((pytester.path / file).is_file() for file in files)


def test_the_ini_file_saves_runs_but_no_collection(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_save_run = saved/run\n")
    pytester.makepyfile("def test_nothing(): pass")
    assert run("--collect-only").ret == 0
    assert not (pytester.path / "saved").exists()
    assert run().ret == 0
    assert read_run(pytester.path / "saved" / "run").info.complete


@pytest.mark.parametrize("replaced", ["a/run/facts", "a/run"])
def test_a_test_that_attacks_the_directory_changes_no_outcome(
    pytester: pytest.Pytester, run: Run, replaced: str
) -> None:
    pytester.makepyfile(
        f"""
        import shutil
        from pathlib import Path

        def test_attack():
            Path("outside").mkdir()
            shutil.rmtree({replaced!r}, ignore_errors=True)
            Path({replaced!r}).symlink_to(Path("outside").absolute())

        def test_after():
            pass
        """
    )
    result = save(run, "a/run")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["not *: *"])
    assert not [*(pytester.path / "outside").iterdir()]
    if replaced == "a/run/facts":
        assert not json.loads((pytester.path / "a" / "run" / "run.json").read_text())["complete"]


def test_an_error_of_the_watch_is_no_empty_record(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=BAD)
    pytester.makeconftest(
        """
        from pytest_torchgraph.watching import record

        def broken(recorder):
            raise RuntimeError("a bug")

        record.record_of = broken
        """
    )
    result = save(run, "run")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["not complete: RuntimeError: a bug"])
    assert not read_run(pytester.path / "run").tests


def test_packages_that_a_test_adds_to_the_path_are_no_other_versions(
    pytester: pytest.Pytester, run: Run
) -> None:
    (pytester.path / "vendored" / "odd-1.0.dist-info").mkdir(parents=True)
    metadata = pytester.path / "vendored" / "odd-1.0.dist-info" / "METADATA"
    metadata.write_text("Name: odd\nVersion: 1.0\n")
    pytester.makepyfile(
        """
        import sys

        def test_path():
            sys.path.append("vendored")
        """
    )
    save(run, "run")
    versions = read_run(pytester.path / "run").info.versions
    assert "pytest" in versions
    assert "odd" not in versions


@pytest.mark.slow("runs pytest for a second")
def test_an_audit_may_run_beside(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=BAD)
    result = save(run, "run", "--torchgraph-audit=show")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["3 of 3 tests use torch.compile*"])
    assert all(record.compiles for record in read_run(pytester.path / "run").tests.values())


def test_each_line_has_its_own_op(pytester: pytest.Pytester, suite: Run) -> None:
    save(suite, "run", "-k", "twice or capture")
    saved = read_run(pytester.path / "run")
    for record in saved.tests.values():
        [key] = filter(None, record.keys)
        nodes = [node for graph in saved.program(key).graphs for node in graph.nodes]
        relu = next(node.source for node in nodes if "relu" in node.op)
        assert relu is not None
        assert (relu.file, relu.line, relu.code) == ("layers.py", 14, "return y.relu() + z")


@pytest.mark.slow("a run of pytest of its own")
def test_paths_of_this_machine_are_not_saved(pytester: pytest.Pytester, suite: Run) -> None:
    edit(pytester, ("z = x * 2", "print(x)\n        z = x * 2"))
    save(suite, "run", "-k", "sizes")
    for path in (pytester.path / "run").rglob("*.*"):
        assert str(pytester.path) not in path.read_text(), path


FORKED = """
import os
import pickle

from _pytest.runner import runtestprotocol


def pytest_runtest_protocol(item, nextitem):
    read, write = os.pipe()
    hook = item.config.hook
    child = os.fork()
    if not child:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        data = [
            hook.pytest_report_to_serializable(config=item.config, report=report)
            for report in reports
        ]
        with open(write, "wb") as pipe:
            pickle.dump(data, pipe)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        data = pickle.load(pipe)
    os.waitpid(child, 0)
    for each in data:
        report = hook.pytest_report_from_serializable(config=item.config, data=each)
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


@pytest.mark.slow("a run of pytest of its own")
def test_forked_tests_are_saved(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import torch
        import pytest

        f = torch.compile(lambda x: x + 1, backend="eager")

        @pytest.fixture(scope="module")
        def compiled():
            f(torch.ones(3))

        def test_one(compiled):
            f(torch.ones(3))

        def test_two(compiled):
            f(torch.ones(3))
        """
    )
    save(run, "base")
    pytester.makeconftest(FORKED)
    save(run, "head").assert_outcomes(passed=2)
    assert read_run(pytester.path / "head").info.complete
    found = compare(pytester)
    assert not found, str(found)
    assert len(found.compared) == 2
    fixture = "fixture compiled of test_net.py"
    for side in ("base", "head"):
        saved = read_run(pytester.path / side)
        assert [*saved.fixtures] == [fixture]
        assert all(record.fixtures == (fixture,) for record in saved.tests.values())
