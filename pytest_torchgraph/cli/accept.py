"""`accept --from=DIR`: store the graphs that tests captured, without running them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TorchGraphError
from .exit_codes import DIFFERENT, SAME, TROUBLE
from .formats import printable
from .review import add_root

if TYPE_CHECKING:
    from .review.accepting import Accepted
    from .review.waiting import Waiting


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "accept",
        help="store the graphs that a run captured, without running it again",
        description="Write the stored files that --torchgraph-update would have written. A file is "
        "written only if it still is the one that was compared, and only if all of its causes are "
        "accepted. Exit codes: 0 if all that was asked for is stored, 1 if some of it still waits, "
        "2 for trouble.",
    )
    parser.add_argument(
        "--from",
        dest="directories",
        metavar="DIR",
        type=Path,
        action="append",
        required=True,
        help="what `pytest --torchgraph-artifacts=DIR` wrote, here or in CI; of several shards, "
        "once for each",
    )
    parser.add_argument(
        "--cause",
        metavar="N",
        type=_numbers,
        action="extend",
        help="only this one, by its number in `review --list`; several as 2,3",
    )
    parser.add_argument(
        "--test",
        metavar="ID",
        action="append",
        help="only this test, or those of this file or directory; can be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written")
    add_root(parser)
    parser.set_defaults(run=run)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of a cause, and no list as 2,3"
        ) from None


def run(options: argparse.Namespace) -> int:
    """Store the graphs.

    Raises:
        TorchGraphError: for a cause or a test that is not there.
        OSError: for a directory that is not there.
    """
    from .review.accepting import accept
    from .review.waiting import find_directories, read_waiting

    waiting = read_waiting(*find_directories(options.directories), root=options.root)
    nothing_left = waiting.unreadable and not waiting.updates
    chosen = set() if nothing_left else _chosen(waiting, options.cause, options.test)
    updates = [update for update in waiting.updates if update.target in chosen]
    accepted = accept(waiting, updates, options.cause, dry_run=options.dry_run)
    for line in _lines(accepted, dry_run=options.dry_run):
        print(printable(line))
    problems = [*waiting.unreadable, *(why for _, why in accepted.outside)]
    for problem in problems:
        print(printable(f"! {problem}"))
    if problems:
        return TROUBLE
    if not (accepted.written or accepted.held or accepted.refused):
        print("nothing to write: all of it is stored already")
    return DIFFERENT if accepted.held or accepted.refused else SAME


def _chosen(waiting: Waiting, causes: list[int] | None, tests: list[str] | None) -> set[str]:
    """The stored files that are meant.

    Raises:
        TorchGraphError: for a number or a test that means none.
    """
    targets = {update.target for update in waiting.updates}
    if causes is not None:
        known = {cause.number: cause for cause in waiting.causes}
        for number in causes:
            if number not in known:
                raise TorchGraphError(
                    f"there is no cause {number}: {waiting.directory} has 1 to {len(known)}, see "
                    f"`python -m pytest_torchgraph review --list {waiting.directory}`"
                )
        targets &= {name for number in causes for name in known[number].words.files}
    if tests is not None:
        found: set[str] = set()
        for test in tests:
            of_test = {u.target for u in waiting.updates if _is_of(u.saved.test, test)}
            if not of_test:
                raise TorchGraphError(f"{waiting.directory} has nothing of a test {test}")
            found |= of_test
        targets &= found
    if not targets:
        raise TorchGraphError("no stored file has such a cause and is of such a test")
    return targets


def _is_of(nodeid: str, test: str) -> bool:
    """Whether a test is the one that is named, or one in the file or directory that is."""
    test = test.rstrip("/")
    return nodeid == test or nodeid.startswith((f"{test}::", f"{test}/", f"{test}["))


def _lines(accepted: Accepted, *, dry_run: bool) -> Iterator[str]:
    for update, written in accepted.written:
        how = f"would be {written.how}" if dry_run else written.how
        yield f"{how}  {update.target}: {update.difference.headline}"
    for update, others in accepted.held:
        numbers = ", ".join(map(str, others))
        yield (
            f"waits  {update.target}: it has cause {numbers} as well, and is written whole: accept "
            "that too, or take that edit out of the code and run the tests again"
        )
    for update, why in accepted.refused:
        yield f"refused  {update.said(why)}"
