"""Updates and prunes lose no stored graph if parts of a project did not run, row by row.

The rows are cases in which other tools delete snapshots that are still needed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from projects import Run, files

SUITE = """
import pytest
from graphs import graph
{header}

@pytest.fixture
def ready():
    {fixture}

@pytest.mark.parametrize("device", {devices})
def test_on(device, ready, graph_snapshot):
    {before}
    assert graph() == graph_snapshot
    {between}
    assert graph() == graph_snapshot(name="again")

{mark}
def test_step(graph_snapshot):
    {step}
    assert graph() == graph_snapshot

def test_text(snapshot):
    assert "text" == snapshot
"""
DEVICES = ("cpu", "cuda", "cuda:0", "torch.float16-cuda")
WHOLE = {
    "header": "",
    "fixture": "pass",
    "devices": str(list(DEVICES)),
    "before": "",
    "between": "",
    "mark": "",
    "step": "",
}
SKIPPED = ", ".join(f"pytest.param({name!r}, marks=pytest.mark.skip)" for name in DEVICES[1:])
UPDATES = ("--torchgraph-update", "--snapshot-update")
LEFT_OUT = "parameters left out where there is no CUDA"

Row = tuple[dict[str, str], tuple[str, ...]]
ROWS: dict[str, Row] = {
    "parameters skipped by a mark": ({"devices": f'["cpu", {SKIPPED}]'}, UPDATES),
    "skipped in a fixture": ({"fixture": 'pytest.skip("not here")'}, UPDATES),
    "expected to fail and not run": ({"mark": "@pytest.mark.xfail(run=False)"}, UPDATES),
    "-k": ({}, ("-k", "step", *UPDATES)),
    "--deselect": ({}, ("--deselect", "test_net.py::test_step", *UPDATES)),
    "one test": ({}, ("test_net.py::test_step", *UPDATES)),
    "--ignore": ({}, ("--ignore=test_net.py", *UPDATES)),
    LEFT_OUT: ({"devices": '["cpu"]'}, UPDATES),
    "a module skipped at import": (
        {"header": 'pytest.skip("not here", allow_module_level=True)'},
        UPDATES,
    ),
    "a file that cannot be imported": ({"header": "import no_such_module"}, UPDATES),
    "an exception between two assertions": ({"between": "raise MemoryError"}, UPDATES),
    "-x, and all tests fail": ({"before": "raise MemoryError"}, ("-x", *UPDATES)),
    "a keyboard interrupt": ({"before": "raise KeyboardInterrupt"}, UPDATES),
    "--lf": ({}, ("--lf", *UPDATES)),
    "--collect-only": ({}, ("--collect-only",)),
    "--setup-plan": ({}, ("--setup-plan",)),
    "tests have other names today": ({}, ("-o", "python_functions=test_step*")),
}
CONFTESTS = {
    "a plugin deselects": """
        def pytest_collection_modifyitems(config, items):
            config.hook.pytest_deselected(items=items[:1])
            del items[:1]
    """,
    "a plugin leaves tests out and says nothing": """
        def pytest_collection_modifyitems(items):
            del items[:1]
    """,
    "a plugin runs tests its own way": """
        def pytest_runtest_protocol(item):
            return True
    """,
    "a plugin takes the call": """
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):
            from _pytest.runner import call_and_report
            call_and_report(item, "setup")
            call_and_report(item, "teardown", nextitem=nextitem)
            return True
    """,
}
WORKERS = pytest.mark.parametrize("workers", ["-n0", "-n2"])


@pytest.fixture
def before(pytester: pytest.Pytester, store: Callable[..., dict[str, bytes]]) -> dict[str, bytes]:
    """Two test files, their stored graphs, a text of syrupy, and unrelated files."""
    source = SUITE.format(**WHOLE)
    pytester.makepyfile(test_net=source, test_other=source)
    store("--snapshot-update", passed=12)
    for name in ("notes.md", "picture.svg"):
        (pytester.path / "__snapshots__" / "test_net" / name).write_text("mine")
    cache = pytester.path / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "lastfailed").write_text('{"test_net.py::test_step": true}')
    stored_files = files(pytester)
    assert len(graphs_of(stored_files)) == 18
    return stored_files


def graphs_of(stored: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in stored.items() if path.endswith(".tgraph")}


@pytest.mark.slow(
    "the same without workers is in every run",
    unless=["--collect-only--n0", "--setup-plan--n0", "-x, and all tests fail--n0", "one test--n0"],
)
@pytest.mark.parametrize(
    ("row", "workers"),
    [*((row, "-n0") for row in ROWS), *((row, "-n2") for row in [*ROWS][::6])],
)
def test_partial_run_loses_no_snapshot(
    pytester: pytest.Pytester, run: Run, before: dict[str, bytes], row: str, workers: str
) -> None:
    parts, arguments = ROWS[row]
    source = SUITE.format(**{**WHOLE, **parts})
    pytester.makepyfile(test_net=source)
    if parts == ROWS[LEFT_OUT][0]:
        pytester.makepyfile(test_other=source)
    result = run("-p", "xdist", workers, "--torchgraph-prune", *arguments)
    assert graphs_of(files(pytester)) == graphs_of(before)
    assert "Can not relate" not in result.stdout.str(), "syrupy warns of names like cuda:0"


@pytest.mark.slow(
    "further models and backends", only=["*n2", "a plugin leaves tests out and says nothing--n0"]
)
@pytest.mark.parametrize(
    ("plugin", "workers"),
    [*((plugin, "-n0") for plugin in CONFTESTS), ("a plugin deselects", "-n2")],
)
def test_run_changed_by_a_plugin_loses_no_snapshot(
    pytester: pytest.Pytester, run: Run, before: dict[str, bytes], plugin: str, workers: str
) -> None:
    pytester.makeconftest(CONFTESTS[plugin])
    run("-p", "xdist", workers, "--torchgraph-prune", *UPDATES)
    assert graphs_of(files(pytester)) == graphs_of(before)


@pytest.mark.slow("further models and backends", unless=["-n0"])
@WORKERS
def test_update_and_prune_keep_unrelated_files(
    pytester: pytest.Pytester, run: Run, before: dict[str, bytes], workers: str
) -> None:
    stale = SUITE.format(**WHOLE).replace("def test_step", "def test_stepped")
    pytester.makepyfile(test_net=stale.replace("def test_text", "def no_test_text"))
    run("-p", "xdist", workers, "--torchgraph-update").assert_outcomes(passed=11)
    run("-p", "xdist", workers, "--torchgraph-prune", OP="relu")
    now = files(pytester)
    step = "__snapshots__/test_net/test_step.tgraph"
    assert before.keys() - now.keys() == {step}
    assert {path: now[path] for path in before if path != step} == {
        path: data for path, data in before.items() if path != step
    }
