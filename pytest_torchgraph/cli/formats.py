"""The forms in which a command prints a difference: text, Markdown, JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..words import markdown_code

if TYPE_CHECKING:
    from ..graph.diff.findings import Finding

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


def markdown_table(causes: Sequence[Finding], noun: str = "file") -> list[str]:
    """The lines of a table with a row for each finding, and the files, or ranks, that have it."""
    if not causes:
        return []
    from ..graph.diff.joining import some
    from ..graph.diff.words import cost_text

    costs = [cost_text(cause.cost) for cause in causes]
    head, rule = ("cost | ", "---|") if any(costs) else ("", "")
    lines = [f"| change | where | places | {head}{noun}s |", f"|---|---|---:|{rule}---|"]
    for cause, cost in zip(causes, costs, strict=True):
        data = cause.to_json()
        where = markdown_code(data["where"])
        if data["sources"]:
            where += f"<br>{some([markdown_code(line) for line in data['sources']], 1)}"
        having = [*map(str, data["ranks"])] if noun == "rank" else data["files"]
        files = some([*map(markdown_code, having)], MAX_FILES)
        what = markdown_code(f"{data['sign']} {data['what']}")
        cells = (what, where, f"{data['places']:,}", *([cost] if any(costs) else []))
        lines.append(f"| {' | '.join(cells)} | {len(having):,}: {files} |")
    return lines


def printable(text: str) -> str:
    """A text with `?` for control characters, which could make a terminal do things."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
