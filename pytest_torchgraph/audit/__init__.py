"""What `torch.compile` does in a suite that nobody has changed: `--torchgraph-audit`.

How data flow; under pytest-xdist a worker runs the test and the controller reports:

    torch's trace, calls of torch.compile, torch's settings
      WatchRecord            of each test, CompileCall, SettingLeft (suite_watch, compile_calls,
                             settings_left)
      TestFacts              plain data (facts, read), with the teardown's report (watcher)
    TestFacts of all tests   in the process that reports (report)
      summary                by cause, with the number of tests (summary)
      Verdict                what is worse or better (judge, verdict) than in the file (baseline)
    Outcome                all of it, which the files and pages of a run read (outcome)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..torch_release import why_unsupported

if TYPE_CHECKING:
    import pytest


def install(config: pytest.Config) -> None:
    """Register the plugin that watches and, unless in a worker, the one that reports.

    Raises:
        pytest.UsageError: where the baseline cannot be read, and where torch is too old for what
            was asked: a check of nothing must not look like one of everything.
    """
    if reason := why_unsupported():
        from .report import refuse

        refuse(config, reason)
        return
    from ..settings import config as settings
    from .suite_watch import TestWatcher

    chosen = settings.get(config)
    watcher = TestWatcher(isolated=bool(chosen.audit) and chosen.audit_isolation)
    if not hasattr(config, "workerinput"):
        from .report import PLUGIN, AuditReport

        config.pluginmanager.register(AuditReport(config, watcher), PLUGIN)
    config.pluginmanager.register(watcher, "torchgraph-audit-watcher")
