"""Paths: permission to write, and the arguments `within` and `allow`."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ..errors import TorchGraphError
from ..files import is_stream


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
    if is_stream(path):
        return ""
    directory = Path(os.path.realpath(path.parent))
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    if not directory.is_dir():
        return f"{directory} is not a directory"
    return "" if os.access(directory, os.W_OK) else f"no permission to write in {directory}"


def find_rootdir() -> Path:
    """Return pytest's rootdir for the working directory, but not above git's work tree.

    Raises:
        TorchGraphError: if pytest cannot read its ini file.
    """
    from _pytest.config.findpaths import determine_setup

    directory = Path.cwd()
    given: Any = {"args": [], "invocation_dir": directory}
    # The parameters differ between the releases of pytest.
    parameters = inspect.signature(determine_setup).parameters
    try:
        root: Path = determine_setup(**{name: given.get(name) for name in parameters})[0]
    except (Exception, pytest.fail.Exception) as error:  # of a stranger's file
        problem = f"cannot read the ini file of {directory}: {type(error).__name__}"
        raise TorchGraphError(
            str(error) if isinstance(error, pytest.UsageError) else problem
        ) from None
    # Without git, there is no work tree to stay in.
    above = (directory, *directory.parents)
    top = next((path for path in above if (path / ".git").exists()), root)
    return top if top.is_relative_to(root) else root


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
        # "." needs a character, whichever it is.
        if any(map(compiled[-1].search, ("", "\0"))):
            raise ValueError(f"allow={text!r} matches everything, so nothing would be checked")
    return compiled


def allows(allowed: Iterable[re.Pattern[str]], text: str) -> bool:
    """Return True if a pattern matches in a text, or occurs literally in the text.

    Users copy the kind of a graph break, which contains parentheses and dots, into an `allow`. A
    match that begins or ends inside a name or a number does not count: `model.py:12` is not line
    120.
    """
    # Each as written and as literal text.
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
    name = str(place)
    path = Path(name)
    if name and path.exists():  # `Path("")` is the working directory
        return [str(path.resolve()), str(path.absolute())]
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
