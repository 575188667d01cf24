"""`--torchgraph-prune`: removed files, kept files, and messages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import Run, files
from projects import stored_graphs as lines

from pytest_torchgraph.snapshot.file_names import may_be_of

SUITE = """
import pytest
from graphs import graph

{header}

@pytest.mark.parametrize("device", {devices})
def test_on(device, graph_snapshot):
    {before}
    assert graph() == graph_snapshot
    {between}
    assert graph() == graph_snapshot(name="again")

{mark}
def test_step(graph_snapshot):
    {step}
    assert graph() == graph_snapshot
"""
PLAIN = {
    "header": "",
    "devices": '["cpu", "cuda"]',
    "before": "",
    "between": "",
    "mark": "",
    "step": "",
}
WORKERS = pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "n2"])


def suite(**parts: str) -> str:
    return SUITE.format(**{**PLAIN, **parts})


@pytest.fixture
def before(pytester: pytest.Pytester, store: Callable[..., dict[str, bytes]]) -> dict[str, bytes]:
    """The stored files of a project with two equal test files."""
    pytester.makepyfile(test_net=suite(), test_other=suite())
    return store(passed=6)


@pytest.fixture
def stored(run: Run, before: dict[str, bytes]) -> Run:
    return run


@pytest.fixture
def two_directories(pytester: pytest.Pytester, run: Run, store: Callable[..., object]) -> Run:
    test = "from graphs import graph\n\ndef test_step(graph_snapshot):\n"
    test += "    assert graph() == graph_snapshot"
    pytester.mkdir("sub").joinpath("test_net.py").write_text(test)
    pytester.makepyfile(test_other=test)
    store(passed=2)
    return run


# -- removed files ---------------------------------------------------------------------------------


@pytest.mark.slow("the same without workers is in every run", unless=["one"])
@WORKERS
def test_prune_removes_and_names_unused_files(
    pytester: pytest.Pytester, run: Run, before: dict[str, bytes], workers: tuple[str, ...]
) -> None:
    cpu = suite(devices='["cpu"]')
    pytester.makepyfile(test_net=cpu.replace("test_step", "test_stepped"), test_other=cpu)
    run(*workers, "--torchgraph-update").assert_outcomes(passed=4)
    result = run(*workers)
    stale = "__snapshots__/test_net/test_step.tgraph"
    assert lines(result) == [
        f"stale, no test compares them: {stale} (--torchgraph-prune removes them)"
    ]
    cuda = (
        "kept __snapshots__/test_net/test_on[cuda].tgraph and 3 more: no test ran on cuda "
        "in this run"
    )
    assert lines(run(*workers, "--torchgraph-prune")) == [f"removed  {stale}", cuda]
    assert before.keys() - files(pytester).keys() == {stale}
    assert lines(run(*workers, "--torchgraph-prune")) == ["nothing to remove", cuda]


def test_prune_removes_the_directory_of_a_deleted_test_file(
    pytester: pytest.Pytester, stored: Run
) -> None:
    Path("test_net.py").unlink()
    result = stored("--torchgraph-prune")
    assert len([line for line in lines(result) if line.startswith("removed")]) == 5
    assert not Path("__snapshots__/test_net").exists()
    assert len(files(pytester)) == 5


# -- messages -------------------------------------------------------------------------------------


@pytest.mark.slow("many random graphs", unless=["words0--k was given, so not all tests ran"])
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-k", "step"), "-k was given, so not all tests ran"),
        (("--deselect", "test_net.py::test_gone"), "--deselect was given, so not all tests ran"),
        (
            ("-o", "python_functions=test_step*"),
            "-o python_functions=test_step* was given, so not all tests ran",
        ),
    ],
)
def test_prune_gives_the_reason_for_keeping_all(
    stored: Run, words: tuple[str, ...], reason: str
) -> None:
    assert lines(stored(*words, "--torchgraph-prune")) == [f"nothing removed: {reason}"]


def test_check_cannot_tell_if_an_option_ignores_stored_graphs(two_directories: Run) -> None:
    result = two_directories("--ignore=sub", "--torchgraph-prune=check")
    reason = "no test of sub/test_net.py was collected"
    assert (result.ret, lines(result)) == (1, [f"nothing checked: {reason}"])
    assert lines(two_directories("--ignore=sub", "--torchgraph-prune")) == [
        f"nothing removed: {reason}"
    ]
    # Nothing is stored below the directory, so all tests that matter ran.
    Path("docs").mkdir()
    result = two_directories("--ignore=docs", "--torchgraph-prune=check")
    assert (result.ret, lines(result)) == (0, ["no stale file"])


def test_check_of_a_folder_says_so(two_directories: Run) -> None:
    result = two_directories("sub", "--torchgraph-prune=check")
    assert (result.ret, lines(result)) == (0, ["no stale file in sub"])


def test_check_names_what_the_project_does_not_collect(
    pytester: pytest.Pytester, two_directories: Run
) -> None:
    Path("conftest.py").write_text("collect_ignore = ['sub']")
    result = two_directories("--torchgraph-prune=check")
    kept = "kept all of sub/test_net.py: no test of it was collected"
    assert (result.ret, lines(result)) == (0, ["no stale file", kept])
    Path("conftest.py").unlink()
    for excluded in ("norecursedirs = sub", "testpaths = test_other.py"):
        pytester.makeini(f"[pytest]\n{excluded}\n")
        result = two_directories("--torchgraph-prune=check")
        assert (result.ret, lines(result)) == (0, ["no stale file"])


def test_prune_respects_arguments_from_the_environment(stored: Run) -> None:
    printed_lines = lines(stored("--torchgraph-prune", PYTEST_ADDOPTS="test_net.py::test_step"))
    assert printed_lines == ["nothing removed: only test_net.py::test_step ran"]


def test_prune_accepts_testpaths_as_a_complete_run(pytester: pytest.Pytester, stored: Run) -> None:
    pytester.makeini("[pytest]\ntestpaths = test_net.py test_other.py\n")
    assert lines(stored("--torchgraph-prune")) == ["nothing to remove"]


def test_prune_names_a_failing_test_as_the_reason(pytester: pytest.Pytester, stored: Run) -> None:
    pytester.makepyfile(test_net=suite(step="raise MemoryError"))
    printed_lines = lines(stored("--torchgraph-prune"))
    assert printed_lines == ["nothing removed: test_net.py::test_step failed"]


@pytest.mark.slow("the same without workers is in every run", unless=["one"])
@WORKERS
def test_prune_keeps_only_the_files_of_a_skipped_test(
    pytester: pytest.Pytester, stored: Run, workers: tuple[str, ...]
) -> None:
    again = """
