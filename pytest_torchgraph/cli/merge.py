"""`merge`: combine the pages, audit baselines or saved runs of the shards of a CI run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import TorchGraphError
from ..files import is_stream, read_bytes, write
from ..words import counted
from .formats import EXIT_OK


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "merge",
        help="merge the pages, the audit baselines, or the saved runs, of several runs",
        description="Merge pages written by pytest --torchgraph-report=FILE: the shards of a CI "
        "run, or runs on several torch releases. An edit that occurs in several pages is one "
        "cause. A test that occurs in several pages is listed once per page, with the page's "
        "name. Or merge baselines written by pytest --torchgraph-audit=record; OUT must then be "
        "the baseline from which all runs started, or not exist if there was none. Or merge "
        "directories written by pytest --torchgraph-save-run; a test in two of them is an error.",
    )
    parser.add_argument(
        "files", metavar="FILE", type=Path, nargs="+", help="page, baseline or directory of a run"
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=Path, required=True, help="output file"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Merge the files.

    Raises:
        TorchGraphError: for a file that is neither a page nor a baseline of this version, for a
            mixture of kinds, and if the result cannot be written. In all three cases, nothing is
            written. For saved runs, see `merge_runs`.
        OSError: for a file that cannot be read.
    """
    if any(path.is_dir() for path in options.files):
        from ..runs import merge_runs

        merged = merge_runs(options.files, options.output)
        runs = counted(len(options.files), "run")
        print(f"{options.output}: {counted(len(merged.tests), 'test')} from {runs}")
        return EXIT_OK
    pages = [_is_page(path) for path in options.files]
    if len({*pages}) > 1:
        raise TorchGraphError("cannot merge pages with audit baselines: give files of one kind")
    merge = _merge_pages if pages[0] else _merge_baselines
    summary = merge(options.files, options.output)
    if not is_stream(options.output):  # the line would be part of the output
        print(f"{options.output}: {summary}")
    return EXIT_OK


def _is_page(path: Path) -> bool:
    """Return True unless a file starts like JSON; `read_page` reports other invalid files."""
    return not read_bytes(path)[:80].lstrip().startswith(b"{")


def _merge_pages(pages: Sequence[Path], output: Path) -> str:
    """Write the merged page, and return the line about it."""
    from ..report.page import RED, merge_pages, page

    data, parts = merge_pages(pages)
    write(output, page(data, parts.texts))
    failed_count = sum(test["outcome"] in RED for test in data["tests"])
    tests = counted(len(data["tests"]), "test")
    return f"{tests} from {counted(len(pages), 'page')}, {failed_count} failed"


def _merge_baselines(shards: Sequence[Path], output: Path) -> str:
    """Write the merged baseline, and return the line about it."""
    from ..audit.baseline import merge, read, to_text

    # The output is also an input: the baseline from which all shards started.
    base = read(output) if output.exists() and not is_stream(output) else None
    merged = merge([read(path) for path in shards], base)
    write(output, to_text(merged))
    return counted(sum(len(section.tests) for section in merged.values()), "test")
