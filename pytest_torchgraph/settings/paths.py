"""Where a file lies."""

from __future__ import annotations


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
