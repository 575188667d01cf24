"""`--torchgraph-prune`: what is removed, what is kept, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import Run, files

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


def lines(result: pytest.RunResult) -> list[str]:
    """What the section about stored graphs says."""
    heads = [i for i, line in enumerate(result.outlines) if line.strip("= ") == "stored graphs"]
    if not heads:
        return []
    rest = result.outlines[heads[0] + 1 :]
    end = next(i for i, line in enumerate(rest) if line.startswith("=") or " in " in line)
    return rest[:end]


def stored(pytester: pytest.Pytester, run: Run, **parts: str) -> dict[str, bytes]:
    pytester.makepyfile(test_net=suite(**parts), test_other=suite())
    run("--torchgraph-update").assert_outcomes(passed=6)
    return files(pytester)


# -- what is removed -------------------------------------------------------------------------------


@WORKERS
def test_what_no_test_compares_any_more_is_removed_and_named(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    before = stored(pytester, run)
    cpu = suite(devices='["cpu"]')
    pytester.makepyfile(test_net=cpu.replace("test_step", "test_stepped"), test_other=cpu)
    run(*workers, "--torchgraph-update").assert_outcomes(passed=4)
    told = run(*workers)
    stale = "__snapshots__/test_net/test_step.tgraph"
    assert lines(told) == [
        f"stale, no test compares them: {stale} (--torchgraph-prune removes them)"
    ]
    pruned = run(*workers, "--torchgraph-prune")
    assert lines(pruned) == [f"removed  {stale}"]
    gone = before.keys() - files(pytester).keys()
    assert gone == {stale}
    assert lines(run(*workers, "--torchgraph-prune")) == ["nothing to remove"]
    assert lines(run(*workers)) == []


@WORKERS
def test_the_graphs_of_a_test_file_that_is_gone_are_removed_with_their_directory(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    stored(pytester, run)
    Path("test_net.py").unlink()
    result = run(*workers, "--torchgraph-prune", OP="relu")
    kept = ["test_on[cuda].tgraph", "test_on[cuda][again].tgraph"]
    assert len([line for line in lines(result) if line.startswith("removed")]) == 5
    assert not Path("__snapshots__/test_net").exists(), kept
    assert len(files(pytester)) == 5


# -- what is kept ----------------------------------------------------------------------------------

CASES = {
    "a parameter skipped by its mark": {
        "devices": '["cpu", pytest.param("cuda", marks=pytest.mark.skip)]'
    },
    "skipped in the body": {"step": 'pytest.skip("not here")'},
    "skipped by a mark": {"mark": "@pytest.mark.skip"},
    "expected to fail and not run": {"mark": "@pytest.mark.xfail(run=False)"},
    "a parameter left out where there is no CUDA": {"devices": '["cpu"]'},
    "a module skipped at import": {"header": 'pytest.skip("not here", allow_module_level=True)'},
    "a module that needs what is not there": {"header": 'pytest.importorskip("no_triton")'},
    "an exception before the assertion": {"step": "raise MemoryError"},
    "an exception between two assertions": {"between": "raise MemoryError"},
    "a fixture that fails": {
        "header": "@pytest.fixture(autouse=True)\ndef broken(): raise MemoryError"
    },
    "pytest.exit": {"before": 'pytest.exit("enough", returncode=0)'},
    "a keyboard interrupt": {"before": "raise KeyboardInterrupt"},
    "a file that cannot be imported": {"header": "import no_such_module"},
}
IN_WORKERS = (
    "a parameter left out where there is no CUDA",
    "a module skipped at import",
    "an exception before the assertion",
    "pytest.exit",
)
"""Those in which a worker knows something else than the controller."""
EVERYTHING = ("--torchgraph-prune", "--torchgraph-update", "--snapshot-update")
FILTERS = {
    "-k": ("-k", "step"),
    "-m": ("-m", "not slow and missing"),
    "--deselect": ("--deselect", "test_net.py::test_step"),
    "one file": ("test_other.py",),
    "one test": ("test_other.py::test_step",),
    "--ignore": ("--ignore=test_net.py",),
    "-x": ("-x",),
    "--lf": ("--lf",),
    "--collect-only": ("--collect-only",),
}


@pytest.mark.parametrize(
    ("case", "workers"),
    [(case, ()) for case in CASES] + [(case, ("-p", "xdist", "-n2")) for case in IN_WORKERS],
)
def test_nothing_is_lost_whatever_did_not_run(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...], case: str
) -> None:
    before = stored(pytester, run)
    pytester.makepyfile(test_net=suite(**CASES[case]))
    if "CUDA" in case:
        pytester.makepyfile(test_other=suite(**CASES[case]))
    for flags in (["--torchgraph-prune"], ["-x", *EVERYTHING]):
        run(*workers, *flags)
        assert files(pytester) == before, flags


@pytest.mark.parametrize(
    ("case", "workers"),
    [(case, ()) for case in FILTERS] + [(case, ("-p", "xdist", "-n2")) for case in ("-k", "-x")],
)
def test_nothing_is_lost_in_a_run_of_a_part(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...], case: str
) -> None:
    before = stored(pytester, run)
    run(*workers, *FILTERS[case], *EVERYTHING)
    assert files(pytester) == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-k", "step"), "-k was given, so not all tests ran"),
        (("test_other.py",), "only test_other.py was run"),
        (("--deselect", "test_net.py::test_gone"), "--deselect was given, so not all tests ran"),
    ],
)
def test_it_says_why_nothing_is_removed(
    pytester: pytest.Pytester, run: Run, words: tuple[str, ...], reason: str
) -> None:
    stored(pytester, run)
    assert lines(run(*words, "--torchgraph-prune")) == [f"nothing removed: {reason}"]


@WORKERS
def test_a_failing_test_is_named_as_the_reason(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    stored(pytester, run)
    pytester.makepyfile(test_net=suite(step="raise MemoryError"))
    told = lines(run(*workers, "--torchgraph-prune"))
    assert told == ["nothing removed: test_net.py::test_step failed"]


@WORKERS
def test_a_file_with_a_skipped_test_is_kept_whole_and_the_others_are_not(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    stored(pytester, run)
    renamed = {"mark": "", "step": ""}
    pytester.makepyfile(
        test_net=suite(mark="@pytest.mark.skip"),
        test_other=suite(**renamed).replace("test_step", "test_stepped"),
    )
    run("--torchgraph-update")
    assert lines(run(*workers, "--torchgraph-prune")) == [
        "removed  __snapshots__/test_other/test_step.tgraph",
        "kept all of test_net.py: test_net.py::test_step was skipped",
    ]


@WORKERS
def test_a_lost_worker_or_a_deselecting_plugin_keeps_everything(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    before = stored(pytester, run)
    Path("conftest.py").write_text(
        Path("conftest.py").read_text() if Path("conftest.py").exists() else ""
    )
    with open("conftest.py", "a") as conftest:
        conftest.write(
            "\ndef pytest_collection_modifyitems(config, items):\n"
            "    config.hook.pytest_deselected(items=items[:1])\n"
            "    del items[:1]\n"
        )
    told = lines(run(*workers, "--torchgraph-prune"))
    assert len(told) == 1
    assert told[0].startswith("nothing removed: test_net.py::test_on")
    assert told[0].endswith("was deselected")
    assert files(pytester) == before


def test_files_of_others_are_not_touched(pytester: pytest.Pytester, run: Run) -> None:
    stored(pytester, run)
    beside = Path("__snapshots__/test_net/notes.txt")
    beside.write_text("mine")
    Path("__snapshots__/other.ambr").write_text("mine")
    Path("test_net.py").unlink()
    run("--torchgraph-prune")
    assert sorted(files(pytester))[-1] == "__snapshots__/test_net/notes.txt" or beside.exists()
    assert Path("__snapshots__/other.ambr").exists()


def test_prune_is_never_set_from_a_file(pytester: pytest.Pytester, run: Run) -> None:
    stored(pytester, run)
    pytester.makeini("[pytest]\ntorchgraph_prune = true\n")
    result = run()
    assert "torchgraph_prune" in result.stdout.str() + result.stderr.str()
    assert len(files(pytester)) == 10
