"""What `torch.compile` does in a suite that nobody has changed: `--torchgraph-audit`.

How data flow; under pytest-xdist a worker runs the test and the controller reports:

    torch's trace, calls of torch.compile, torch's settings
      WatchRecord            of each test, CompileCall, SettingLeft (suite_watch, compile_calls,
                             settings_left)
      TestFacts              plain data (facts, read), with the teardown's report (watcher)
    TestFacts of all tests   in the process that reports (report)
      summary                by cause, with the number of tests (summary)
      Verdict                what is worse or better (judge, verdict) than in the file (baseline)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def install(config: pytest.Config) -> None:
    """Register the plugin that watches and, unless in a worker, the one that reports.

    Raises:
        pytest.UsageError: where the baseline cannot be read.
    """
    from ..settings import config as settings
    from .watcher import TestWatcher

    watcher = TestWatcher(isolated=settings.get(config).audit_isolation)
    if not hasattr(config, "workerinput"):
        from .report import AuditReport

        config.pluginmanager.register(AuditReport(config, watcher), "torchgraph-audit")
    config.pluginmanager.register(watcher, "torchgraph-audit-watcher")
