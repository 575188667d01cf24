"""Lists of module paths, short: `encoder.layer.{0 … 11}.act`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...words import listed
from .paths import is_index

MAX_PATHS = 4
"""How many paths that have no more than a few numbers in common are listed."""
MAX_SPANS = 5
"""How many separate numbers and ranges of numbers are listed in one path."""

_Form = tuple["str | frozenset[int]", ...]
"""The components of paths that are alike: names, and the numbers that stand in one place."""


def abridged(paths: Iterable[str], limit: int = MAX_PATHS) -> str:
    """Paths in one line; those that differ in numbers alone are written as one with ranges.

    What is written stands for these paths and no others, but for what `and N more` leaves out.

    Args:
        paths: module paths; each is listed once.
        limit: how many forms are written out.
    """
    forms = _merged({_form(path): None for path in paths})
    return listed(map(_text, forms), limit)


def _form(path: str) -> _Form:
    return tuple(frozenset((int(part),)) if is_index(part) else part for part in path.split("."))


def _merged(forms: dict[_Form, None]) -> list[_Form]:
    """The forms that are alike but for one place as one, the innermost place first."""
    for depth in range(max(map(len, forms), default=0) - 1, -1, -1):
        together: dict[_Form, frozenset[int]] = {}
        for form in forms:
            numbers = form[depth] if depth < len(form) else ""
            if isinstance(numbers, str):
                together[form] = frozenset()
                continue
            rest = (*form[:depth], frozenset[int](), *form[depth + 1 :])
            together[rest] = together.get(rest, frozenset()) | numbers
        forms = {
            (*form[:depth], numbers, *form[depth + 1 :]) if numbers else form: None
            for form, numbers in together.items()
        }
    return list(forms)


def _text(form: _Form) -> str:
    return ".".join(part if isinstance(part, str) else _numbers(sorted(part)) for part in form)


def _numbers(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    parts: list[str] = []
    for first, last in spans[:MAX_SPANS]:
        parts += map(str, range(first, last + 1)) if last < first + 2 else [f"{first} … {last}"]
    if len(spans) > MAX_SPANS:
        left = sum(last + 1 - first for first, last in spans[MAX_SPANS:])
        parts.append(f"and {left} more")
    return f"{{{', '.join(parts)}}}"
