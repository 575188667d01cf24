"""`within`: which code a check is about."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def inside(file: str, within: Any) -> bool:
    """Whether a file is in a package or below a path, or in one of several; None is everywhere.

    Raises:
        ValueError: for what is neither a path that exists nor a package.
    """
    if within is None:
        return True
    several = isinstance(within, Iterable) and not isinstance(within, str | Path)
    places = list(within) if several else [within]
    if not places:
        raise ValueError(f"within={within!r} names no place")
    return any(_is_below(file, root) for each in places for root in roots(each))


def roots(place: Any) -> list[str]:
    """The directories, or the file, of a path or package.

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


def _is_below(file: str, root: str) -> bool:
    return file == root or file.startswith(root.rstrip("/\\") + "/")
