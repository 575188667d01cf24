"""Paths of repeated modules: what their numbers say, and what a name is relative to one of them.

An *instance* is a module path that ends with a number, as the layers of a list have: of
`encoder.layer.3.attention` it is `encoder.layer.3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..model import Node
from ..module_paths import module_of

MAX_DIGITS = 9
"""How long a number is at most that counts as one: a longer one is no index of a module."""
_NUMBER = re.compile(rf"(?:(?<=[._])|^)([0-9]{{1,{MAX_DIGITS}}})(?=\.|\Z)")
"""A number in a path: a component of its own, or the end of one, as in `encoder_layer_0`."""


def is_index(part: str) -> bool:
    """Whether a component of a path is the number of a module in a list."""
    return len(part) <= MAX_DIGITS and part.isascii() and part.isdigit() and str(int(part)) == part


def instances_of(path: str) -> tuple[str, ...]:
    """The instances that a module path lies in, the innermost first."""
    parts = path.split(".")
    return tuple(
        ".".join(parts[: k + 1]) for k in range(len(parts) - 1, -1, -1) if is_index(parts[k])
    )


def by_layer(nodes: Sequence[Node], numbers: Iterable[int]) -> Mapping[str, list[int]]:
    """The numbers of those nodes that lie in instances, by the outermost instance of each."""
    found: dict[str, list[int]] = {}
    for i in numbers:
        if layers := instances_of(path_of(nodes[i])):
            found.setdefault(layers[-1], []).append(i)
    return found


def path_of(node: Node) -> str:
    """The module path of a node; of a parameter or buffer, that of its owner."""
    return node.module or module_of(node.name) or node.name.rpartition(".")[0]


def holds(instance: str, name: str) -> bool:
    """Whether a node or module of this name is the instance or inside it."""
    return name.startswith(instance) and name[len(instance) : len(instance) + 1] in ("", ".", "/")


def relative(name: str, instances: Sequence[str]) -> tuple[int, int, str] | None:
    """A name as seen from nested instances; None where it is in none of them, nor beside one.

    Args:
        name: of a node or a module.
        instances: the instances that it is seen from, the innermost first.

    Returns:
        How many of the instances it is outside of, how much further its own number is in the list
        of the innermost one that it is beside (0: it is inside), and the rest of the name.
    """
    for depth, instance in enumerate(instances):
        if holds(instance, name):
            if depth:
                beside = _beside(name, instances[depth - 1])
                if beside is not None:
                    return depth - 1, *beside
            return depth, 0, name[len(instance) :]
    if instances:
        beside = _beside(name, instances[-1])
        if beside is not None:
            return len(instances) - 1, *beside
    return None


def _beside(name: str, instance: str) -> tuple[int, str] | None:
    """The distance to another instance of the same list that holds a name, and the rest of it."""
    container, _, number = instance.rpartition(".")
    start = f"{container}." if container else ""
    if not name.startswith(start):
        return None
    rest = name[len(start) :]
    end = next((k for k, letter in enumerate(rest) if letter in "./"), len(rest))
    if not is_index(rest[:end]):
        return None
    return int(rest[:end]) - int(number), rest[end:]


def natural(path: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts paths with their numbers as numbers."""
    return tuple(
        (0, int(part), "") if k % 2 and is_index(part) else (1, 0, part)
        for k, part in enumerate(_NUMBER.split(path))
        if part
    )


MAX_PATHS = 4
"""How many paths that have no more than a few numbers in common are listed."""
MAX_SPANS = 5
"""How many separate numbers and ranges of numbers are listed in one path."""

_Form = tuple["str | frozenset[int]", ...]
"""The parts of paths that are alike: names, and the numbers that stand in one place."""


def abridged(paths: Iterable[str], limit: int = MAX_PATHS) -> str:
    """Paths in one line; those that differ in numbers alone are written as one with ranges.

    What is written stands for these paths and no others, but for what `and N more` leaves out.

    Args:
        paths: module paths; each is listed once.
        limit: how many forms are written out.
    """
    forms = _merged({_form(path): None for path in paths})
    shown = [_text(form) for form in forms[:limit]]
    more = f" and {len(forms) - limit} more" if len(forms) > limit else ""
    return ", ".join(shown) + more


def _form(path: str) -> _Form:
    parts = _NUMBER.split(path)  # names and numbers in turn
    return tuple(
        frozenset((int(part),)) if k % 2 and is_index(part) else part
        for k, part in enumerate(parts)
        if part
    )


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
    return "".join(part if isinstance(part, str) else _numbers(sorted(part)) for part in form)


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
