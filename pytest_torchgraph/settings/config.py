"""The plugin's options and ini values, resolved once per session, and the rank of this process.

The rest of the package reads `Config`; only this module calls `getoption` and `getini`. The command
line overrides an ini value of the same name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from ..context import CONTEXT
from ..device_types import DEFAULT
from ..words import MOST_DIGITS, checked_digits
from . import options
from .paths import unwritable
from .releases import Releases, parse_releases, refuse_update

_T = TypeVar("_T")
SECONDS = "a number of seconds, at least 0"
DIGITS = f"an int from 0 to {MOST_DIGITS}, or not set (exact floats)"


def rank_of_process(environ: Mapping[str, str]) -> str:
    """Return the rank of this process as `rank-1-of-2`; "" for a single process.

    The rank is read once, when pytest starts, because a test may set these variables for its own
    process group.

    Args:
        environ: the environment, with `RANK` and `WORLD_SIZE` as set by torchrun.
    """
    rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    # `isdecimal` also accepts the digits of other scripts.
    if not (rank.isascii() and rank.isdecimal() and world.isascii() and world.isdecimal()):
        return ""
    # A world of one process is a single process.
    return f"rank-{int(rank)}-of-{int(world)}" if int(rank) < int(world) != 1 else ""


def pytest_command(rank: str) -> list[str]:
    """Return the words of a command that starts pytest in as many processes as now.

    Args:
        rank: the rank of this process, see `rank_of_process`.
    """
    world = rank.rpartition("-")[2]
    return ["torchrun", f"--nproc-per-node={world}", "-m", "pytest"] if rank else ["pytest"]


def path_of_process(path: Path, rank: str) -> Path:
    """Return the path of a report that each process writes; rank 0 writes `path` itself.

    Args:
        path: the requested file.
        rank: the rank of this process, see `rank_of_process`.
    """
    return path if rank.startswith("rank-0-") else own_file(path, rank)


def own_file(path: Path, rank: str) -> Path:
    """Return the path of this process's own copy of a file; a single process uses `path` itself.

    Args:
        path, rank: as in `path_of_process`.
    """
    return path.with_name(f"{path.stem}@{rank}{path.suffix}") if rank else path


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one pytest session.

    Attributes:
        update: True to rewrite stored graphs (`--torchgraph-update`).
        prune: True to remove stale stored graphs (`--torchgraph-prune`), "check" to fail the run if
            there are any.
        devices: the device types of `graph_device`, without duplicates.
        devices_required: True if the command line names the devices, so that a missing device is
            an error instead of a skip.
        artifacts: the directory for pictures and texts of failures; `None` for pytest's cache.
        report: the HTML file for the page of the run; `None` for no page.
        json: the JSON file of the run; `None` for no file.
        github: True to write annotations and a step summary if an audit runs on GitHub Actions.
        save_run: the directory of the saved run; `None` for none.
        save_run_isolation: True to reset Dynamo before each test of a saved run, if anything was
            compiled.
        audit: the mode of `--torchgraph-audit`; "" for no audit.
        audit_file: the baseline of the audit.
        audit_isolation: True to reset Dynamo before each test of an audit.
        divergence: the time limit, in seconds, for a failed `assert_matches_eager` to search for
            the first op that differs.
        isolation: True to start each test that uses graphs with a fresh compiler, and to restore
            the compiler's settings after the test.
        limits: the ini file's limits for every test, as arguments of the marker; empty if none.
        releases: the torch releases with stored graphs of their own.
        digits: the number of significant digits of float constants in stored graphs; `None` for
            all digits.
        rank: the rank of this process, as `rank-1-of-2`; "" for a single process.
    """

    update: bool
    prune: bool | Literal["check"]
    devices: tuple[str, ...]
    devices_required: bool
    artifacts: Path | None
    report: Path | None
    json: Path | None
    save_run: Path | None
    save_run_isolation: bool
    github: bool
    audit: str
    audit_file: Path
    audit_isolation: bool
    divergence: float
    isolation: bool
    limits: Mapping[str, Any]
    releases: Releases
    digits: int | None
    rank: str


_CONFIG = pytest.StashKey[Config]()


def configure(config: pytest.Config) -> None:
    """Resolve the settings and store them in the stash of this config.

    Raises:
        pytest.UsageError: for an unknown device, a path of the wrong kind, or any other invalid
            value of an option or ini value; for an update on a torch release that is not listed.
    """
    option = config.option
    devices, source = option.torchgraph_devices, "--torchgraph-devices"
    required = devices is not None
    if not required:
        devices, source = config.getini("torchgraph_devices"), "torchgraph_devices"
    if required or devices:
        from ..devices import parse_devices

        types = parse_devices(devices, source)
    else:
        types = DEFAULT
    rank = rank_of_process(os.environ)
    config.stash[_CONFIG] = settings = Config(
        update=option.torchgraph_update,
        prune=option.torchgraph_prune,
        devices=types,
        devices_required=required,
        artifacts=_path(config, "artifacts", "directory"),
        report=_path(config, "report"),
        json=_path(config, "json"),
        save_run=_save_run(config),
        save_run_isolation=_switch(config, "save_run_isolation"),
        github=_switch(config, "github", "auto"),
        audit=option.torchgraph_audit or "",
        audit_file=own_file(_ini_directory(config) / config.getini("torchgraph_audit_file"), rank),
        audit_isolation=_switch(config, "audit_isolation"),
        divergence=_ini(config, "divergence", SECONDS, _seconds),
        isolation=_switch(config, "isolation"),
        limits=_limits(config),
        releases=parse_releases(config.getini(options.RELEASES)),
        digits=_ini(config, "digits", DIGITS, _digits),
        rank=rank,
    )
    # Captures cannot ask pytest, so they read the context. The context is filled here and not at
    # the start of the session, so a run that does not use the plugin does not import it.
    CONTEXT.root, CONTEXT.divergence = str(config.rootpath), settings.divergence
    if option.torchgraph_update:
        refuse_update(settings.releases)


