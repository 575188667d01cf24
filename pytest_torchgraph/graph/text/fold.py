"""Writing repeated modules once: `fold`, which `expand` undoes.

The lines of a graph stay in their order. Consecutive lines of one instance are a run; runs with
the same lines become a block and a line for all of them, runs with almost the same lines exceptions
behind that line. `expand` has the grammar.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from ...errors import GraphFormatError
from ..model import INPUT_OPS
from .expand import expand
from .fold_series import MIN_SAVED, fold_series
from .folded_names import NAME, STRING
from .format import EAGER_VERSION, FACTS_VERSION, VERSION
from .ranges import Instance, ranges_of
from .runs import MIN_INSTANCES, OTHER, OWN, LineRun, Lines, runs_of

MAX_INSIDE = 20
"""How many instances around each other are looked into; a network has three or four."""

_VERSION = re.compile(rf"torchgraph [{VERSION}{EAGER_VERSION}{FACTS_VERSION}](?:\n|\Z)")
_NAMED_BLOCK = re.compile(r" +each [^ ]*_\*")
"""A block whose instances have their number inside a component, which version 4 alone has."""
_LINE = re.compile(
    rf"( +)(?:%({STRING}|{NAME})(?: = (\w+\.?|\x22)|,\Z)|save %({STRING}|{NAME})\Z|"
    rf"[^ ].*,\Z)"
)


def fold(text: str, parts: Iterable[str | Lines] | None = None) -> str:
    """The text with repeated modules written once, in version 2 of the format, or in 4.

    `expand` gives back the same text, byte for byte. A text in which nothing repeats is returned
    as it is, and so are one that is folded already, one that is malformed and one that would stand
    for more than `expand` reads.

    Args:
        parts: the text as `parts_of` gives it, where it is known.
    """
    if OWN in text or OTHER in text or "\r" in text:
        return text
    folded = folded_unchecked(text, parts)
    if folded is None:
        return text
    try:
        return folded if expand(folded) == _of_version(folded, text) else text
    except GraphFormatError:
        return text


def _of_version(folded: str, text: str) -> str:
    """A flat text with the first line that `expand` gives it."""
    first = f"torchgraph {FACTS_VERSION}\n"
    return first + text.partition("\n")[2] if folded.startswith(first) else text


def folded_unchecked(text: str, parts: Iterable[str | Lines] | None = None) -> str | None:
    """The folded text, before it is compared with what it stands for; None if nothing repeats."""
    if not _VERSION.match(text):
        return None
    out: list[str] = []
    changed = False
    for part in parts_of(text) if parts is None else parts:
        if isinstance(part, str):
            out.append(part)
        else:
            folded = _fold_lines(part, "", 1)
            changed = changed or len(folded) != len(part)
            out.extend(folded)
    if not changed:
        return None
    facts = out[0] == f"torchgraph {FACTS_VERSION}" or any(map(_NAMED_BLOCK.match, out))
    first = f"torchgraph {FACTS_VERSION if facts else EAGER_VERSION}"
    return "\n".join([first, *out[1:]])


def parts_of(text: str) -> list[str | Lines]:
    """The lines of a text, those together in which modules may repeat.

    These are the inputs of a graph, its other nodes, the values of a long return, and what is
    saved.
    """
    parts: list[str | Lines] = []
    section = Lines([], [])
    kind: object = None
    for text_line in text.split("\n"):
        match = _LINE.match(text_line)
        if match is None:
            kind = None
            parts.append(text_line)
            continue
        indent, name, op, saved = match.groups()
        if op:
            own: object = (len(indent), "input" if op in INPUT_OPS else "node")
        else:
            own = (len(indent), "save" if saved else "value")
        if own != kind:
            kind = own
            section = Lines([], [])
            parts.append(section)
        section.texts.append(text_line)
        section.names.append(_plain(name or saved))
    return parts


def _fold_lines(lines: Lines, prefix: str, depth: int, inside: int = 0) -> list[str]:
    """The lines with repeated instances folded.

    Args:
        prefix: the path of the instance that they are of, and that is not folded; "" for none.
        depth: how many blocks they are inside of, and one more.
        inside: how many instances they are inside of, folded or not.
    """
    if inside == MAX_INSIDE or len(lines) < MIN_SAVED:
        return lines.texts
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
            body = _fold_lines(_of_block(pattern.lines()), "", depth + 1, inside + 1)
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
        instance = found.get(id(run)) if isinstance(run, LineRun) else None
        if instance is None or id(run) in heads:
            flush()
        if not isinstance(run, LineRun):
            out.extend(run.texts)
        elif instance is None:
            out.extend(_fold_lines(run, run.instance, depth, inside + 1))
        else:
            out.extend(heads.get(id(run), ()))
            waiting.append(instance)
    flush()
    return out


def _series(runs: list[LineRun | Lines]) -> list[list[LineRun]]:
    """The runs of each container, in series in which each instance is once."""
    series: list[list[LineRun]] = []
    current: dict[str, list[LineRun]] = {}
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for run in runs:
        if not isinstance(run, LineRun):
            continue
        if run.container not in current or run.number in numbers[run.container]:
            current[run.container] = []
            series.append(current[run.container])
            numbers[run.container] = set()
        current[run.container].append(run)
        numbers[run.container].add(run.number)
    return [each for each in series if len(each) >= MIN_INSTANCES]


def _of_block(texts: list[str]) -> Lines:
    """The lines of a block; a name begins with a dot or slash if it is one of the instance."""
    matches = map(_LINE.match, texts)
    return Lines(texts, [_plain(match and (match[2] or match[4])) for match in matches])


def _plain(name: str | None) -> str:
    """The name of a line; a quoted name is of no instance."""
    return "" if name is None or name[0] == '"' else name
