"""`review [DIR]`: go through the graphs that tests captured and that differ from the stored ones.

What runs left in a directory, with its causes and their numbers, is read in `waiting`; `accepting`
writes stored files and undoes it; `listing` prints the causes. In a terminal `session` knows what
the keys do, `view` makes the lines of the screen, of texts that `details` has, and `terminal` is
curses.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TorchGraphError
from ..exit_codes import DIFFERENT, SAME, TROUBLE
from ..formats import add_format, print_json, printable

if TYPE_CHECKING:
    from .waiting import Waiting


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "review",
        help="go through the graphs that differ, by cause, and accept them",
        description="Go through the graphs that tests captured and that are not stored: each cause "
        "once, with what it costs and where it is. Accepting one writes the stored files that "
        "--torchgraph-update would have written, without running a test. What was not accepted "
        "waits for the next review. Exit codes: 0 if nothing waits any more, 1 if something does, "
        "2 for trouble.",
    )
    parser.add_argument(
        "directories",
        metavar="DIR",
        type=Path,
        nargs="*",
        help="what `pytest --torchgraph-artifacts=DIR` wrote, here or in CI, in several shards "
        "several; without it, what the last runs here left in pytest's cache",
    )
    parser.add_argument("--list", action="store_true", help="print the causes and their numbers")
    add_root(parser)
    add_format(parser)
    parser.set_defaults(run=run)


def add_root(parser: argparse.ArgumentParser) -> None:
    """Declare `--root`."""
    parser.add_argument(
        "--root",
        type=Path,
        help="pytest's root directory in this checkout (default: the nearest directory, from here "
        "upwards, that has most of the test files)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the causes, or go through them in the terminal.

    Raises:
        TorchGraphError: where nothing can be reviewed.
        OSError: for a directory that is not there.
    """
    from .listing import data, listing, markdown, waits
    from .waiting import find_directories, read_waiting

    waiting = read_waiting(*find_directories(options.directories), root=options.root)
    if options.format == "json":
        print_json(data(waiting))
    elif options.format == "markdown":
        print("\n".join(map(printable, markdown(waiting))))
    elif options.list:
        print("\n".join(map(printable, listing(waiting))))
    elif waits(waiting.states()):
        _go_through(waiting)
    else:
        lines = listing(waiting)
        print("\n".join(map(printable, lines if waiting.unreadable else [next(lines)])))
    if waiting.unreadable:
        return TROUBLE
    return DIFFERENT if waits(waiting.states()) else SAME


def _go_through(waiting: Waiting) -> None:
    from .listing import accept_command, heading
    from .session import Session

    instead = (
        f"`python -m pytest_torchgraph review --list {waiting.directory}` prints the causes, and "
        f"`{accept_command(waiting, '--cause=N')}` accepts one"
    )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise TorchGraphError(f"review needs a terminal: {instead}")
    try:
        from .terminal import TerminalError, show
    except ImportError as error:  # Python on Windows has no curses
        raise TorchGraphError(f"review needs curses ({error}): {instead}") from None
    session = Session(waiting)
    try:
        show(session)
    except TerminalError as error:
        raise TorchGraphError(f"{error}: {instead}") from None
    print(session.summary())
    print(heading(waiting, waiting.states()))
    for problem in waiting.unreadable:
        print(printable(f"! {problem}"))
