"""`fold`: write repeated modules once. `expand` is the inverse.

The lines of a graph keep their order. Consecutive lines of one instance form a run. Runs with equal
lines become one block and a line for each instance. A run with almost equal lines shares the block,
and the lines that differ follow as exceptions. `series` decides which runs share a
block. The docstring of `expand` has the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import GraphFormatError
from ..model import INPUT_OPS
from .expand import expand
from .lists import with_lists
from .names import NAME, STRING
from .runs import OTHER, OWN, LineRun, Lines, split_runs
from .series import MIN_SAVED, fold_series, group_into_series

MAX_NESTING = 20
"""Maximum nesting of instances that is searched. Networks have three or four levels."""

_LINE = re.compile(
    rf"( +)(?:%({STRING}|{NAME})(?: = (\w+\.?|\x22)|,\Z)|save %({STRING}|{NAME})\Z|"
    rf"[^ ].*,\Z)"
)
"""A line that may belong to an instance: a node, a value of a long return, or a `save` line."""


def fold(text: str) -> str:
    """Return the text, of version 2 or 4, with repeated modules written once.

    `expand` restores the text byte for byte. The text is returned unchanged if nothing repeats, if
    it is folded already, if it is malformed, or if it exceeds the limits of `expand`.
    """
    # These characters would not survive the round trip: skeletons use the two placeholders, and
    # reading changes line ends.
    if OWN in text or OTHER in text or "\r" in text:
        return text
    folded = folded_unchecked(text)
    if folded is None:
        return text
    # Never write a text that does not expand to the original: such a file could not be compared.
    try:
        return folded if expand(folded) == text else text
    except GraphFormatError:
        return text


def folded_unchecked(text: str) -> str | None:
    """Return the folded text before the round-trip check, or `None` if nothing repeats."""
    out: list[str] = []
    listed = with_lists(text)
    changed = listed != text
    for part in split_sections(listed):
        if isinstance(part, str):
            out.append(part)
        else:
            folded = _fold_lines(part, 1)
            changed = changed or len(folded) != len(part)  # a block always saves lines
            out.extend(folded)
    return "\n".join(out) if changed else None


def split_sections(text: str) -> list[str | Lines]:
    """Split a text into single lines and groups of lines in which modules may repeat.

    The groups are the inputs of a graph, its other nodes, the values of a long return, and the
    saved values.
    """
    parts: list[str | Lines] = []
    section = Lines([], [])
    section_kind: object = None
    for text_line in text.split("\n"):
        match = _LINE.match(text_line)
        if match is None:
            section_kind = None
            parts.append(text_line)
            continue
        indent, name, op, saved = match.groups()
        if op:
            line_kind: object = (len(indent), "input" if op in INPUT_OPS else "node")
        else:
            line_kind = (len(indent), "save" if saved else "value")
        if line_kind != section_kind:
            section_kind = line_kind
            section = Lines([], [])
            parts.append(section)
        section.texts.append(text_line)
        section.names.append(_unquoted_name(name or saved))
    return parts


def _fold_lines(lines: Lines, depth: int, nesting: int = 0) -> list[str]:
    """Return the lines of a section or a block with repeated instances folded.

    Args:
        depth: number of enclosing blocks plus one.
        nesting: number of enclosing instances, folded or not.
    """
    # A hostile name can have any number of numbered components, and each takes a nested call.
    if nesting >= MAX_NESTING or len(lines) < MIN_SAVED:
        return lines.texts
    return _fold_runs(split_runs(lines, ""), depth, nesting)


def _fold_runs(runs: Sequence[LineRun | Lines], depth: int, nesting: int) -> list[str]:
    """Return the lines of runs with repeated instances folded. For the arguments see `_fold_lines`.

    A block stands before its first instance.
    """
    lines_of_run: dict[Lines, list[str]] = {}
    for series in group_into_series(runs):
        for block in fold_series(series, depth):
            lines_of_run.update((run, block.lines_of(run)) for run in block.instances)
            first = next(run for run in series if run in block.instances)
            letter = f" {block.letter}" if block.letter else ""
            body = _fold_lines(_block_to_lines(block.lines), depth + 1, nesting + 1)
            lines_of_run[first] = [
                f"{first.indent}each {first.container}*{letter} {{",
                *(f"  {line}" for line in body),
                f"{first.indent}}}",
                *lines_of_run[first],
            ]
    out: list[str] = []
    for run in runs:
        if run in lines_of_run:
            out.extend(lines_of_run[run])
        elif isinstance(run, LineRun) and len(run) >= MIN_SAVED and nesting + 1 < MAX_NESTING:
            out.extend(_fold_runs(split_runs(run, run.instance), depth, nesting + 1))
        else:
            out.extend(run.texts)
    return out


def _block_to_lines(texts: list[str]) -> Lines:
    """Return the lines of a block with their names, which begin with a dot or a slash."""
    matches = map(_LINE.match, texts)
    return Lines(texts, [_unquoted_name(match and (match[2] or match[4])) for match in matches])


def _unquoted_name(name: str | None) -> str:
    """Return the name of a line, or "" for a quoted name, which belongs to no instance."""
    # A quoted name among the lines of an instance once made the whole text unfoldable.
    return "" if name is None or name[0] == '"' else name
