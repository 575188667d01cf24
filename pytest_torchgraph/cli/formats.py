"""The forms in which a command prints a difference: text, Markdown, JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..words import markdown_code

if TYPE_CHECKING:
    from ..graph.diff.described import CauseInWords

FORMATS = ("text", "markdown", "json")
JSON_VERSION = 1
"""Counted up where the JSON changes so that a program that reads it must change."""
MAX_FILES = 5
"""How many files are named in a cell of a table."""


def add_format(parser: argparse.ArgumentParser) -> None:
    """Declare `--format`."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text (the default), a table in Markdown, or JSON, which has everything",
    )


def print_json(data: dict[str, Any]) -> None:
    """Print data as JSON, with the version of its form first."""
    print(json.dumps({"version": JSON_VERSION, **data}, indent=2))


def markdown_table(causes: Sequence[CauseInWords], noun: str = "file") -> list[str]:
    """The lines of a table with a row for each cause."""
    if not causes:
        return []
    from ..graph.diff.cause_table import some
    from ..graph.diff.words import cost_text

    costs = [cost_text(cause.cost) for cause in causes]
    head, rule = ("cost | ", "---|") if any(costs) else ("", "")
    lines = [f"| change | where | places | {head}{noun}s |", f"|---|---|---:|{rule}---|"]
    for cause, cost in zip(causes, costs, strict=True):
        where = markdown_code(cause.where)
        if cause.sources:
            where += f"<br>{some([markdown_code(line) for line in cause.sources], 1)}"
        files = some([markdown_code(each) for each in cause.files], MAX_FILES)
        what = markdown_code(f"{cause.first.sign} {cause.first.what}")
        cells = (what, where, f"{cause.places:,}", *([cost] if any(costs) else []))
        lines.append(f"| {' | '.join(cells)} | {len(cause.files):,}: {files} |")
    return lines


def printable(text: str) -> str:
    """A text with `?` for control characters, which could make a terminal do things."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
