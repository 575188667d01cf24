"""Where a file lies, and where files may be written."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from ..errors import OutsideRootError

REPOSITORIES = frozenset({".git", "git~1", ".hg", ".jj", ".svn"})
"""Names of directories that belong to version control; `git~1` is the short name on Windows."""


def below(file: str, directory: str) -> str | None:
    """The path of a file relative to a directory that it is in, "" for the directory itself.

    None where it is not in it: `torchvision/ops.py` is not below `torch`.
    """
    home = directory.rstrip("/\\")
    rest = file[len(home) :]
    inside = file.startswith(home) and (not rest or rest[0] in "/\\")
    return rest.lstrip("/\\") if inside else None


def is_below(file: str, *places: str) -> bool:
    """Whether a file is one of these places, or in one of these directories."""
    return any(below(file, place) is not None for place in places)


def unwritable(path: Path) -> str:
    """Why no file can be made there, "" where one can: missing directories can be made, too."""
    directory = Path(os.path.realpath(path)).parent
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    if not directory.is_dir():
        return f"{directory} is not a directory"
    return "" if os.access(directory, os.W_OK) else f"no permission to write in {directory}"


def inside(path: Path, root: Path) -> Path:
    """Return the real path of a file that may be written, with all links resolved.

    git keeps links, so a branch can bring one that leads anywhere: as the file, or as a directory
    on the way.

    Args:
        path: the file, which need not exist.
        root: pytest's root directory.

    Raises:
        OutsideRootError: if the real path is outside `root`, in the data of version control, or a
            file of another kind, known by its suffix.
    """
    home, real = Path(os.path.realpath(root)), Path(os.path.realpath(path))
    if not real.is_relative_to(home):
        raise OutsideRootError(f"{real} is outside the root directory {home}")
    below_root = real.relative_to(home)
    if any(_is_repository(part) for part in below_root.parts):
        raise OutsideRootError(f"{below_root} belongs to version control")
    if real.suffix != path.suffix:
        raise OutsideRootError(f"it leads to {below_root}, which is no {path.suffix} file")
    return real


def _is_repository(name: str) -> bool:
    """Return True for a directory of version control, however a file system spells its name."""
    # macOS ignores format characters and case; Windows ignores trailing dots and spaces, and takes
    # `.git::$INDEX_ALLOCATION` for `.git`.
    plain = "".join(c for c in name if unicodedata.category(c) != "Cf").partition(":")[0]
    return plain.rstrip(". ").casefold() in REPOSITORIES
