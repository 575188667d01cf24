"""What `--torchgraph-update` would have written, left beside the pictures for `review`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..settings import config as settings
from ..snapshot import PENDING
from ..snapshot.changes import brief
from ..snapshot.pending import OUTSIDE, PENDING_SUFFIX, SavedUpdate
from . import artifacts

if TYPE_CHECKING:
    from ..snapshot.compare import Mismatch
    from ..snapshot.pending import PendingUpdate

UPDATE = "--torchgraph-update"
REVIEW = "python -m pytest_torchgraph review"
MAX_FINDINGS = 1000
"""How many findings of one comparison are saved; where there are more, they are counted."""


def review_command(config: pytest.Config) -> str:
    """The command that shows what this run left; "" where it leaves nothing that can be found."""
    directory = artifacts.known_directory(config)
    if directory is None:
        return ""
    chosen = settings.get(config).artifacts
    return f"{REVIEW} {settings.shown(config, directory)}" if chosen is not None else REVIEW


def save_pending(
    item: pytest.Item,
    failed: bool,
    mismatches: Mapping[str, Mismatch],
    headline: Callable[[Mismatch], str],
) -> str:
    """Leave a file for each comparison of a phase that failed, and remove those that passed.

    Args:
        item: the test.
        failed: whether the phase did. A test that is expected to fail leaves nothing.
        mismatches: its failed comparisons, by the path of the file that was compared.
        headline: says what is wrong with one, in one line.

    Returns:
        why the last one that could not be written was not; "" where all are.
    """
    noted = item.stash.get(PENDING, {})
    directory = artifacts.known_directory(item.config) if noted else None
    problem = ""
    if directory is None:
        return problem
    for name, pending in noted.values():
        file = directory / artifacts.file_name(item, name, PENDING_SUFFIX)
        try:
            if pending is None or not failed:
                file.unlink(missing_ok=True)
                continue
            paths = map(str, pending.digests)
            mismatch = next((mismatches[path] for path in paths if path in mismatches), None)
            saved = _saved(item, pending, mismatch, headline(mismatch) if mismatch else "")
            artifacts.path(item, name, PENDING_SUFFIX).write_text(saved.to_json(), encoding="utf-8")
        except Exception as error:
            problem = brief(error)
    return problem


def _saved(
    item: pytest.Item, pending: PendingUpdate, mismatch: Mismatch | None, headline: str
) -> SavedUpdate:
    from .comparisons import difference_data, unknown_difference

    difference: dict[str, Any]
    if mismatch is None:
        headline = " ".join(pending.problem.split())
        difference = {"problem": headline, "releases": None, "findings": [], "left": 0}
    else:
        try:
            difference = difference_data(mismatch, MAX_FINDINGS)
        except Exception:  # the section says it
            difference = unknown_difference(mismatch)
    paths = {path: _below_root(item.config, path) for path in (pending.target, *pending.digests)}
    inside = all(paths.values())
    return SavedUpdate(
        test=item.nodeid,
        target=paths[pending.target] or str(pending.target),
        text=pending.text,
        digests={name: pending.digests[path] for path in pending.digests if (name := paths[path])},
        refused=pending.refused or ("" if inside else OUTSIDE),
        headline=headline,
        details=mismatch.details if mismatch else (),
        accept=pending.refused or settings.rerun_command(item, UPDATE),
        difference=difference,
    )


def _below_root(config: pytest.Config, path: Path) -> str:
    """A path relative to the root directory, with `/`; "" where it is not in it."""
    for root, file in (
        (config.rootpath, path),
        (Path(os.path.realpath(config.rootpath)), Path(os.path.realpath(path))),
    ):
        if file.is_relative_to(root):
            return file.relative_to(root).as_posix()
    return ""
