"""Report what `torch.compile` does in an unmodified test suite: `--torchgraph-audit`.

The data flow, with the modules in parentheses. Under pytest-xdist, a worker runs the test, and the
controller reports:

    torch's trace, calls of torch.compile, torch's settings
      WatchRecord            of each test, CodePlace, LeakedSetting (suite_watch, compile_calls)
      TestFacts              plain data (facts, read), sent with the teardown's report (suite_watch)
    TestFacts of all tests   in the process that reports (session)
      summary                by cause, with the number of tests (summary)
      Verdict                regressions and improvements since the baseline (judge, baseline)
    AuditOutcome             all of it, for the files and pages of a run (verdict)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .baseline import Baseline, BaselineError, Entry, Function, ReleaseSection
    from .facts import Cause, CodePlace, LeakedSetting, TestFacts
    from .judge import Verdict
    from .read import facts_of
    from .suite_watch import SuiteWatch
    from .summary import summary_lines
    from .verdict import AuditOutcome, verdict_lines
else:
    __getattr__ = front_door(
        __name__,
        {
            "baseline": "Baseline BaselineError Entry Function ReleaseSection",
            "facts": "Cause CodePlace LeakedSetting TestFacts",
            "judge": "Verdict",
            "read": "facts_of",
            "suite_watch": "SuiteWatch",
            "summary": "summary_lines",
            "verdict": "AuditOutcome verdict_lines",
        },
    )

if TYPE_CHECKING:
    import pytest


def install(config: pytest.Config) -> None:
    """Register the plugin that watches and, except in a worker, the plugin that reports.

    Raises:
        pytest.UsageError: if the mode needs a baseline that cannot be read, or if no test can be
            watched in this mode: a check that compared nothing must not look like a full check.
    """
    from ..settings import config as settings
    from ..torch_release import why_unsupported  # slow to import; saved runs need only `facts`

    reason = why_unsupported()
    watcher = None
    if not reason:
        from .suite_watch import TestWatcher

        own = settings.get(config)
        watcher = TestWatcher(isolated=bool(own.audit) and own.audit_isolation)
    if not hasattr(config, "workerinput"):
        from .session import PLUGIN, AuditReport

        config.pluginmanager.register(AuditReport(config, watcher, reason), PLUGIN)
    if watcher is not None:
        config.pluginmanager.register(watcher, "torchgraph-audit-watcher")
