"""`review [DIR]`: review captured graphs that differ from the stored graphs.

`run` calls `waiting.read_pending`, which reads the updates in a directory, and
`PendingUpdates.choose`, which selects those of `--cause` and `--test`. Then it prints their causes
(`listing`), asks about each in a terminal (`prompt.ask`), or stores their graphs (`prompt.accept`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TorchGraphError
from ...words import one_line
from ..formats import EXIT_DIFFERENT, EXIT_OK, EXIT_TROUBLE, add_format, print_json

if TYPE_CHECKING:
    from .waiting import PendingUpdates


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "review",
        help="review pending changes of stored graphs by cause, and accept them",
        description="Review the captured graphs that differ from the stored graphs, one cause at a "
        "time, with its cost and its places. Accepting a cause writes the files that "
        "--torchgraph-update would write, without running a test. A file is written only if it is "
        "unchanged since the comparison, and only if all of its causes are accepted. Without a "
        "terminal, the causes are listed. Exit codes: 0 if no change is pending, 1 if a change is "
        "pending, 2 on an error; with --accept, 0 if all chosen graphs are stored, else 2.",
    )
    parser.add_argument(
        "directories",
        metavar="DIR",
        type=Path,
        nargs="*",
        help="directories written by `pytest --torchgraph-artifacts=DIR`, here or in CI, one per "
        "shard (default: the changes that the last runs left in pytest's cache)",
    )
    parser.add_argument("--list", action="store_true", help="print the causes and their numbers")
    parser.add_argument("--accept", action="store_true", help="store the graphs without prompting")
    parser.add_argument(
        "--cause",
        metavar="N",
        type=_numbers,
        action="extend",
        help="accept only the cause with this number in the list, or several causes, such as 2,3",
    )
    parser.add_argument(
        "--test",
        metavar="ID",
        action="append",
        help="with --accept: only this test, or the tests of this file or directory; repeatable",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --accept: only print what would be written"
    )
    parser.add_argument(
        "--root",
        type=Path,
        help="pytest's root directory in this checkout (default: the one that pytest finds from "
        "here, but not above git's work tree)",
    )
    add_format(parser)
    parser.set_defaults(run=run)


def _numbers(text: str) -> list[int]:
    """Parse the argument of `--cause`: numbers separated by commas."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected 2 or 2,3, got {text!r}") from None


def run(options: argparse.Namespace) -> int:
    """Print the causes, ask about them in the terminal, or store their graphs.

    Raises:
        TorchGraphError: if there is nothing to review, and for an unknown cause or test.
        OSError: for a missing directory.
    """
    from .listing import data, listing, markdown
    from .waiting import find_directories, read_pending

    if (options.test or options.dry_run) and not options.accept:
        raise TorchGraphError("--test and --dry-run require --accept: add --accept")
    if options.accept and (options.list or options.format != "text"):
        raise TorchGraphError("--accept prints no list: leave out --list and --format")
    pending = read_pending(*find_directories(options.directories), root=options.root)
    pending = pending.choose(options.cause, options.test)
    if options.accept:
        stored = _store(pending, dry_run=options.dry_run)
        # A dry run stores nothing, so its exit code is that of the list.
        if not options.dry_run:
            return EXIT_OK if stored else EXIT_TROUBLE
    elif options.format == "json":
        print_json(data(pending))
    elif options.format == "markdown":
        print("\n".join(map(one_line, markdown(pending))))
    elif not options.list and any(map(pending.is_open, pending.chosen)) and _in_terminal():
        from .prompt import ask

        ask(pending)
    else:
        print("\n".join(map(one_line, listing(pending))))
    if pending.unreadable:
        return EXIT_TROUBLE
    return EXIT_DIFFERENT if any(map(pending.is_open, pending.chosen)) else EXIT_OK


def _in_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _store(pending: PendingUpdates, *, dry_run: bool) -> bool:
    """Store the chosen graphs, and print what happened to each.

    Return True if all of them are stored, now or earlier.
    """
    from .prompt import accept, outcome

    accepted = accept(pending, pending.chosen, pending.numbers, dry_run=dry_run)
    lines = [*outcome(accepted, dry_run=dry_run)]
    lines += (f"! {problem}" for problem in pending.unreadable)
    if not lines:
        lines = ["nothing to write: all chosen graphs are already stored"]
    print("\n".join(map(one_line, lines)))
    return not (pending.unreadable or accepted.held or accepted.refused)
