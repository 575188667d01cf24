"""Writing repeated modules once: `fold`, which `expand` undoes.

The lines of a graph stay in their order. Consecutive lines of one instance are a run; runs with
the same lines become a block and a line for all of them, runs with almost the same lines exceptions
behind that line. `expand` has the grammar.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ...errors import GraphFormatError
from ..model import INPUT_OPS
from .expand import expand
from .fold_series import MIN_SAVED, fold_series
from .folded_names import PATH, STRING
from .format import EAGER_VERSION, VERSION
from .ranges import Instance, ranges_of
from .runs import MIN_INSTANCES, OTHER, OWN, Line, Run, runs_of

MAX_INSIDE = 20
"""How many instances around each other are looked into; a network has three or four."""

_VERSION = re.compile(rf"torchgraph [{VERSION}{EAGER_VERSION}]\Z")
_LINE = re.compile(
    rf"( +)(?:%({STRING}|(?:{PATH}|/)+)(?: = (\w+(\.)?)|,\Z)|save %({STRING}|(?:{PATH}|/)+)\Z|"
    rf"[^ ].*,\Z)"
)


def fold(text: str) -> str:
    """The text with repeated modules written once, in version 2 of the format.

    `expand` gives back the same text, byte for byte. A text in which nothing repeats is returned
    as it is, and so are one that is folded already, one that is malformed and one that would stand
    for more than `expand` reads.
    """
    if OWN in text or OTHER in text or "\r" in text:
        return text
    folded = folded_unchecked(text)
    if folded is None:
        return text
    try:
        return folded if expand(folded) == text else text
    except GraphFormatError:
        return text


def folded_unchecked(text: str) -> str | None:
    """The folded text, before it is compared with what it stands for; None if nothing repeats."""
    lines = text.split("\n")
    if not _VERSION.match(lines[0]):
        return None
    out: list[str] = []
    section: list[Line] = []
    kind: object = None
    changed = False

    def flush() -> None:
        nonlocal changed
        if section:
            folded = _fold_lines(section, "", 1)
            changed = changed or len(folded) != len(section)
            out.extend(folded)
            section.clear()

    for text_line in lines:
        match = _LINE.match(text_line)
        if match is None:
            flush()
            kind = None
            out.append(text_line)
            continue
        indent, name, op, dot, saved = match.groups()
        if op:
            own: object = (len(indent), "input" if not dot and op in INPUT_OPS else "node")
        else:
            own = (len(indent), "save" if saved else "value")
        if own != kind:
            flush()
            kind = own
        section.append(_line(text_line, name or saved))
    flush()
    if not changed:
        return None
    return "\n".join([f"torchgraph {EAGER_VERSION}", *out[1:]])


def _fold_lines(lines: list[Line], prefix: str, depth: int, inside: int = 0) -> list[str]:
    """The lines with repeated instances folded.

    Args:
        prefix: the path of the instance that they are of, and that is not folded; "" for none.
        depth: how many blocks they are inside of, and one more.
        inside: how many instances they are inside of, folded or not.
    """
    if inside == MAX_INSIDE or len(lines) < MIN_SAVED:
        return [line.text for line in lines]
    runs = runs_of(lines, prefix)
    found: dict[int, Instance] = {}
    heads: dict[int, list[str]] = {}
    for series in _series(runs):
        instances, patterns = fold_series(series, depth)
        found.update(instances)
        for pattern in patterns:
            first = next(
                run
                for run in series
                if id(run) in instances and instances[id(run)].letter == pattern.letter
            )
            letter = f" {pattern.letter}" if pattern.letter else ""
            block = [_relative_line(line) for line in pattern.lines()]
            body = _fold_lines(block, "", depth + 1, inside + 1)
            heads[id(first)] = [
                f"{first.indent}each {first.container}*{letter} {{",
                *(f"  {line}" for line in body),
                f"{first.indent}}}",
            ]
    out: list[str] = []
    waiting: list[Instance] = []

    def flush() -> None:
        for each in ranges_of(waiting):
            out.extend(each.lines())
        waiting.clear()

    for run in runs:
        instance = found.get(id(run)) if isinstance(run, Run) else None
        if instance is None or id(run) in heads:
            flush()
        if isinstance(run, Line):
            out.append(run.text)
        elif instance is None:
            out.extend(_fold_lines(run.lines, run.instance, depth, inside + 1))
        else:
            out.extend(heads.get(id(run), ()))
            waiting.append(instance)
    flush()
    return out


def _series(runs: list[Run | Line]) -> list[list[Run]]:
    """The runs of each container, in series in which each instance is once."""
    series: list[list[Run]] = []
    current: dict[str, list[Run]] = {}
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for run in runs:
        if isinstance(run, Line):
            continue
        if run.container not in current or run.number in numbers[run.container]:
            current[run.container] = []
            series.append(current[run.container])
            numbers[run.container] = set()
        current[run.container].append(run)
        numbers[run.container].add(run.number)
    return [each for each in series if len(each) >= MIN_INSTANCES]


def _relative_line(text: str) -> Line:
    """A line of a block; its name begins with a dot or slash if it is one of the instance."""
    match = _LINE.match(text)
    return _line(text, match and (match[2] or match[5]))


def _line(text: str, name: str | None) -> Line:
    """A line with its name; a quoted name is of no instance."""
    return Line(text, "" if name is None or name[0] == '"' else name)
