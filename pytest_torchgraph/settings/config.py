"""The plugin's settings: resolved once, from the command line and the ini file, into one value.

Everything else reads `Config`; nobody else calls `getoption` or `getini`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..devices import DEFAULT, parse_devices
from . import limits


@dataclass(frozen=True, slots=True)
class Config:
    """What the user asked for.

    Attributes:
        update: whether stored graphs are rewritten (`--torchgraph-update`).
        prune: whether stale ones are removed (`--torchgraph-prune`).
        devices: the devices that `graph_device` gives.
        devices_required: whether they were named on the command line, so that an absent one is an
            error instead of a skip.
        artifacts: where failure pictures and texts go; None for the place in pytest's cache.
        report: where the page of the run goes; None for no page.
        isolation: whether tests that use graphs begin with a fresh compiler.
        limits: what the ini file says of what tests may compile, as arguments of the marker.
    """

    update: bool
    prune: bool
    devices: tuple[str, ...]
    devices_required: bool
    artifacts: Path | None
    report: Path | None
    isolation: bool
    limits: Mapping[str, Any]


_CONFIG = pytest.StashKey[Config]()


def add_options(parser: pytest.Parser) -> None:
    """Declare the command-line options and their ini twins."""
    devices = "devices that graph_device gives, separated by commas"
    artifacts = "directory for the pictures and texts of failed graph comparisons"
    report = "HTML file for a page with what tests captured and what differs"
    group = parser.getgroup("torchgraph", "graphs of PyTorch models")
    group.addoption(
        "--torchgraph-update",
        action="store_true",
        default=False,
        dest="torchgraph_update",
        help="store the graphs of the tests that run anew, and touch no other plugin's snapshots",
    )
    group.addoption(
        "--torchgraph-prune",
        action="store_true",
        default=False,
        dest="torchgraph_prune",
        help="remove stored graphs that no test compares, after a complete and green run",
    )
    group.addoption(
        "--torchgraph-devices",
        metavar="NAMES",
        default=None,
        dest="torchgraph_devices",
        help=f"{devices} (default: {DEFAULT}); one that is absent is an error",
    )
    group.addoption(
        "--torchgraph-artifacts",
        metavar="DIR",
        default=None,
        dest="torchgraph_artifacts",
        help=f"{artifacts} (default: in pytest's cache directory)",
    )
    group.addoption(
        "--torchgraph-report",
        metavar="FILE",
        default=None,
        dest="torchgraph_report",
        help=f"{report} (default: none)",
    )
    parser.addini("torchgraph_report", f"{report}, relative to this file", default="")
    parser.addini("torchgraph_devices", f"{devices}; one that is absent is skipped", default="")
    parser.addini("torchgraph_artifacts", f"{artifacts}, relative to this file", default="")
    parser.addini(
        "torchgraph_isolation",
        "on (the default): tests that use graphs begin with a fresh compiler, and its settings are "
        "put back after them; off: they do not",
        default="on",
    )
    for name in limits.INI:
        parser.addini(
            f"torchgraph_{name}",
            f"{name} for every test, and what a marker torchgraph does not say itself",
            type="linelist",
            default=[],
        )


def configure(config: pytest.Config) -> None:
    """Resolve the settings and keep them with the session.

    Raises:
        pytest.UsageError: for a value that cannot be meant.
    """
    option = config.option
    asked, of = option.torchgraph_devices, "--torchgraph-devices"
    required = asked is not None
    if not required:
        asked, of = config.getini("torchgraph_devices") or DEFAULT, "torchgraph_devices"
    config.stash[_CONFIG] = Config(
        update=option.torchgraph_update,
        prune=option.torchgraph_prune,
        devices=parse_devices(asked, of),
        devices_required=required,
        artifacts=_artifacts(config),
        report=_report(config),
        isolation=_isolation(config),
        limits={
            name: limits.from_ini(name, lines, _home(config))
            for name in limits.INI
            if (lines := config.getini(f"torchgraph_{name}"))
        },
    )


def get(config: pytest.Config) -> Config:
    """The settings of this session."""
    return config.stash[_CONFIG]


def _home(config: pytest.Config) -> Path:
    """What paths in the ini file are relative to."""
    return config.inipath.parent if config.inipath else config.rootpath


def _isolation(config: pytest.Config) -> bool:
    text = config.getini("torchgraph_isolation").strip().lower()
    if text not in ("on", "off"):
        raise pytest.UsageError(f"torchgraph_isolation: {text!r} is neither on nor off")
    return bool(text == "on")


def _artifacts(config: pytest.Config) -> Path | None:
    option, path = _path(config, "artifacts", "directory")
    if path is not None and path.exists() and not path.is_dir():
        raise pytest.UsageError(f"{option}: {str(path)!r} is not a directory")
    return path


def _report(config: pytest.Config) -> Path | None:
    option, path = _path(config, "report", "file")
    if path is not None and path.is_dir():
        raise pytest.UsageError(f"{option}: {str(path)!r} is not a file")
    return path


def _path(config: pytest.Config, name: str, what: str) -> tuple[str, Path | None]:
    """Where an option was given, and the path there: the command line's, else the ini file's."""
    named: str | None = getattr(config.option, f"torchgraph_{name}")
    if named is None:
        ini = config.getini(f"torchgraph_{name}")
        return f"torchgraph_{name}", _home(config) / ini if ini else None
    option = f"--torchgraph-{name}"
    if not named:
        raise pytest.UsageError(f"{option}: '' is not a {what}")
    return option, config.invocation_params.dir / named


def shown(config: pytest.Config, path: Path) -> str:
    """A path as the user would type it here: relative where it is below the current directory."""
    try:
        return str(path.relative_to(config.invocation_params.dir))
    except ValueError:
        return str(path)


def command(item: pytest.Item, *options: str) -> str:
    """The command that runs just this test again from here, quoted for the shell."""
    path, separator, test = item.nodeid.partition("::")
    here = item.config.invocation_params.dir
    if here != item.config.rootpath:
        path = os.path.relpath(item.config.rootpath / path, here)
    words = ["pytest", f"{path}{separator}{test}", *options]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
