"""`merge`: one page of the pages that the shards of a CI run wrote."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .exit_codes import SAME


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "merge",
        help="put the pages of several runs together",
        description="Write one page with the tests of several pages, which pytest wrote with "
        "--torchgraph-report=FILE: the shards of a CI run, or runs on several releases of torch. "
        "The same edit in several of them is one cause. A test that is in several pages is there "
        "as often, named by its page.",
    )
    parser.add_argument("pages", metavar="PAGE", type=Path, nargs="+", help="what a run wrote")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="the page to write"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Merge the pages.

    Raises:
        TorchGraphError: for a file that is no page of this version; nothing is written.
        OSError: where a file cannot be read or written.
    """
    from ..report.page.html import page
    from ..report.page.merging import merged
    from ..report.page.run_data import RED
    from ..snapshot.files import write_text
    from ..words import counted

    data, parts = merged(options.pages)
    write_text(options.output, page(data, parts.texts))
    red = sum(test["outcome"] in RED for test in data["tests"])
    tests = counted(len(data["tests"]), "test")
    print(f"{options.output}: {tests} of {counted(len(options.pages), 'page')}, {red} failed")
    return SAME
