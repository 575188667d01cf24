"""Paths: containment, permission to write, and the arguments `within` and `allow`."""

from __future__ import annotations

import functools
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
    """Return the path of a file relative to a directory; "" for the directory itself.

    Return `None` if the file is not in the directory: `torchvision/ops.py` is not below `torch`.
    """
    folder = directory.rstrip("/\\")
    remainder = file[len(folder) :]
    is_inside = file.startswith(folder) and (not remainder or remainder[0] in "/\\")
    return remainder.lstrip("/\\") if is_inside else None


def is_below(file: str, *places: str) -> bool:
    """Return True if a file is one of these files, or inside one of these directories."""
    return any(below(file, place) is not None for place in places)


def unwritable(path: Path) -> str:
    """Return why a file cannot be created at a path; "" if it can.

    Missing parent directories are allowed, because they can be created.
    """
    directory = Path(os.path.realpath(path)).parent
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    if not directory.is_dir():
        return f"{directory} is not a directory"
    return "" if os.access(directory, os.W_OK) else f"no permission to write in {directory}"


def inside(path: Path, root: Path) -> Path:
    """Return the real path of a file that may be written, with all links resolved.

    git stores symbolic links, so a branch may contain a link to any location: as the file itself,
    or as a directory on the path of the file.

    Args:
        path: the file, which need not exist.
        root: pytest's root directory.

    Raises:
        OutsideRootError: if the real path is outside `root`, inside a version control directory,
            or has another suffix.
    """
    real_root, real_path = Path(os.path.realpath(root)), Path(os.path.realpath(path))
    if not real_path.is_relative_to(real_root):
        raise OutsideRootError(f"{real_path} is outside the root directory {real_root}")
    below_root = real_path.relative_to(real_root)
    if any(_is_repository(part) for part in below_root.parts):
        raise OutsideRootError(f"{below_root} is inside a version control directory")
    if real_path.suffix != path.suffix:
        raise OutsideRootError(f"it is a link to {below_root}, which is not a {path.suffix} file")
    return real_path


def _is_repository(name: str) -> bool:
    """Return True for a version control directory in any spelling that a file system accepts."""
    # macOS ignores format characters and case. Windows ignores trailing dots and spaces, and
    # treats `.git::$INDEX_ALLOCATION` as `.git`.
    visible_name = "".join(c for c in name if unicodedata.category(c) != "Cf").partition(":")[0]
    return visible_name.rstrip(". ").casefold() in REPOSITORIES


def is_within(file: str, within: Any) -> bool:
    """Return True if a file belongs to one of these places.

    Args:
        file: the absolute path of a source file.
        within: a path or a package name, or several; `None` includes every file.

    Raises:
        ValueError: for a place that is neither an existing path nor a package.
    """
    if within is None:
        return True
    return any(is_below(file, *roots(place)) for place in places(within))


def places(within: Any) -> list[Any]:
    """Convert a `within` to a list of places.

    Raises:
        ValueError: if there is no place, or an empty place.
    """
    place_list = list(within) if _several(within) else [within]
    if not place_list or any(place in ("", None) for place in place_list):
        raise ValueError(f"within={within!r} is empty: give a path or a package")
    return place_list


def patterns(allow: Any) -> list[re.Pattern[str]]:
    """Compile the regular expressions of an `allow`, which is one string or several.

    Raises:
        TypeError: for a value that is not a string.
        ValueError: for a string that is not a regular expression, or matches everything.
    """
    texts = list(allow) if _several(allow) else [allow]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f"allow={allow!r} must be a str with a regular expression, or a sequence of regular "
            "expressions"
        )
    compiled = []
    for text in texts:
        try:
            compiled.append(re.compile(text))
        except re.error as error:
            raise ValueError(f"allow={text!r} is not a valid regular expression: {error}") from None
        if compiled[-1].search(""):
            raise ValueError(f"allow={text!r} matches everything, so nothing would be checked")
    return compiled


def allows(allowed: Iterable[re.Pattern[str]], text: str) -> bool:
    """Return True if a pattern matches in a text, or occurs literally in the text.

    Users copy the kind of a graph break, which contains parentheses and dots, into an `allow`. A
    match that begins or ends inside a name or a number does not count: `model.py:12` is not line
    120.
    """
    patterns = [pattern.pattern for pattern in allowed]
    return any(_whole(form).search(text) for p in patterns for form in (p, re.escape(p)))


_INSIDE = r"(?<=\w)(?=\w)|(?<=\d)(?=\.\d)|(?<=\d\.)(?=\d)"
"""A position inside a name or a number."""


@functools.cache
def _whole(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that neither begins nor ends inside a name or a number."""
    # Global flags are valid only at the beginning. With `x`, the pattern may end in a comment.
    found = re.match(r"(\(\?[aimsux]+\))+", pattern)
    flags = found[0] if found else ""
    end = "\n" if "x" in flags else ""
    return re.compile(f"{flags}(?!{_INSIDE})(?:{pattern[len(flags) :]}{end})(?!{_INSIDE})")


def _several(value: Any) -> bool:
    """Return True if a value is a collection rather than a single string or path."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Path)


def roots(place: Any) -> list[str]:
    """Return the directories, or the single file, of a path, package or module.

    Args:
        place: a path, or the name of an importable package or module. An existing path takes
            precedence.

    Returns:
        absolute paths; for a path, also the path with links resolved.

    Raises:
        ValueError: if `place` is neither an existing path nor an importable package or module.
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
        raise ValueError(f"within={name!r} is neither an existing path nor an importable package")
    if spec.submodule_search_locations:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.origin else []


FILTERS = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "lf": "--last-failed",
    "stepwise": "--stepwise",
    "collectonly": "--collect-only",
}
"""Options that filter tests, by attribute of `config.option`, as typed on the command line."""


def active_filter(config: pytest.Config) -> str:
    """Return the option that excludes tests from this run; "" if there is none."""
    return next((o for name, o in FILTERS.items() if getattr(config.option, name, None)), "")
