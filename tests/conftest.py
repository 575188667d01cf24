"""Fixtures that run pytest on a separate project in a separate process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from forked import Template, needed_by, read_at_start
from hypothesis import settings
from projects import GRAPHS, Run, files

pytest_plugins = ["pytester"]

# Before torch is imported, here and in the processes that tests start: the threads of several
# processes wait for each other at each op. Two workers on two cores took up to twice the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nor does Dynamo run the garbage collector after each of the many compilations.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the mark `slow` from the cases that it excludes, before `-m` deselects any.

    `@pytest.mark.slow(reason, unless=[...])` applies to all other cases of a test, and
    `only=[...]` applies to these cases. Each is the id of a case, or a glob.
    """
    used: dict[tuple[str, str], bool] = {}
    for item in items:
        case = getattr(getattr(item, "callspec", None), "id", "")
        for mark in [mark for mark in item.own_markers if mark.name == "slow"]:
            patterns = mark.kwargs.get("unless") or mark.kwargs.get("only") or ()
            hits = [glob for glob in patterns if glob == case or fnmatchcase(case, glob)]
            for pattern in patterns:
                key = (item.nodeid.partition("[")[0], pattern)
                used[key] = used.get(key, False) or pattern in hits
            if patterns and bool(hits) == ("unless" in mark.kwargs):
                item.own_markers.remove(mark)
    # Other releases of torch have other cases.
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    whole = whole and metadata.version("torch").startswith("2.13.")
    if whole and (unused := sorted(key for key, is_used in used.items() if not is_used)):
        lines = "\n".join(f"{test}: {pattern!r}" for test, pattern in unused)
        raise pytest.UsageError(f"marks `slow` with an id that no case of the test has:\n{lines}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip a measurement that torch makes in each compilation and no test reads.

    To measure the time of guards with cold CPU caches, torch writes 256 MB: 22 ms of the 120 ms
    that a small function takes to compile.
    """
    guards: Any = sys.modules.get("torch._dynamo.guards")
    if guards is not None:
        guards.profile_guard_manager = lambda *_: 0.0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Take what lives long out of the collector's full passes: the objects of torch, above all.

    They were a sixth of the time of the tests: a pass visits 1.2 million objects, in 0.8 s.
    """
    done = item.session.stash[TESTS] = item.session.stash.get(TESTS, -1) + 1
    if done % 200 == 0:
        gc.set_threshold(10_000, 10, 1_000_000)
        gc.collect()
        gc.freeze()


TESTS = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip tests that inductor cannot link, because it does not quote torch's library path."""
    try:
        return (yield)
    except Exception as error:
        caused = error
        while caused is not None and "cannot find -ltorch" not in str(caused):
            caused = caused.__cause__ or caused.__context__
        if caused is None or " " not in str(Path(sys.modules["torch"].__file__).parent):
            raise
    pytest.skip("inductor cannot link C++ where torch is installed in a path with a space")


# Each run tries the same examples. `.ci/nightly` tries new ones, with
# `--hypothesis-profile=random`. No example fails because a machine is slow.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")


@pytest.fixture(scope="session")
def template() -> Iterator[Callable[[Path], Template]]:
    """Return the interpreter that runs of a project may be forked from."""
    made: dict[tuple[str, ...], Template] = {}

    def template(project: Path) -> Template:
        imported = tuple(needed_by(project))
        if imported not in made:
            made[imported] = Template(*imported)
        return made[imported]

    yield template
    for each in made.values():
        each.close()


@pytest.fixture
def unaudited() -> Iterator[None]:
    """Pause `--torchgraph-audit` of this suite, for tests that compare torch's hooks.

    An audit keeps the observers installed between the tests.
    """
    from pytest_torchgraph.watching import HUB  # imports torch

    with HUB.paused():
        yield


@pytest.fixture
def new_interpreter() -> None:
    """For tests of imports: start a new interpreter for each run instead of a fork."""


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    template: Callable[[Path], Template],
) -> Run:
    """Run pytest on the project in `pytester.path`. Keywords are environment variables.

    Loads only syrupy and the plugins named with `-p`. Never in this process, because syrupy has one
    session per process.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name in (
        "CI",
        "COLUMNS",
        "LINES",
    ):  # pytest-xdist gives its workers a terminal of 80 columns
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith(("PYTEST_XDIST_", "GITHUB_"))]:
        monkeypatch.delenv(name)  # otherwise the inner run would act as a worker or a CI step
    pytester.makepyfile(graphs=GRAPHS)

    def run(*args: str | Path, **environment: str) -> pytest.RunResult:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            # On macOS torch's libraries do not survive a fork, and Windows has no fork.
            if "new_interpreter" not in request.fixturenames and sys.platform == "linux":
                parent = template(pytester.path)
                if read_at_start(os.environ) == parent.started:
                    patch.setattr(pytester, "popen", parent.popen)
            return pytester.runpytest_subprocess("-p", "pytest_torchgraph.plugin", *args)

    return run


@pytest.fixture(scope="session")
def stores() -> dict[tuple[str, ...], dict[str, bytes]]:
    """The files that `store` wrote, by the code of the project."""
    return {}


@pytest.fixture
def store(
    pytester: pytest.Pytester, run: Run, stores: dict[tuple[str, ...], dict[str, bytes]]
) -> Callable[..., dict[str, bytes]]:
    """Store the graphs of a project, and return all its stored files.

    Runs pytest for the first of equal projects only. The others get a copy of its files.
    """

    def store(*args: str, passed: int, **environment: str) -> dict[str, bytes]:
        paths = [*pytester.path.rglob("*.py"), *pytester.path.rglob("*.ini")]
        code = [path.read_text() for path in sorted(paths)]
        key = (*code, *args, *(f"{name}={value}" for name, value in environment.items()))
        if key not in stores:
            run("--torchgraph-update", *args, **environment).assert_outcomes(passed=passed)
            stores[key] = files(pytester)
        for name, content in stores[key].items():
            (pytester.path / name).parent.mkdir(parents=True, exist_ok=True)
            (pytester.path / name).write_bytes(content)
        return stores[key]

    return store


@pytest.fixture
def project(pytester: pytest.Pytester, run: Run, store: Callable[..., dict[str, bytes]]) -> Run:
    """A project with one test, `test_net.py::test_step`, and its stored graph with the op relu."""
    pytester.makepyfile(
        test_net="""
        from graphs import Capture, graph

        def test_step(graph_snapshot):
            assert Capture(graph()) == graph_snapshot
        """
    )
    store(passed=1)
    return run


@pytest.fixture
def stored(pytester: pytest.Pytester) -> Path:
    """The path of the stored graph of `project`."""
    return pytester.path / "__snapshots__" / "test_net" / "test_step.tgraph"
