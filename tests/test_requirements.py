"""Old or missing torch and syrupy. Code that does not need them is unaffected."""

from __future__ import annotations

import sys
import types
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from environments import RunIn, make_environment, runner
from projects import Run

import pytest_torchgraph
from pytest_torchgraph import torch_release
from pytest_torchgraph.errors import TorchGraphError, UnsupportedTorchError

OLD = "pytest-torchgraph needs torch 2.9 or newer, but this is 2.6.0"
NONE = "pytest-torchgraph needs torch 2.9 or newer, but torch is not installed"

SUITE = """
    import contextlib
    import unittest

    with contextlib.suppress(ImportError):
        import torch

    import pytest

    def test_plain(): pass

    def test_capture(graph_capture): assert 0

    @pytest.fixture(scope="module")
    def captured(graph_capture): assert 0

    def test_by_fixture(captured): assert 0

    def test_asked_for(request):
        request.getfixturevalue("graph_capture")
        assert 0

    class TestDevices:
        def test_device(self, graph_device): assert 0

    @pytest.mark.torchgraph
    def test_marked(): assert 0

    @pytest.mark.torchgraph(max_graphs=1)
    class TestCase(unittest.TestCase):
        def test_case(self): assert 0

    def test_stored(graph_snapshot): assert 0
"""


@pytest.fixture(scope="module")
def old_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("old") / "site", stubs={"torch": "2.6.0+cu124"})


@pytest.fixture(scope="module")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("none") / "site", without=["torch"])


@pytest.fixture(scope="module")
def no_syrupy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("plain") / "site", without=["syrupy"])


@pytest.fixture
def run_old(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, old_torch: Path) -> RunIn:
    return runner(pytester, monkeypatch, old_torch)


@pytest.fixture
def run_without_torch(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, no_torch: Path
) -> RunIn:
    return runner(pytester, monkeypatch, no_torch)


@pytest.fixture
def run_without_syrupy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, no_syrupy: Path
) -> RunIn:
    return runner(pytester, monkeypatch, no_syrupy)


def skipped(result: pytest.RunResult) -> dict[str, int]:
    """Return the number of skipped tests by reason."""
    found: dict[str, int] = {}
    for line in result.outlines:
        if line.startswith("SKIPPED ["):
            number, _, rest = line.removeprefix("SKIPPED [").partition("]")
            reason = rest.partition(": ")[2]
            found[reason] = found.get(reason, 0) + int(number)
    return found


@pytest.mark.parametrize(
    ("version", "release", "problem"),
    [
        ("2.13.0+cpu", "2.13", ""),
        ("2.9.0a0+git1234", "2.9", ""),
        ("3.0.0", "3.0", ""),
        ("2.6.0+cu124", "2.6", OLD),
        ("1.13.1", "1.13", OLD.replace("2.6.0", "1.13.1")),
        ("unknown", "", ""),
    ],
)
def test_required_torch_release(
    monkeypatch: pytest.MonkeyPatch, version: str, release: str, problem: str
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert torch_release.running_release() == release
    assert torch_release.why_unsupported() == problem


VERSION = pytest_torchgraph.__version__
UNTRIED = f"torch 2.99 has not been tried with pytest-torchgraph {VERSION}: "


@pytest.mark.parametrize(
    ("version", "message"),
    [("2.99.0a0+git1234", UNTRIED), ("2.13.2+cpu", ""), ("2.6.0", ""), ("unknown", "")],
)
def test_untried_torch_release_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, message: str
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    found = torch_release.why_untried(VERSION)
    assert found.startswith(message)
    assert bool(found) == bool(message)


WITH_AND_WITHOUT = """
    def test_capture(graph_capture): pass

    def test_asked_for(request): request.getfixturevalue("graph_capture")

    def test_plain(): pass
"""


@pytest.mark.slow("starts workers", unless=["one"])
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "n2"])
def test_untried_torch_is_named_once_if_a_fixture_was_used(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    pytester.makeconftest("import torch\ntorch.__version__ = '2.99.1+cpu'")
    pytester.makepyfile(WITH_AND_WITHOUT)
    for selected, lines in (("", 1), ("asked_for", 1), ("plain", 0)):
        result = run("-W", "error", "-k", selected, *workers)
        assert result.ret == 0
        assert sum(line.startswith(UNTRIED) for line in result.outlines) == lines
        assert "warning" not in result.outlines[-1]


def test_tried_torch_releases_are_documented() -> None:
    *earlier, last = torch_release.TRIED
    for page in ("README.md", "docs/releases.md"):
        text = " ".join((Path(__file__).parents[1] / page).read_text(encoding="utf-8").split())
        assert f"tests were run with torch {', '.join(earlier)} and {last}" in text, page


def test_torch_release_is_read_from_metadata_without_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(metadata, "version", {"torch": "2.8.1"}.__getitem__)
    assert torch_release.why_unsupported() == OLD.replace("2.6.0", "2.8.1")
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    ("module", "problem"), [(None, NONE), (types.ModuleType("torch"), "")], ids=["none", "stub"]
)
def test_torch_without_metadata_is_treated_as_new(
    monkeypatch: pytest.MonkeyPatch, module: Any, problem: str
) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setitem(sys.modules, "torch", module)
    assert torch_release.why_unsupported() == problem


@pytest.mark.slow("runs pytest several times")
def test_old_torch_skips_tests_that_need_a_newer_one(
    pytester: pytest.Pytester, run_old: RunIn
) -> None:
    pytester.makepyfile(SUITE)
    result = run_old("-rs", "-W", "error")
    result.assert_outcomes(passed=1, skipped=8)
    assert skipped(result) == {OLD: 8}


