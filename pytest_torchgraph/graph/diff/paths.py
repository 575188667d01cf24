"""Paths of repeated modules: their numbers, and names relative to one of the modules.

An *instance* is a module path that ends with a number, such as a layer of a list. The instance of
`encoder.layer.3.attention` is `encoder.layer.3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from ...words import MAX_DIGITS, is_index, spans
from ..model import Node
from ..module_paths import module_of

MAX_INSTANCES = 20
"""Maximum number of nested instances, as in `fold`. Networks have three or four."""
_NUMBER = re.compile(rf"(?:(?<=[._])|^)([0-9]{{1,{MAX_DIGITS}}})(?=\.|\Z)")
"""A number in a path: a whole component, or the end of a component, as in `encoder_layer_0`."""


def instances_of(path: str) -> tuple[str, ...]:
    """Return the instances around a module path, innermost first; at most `MAX_INSTANCES`."""
    parts = path.split(".")
    ends = (k for k in range(len(parts), 0, -1) if is_index(parts[k - 1]))
    return tuple([".".join(parts[:end]) for end in islice(ends, MAX_INSTANCES)])


def path_of(node: Node) -> str:
    """Return the module path of a node; for a parameter or buffer, the path of its owner."""
    return node.module or module_of(node.name) or node.name.rpartition(".")[0]


def holds(instance: str, name: str) -> bool:
    """Return True if a node or module of this name is the instance or inside it."""
    return name.startswith(instance) and name[len(instance) : len(instance) + 1] in ("", ".", "/")


def relative_to_instances(name: str, instances: Sequence[str]) -> tuple[int, int, str] | None:
    """Return a name relative to nested instances.

    Args:
        name: the name of a node or a module.
        instances: the nested instances, innermost first.

    Returns:
        Three values: the index of an instance, the distance of the name from this instance in the
        list of modules (0 inside the instance), and the rest of the name. `None` if the name is
        neither inside an instance nor in the module list of an instance.
    """
    for depth, instance in enumerate(instances):
        if holds(instance, name):
            # The name may be in another module of the list that an inner instance is in.
            if depth:
                beside = _sibling_distance(name, instances[depth - 1])
                if beside is not None:
                    return depth - 1, *beside
            return depth, 0, name[len(instance) :]
    if instances:
        beside = _sibling_distance(name, instances[-1])
        if beside is not None:
            return len(instances) - 1, *beside
    return None


def are_siblings(path: str, other: str) -> bool:
    """Return True if two paths are in different modules of one list."""
    place = relative_to_instances(path, instances_of(other))
    return place is not None and place[1] != 0


def _sibling_distance(name: str, instance: str) -> tuple[int, str] | None:
    """Return the distance to the instance of the same list that holds a name, and the rest.

    `None` if no module of the list holds the name.
    """
    container, _, number = instance.rpartition(".")
    start = f"{container}." if container else ""
    if not name.startswith(start):
        return None
    rest = name[len(start) :]
    end = next((k for k, letter in enumerate(rest) if letter in "./"), len(rest))
    if not is_index(rest[:end]):
        return None
    return int(rest[:end]) - int(number), rest[end:]


def natural_key(path: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that compares the numbers in paths as numbers."""
    return tuple(
        (0, int(part), "") if k % 2 and is_index(part) else (1, 0, part)
        for k, part in enumerate(_NUMBER.split(path))
        if part
    )


MAX_PATHS = 4
"""Maximum number of forms of paths to list."""
MAX_SPANS = 5
"""Maximum number of separate numbers and ranges to list in one path."""

_Form = tuple["str | frozenset[int]", ...]
"""The parts of similar paths: names, and the set of numbers at each position."""


def abridged(paths: Iterable[str], limit: int = MAX_PATHS) -> str:
    """Return paths in one line. Paths that differ only in numbers become ranges.

    The text covers exactly these paths, except for the paths that `and N more` leaves out.

    Args:
        paths: module paths; duplicates are ignored.
        limit: maximum number of forms to write out.
    """
    forms = _merge_forms({_form_of(path): None for path in paths})
    shown = [_format_form(form) for form in forms[:limit]]
    more = f" and {len(forms) - limit} more" if len(forms) > limit else ""
    return ", ".join(shown) + more


def _form_of(path: str) -> _Form:
    """Return the form of a single path, with one number at each position."""
    parts = _NUMBER.split(path)  # alternating names and numbers
    return tuple(
        frozenset((int(part),)) if k % 2 and is_index(part) else part
        for k, part in enumerate(parts)
        if part
    )


def _merge_forms(forms: dict[_Form, None]) -> list[_Form]:
    """Merge forms that differ in only one position, innermost position first."""
    for depth in range(max(map(len, forms), default=0) - 1, -1, -1):
        numbers_by_rest: dict[_Form, set[int]] = {}
        for form in forms:
            numbers = form[depth] if depth < len(form) else ""
            if isinstance(numbers, str):  # no numbers at this position, so nothing to merge
                numbers_by_rest[form] = set()
                continue
            rest = (*form[:depth], frozenset[int](), *form[depth + 1 :])
            numbers_by_rest.setdefault(rest, set()).update(numbers)
        forms = {
            (*form[:depth], frozenset(numbers), *form[depth + 1 :]) if numbers else form: None
            for form, numbers in numbers_by_rest.items()
        }
    return list(forms)


def _format_form(form: _Form) -> str:
    return "".join(
        part if isinstance(part, str) else _format_numbers(sorted(part)) for part in form
    )


def _format_numbers(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: `3`, or `{0 … 11, 14}`. Ranges have at least three."""
    if len(numbers) == 1:
        return str(numbers[0])
    runs, parts = spans(numbers), list[str]()
    for first, last in runs[:MAX_SPANS]:
        parts += map(str, range(first, last + 1)) if last < first + 2 else [f"{first} … {last}"]
    if len(runs) > MAX_SPANS:
        unlisted = sum(last + 1 - first for first, last in runs[MAX_SPANS:])
        parts.append(f"and {unlisted} more")
    return f"{{{', '.join(parts)}}}"