def test_step_again(graph_snapshot):
    assert graph() == graph_snapshot
"""
    pytester.makepyfile(test_net=suite() + again)
    stored("--torchgraph-update")
    pytester.makepyfile(
        test_net=suite(mark="@pytest.mark.skip"),
        test_other=suite().replace("test_step", "test_stepped"),
    )
    stored("--torchgraph-update")
    assert lines(stored(*workers, "--torchgraph-prune")) == [
        "removed  __snapshots__/test_net/test_step_again.tgraph",
        "removed  __snapshots__/test_other/test_step.tgraph",
        "kept __snapshots__/test_net/test_step.tgraph: test_net.py::test_step was skipped",
    ]


def test_prune_keeps_files_of_all_parameters_if_one_is_skipped(
    pytester: pytest.Pytester, stored: Run
) -> None:
    skipped = "pytest.skip() if device == 'cuda' else None"
    pytester.makepyfile(
        test_net=suite(devices='["cpu2", "cuda"]', before=skipped), test_other=suite()
    )
    stored("--torchgraph-update")
    assert lines(stored("--torchgraph-prune")) == [
        "nothing to remove",
        "kept __snapshots__/test_net/test_on[cpu].tgraph and 3 more: "
        "test_net.py::test_on[cuda] was skipped",
    ]


def test_prune_keeps_files_of_a_test_file_that_did_not_run(
    pytester: pytest.Pytester, stored: Run
) -> None:
    pytester.makepyfile(test_net=suite(header="pytestmark = pytest.mark.skip"))
    assert lines(stored("--torchgraph-prune")) == [
        "nothing to remove",
        "kept all of test_net.py: test_net.py::test_on[cpu] was skipped",
    ]


@pytest.mark.parametrize(
    ("stem", "nodeid", "may"),
    [
        ("test_a", "test_x.py::test_a", True),
        ("test_a[p][forward].1", "test_x.py::test_a[q]", True),
        ("test_a.1", "test_x.py::test_a", True),
        ("test_a[A]-0123456789", "test_x.py::test_a[A]", True),
        ("test_ab", "test_x.py::test_a", False),
        ("test_a", "test_x.py::test_ab", False),
        ("TestNet.test_a", "test_x.py::TestNet::test_a[x::y]", True),
        ("test_a", "test_x.py::TestNet::test_a", False),
        ("TestNet.test_a", "test_x.py::TestNet::test_b", False),
        ("t" * 200 + "-0123456789", "test_x.py::" + "t" * 400, True),
        ("test_a", "test_x.py::something, that is no function", True),
    ],
)
def test_may_belong_to(stem: str, nodeid: str, may: bool) -> None:
    assert may_be_of(stem, nodeid) == may


@pytest.mark.slow("a run of pytest of its own")
def test_prune_names_a_deselected_test_as_the_reason(
    pytester: pytest.Pytester, stored: Run
) -> None:
    pytester.makeconftest("def pytest_collection_modifyitems(items): del items[2:3]")
    assert lines(stored("--torchgraph-prune")) == [
        "nothing removed: test_net.py::test_step was removed by a plugin"
    ]


def test_prune_names_an_uncalled_test_as_the_reason(pytester: pytest.Pytester, stored: Run) -> None:
    stepped = suite().replace("test_step", "test_stepped")
    pytester.makepyfile(test_net=stepped, test_other=stepped)
    stored("--torchgraph-update").assert_outcomes(passed=6)
    pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):
            if "test_net" in item.nodeid:
                return True
        """
    )
    assert lines(stored("--torchgraph-prune")) == [
        "removed  __snapshots__/test_other/test_step.tgraph",
        "kept all of test_net.py: test_net.py::test_on[cpu] did not run",
    ]


