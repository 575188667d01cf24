"""What `--torchgraph-update` would have written, left beside the pictures for `review`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ..errors import OutsideRootError
from ..graph.diff.joining import source_text
from ..settings import config as settings
from ..settings.paths import inside
from ..snapshot.changes import brief
from ..snapshot.pending import OUTSIDE, PENDING_SUFFIX, SavedUpdate, place_key
from . import artifacts
from .comparisons import headline

if TYPE_CHECKING:
    from pathlib import Path

    from ..snapshot import Record
    from ..snapshot.compare import Comparison
    from ..snapshot.pending import PendingUpdate

UPDATE = "--torchgraph-update"
REVIEW = "python -m pytest_torchgraph review"


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
    record: Record,
) -> str:
    """Leave a file for each comparison of a phase that failed, and remove those that passed.

    Args:
        item: the test.
        failed: whether the phase did. A test that is expected to fail leaves nothing.
        record: its comparisons.

    Returns:
        why the last one that could not be written was not; "" where all are.
    """
    noted = record.pending
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
            comparison = next((record.failed[p] for p in paths if p in record.failed), None)
            said = headline(comparison) if comparison else " ".join(pending.problem.split())
            content = _saved(item, pending, comparison).to_json(
                said, pending.refused or settings.rerun_command(item, UPDATE)
            )
            artifacts.path(item, name, PENDING_SUFFIX).write_text(content, encoding="utf-8")
        except Exception as error:
            problem = brief(error)
    return problem


def _saved(item: pytest.Item, pending: PendingUpdate, comparison: Comparison | None) -> SavedUpdate:
    paths = {path: _below_root(item.config, path) for path in (pending.target, *pending.digests)}
    may_write = all(paths.values())
    sources = {
        place_key(place): source
        for finding in (comparison.diff.findings if comparison else ())
        for place in finding.places
        if (source := source_text(place.changes[0].node))
    }
    return SavedUpdate(
        test=item.nodeid,
        target=paths[pending.target] or str(pending.target),
        text=pending.text,
        stored=pending.stored,
        digests={name: pending.digests[path] for path in pending.digests if (name := paths[path])},
        refused=pending.refused or ("" if may_write else OUTSIDE),
        sources=sources,
    )


def _below_root(config: pytest.Config, path: Path) -> str:
    """Return a path relative to the root directory, with `/`, or "" if an update refuses it."""
    root = config.rootpath
    try:
        real = inside(path, root)
    except OutsideRootError:
        return ""
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return real.relative_to(os.path.realpath(root)).as_posix()
