"""Where a file lies."""

from __future__ import annotations

import os
from pathlib import Path


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