@pytest.mark.slow("runs pytest several times")
def test_prune_names_a_lost_worker_as_the_reason(pytester: pytest.Pytester, stored: Run) -> None:
    pytester.makepyfile(test_net=suite(step="import os; os._exit(3)"))
    printed_lines = lines(stored("-p", "xdist", "-n2", "--torchgraph-prune"))
    assert printed_lines == ["nothing removed: a pytest-xdist worker crashed"]


DEVICES = """
import pytest
from graphs import graph

@pytest.mark.parametrize("device", {devices})
def test_on(device, graph_snapshot):
    assert graph() == graph_snapshot

if {gpu}:
    def test_gpu_forward(graph_snapshot):
        assert graph() == graph_snapshot

    class TestOnCUDA:
        def test_step(self, graph_snapshot):
            assert graph() == graph_snapshot

    def test_step(graph_snapshot):
        assert graph() == graph_snapshot(name="multigpu")

    def test_input_clamps(graph_snapshot):
        assert graph() == graph_snapshot
"""


@pytest.mark.slow("runs pytest for a second")
def test_prune_keeps_and_reports_graphs_of_an_absent_device(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net=DEVICES.format(devices=["cpu", "cuda"], gpu=True),
        test_mps=DEVICES.format(devices=["cpu"], gpu=True),
    )
    run("--torchgraph-update").assert_outcomes(passed=11)
    # A device name in the name of a test that ran does not prove that the device exists.
    cuda = "def test_cuda_names(graph_snapshot): assert graph() == graph_snapshot\n"
    pytester.makepyfile(
        test_net=DEVICES.format(devices=["cpu"], gpu=False) + cuda,
        test_mps=DEVICES.format(devices=["cpu"], gpu=False),
    )
    run("--torchgraph-update").assert_outcomes(passed=3)
    assert lines(run()) == [
        "stale, no test compares them: __snapshots__/test_net/test_input_clamps.tgraph "
        "(--torchgraph-prune removes them)"
    ]
    assert lines(run("--torchgraph-prune")) == [
        "removed  __snapshots__/test_net/test_input_clamps.tgraph",
        "kept __snapshots__/test_mps/TestOnCUDA.test_step.tgraph and 7 more: no test ran on "
        "cuda, gpu, mps in this run",
    ]
    assert len(files(pytester)) == 11


