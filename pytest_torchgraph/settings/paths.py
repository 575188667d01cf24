"""Paths: where a file lies, where files may be written, and the arguments `within` and `allow`."""

from __future__ import annotations

import importlib.util
import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

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


def is_within(file: str, within: Any) -> bool:
    """Whether a file belongs to one of these places.

    Args:
        file: the absolute path of a source file.
        within: a path or the name of a package, or several of them; None is everywhere.

    Raises:
        ValueError: for a place that is neither a path that exists nor a package.
    """
    if within is None:
        return True
    return any(is_below(file, *roots(each)) for each in places(within))


def places(within: Any) -> list[Any]:
    """A `within` as a list of places.

    Raises:
        ValueError: if there is none, or an empty one.
    """
    found = list(within) if _several(within) else [within]
    if not found or any(place in ("", None) for place in found):
        raise ValueError(f"within={within!r} names no place")
    return found


def patterns(allow: Any) -> list[re.Pattern[str]]:
    """The compiled regular expressions of an `allow`: a text, or several.

    Raises:
        TypeError: for anything that is no text.
        ValueError: for a text that is no regular expression, or one that matches everything.
    """
    texts = list(allow) if _several(allow) else [allow]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"allow={allow!r} must be regular expressions")
    found = []
    for text in texts:
        try:
            found.append(re.compile(text))
        except re.error as error:
            raise ValueError(f"allow={text!r} is no regular expression: {error}") from None
        if found[-1].search(""):
            raise ValueError(f"allow={text!r} matches everything, so nothing would be checked")
    return found


def allows(allowed: Iterable[re.Pattern[str]], text: str) -> bool:
    """Whether one of the `patterns` is found in a text, or stands in it as it is.

    The kind of a graph break is a text with parentheses and dots, which is copied into an `allow`.
    """
    return any(each.search(text) or each.pattern in text for each in allowed)


def _several(value: Any) -> bool:
    """Whether a value is a collection, and not one text or path."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Path)


def roots(place: Any) -> list[str]:
    """The directories, or the one file, that a path or package consists of.

    Args:
        place: a path, or the name of a package or module. A path that exists comes first.

    Returns:
        absolute paths, of a path also with its links resolved.

    Raises:
        ValueError: for what is neither a path that exists nor a package.
    """
    path = Path(str(place))
    if str(place) and path.exists():
        return [str(path.resolve()), str(path.absolute())]
    name = str(place)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise ValueError(f"within={name!r} is neither a path that exists nor a package")
    if spec.submodule_search_locations:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.origin else []


FILTERS = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "lf": "--last-failed",
    "last_failed": "--last-failed",
    "stepwise": "--stepwise",
    "collectonly": "--collect-only",
}
"""The options, each with the text that a user types."""


def filter_given(config: pytest.Config) -> str:
    """The option that leaves out tests of this run, "" for none."""
    given = (shown for name, shown in FILTERS.items() if getattr(config.option, name, None))
    return next(given, "")