def get(config: pytest.Config) -> Config:
    """Return the settings of this session."""
    if _CONFIG not in config.stash:  # `plugin` calls `configure` only if an option is set
        configure(config)
    return config.stash[_CONFIG]


def _ini_directory(config: pytest.Config) -> Path:
    """Return the directory that paths in the ini file are relative to."""
    return config.inipath.parent if config.inipath else config.rootpath


def _limits(config: pytest.Config) -> dict[str, Any]:
    """Return the limits that the ini file sets, as arguments of the marker."""
    lines = {name: config.getini(f"torchgraph_{name}") for name in options.INI}
    if not any(lines.values()):
        return {}
    from .limits import from_ini

    ini_directory = _ini_directory(config)
    return {name: from_ini(name, text, ini_directory) for name, text in lines.items() if text}


def _ini(config: pytest.Config, name: str, valid: str, parse: Callable[[str], _T]) -> _T:
    """Return a parsed ini value.

    Args:
        config: the configuration.
        name: the name, without `torchgraph_`.
        valid: the valid values, for the message.
        parse: parses the text; raises `ValueError` or `KeyError` for any other value.

    Raises:
        pytest.UsageError: for any other value.
    """
    text: str = config.getini(f"torchgraph_{name}").strip()
    try:
        return parse(text)
    except (ValueError, KeyError):
        raise pytest.UsageError(f"torchgraph_{name}: must be {valid}, got {text!r}") from None


def _switch(config: pytest.Config, name: str, on: str = "on") -> bool:
    """Return True for an ini value that is on, False for "off"; see `_ini`."""
    values = {on: True, "off": False}
    return _ini(config, name, f"{on} or off", lambda text: values[text.lower()])


def _digits(text: str) -> int | None:
    """Return a number of digits; `None` for "". Raise `ValueError` for any other text."""
    # `checked_digits` refuses a text, with the error that `_ini` replaces.
    number: object = int(text) if text.isascii() and text.isdigit() else text or None
    return checked_digits(number)


def _seconds(text: str) -> float:
    """Return a finite number of seconds. Raise `ValueError` for any other text, and for "nan"."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def _path(config: pytest.Config, name: str, kind: str = "file") -> Path | None:
    """Return the path that an option or ini value sets; `None` if neither does.

    Args:
        config: the configuration.
        name: the name of the option, without `--torchgraph-`.
        kind: "file" or "directory".

    Raises:
        pytest.UsageError: for an empty path on the command line, and for a path of the other kind.
    """
    given: str | None = getattr(config.option, f"torchgraph_{name}")
    option, base = f"--torchgraph-{name.replace('_', '-')}", config.invocation_params.dir
    if given is None:
        option, base = f"torchgraph_{name}", _ini_directory(config)
        given = config.getini(option)
        if not given:  # an empty ini value is one that is not set
            return None
    if not given:
        raise pytest.UsageError(f"{option}: empty path, expected a {kind}")
    path = base / given
    if path.exists() and path.is_dir() != (kind == "directory"):
        raise pytest.UsageError(f"{option}: {str(path)!r} is not a {kind}")
    # Check now that the file can be written, because a program waits for it.
    if name == "json" and (problem := unwritable(path)):
        raise pytest.UsageError(f"{option}: cannot write {str(path)!r}: {problem}")
    if name == "artifacts":  # which names its files after the rank
        return path
    return path_of_process(path, rank_of_process(os.environ))


def _save_run(config: pytest.Config) -> Path | None:
    """Return the directory of the saved run; `None` for none.

    Raises:
        pytest.UsageError: with `--collect-only`, because no test runs.
    """
    if not config.option.collectonly:
        return _path(config, "save_run", "directory")
    if config.option.torchgraph_save_run is not None:  # the ini file holds for every run
        raise pytest.UsageError("--torchgraph-save-run: no test runs with --collect-only")
    return None


def display_path(config: pytest.Config, path: Path) -> str:
    """Return a path for messages, relative to pytest's start directory if the path is inside."""
    try:
        return str(path.relative_to(config.invocation_params.dir))
    except ValueError:
        return str(path)


def rerun_command(item: pytest.Item, *options: str) -> str:
    """Return the shell command that reruns only this test.

    Args:
        item: the test.
        options: further options of pytest.
    """
    path, separator, test = item.nodeid.partition("::")
    start_directory, file = item.config.invocation_params.dir, item.config.rootpath / path
    # With --pyargs, the test may be outside the root directory.
    if not (file.exists() and file.samefile(item.path)):
        path = str(item.path)
    elif start_directory != item.config.rootpath:
        try:
            path = os.path.relpath(file, start_directory)
        except ValueError:  # on another Windows drive
            path = str(file)
    import shlex
    import subprocess

    words = [*pytest_command(get(item.config).rank), f"{path}{separator}{test}", *options]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