def test_prune_removes_stale_graphs_of_a_present_device(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=DEVICES.format(devices=["cpu", "cuda"], gpu=True))
    run("--torchgraph-update").assert_outcomes(passed=6)
    pytester.makepyfile(test_net=DEVICES.format(devices=["cpu", "cuda"], gpu=False))
    printed_lines = lines(run("--torchgraph-prune"))
    stems = ["TestOnCUDA.test_step", "test_input_clamps"]
    assert printed_lines[:-1] == [
        f"removed  __snapshots__/test_net/{stem}.tgraph" for stem in stems
    ]
    assert printed_lines[-1].endswith("no test ran on gpu in this run")
    assert len(files(pytester)) == 4


def test_prune_keeps_compared_graphs_below_a_link(stored: Run) -> None:
    Path("__snapshots__").rename("real")
    Path("__snapshots__").symlink_to("real")
    Path("real/test_net/test_old.tgraph").symlink_to("test_step.tgraph")
    assert lines(stored("--torchgraph-prune")) == ["nothing to remove"]


def test_prune_removes_old_temporary_files(stored: Run) -> None:
    old, new = (Path(f"__snapshots__/test_net/.{name}.tgraph-tmp") for name in ("old", "new"))
    for path in (old, new):
        path.write_text("half a gr")
    os.utime(old, (time.time() - 3600,) * 2)
    stored()
    assert old.exists()
    stored("--torchgraph-update")
    assert not old.exists()
    assert new.exists(), "another process may be writing it"


# -- checks ----------------------------------------------------------------------------------------


def test_prune_check_fails_and_removes_nothing(
    pytester: pytest.Pytester, run: Run, before: dict[str, bytes]
) -> None:
    assert run("--torchgraph-prune=check").ret == 0
    pytester.makepyfile(test_net=suite().replace("test_step", "test_stepped"))
    run("--torchgraph-update")
    result = run("--torchgraph-prune=check")
    assert result.ret == 1
    assert lines(result)[:2] == [
        "stale, no test compares them (--torchgraph-prune removes them):",
        "  __snapshots__/test_net/test_step.tgraph",
    ]
    assert before.keys() <= files(pytester).keys()
    result = run("--torchgraph-prune=check", "-k", "test_on")
    assert result.ret == 1
    assert lines(result) == ["nothing checked: -k was given, so not all tests ran"]
    assert before.keys() <= files(pytester).keys()


def test_prune_takes_no_value_from_the_next_argument(
    pytester: pytest.Pytester, stored: Run
) -> None:
    pytester.makepyfile(test_other=suite().replace("test_step", "test_stepped"))
    stored("--torchgraph-update")
    result = stored("--torchgraph-prune", ".")
    assert lines(result) == ["removed  __snapshots__/test_other/test_step.tgraph"]
    assert stored("--torchgraph-prune=now").ret == pytest.ExitCode.USAGE_ERROR


def test_stale_files_in_a_directory_without_tests_are_named(
    pytester: pytest.Pytester, stored: Run
) -> None:
    for name in ("gone", "build"):
        home = pytester.path / name / "__snapshots__" / "test_old"
        home.mkdir(parents=True)
        (home / "test_x.tgraph").write_text("torchgraph 1\n")
    stale = os.path.join("gone", "__snapshots__", "test_old", "test_x.tgraph")
    assert lines(stored()) == [
        f"stale, no test compares them: {stale} (--torchgraph-prune removes them)"
    ]
    assert lines(stored("--torchgraph-prune")) == [f"removed  {stale}"]
    assert [path.parts[-4] for path in pytester.path.rglob("test_x.tgraph")] == ["build"]
