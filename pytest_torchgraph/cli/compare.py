"""`compare OLD NEW`: print what distinguishes two directories of stored graphs, by cause."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .exit_codes import DIFFERENT, SAME, TROUBLE
from .formats import add_format, markdown_code, markdown_table, print_json

if TYPE_CHECKING:
    from ..api.comparison import Comparison


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "compare",
        help="print what distinguishes two directories, or two files, by cause",
        description="Compare the .tgraph files of two directories, and of those below them, by "
        "their relative paths, and print each edit once with the files that it is found in.",
    )
    parser.add_argument("old", type=Path, help="a directory, or a file")
    parser.add_argument(
        "new",
        type=Path,
        nargs="?",
        help="likewise; without it, OLD is a directory that --torchgraph-artifacts wrote, and what "
        "was stored is compared with what was captured",
    )
    parser.add_argument("--all", action="store_true", help="every cause and every file")
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the comparison; a file that cannot be read is trouble, after all others were compared.

    Raises:
        TorchGraphError: see `api.comparison.compare`.
        OSError: for a path that is not there.
    """
    from ..api.comparison import compare

    found = compare(options.old, options.new)
    if options.format == "json":
        print_json(_data(found))
    elif options.format == "markdown":
        print("\n".join(_markdown(found)))
    else:
        print(found.to_text(limit=None) if options.all else found)
    if found.unreadable:
        return TROUBLE
    return DIFFERENT if found else SAME


def _data(found: Comparison) -> dict[str, Any]:
    return {
        "causes": [cause.to_json() for cause in found.in_words()],
        "compared": len(found.compared),
        "changed": list(found.changed),
        "added": list(found.added),
        "removed": list(found.removed),
        "renamed": list(found.renamed),
        "counts": {file: list(lines) for file, lines in found.counts.items()},
        "unreadable": dict(found.unreadable),
        "releases": {file: list(pair) for file, pair in found.releases.items()},
    }


def _markdown(found: Comparison) -> list[str]:
    lines = [f"**{found.heading()}**"]
    table = markdown_table(found.in_words())
    lines += ["", *table] if table else []
    listed = [
        *(
            (f"op counts: {'; '.join(map(markdown_code, counts))}", files)
            for counts, files in found.files_by_counts().items()
        ),
        ("added", found.added),
        ("removed", found.removed),
        ("other names, strides or devices alone", found.renamed),
        ("cannot be read", tuple(found.unreadable.values())),
    ]
    items = [f"- {word}: {', '.join(map(markdown_code, files))}" for word, files in listed if files]
    return [*lines, "", *items] if items else lines
