"""Stored graphs that lie under the name that a test or its file had before.

Somebody renames a test, and its graph is missing and another one stale, though they are equal:
neither says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..settings import config as settings
from . import SUFFIX
from .file_names import release_in
from .files import read_text
from .release_files import ReleaseFiles

if TYPE_CHECKING:
    from ..graph.model import Detail
    from ..graph.program import Program

MOST = 20
"""How many files under old names are read for one that is missing."""

_IDENTIFIERS = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


def under_old_name(
    item: pytest.Item, files: ReleaseFiles, now: Program, detail: Detail
) -> tuple[str, ...]:
    """The lines about an equal graph under an old name, with the command that moves it.

    Args:
        item: the test.
        files: where its graph would be stored; there is none.
        now: what the test captured.
        detail: what is compared.

    Returns:
        no line where there is no such file.
    """
    from .compare import is_stored

    home = files.order[0][1].parent
    for number, (file, moves) in enumerate(_moved_candidates(item, files, home)):
        if number == MOST:
            break
        text = read_text(file)
        if text is not None and is_stored(text, now, detail):
            config = item.config
            commands = (
                shlex.join(["git", "mv", *(settings.shown(config, path) for path in pair)])
                for pair in moves
            )
            return (
                f"an equal graph is stored under an old name: {settings.shown(config, file)}",
                f"move:    {' && '.join(commands)}",
            )
    return ()


def _moved_candidates(
    item: pytest.Item, files: ReleaseFiles, home: Path
) -> Iterator[tuple[Path, list[tuple[Path, Path]]]]:
    """Files that no test has any more, each with what is to be moved, and where to."""
    for directory in _gone(home):
        file = _first([directory / path.name for _, path in files.order])
        if file is not None:
            yield file, [(file, home / file.name) if home.exists() else (directory, home)]
    wanted = release_in(files.order[0][1].stem)[0]
    found = _IDENTIFIERS.match(wanted)
    module = getattr(item, "module", None)
    if found is None or module is None or not home.is_dir():
        return
    stems: dict[str, list[Path]] = {}
    for path in sorted(home.glob(f"*.{SUFFIX}")):
        stems.setdefault(release_in(path.stem)[0], []).append(path)
    for stem, paths in stems.items():
        other = _IDENTIFIERS.match(stem)
        if other is None or stem[other.end() :] != wanted[found.end() :]:
            continue
        if not _resolves(module, other[0]):
            names = [path.name.replace(wanted, stem, 1) for _, path in files.order]
            moves = [(path, home / path.name.replace(stem, wanted, 1)) for path in paths]
            yield _first([home / name for name in names]) or paths[0], moves


def _first(files: list[Path]) -> Path | None:
    return next((file for file in files if file.is_file()), None)


def _gone(home: Path) -> list[Path]:
    """The directories of stored graphs beside this one whose test file is not there any more."""
    if not home.parent.is_dir():
        return []
    sources = {path.stem for path in home.parent.parent.iterdir()}
    return [
        path
        for path in sorted(home.parent.iterdir())
        if path != home and path.is_dir() and path.name not in sources
    ]


def _resolves(module: object, dotted: str) -> bool:
    """Whether a module has a test of this name, as `TestNet.test_step`."""
    owner: object = module
    for name in dotted.split("."):
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True
