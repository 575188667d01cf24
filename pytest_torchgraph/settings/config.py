"""The plugin's options and ini values, resolved once for a session into one `Config`.

The rest of the package reads `Config`; only this module calls `getoption` and `getini`. Where an
option has an ini value of the same name, the command line decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..devices import DEFAULT, parse_devices
from . import arguments, releases
from .paths import unwritable
from .releases import Releases
from .torchrun import of_process, own_file, pytest_command, rank_of_process

AUDIT_MODES = ("show", "record", "check")
"""What `--torchgraph-audit` takes."""

AUDIT_FILE = "torchgraph-audit.json"

ON_OFF = ("on", "off")
GITHUB = ("auto", "off")
"""What `torchgraph_github` takes."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one pytest session.

    Attributes:
        update: whether stored graphs are rewritten (`--torchgraph-update`).
        prune: whether stale stored graphs are removed (`--torchgraph-prune`).
        devices: the device types that `graph_device` gives, each once.
        devices_required: whether they were named on the command line, so that an absent one is an
            error instead of a skip.
        artifacts: the directory for pictures and texts of failures; None for pytest's cache.
        report: the HTML file for the page of the run; None for no page.
        json: the JSON file of the run; None for no such file.
        github: whether annotations and a step summary are made where GitHub Actions runs an audit.
        audit: the mode of `--torchgraph-audit`, "" for no audit.
        audit_file: the baseline of the audit.
        audit_isolation: whether the audit resets Dynamo before each test.
        isolation: whether tests that use graphs begin with a fresh compiler.
        limits: the ini file's limits for every test, as arguments of the marker; empty for none.
        releases: the releases of torch that have stored graphs of their own.
        rank: the rank of this process among several, as `rank-1-of-2`; "" where it is alone.
    """

    update: bool
    prune: bool
    devices: tuple[str, ...]
    devices_required: bool
    artifacts: Path | None
    report: Path | None
    json: Path | None
    github: bool
    audit: str
    audit_file: Path
    audit_isolation: bool
    isolation: bool
    limits: Mapping[str, Any]
    releases: Releases
    rank: str


_CONFIG = pytest.StashKey[Config]()


def add_options(parser: pytest.Parser) -> None:
    """Declare the command-line options and their ini twins."""
    devices = "devices that graph_device gives, separated by commas"
    artifacts = "directory for the pictures and texts of failed graph comparisons"
    report = "HTML file for a page with what tests captured and what differs"
    json = "JSON file for what the tests compiled and which comparisons of graphs failed"
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
    group.addoption(
        "--torchgraph-json",
        metavar="FILE",
        default=None,
        dest="torchgraph_json",
        help=f"{json} (default: none)",
    )
    group.addoption(
        "--torchgraph-audit",
        choices=AUDIT_MODES,
        default="",
        dest="torchgraph_audit",
        help="show: say what torch.compile did in the tests, whatever they are; record: store it; "
        "check: fail the run where it became worse. Outcomes of tests do not change",
    )
    parser.addini(
        "torchgraph_audit_file",
        f"the file that --torchgraph-audit records and checks, relative to this file (default: "
        f"{AUDIT_FILE})",
        default=AUDIT_FILE,
    )
    parser.addini(
        "torchgraph_audit_isolation",
        "on: --torchgraph-audit resets Dynamo before each test, so that what a test compiles does "
        "not depend on the tests before it; off (the default): it resets nothing",
        default="off",
    )
    parser.addini("torchgraph_report", f"{report}, relative to this file", default="")
    parser.addini("torchgraph_json", f"{json}, relative to this file", default="")
    parser.addini(
        "torchgraph_github",
        "auto (the default): an audit on GitHub Actions ends with annotations and a step summary; "
        "off: it does not",
        default="auto",
    )
    parser.addini("torchgraph_devices", f"{devices}; one that is absent is skipped", default="")
    parser.addini("torchgraph_artifacts", f"{artifacts}, relative to this file", default="")
    parser.addini(
        "torchgraph_isolation",
        "on (the default): tests that use graphs begin with a fresh compiler, and its settings are "
        "put back after them; off: they do not",
        default="on",
    )
    parser.addini(
        releases.INI,
        "releases of torch with stored graphs of their own, as in 2.13 2.15: the first owns "
        "NAME.tgraph, another one has NAME@torch-2.15.tgraph where its graph differs",
        type="args",
        default=[],
    )
    for name in arguments.INI:
        parser.addini(
            f"torchgraph_{name}",
            f"{name} for every test, and what a marker torchgraph does not say itself",
            type="linelist",
            default=[],
        )


def configure(config: pytest.Config) -> None:
    """Resolve the settings and keep them in the stash of this config.

    Raises:
        pytest.UsageError: for an unknown device, a path of the wrong kind, or any other value that
            an option or ini value does not take; for an update on a release of torch that is not
            listed.
    """
    option = config.option
    devices, where = option.torchgraph_devices, "--torchgraph-devices"
    required = devices is not None
    if not required:
        devices, where = config.getini("torchgraph_devices") or DEFAULT, "torchgraph_devices"
    rank = rank_of_process(os.environ)
    config.stash[_CONFIG] = Config(
        update=option.torchgraph_update,
        prune=option.torchgraph_prune,
        devices=parse_devices(devices, where),
        devices_required=required,
        artifacts=_artifacts(config),
        report=_file(config, "report"),
        json=_json(config),
        github=_choice(config, "github", GITHUB) == "auto",
        audit=option.torchgraph_audit,
        audit_file=own_file(_ini_directory(config) / config.getini("torchgraph_audit_file"), rank),
        audit_isolation=_choice(config, "audit_isolation", ON_OFF) == "on",
        isolation=_choice(config, "isolation", ON_OFF) == "on",
        limits=_limits(config),
        releases=releases.parse_releases(config.getini(releases.INI)),
        rank=rank,
    )
    if option.torchgraph_update:
        releases.refuse_update(get(config).releases)


def get(config: pytest.Config) -> Config:
    """The settings of this session."""
    return config.stash[_CONFIG]


def _ini_directory(config: pytest.Config) -> Path:
    """The directory that paths in the ini file are relative to."""
    return config.inipath.parent if config.inipath else config.rootpath


def _limits(config: pytest.Config) -> dict[str, Any]:
    lines = {name: config.getini(f"torchgraph_{name}") for name in arguments.INI}
    if not any(lines.values()):
        return {}
    from .limits import from_ini

    home = _ini_directory(config)
    return {name: from_ini(name, text, home) for name, text in lines.items() if text}


def _choice(config: pytest.Config, name: str, values: tuple[str, str]) -> str:
    """The ini value that is one of two words.

    Raises:
        pytest.UsageError: for any other word.
    """
    text: str = config.getini(f"torchgraph_{name}").strip().lower()
    if text not in values:
        raise pytest.UsageError(f"torchgraph_{name}: {text!r} is neither {' nor '.join(values)}")
    return text


def _artifacts(config: pytest.Config) -> Path | None:
    option, path = _resolve_path(config, "artifacts", "directory")
    if path is not None and path.exists() and not path.is_dir():
        raise pytest.UsageError(f"{option}: {str(path)!r} is not a directory")
    return path


def _file(config: pytest.Config, name: str) -> Path | None:
    option, path = _resolve_path(config, name, "file")
    if path is not None and path.is_dir():
        raise pytest.UsageError(f"{option}: {str(path)!r} is not a file")
    return None if path is None else of_process(path, rank_of_process(os.environ))


def _json(config: pytest.Config) -> Path | None:
    """The JSON file of the run: a program waits for it, so it must be possible to write it.

    Raises:
        pytest.UsageError: where it cannot be written.
    """
    path = _file(config, "json")
    if path is not None and (problem := unwritable(path)):
        option = "torchgraph_json" if config.option.torchgraph_json is None else "--torchgraph-json"
        raise pytest.UsageError(f"{option}: {str(path)!r} cannot be written: {problem}")
    return path


def _resolve_path(config: pytest.Config, name: str, kind: str) -> tuple[str, Path | None]:
    """The option or ini value that gives a path, for messages, and the path; None where none does.

    Raises:
        pytest.UsageError: for an empty path on the command line, which is no `kind`.
    """
    path: str | None = getattr(config.option, f"torchgraph_{name}")
    if path is None:
        ini = config.getini(f"torchgraph_{name}")
        return f"torchgraph_{name}", _ini_directory(config) / ini if ini else None
    option = f"--torchgraph-{name}"
    if not path:
        raise pytest.UsageError(f"{option}: '' is not a {kind}")
    return option, config.invocation_params.dir / path


def shown(config: pytest.Config, path: Path) -> str:
    """A path for a message: relative where it is below the directory in which pytest was called."""
    try:
        return str(path.relative_to(config.invocation_params.dir))
    except ValueError:
        return str(path)


def rerun_command(item: pytest.Item, *options: str) -> str:
    """The command that runs this test alone, quoted for the shell.

    Args:
        item: the test.
        options: further options of pytest.
    """
    path, separator, test = item.nodeid.partition("::")
    here, file = item.config.invocation_params.dir, item.config.rootpath / path
    if not (file.exists() and file.samefile(item.path)):  # --pyargs, outside of the root directory
        path = str(item.path)
    elif here != item.config.rootpath:
        try:
            path = os.path.relpath(file, here)
        except ValueError:  # on another drive of Windows
            path = str(file)
    import shlex
    import subprocess

    words = [*pytest_command(get(item.config).rank), f"{path}{separator}{test}", *options]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
