"""Stale stored graphs.

`judge` finds them: `_reason` refuses the whole run, `_candidates` yields the files of the test
files that ran, and `_divide` sorts those that no test compared. `remove` removes the stale ones.

| case | judgement |
|---|---|
| the run was filtered, interrupted or not green | no file is judged |
| a test file was skipped whole, or no test of it passed | none of its files is judged |
| no test of a test file was collected | none of its files is judged; with `--ignore`, no file |
| a test did not run and pass | none of its files is judged, whatever its parameters |
| no test compared the file, and its path names a device that no test ran on | kept |
| the file belongs to another torch release in `torchgraph_releases` | kept for that release |
| the file belongs to another rank, or to another number of processes | not judged |
| no test compared the file, and its test file ran completely or no longer exists | stale |
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ..device_types import KNOWN
from ..errors import TorchGraphError
from ..files import write
from ..settings import config as settings
from ..settings.paths import active_filter
from ..torch_release import running_release
from ..words import grouped, listed
from . import DIFFERENCE_SUFFIX, SUFFIX
from .file_names import may_be_of, rank_in, release_in, stem_in
from .run import DIRECTORY, RunRecord, file_of

ACCELERATORS = ({*KNOWN} - {"cpu"}) | {"hip", "metal", "tpu", "vulkan"}
"""Words that mean, in a path or a parameter id, a device that some machines lack."""

INSIDE_WORDS = re.compile("cuda|gpu|rocm")
"""Device names that also count inside a word, for example in `multigpu`.

