"""The arguments `within` and `allow` of the checks: places of code, and tolerated breaks."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .paths import is_below


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
