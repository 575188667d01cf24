"""Outputs of an audit besides the terminal: JSON, HTML, GitHub annotations and JUnit properties.

    AuditOutcome           of the audit
      plain data           source of the three outputs below (document)
        FILE.json          `--torchgraph-json` (run_json)
        FILE.html          `--torchgraph-report` (report.page)
      annotations          on GitHub, at the model's lines (annotations)
      step summary         on GitHub, in markdown (github)
    TestFacts              of each test
      properties           `--junitxml` (junit)

All outputs are written in the reporting process. Under pytest-xdist, this is the controller.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ...doors import front_door
from ...settings import config as settings

if TYPE_CHECKING:
    from .document import audit_document
else:
    __getattr__ = front_door(__name__, {"document": "audit_document"})


def install(config: pytest.Config) -> None:
    """Register the plugins that the settings request. In a pytest-xdist worker, register none.

    Call this before installing the audit: pytest calls the last registered plugin first, and these
    plugins need the audit's outcome when the session finishes.
    """
    if hasattr(config, "workerinput"):
        return
    config_settings = settings.get(config)
    register = config.pluginmanager.register
    if config_settings.json is not None:
        from .document import RunJson

        register(RunJson(config, config_settings.json), "torchgraph-json")
    if (
        config_settings.audit
        and config_settings.github
        and os.environ.get("GITHUB_ACTIONS") == "true"
    ):
        from .github import GitHub

        register(GitHub(config), "torchgraph-github")
    if config_settings.audit and getattr(config.option, "xmlpath", None):
        from .junit import JUnitProperties

        register(JUnitProperties(config), "torchgraph-junit")