`npu` does not, because `input` contains it.
"""

UNCOLLECTED = "no test of it was collected"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass
class StaleFiles:
    """The stale files after a run, and the files kept.

    Attributes:
        files: the stale files, in order.
        reason: the reason why no file was judged; "" if files were judged.
        elsewhere: files that no test compared and whose path names a device that no test had in
            its parameters. They belong to machines with that device.
        devices: the devices of `elsewhere`.
        kept: the reason why the files of a test file were not judged, by test file.
        skipped: files that no test compared and that may belong to a test that did not run and
            pass, by the reason.
        others: files of other torch releases for comparisons that no test makes in this run.
        releases: the releases of `others`.
    """

    files: list[Path] = field(default_factory=list)
    reason: str = ""
    elsewhere: list[Path] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, list[Path]] = field(default_factory=dict)
    others: list[Path] = field(default_factory=list)
    releases: list[str] = field(default_factory=list)


def judge(run: RunRecord, exitstatus: int) -> StaleFiles:
    """Find the stale files after a run.

    Args:
        run: the record of the run.
        exitstatus: the exit status of pytest.
    """
    reason = _reason(run, exitstatus)
    if reason:
        return StaleFiles(reason=reason)
    root = run.config.rootpath
    kept_files = dict(run.kept)
    unjudged = dict.fromkeys(sorted(run.expected - run.passed), "did not run") | run.unjudged
    files_run = set(map(file_of, run.passed))
    # Of a test file none of whose tests passed, all files are kept; of any other, only those that
    # may belong to the unjudged test (`_divide`).
    for nodeid, reason in unjudged.items():
        if file_of(nodeid) not in files_run:
            kept_files.setdefault(file_of(nodeid), f"{nodeid} {reason}")
    uncompared = [
        path for path in _candidates(run.config, files_run, kept_files) if path not in run.compared
    ]
    # After `_candidates`, which adds the uncollected test files. With `--ignore`, it is unknown
    # which other files the option left out.
    option = run.config.option
    for file, reason in kept_files.items():
        if reason == UNCOLLECTED and (option.ignore or option.ignore_glob):
            return StaleFiles(reason=f"no test of {file} was collected")
    stale = StaleFiles()
    for file, reason in kept_files.items():
        if (root / file).parent.joinpath(DIRECTORY, Path(file).stem).is_dir():
            stale.kept[file] = reason
    if uncompared:
        _divide(stale, run, uncompared, unjudged)
    return stale


def _divide(
    stale: StaleFiles, run: RunRecord, uncompared: list[Path], unjudged: Mapping[str, str]
) -> None:
    """Add each file that no test compared to the stale files, or to the files kept for a reason."""
    root, own = run.config.rootpath, settings.get(run.config)
    releases, running = own.releases, running_release()
    sources = ((root / file_of(nodeid), nodeid) for nodeid in unjudged)
    tests_by_directory = grouped(
        (file.parent / DIRECTORY / file.stem, nodeid) for file, nodeid in sources
    )
    compared_names = {path.with_name(release_in(stem_in(path))[0]) for path in run.compared}
    # Symbolic links may give a file two paths.
    compared = set(map(os.path.realpath, run.compared))
    used_devices: set[str] = set()
    for nodeid in run.passed & run.comparing:
        used_devices |= devices_in(nodeid.partition("[")[2])
    for path in uncompared:
        name, tag = release_in(stem_in(path))
        stem, rank = rank_in(name)
        if rank != own.rank or os.path.realpath(path) in compared:
            continue
        tests = [test for test in tests_by_directory.get(path.parent, ()) if may_be_of(stem, test)]
        release = tag or releases.first
        # A suite may omit a case instead of skipping it, for example with
        # `["cpu"] + ["cuda"] * has_cuda`. Then no test compares its file on other machines.
        unused_devices = devices_in(_below(root, path)) - used_devices
        if tests:
            reasons = (f"{test} {unjudged[test]}" for test in tests)
            stale.skipped.setdefault(listed(reasons, 1), []).append(path)
        elif release in releases.listed and release != running and tag != releases.first:
            # Kept in silence if a test compared a file of the same name, of whatever release.
            if path.with_name(name) not in compared_names:
                stale.others.append(path)
                stale.releases = sorted({*stale.releases, release})
        elif unused_devices:
            stale.elsewhere.append(path)
            stale.devices = sorted({*stale.devices, *unused_devices})
        else:
            stale.files.append(path)


def _reason(run: RunRecord, exitstatus: int) -> str:
    """Return the reason why this run cannot judge stale files; "" for a complete, green run."""
    config = run.config
    if filter_option := active_filter(config):
        return f"{filter_option} was given, so not all tests ran"
    for text in config.option.override_ini or ():
        # `python_files`, `python_classes` and `python_functions` decide which tests are collected.
        if text.startswith("python_"):
            return f"-o {text} was given, so not all tests ran"
    # Paths from the ini value `testpaths` are the whole suite, not a selection.
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        for argument in config.args:
            if "::" in argument or (config.invocation_params.dir / argument).is_file():
                return f"only {argument} ran"
    if run.problem:
        return run.problem
    if exitstatus != pytest.ExitCode.OK:
        return f"the run ended with exit status {int(exitstatus)}"
    return ""


def _test_directories(config: pytest.Config) -> Iterator[Path]:
    """Yield the directories with stored graphs that this run covers, also without a test file."""
    ignored = config.getini("norecursedirs")
    for argument in config.args:
        for directory, names, _ in os.walk(config.invocation_params.dir / argument):
            if DIRECTORY in names:
                yield Path(directory)
            # In place: `os.walk` then does not enter the others.
            names[:] = [name for name in names if not any(fnmatchcase(name, p) for p in ignored)]


def _candidates(
    config: pytest.Config, files_run: set[str], kept_files: dict[str, str]
) -> Iterator[Path]:
    """Yield the stored files of test files that ran completely or no longer exist.

    Add test files that were not collected, although they have stored files, to `kept_files`.
    """
    root = config.rootpath
    test_directories = {(root / file).parent for file in (*files_run, *kept_files)}
    test_directories |= {path for path in _test_directories(config) if path.is_relative_to(root)}
    for test_directory in sorted(test_directories):
        if not (test_directory / DIRECTORY).is_dir():
            continue
        file_names = sorted(os.listdir(test_directory))
        for directory in sorted((test_directory / DIRECTORY).iterdir()):
            sources = [name for name in file_names if Path(name).stem == directory.name]
            files = {(test_directory / name).relative_to(root).as_posix() for name in sources}
            if files & kept_files.keys():
                continue
            graphs = sorted(
                path for end in (SUFFIX, DIFFERENCE_SUFFIX) for path in directory.glob(f"*.{end}")
            )
            if graphs and files and not files & files_run:
                kept_files |= dict.fromkeys(files, UNCOLLECTED)
            else:
                # If no test file of this name exists, it was renamed or removed, so the whole
                # directory is judged.
                yield from graphs


def _below(root: Path, path: Path) -> str:
    """Return a path relative to the root directory.

    The path of the root directory itself is left out, because it may contain a device name.
    """
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def devices_in(text: str) -> set[str]:
    """Return the accelerators named in a path or a parameter id, in lower case."""
    words = {word.lower() for word in _WORD.findall(text)}
    return (words & ACCELERATORS) | {
        device for word in words for device in INSIDE_WORDS.findall(word)
    }


def remove(stale: StaleFiles, root: Path) -> Iterator[tuple[Path, TorchGraphError | None]]:
    """Remove the stale files, and the directories left empty.

    Args:
        stale: the stale files.
        root: the root directory; no file outside it is removed.

    Yields:
        each file with the error that prevented its removal, or `None` if it was removed.
    """
    for path in stale.files:
        try:
            write(path, None, root=root)
        except TorchGraphError as error:
            yield path, error
            continue
        yield path, None
        with suppress(TorchGraphError):  # another process may have filled it
            if not path.parent.is_symlink():
                write(path.parent, None, root=root)
