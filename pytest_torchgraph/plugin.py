"""The pytest plugin: short hooks and fixtures that call the rest of the package.

Every pytest run in the environment imports this module. If compiled files cannot be written, pytest
also recompiles this module for assertion rewriting. So only imports that every run needs are at the
top; hooks and fixtures import the rest on use.

    start       pytest_configure resolves the options, and registers what they request
    collection  pytest_generate_tests and pytest_make_collect_report: devices and their markers
    each test   `_torchgraph` isolates it, and pytest_runtest_call watches it for its limits
    a failure   pytest_torchgraph_edit_exception and pytest_runtest_makereport explain it
    end         pytest_terminal_summary lists the stored graphs

The comparison itself is in `snapshot.assertion`, which the fixture `graph_snapshot` returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from . import device_types
from .errors import make_printable
from .settings import options
from .snapshot import RECORD, REPORTED, hide_from_cleanup
from .snapshot.run import PLUGIN, RunRecord
from .words import one_line, printable

if TYPE_CHECKING:
    import torch

    from .api.capture import GraphCapture
    from .ranks.ranks import Ranks
    from .settings.config import Config
    from .settings.limits import Limits
    from .snapshot.assertion import GraphSnapshot

pytest_plugins = ["syrupy"] if find_spec("syrupy") else []
"""The plugin that `graph_snapshot` needs, if installed; see `snapshot.subject`."""

NEEDING_TORCH = frozenset({"graph_capture", "graph_device", "graph_ranks"})
RUN = pytest.StashKey[RunRecord]()
ANY_SET = pytest.StashKey[bool]()
"""True if an option or ini value of this plugin is set."""
TEST_CASE = f"{__package__}.api.testcase"
"""Module of `GraphTestCase`. Until this module is imported, no test can have that class."""
INLINE = f"{__package__}.snapshot.inline"
"""Module of `assert_graph_text`. Until this module is imported, no test can have called it."""
OURS = NEEDING_TORCH | {"graph_snapshot"}  # the fixtures of this plugin


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--torchgraph-*`."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Resolve the options, and keep syrupy's clean-up away from stored graphs."""
    config.stash[ANY_SET] = options.any_set(config)
    config.stash[RUN] = run = _RunRecord(config)
    config.pluginmanager.register(run, PLUGIN)
    config.addinivalue_line("markers", options.DESCRIPTION)
    config.addinivalue_line("markers", device_types.DESCRIPTION)
    if config.stash[ANY_SET]:  # else a run that uses no option imports no more
        try:
            _configure_what_is_set(config)
        except pytest.UsageError as error:
            make_printable(error)
            raise
    if config.pluginmanager.hasplugin("syrupy"):
        hide_from_cleanup(config)


def _configure_what_is_set(config: pytest.Config) -> None:
    """Resolve the settings, and register the plugins that they request."""
    config_settings = _settings(config)
    if config_settings.update and not config.option.collectonly:
        from .snapshot.inline import PLUGIN as TEXTS
        from .snapshot.inline import TextUpdates

        config.pluginmanager.register(TextUpdates(config), TEXTS)
    if config_settings.report is not None:
        from .report.page import install

        install(config, config_settings.report)
    if config_settings.limits:
        from .report.causes import LimitedTests

        config.pluginmanager.register(LimitedTests(config), "torchgraph-limits")
    if config_settings.save_run is not None:
        from .runs import install as install_saving

        install_saving(config, config_settings.save_run)
    if (
        config_settings.audit or config_settings.json is not None
    ) and not config.option.collectonly:
        from .audit import install as install_audit
        from .report.surfaces import install as install_surfaces

        install_surfaces(config)  # before the audit: hooks of later plugins run first
        install_audit(config)


def _settings(config: pytest.Config) -> Config:
    from .settings.config import get

    return get(config)


class _RunRecord(RunRecord):
    """The record of a run, which reports the causes of failed comparisons at the end.

    It registers `FailedComparisons` with the first failed comparison, so that a run without one
    does not import its module. In a worker, the controller does it.
    """

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        super().pytest_runtest_logreport(report)
        failed = getattr(report, REPORTED, {}).get("failed")
        if failed and not hasattr(self.config, "workerinput"):
            from .report.causes import PLUGIN, FailedComparisons

            if not self.config.pluginmanager.hasplugin(PLUGIN):
                plugin = FailedComparisons(self.config)
                # The current call started before the registration.
                plugin.pytest_runtest_logreport(report)
                self.config.pluginmanager.register(plugin, PLUGIN)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep torch's structured trace out of failure reports, as pytest before 9.1 did.

    The records of the trace have no message, so a test that compiles would have hundreds of blank
    lines.
    """
    logs = session.config.pluginmanager.getplugin("logging-plugin")
    handler = getattr(logs, "report_handler", None)
    if handler is not None:
        handler.addFilter(lambda record: record.name != "torch.__trace")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use `graph_device` on each selected device."""
    if device_types.FIXTURE in metafunc.fixturenames:
        from . import devices

        devices.parametrize(metafunc, _settings(metafunc.config).devices)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Before any test runs, refuse device markers that have no effect."""
    report = yield
    marker_lists = (getattr(item, "own_markers", ()) for item in report.result or ())
    if not any(mark.name == device_types.MARKER for marks in marker_lists for mark in marks):
        return report
    from . import devices

    if mistakes := devices.find_misused_markers(report.result or ()):
        report.outcome, report.longrepr, report.result = "failed", printable(mistakes), []
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the compilations of a marked test. A failing test keeps its own failure."""
    limits = _limits(item)
    if limits is None:
        result = yield
    else:
        from . import marker

        with _from_import_on(item, marker.watched(item, limits)):
            result = yield
        # If Dynamo was never imported, the watch was not entered and has set nothing.
        item.stash.setdefault(marker.COMPILED, False)
    record = item.stash.get(RECORD, None)
    if record is not None and not record.used:
        from .report.mismatch import fail_unused

        fail_unused(item)
    return result