@pytest.mark.slow("runs pytest several times")
def test_missing_torch_compares_files_and_skips_the_rest(
    pytester: pytest.Pytester, run_without_torch: RunIn
) -> None:
    pytester.makepyfile(SUITE)
    result = run_without_torch("-rsf", "-W", "error")
    result.assert_outcomes(passed=1, skipped=7, failed=1)
    assert skipped(result) == {NONE: 7}
    result.stdout.fnmatch_lines(["FAILED *::test_stored*"])


@pytest.mark.slow("runs pytest several times")
@pytest.mark.parametrize("isolation", ["on", "off"])
def test_old_torch_ini_limits_are_reported_as_unchecked(
    pytester: pytest.Pytester, run_old: RunIn, isolation: str
) -> None:
    pytester.makeini(
        f"[pytest]\ntorchgraph_max_graph_breaks = 0\ntorchgraph_isolation = {isolation}"
    )
    pytester.makepyfile("def test_plain(): pass\ndef test_other(): pass")
    result = run_old("-W", "error")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"the limits in the ini file were not checked: {OLD}"])


@pytest.mark.slow("runs pytest several times")
def test_old_torch_without_limits_is_not_mentioned(
    pytester: pytest.Pytester, run_old: RunIn
) -> None:
    pytester.makepyfile("def test_plain(): pass\ndef test_failing(): assert 0")
    result = run_old("-W", "error")
    result.assert_outcomes(passed=1, failed=1)
    assert "needs torch" not in result.stdout.str()


@pytest.mark.slow("runs pytest several times")
def test_old_torch_audit_check_is_refused(
    pytester: pytest.Pytester, run_without_torch: RunIn
) -> None:
    pytester.makepyfile("def test_plain(): pass")
    result = run_without_torch("--torchgraph-audit=check")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --torchgraph-audit=check: {NONE}"])


def test_old_torch_outside_pytest_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linear, graph = torch.nn.Linear(2, 2), torch.fx.symbolic_trace(torch.nn.ReLU())
    monkeypatch.setattr(torch, "__version__", "2.6.0")
    calls = {
        "capture": lambda: pytest_torchgraph.capture(linear, torch.ones(2)),
        "watch": pytest_torchgraph.watch,
        "from_fx": lambda: pytest_torchgraph.from_fx(graph),
    }
    for name, call in calls.items():
        with pytest.raises(UnsupportedTorchError, match=OLD):
            call()
        assert issubclass(UnsupportedTorchError, TorchGraphError), name


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["no_torch-pytest-torchgraph needs torch 2.9 or newer, but torch is not installed"],
)
@pytest.mark.parametrize(("which", "problem"), [("old_torch", OLD), ("no_torch", NONE)])
def test_unimportable_name_gives_the_reason(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    which: str,
    problem: str,
) -> None:
    runner(pytester, monkeypatch, request.getfixturevalue(which))
    code = (
        "from pytest_torchgraph import Graph\n"
        "try: from pytest_torchgraph import capture\n"
        "except ImportError as error: print(error)"
    )
    result = pytester.run(sys.executable, "-S", "-W", "error", "-c", code)
    assert result.outlines == [problem]


OTHER_PLUGIN = """
    import pytest

    def pytest_addoption(parser):
        parser.addoption("--snapshot-update", action="store_true", help="as pytest-snapshot has it")

    @pytest.fixture
    def snapshot(request):
        return request.config.option.snapshot_update
"""


@pytest.mark.slow("runs pytest several times")
def test_without_syrupy_another_plugin_for_snapshots_has_its_options_and_fixture(
    pytester: pytest.Pytester, run_without_syrupy: RunIn
) -> None:
    pytester.makepyfile(
        other_snapshots=OTHER_PLUGIN, test_x="def test_x(snapshot): assert snapshot is True"
    )
    result = run_without_syrupy("-p", "other_snapshots", "--snapshot-update", "-W", "error")
    result.assert_outcomes(passed=1)
    assert "snapshot report" not in result.stdout.str()


@pytest.mark.slow("via dispatch each case is in every run")
def test_graph_snapshot_without_syrupy_names_the_install_command(
    pytester: pytest.Pytester, run_without_syrupy: RunIn
) -> None:
    pytester.makepyfile(SUITE)
    result = run_without_syrupy("-k", "plain or stored")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "graph_snapshot requires the syrupy plugin, version 5.3 or newer, but syrupy is "
            "not installed: pip install 'pytest-torchgraph[[]snapshot[]]'"
        ]
    )


@pytest.mark.slow("runs pytest in a new process")
def test_captures_and_the_marker_need_no_syrupy(
    pytester: pytest.Pytester, run_without_syrupy: RunIn
) -> None:
    pytester.makepyfile(
        """
        import pytest
        import torch

        def test_captured(graph_capture):
            graph_capture(torch.sin, torch.ones(3)).assert_graph_count(1)

        @pytest.mark.torchgraph
        def test_marked():
            torch.compile(torch.sin, backend="eager")(torch.ones(3))
        """
    )
    result = run_without_syrupy("--torchgraph-audit=show", "--torchgraph-report=page.html")
    result.assert_outcomes(passed=2)


@pytest.mark.slow("runs pytest several times")
def test_old_syrupy_is_named(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = make_environment(pytester.path / "site", stubs={"syrupy": "4.9.1"})
    pytester.makepyfile(test_x="def test_stored(graph_snapshot): pass\ndef test_plain(): pass")
    result = runner(pytester, monkeypatch, environment)("test_x.py")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the syrupy plugin, version 5.3 or newer*4.9.1*pip install *"])
