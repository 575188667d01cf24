"""`compare OLD NEW`: print what distinguishes two directories of stored graphs, by cause."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TorchGraphError
from .exit_codes import DIFFERENT, SAME, TROUBLE
from .formats import add_format, markdown_code, markdown_table, print_json

if TYPE_CHECKING:
    from ..graph.diff.findings import GraphDiff


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
        TorchGraphError: see `api.differences.diff`, and for a file and a directory.
        OSError: for a path that is not there.
    """
    from ..api.differences import diff

    try:
        found = diff(options.old, options.new)
    except TypeError as error:
        raise TorchGraphError(str(error)) from None
    if options.format == "json":
        print_json(_data(found))
    elif options.format == "markdown":
        print("\n".join(_markdown(found)))
    else:
        print(f"{found.heading()}\n{found.to_text(limit=None)}" if options.all else found)
    if found.files is not None and found.files.unreadable:
        return TROUBLE
    return DIFFERENT if found else SAME


def _data(found: GraphDiff) -> dict[str, Any]:
    data = found.to_json()
    files = {**data["files"], "compared": len(data["files"]["compared"])}
    return {"causes": data["findings"], **files}


def _markdown(found: GraphDiff) -> list[str]:
    lines = [f"**{found.heading()}**"]
    table = markdown_table(found.findings)
    lines += ["", *table] if table else []
    files = found.files
    assert files is not None
    by_counts: dict[tuple[str, ...], list[str]] = {}
    for file, counts in files.counts.items():
        by_counts.setdefault(counts, []).append(file)
    listed: list[tuple[str, Iterable[str]]] = [
        *(
            (f"op counts: {'; '.join(map(markdown_code, counts))}", names)
            for counts, names in by_counts.items()
        ),
        ("added", files.added),
        ("removed", files.removed),
        ("other names, strides or devices alone", files.renamed),
        ("cannot be read", files.unreadable.values()),
    ]
    items = [f"- {word}: {', '.join(map(markdown_code, names))}" for word, names in listed if names]
    return [*lines, "", *items] if items else lines