# Not in the wrapper: pytest sets the exception of a unittest test in a hook inside the wrapper.
@pytest.hookimpl(specname="pytest_runtest_makereport")
def pytest_torchgraph_edit_exception(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Change an exception before pytest formats it: hide our frames, name the accept command.

    A phase that passed or skipped although a comparison failed gets an exception.
    """
    record = item.stash.get(RECORD, None)
    if record is not None and record.failed:
        from .report.mismatch import fail_ignored_mismatches

        fail_ignored_mismatches(item, call)
    if call.excinfo is None:
        return
    from .report.failed_check import edit_own_error

    edit_own_error(call.excinfo, hide=not item.config.getoption("fulltrace"))
    if INLINE in sys.modules:
        from .report.mismatch import add_accept_command

        add_accept_command(item, call.excinfo.value)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Explain failed comparisons in the report, and record the stored graphs there."""
    report = yield
    if call.excinfo is not None and report.failed:
        from .report.failed_check import add_differences, add_picture

        add_picture(item, report, call.excinfo.value)
        add_differences(report, call.excinfo.value)
    record = item.stash.get(RECORD, None)
    if record is not None and record.compared:
        from .report.mismatch import add_comparisons

        add_comparisons(item, report)
    if INLINE in sys.modules:
        from .report.mismatch import add_text_comparison

        add_text_comparison(item, report, call)
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """List written and stale stored graphs, and remove stale graphs with `--torchgraph-prune`."""
    run = config.stash[RUN]
    if run.passed and _ini_limits(config) and (reason := _why_unsupported()):
        terminalreporter.section("torchgraph", sep="-")
        terminalreporter.line(one_line(f"the limits in the ini file were not checked: {reason}"))
    if run.used:
        from . import __version__, torch_release

        if untried := torch_release.why_untried(__version__):
            terminalreporter.line(one_line(untried))
    is_requested = config.option.torchgraph_update or config.option.torchgraph_prune
    if not hasattr(config, "workerinput") and (is_requested or run.has_stored()):
        from .snapshot.stale import judge
        from .snapshot.summary import summarize

        run.read_journal()
        if config.option.torchgraph_update and not config.option.collectonly:
            from .snapshot.inline import PLUGIN as TEXTS

            config.pluginmanager.getplugin(TEXTS).write(run)

        summarize(terminalreporter, run, judge(run, exitstatus))
        if run.replaced:
            from .report.causes import report_causes

            report_causes(terminalreporter, run)


@pytest.hookimpl(wrapper=True)
def pytest_assertrepr_compare(
    op: str, left: Any, right: Any
) -> Generator[None, list[list[str] | None], list[list[str] | None]]:
    """Describe the difference in the first line of a failed assertion."""
    # Replace syrupy's answer. pytest's short summary shows only the first line, and syrupy's first
    # line does not describe the difference.
    answers = yield
    for side in (right, left):
        if type(side).__module__ == f"{__package__}.snapshot.assertion":
            from .report.mismatch import assertion_lines

            return [[*map(one_line, assertion_lines(op, side))]]
    return answers


@pytest.fixture(scope="session")
def graph_capture(request: pytest.FixtureRequest) -> GraphCapture:
    """Capture the graphs of a model or function.

    `graph_capture(target, *args, via="aot", ...)` runs `target(*args)`, and its backward pass if
    an output requires grad, and returns a `Capture`. `via` selects the mechanism: "aot" (the
    default), "dispatch", "fx", "dynamo", "export", "inductor" or "compiled_autograd".

    Session-scoped and stateless: fixtures of any scope, and hypothesis tests, can use it.
    """
    _used(request)  # captures need the root, also in a session without any option
    from .api.capture import GraphCapture

    return GraphCapture()


@pytest.fixture(scope="session")
def graph_ranks(request: pytest.FixtureRequest) -> Callable[..., Ranks]:
    """Capture the graphs of several ranks in one process: `graph_ranks(build, dp=2, tp=4)`.

    `build(mesh)` runs once per rank and returns `(target, args)` or `(target, args, kwargs)`; see
    `pytest_torchgraph.capture_ranks`.
    """
    _used(request)
    from .ranks.capture_ranks import capture_ranks

    return capture_ranks


@pytest.fixture
def graph_snapshot(request: pytest.FixtureRequest) -> GraphSnapshot:
    """Compare captured graphs with stored graphs: `assert capture == graph_snapshot`.

    Accepts a capture, a graph, or a torch.fx graph. If a test compares several graphs, name them:
    `graph_snapshot(name="forward")`. `detail="ops"` stores and compares less than the default
    "dataflow", `detail="full"` more.

    Graphs are stored in `__snapshots__/<test file>/<test>.tgraph` next to the test file, to be
    reviewed and committed. A missing or different graph fails the test; `--torchgraph-update`
    stores the captured graphs.
    """
    if "torch" in sys.modules:  # stored graphs can be compared without torch
        _used(request)
    from .snapshot.subject import why_not_stored

    if reason := why_not_stored(request.config):
        pytest.fail(reason, pytrace=False)
    from .snapshot.assertion import make_snapshot

    return make_snapshot(request)


# The scope is not "session": pytest would then order the whole run by device.
@pytest.fixture(scope="class")
def graph_device(request: pytest.FixtureRequest) -> torch.device:
    """The `torch.device` to run on; the test runs once per device, with ids `cpu` and `cuda`.

    If a device is missing, its tests are skipped, and the skip says why. A missing device is an
    error if `--torchgraph-devices` names the device. Every capture of the test must use the device.
    """
    config_settings = _used(request)
    from . import devices

    return devices.select(
        request, config_settings.devices, required=config_settings.devices_required
    )


@pytest.fixture(autouse=True)
def _torchgraph(request: pytest.FixtureRequest) -> Generator[None]:
    """Isolate a test that uses graphs, and set its expected device; leave other tests alone."""
    if device_types.FIXTURE in getattr(getattr(request.node, "callspec", None), "params", ()):
        from .devices import expect_during

        expect_during(request)
    compiles = _needs_isolation(request)
    if TEST_CASE in sys.modules and isinstance(
        request.instance, sys.modules[TEST_CASE].GraphTestCase
    ):
        from .report.test_case import PytestTestRun

        request.instance.torchgraph_run = PytestTestRun(request, compiles)
    if not compiles or not _settings(request.config).isolation:
        yield
        return
    _need_torch()
    from .isolation import isolated

    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    with _from_import_on(request.node, isolated(worker)):
        yield


def _from_import_on(
    item: pytest.Item, context: AbstractContextManager[None]
) -> AbstractContextManager[None]:
    """Return a context that a test enters now or, if only the ini file limits it, later.

    The limits of the ini file apply to every test, even in a suite that never imports torch. So the
    context is entered when Dynamo is imported.
    """
    fixture_names: Collection[str] = getattr(item, "fixturenames", ())
    if item.get_closest_marker(options.MARKER) or not OURS.isdisjoint(fixture_names):
        return context
    from .watching.dynamo_import import from_import_on

    return from_import_on(context)


def _used(request: pytest.FixtureRequest) -> Config:
    """Note that a fixture is used, and return the settings. Skip the test if torch is too old."""
    _need_torch()
    request.config.stash[RUN].used = True
    return _settings(request.config)


def _need_torch() -> None:
    """Skip the test if torch is too old to be watched, or is not installed."""
    if reason := _why_unsupported():
        pytest.skip(reason)


def _why_unsupported() -> str:
    """See `torch_release.why_unsupported`."""
    from .torch_release import why_unsupported

    return why_unsupported()


def _needs_isolation(request: pytest.FixtureRequest) -> bool:
    """Return True if a test needs a fresh compiler: it uses one of our fixtures, or has limits.

    A test that uses only `graph_snapshot` needs a fresh compiler only if torch is imported.
    """
    if OURS.isdisjoint(request.fixturenames):
        return _limits(request.node) is not None
    return "torch" in sys.modules or not NEEDING_TORCH.isdisjoint(request.fixturenames)


def _ini_limits(config: pytest.Config) -> Mapping[str, Any]:
    """Return the limits of the ini file. If nothing is set, do not resolve the settings."""
    return _settings(config).limits if config.stash[ANY_SET] else {}


def _limits(item: pytest.Item) -> Limits | None:
    """Return the limits of a test. A mistake in its marker is an error of that test only.

    If torch is too old, a test with a marker is skipped. A test that only the ini file limits runs
    without limits, because the limits of the ini file apply to every test of the suite.
    """
    if not _ini_limits(item.config) and not item.get_closest_marker(options.MARKER):
        return None
    from . import marker

    limits, mistake = None, ""
    try:
        limits = marker.limits_of(item, _ini_limits(item.config))
    except pytest.UsageError as error:
        mistake = str(error)
    if mistake:  # outside the handler: else pytest also shows the handled error
        pytest.fail(mistake, pytrace=False)
    if limits is None or not _why_unsupported():
        return limits
    if item.get_closest_marker(options.MARKER):
        _need_torch()
    return None
