"""Stored graphs that no test compares any more: which they are, and when they may be removed.

A file is stale if its test file ran, completely and green, and nothing compared it; or if the test
file is gone. Whenever anything is missing that could have compared it, it is kept, and the reason
is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..devices import KNOWN
from .cleanup import SUFFIX
from .run import DIRECTORY, RunRecord, file_of

FILTERS = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "lf": "--last-failed",
    "last_failed": "--last-failed",
    "stepwise": "--stepwise",
    "collectonly": "--collect-only",
}
ACCELERATORS = ({*KNOWN} - {"cpu"}) | {"hip", "metal", "tpu", "vulkan"}
EVERYWHERE = re.compile("cuda|gpu|rocm")
"""Device words that are recognised inside of another, as in `multigpu`; `npu` is in `input`."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass
class Stale:
    """What a run found.

    Attributes:
        files: the stale ones, in order.
        reason: why they may not be removed, "" if they may.
        elsewhere: files that would be stale but speak of a device, in their path or name, of which
            the parameters of no test did: they are of a machine that has it.
        devices: those devices.
        kept: why the files of some test files were not judged, by test file.
    """

    files: list[Path] = field(default_factory=list)
    reason: str = ""
    elsewhere: list[Path] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)


def judge(run: RunRecord, exitstatus: int) -> Stale:
    """What is stale after a run."""
    reason = _reason(run, exitstatus)
    if reason:
        return Stale(reason=reason)
    root = run.config.rootpath
    kept = dict(run.kept)
    for nodeid in sorted(run.expected - run.passed):
        kept.setdefault(file_of(nodeid), f"{nodeid} did not run")
    ran = set(map(file_of, run.passed))
    found = [path for path in _candidates(root, ran, kept) if path not in run.compared]
    # Links on the way may give a file two paths.
    compared = set(map(os.path.realpath, run.compared)) if found else set()
    found = [path for path in found if os.path.realpath(path) not in compared]
    used = {
        word
        for nodeid in run.passed & run.comparing
        for word in devices_in(nodeid.partition("[")[2])
    }
    stale = Stale(kept={file: why for file, why in kept.items() if _stores(root / file)})
    absent: set[str] = set()
    for path in found:
        unused = devices_in(_below(root, path)) - used
        (stale.elsewhere if unused else stale.files).append(path)
        absent |= unused
    stale.devices = sorted(absent)
    return stale


def _reason(run: RunRecord, exitstatus: int) -> str:
    config = run.config
    option = config.option
    for name, shown in FILTERS.items():
        if getattr(option, name, None):
            return f"{shown} was given, so not all tests ran"
    for text in getattr(option, "override_ini", None) or ():
        if text.startswith("python_"):
            return f"-o {text} was given, so not all tests ran"
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        for argument in config.args:
            if "::" in argument or (config.invocation_params.dir / argument).is_file():
                return f"only {argument} was run"
    if run.problem:
        return run.problem
    if exitstatus != pytest.ExitCode.OK:
        return f"the run ended with exit status {int(exitstatus)}"
    return ""


def _candidates(root: Path, ran: set[str], kept: dict[str, str]) -> Iterator[Path]:
    for home in sorted({(root / file).parent for file in (*ran, *kept)}):
        if not (home / DIRECTORY).is_dir():
            continue
        beside = sorted(os.listdir(home))
        for directory in sorted((home / DIRECTORY).iterdir()):
            sources = [name for name in beside if Path(name).stem == directory.name]
            files = {(home / name).relative_to(root).as_posix() for name in sources}
            if not files or (files & ran and not files & kept.keys()):
                yield from sorted(directory.glob(f"*.{SUFFIX}"))


def _stores(file: Path) -> bool:
    return (file.parent / DIRECTORY / file.stem).is_dir()


def _below(root: Path, path: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def devices_in(text: str) -> set[str]:
    """The accelerators that a path or a parameter id speaks of."""
    words = {word.lower() for word in _WORD.findall(text)}
    return (words & ACCELERATORS) | {found for word in words for found in EVERYWHERE.findall(word)}


def remove(stale: Stale) -> Iterator[tuple[Path, str]]:
    """Remove the files, and the directories that are empty then; each with what went wrong."""
    for path in stale.files:
        try:
            path.unlink()
        except OSError as error:
            yield path, error.strerror or str(error)
            continue
        yield path, ""
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
