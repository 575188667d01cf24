"""Making updates that wait: a file is written whole, for all of its causes, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ...errors import OutsideRootError, TorchGraphError
from ...snapshot.files import read_text, remove_file, write_text
from .waiting import Update, Waiting


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of accepting causes.

    Attributes:
        written: the updates that were made, or would be: "created", "updated" or "removed".
        held: the updates that wait for another cause, with the numbers of all such.
        refused: the updates that cannot be made or could not be written, with the reason.
        outside: those whose file leads outside the root directory, with the reason.
    """

    written: tuple[tuple[Update, str], ...]
    held: tuple[tuple[Update, tuple[int, ...]], ...]
    refused: tuple[tuple[Update, str], ...]
    outside: tuple[tuple[Update, str], ...] = ()


def accept(
    waiting: Waiting,
    updates: Iterable[Update],
    causes: Collection[int] | None = None,
    *,
    dry_run: bool = False,
) -> Accepted:
    """Make updates; those that were made already are left out.

    Args:
        waiting: all updates of the directory.
        updates: those to make.
        causes: the numbers of the causes that are accepted; an update that has others is held.
            None for all.
        dry_run: whether nothing is written.
    """
    written: list[tuple[Update, str]] = []
    held: list[tuple[Update, tuple[int, ...]]] = []
    refused: list[tuple[Update, str]] = []
    outside: list[tuple[Update, str]] = []
    for update in updates:
        state, why = update.state()
        if state == "stored":
            continue
        own = waiting.causes_by_target[update.target]
        others = own - set(own if causes is None else causes)
        if state == "refused":
            refused.append((update, why))
        elif others:
            held.append((update, tuple(sorted(others))))
        else:
            try:
                how = _how(update)
                if not dry_run:
                    _make(update)
                written.append((update, how))
            except OutsideRootError as error:  # a link was made since the updates were read
                outside.append((update, str(error)))
            except TorchGraphError as error:
                refused.append((update, str(error)))
    return Accepted(tuple(written), tuple(held), tuple(refused), tuple(outside))


def _how(update: Update) -> str:
    if update.saved.text is None:
        return "removed"
    return "created" if read_text(update.path) is None else "updated"


def _make(update: Update) -> None:
    if update.saved.text is None:
        remove_file(update.path, root=update.root)
    else:
        write_text(update.path, update.saved.text, root=update.root)


def outcome(accepted: Accepted, *, dry_run: bool = False) -> Iterator[str]:
    """Describe each update that was made, is held or was refused, one line each."""
    for update, written in accepted.written:
        how = f"would be {written}" if dry_run else written
        yield f"{how}  {update.target}: {update.difference.headline}"
    for update, others in accepted.held:
        numbers = ", ".join(map(str, others))
        yield (
            f"waits  {update.target}: it has cause {numbers} as well, and is written whole: accept "
            "that too, or take that edit out of the code and run the tests again"
        )
    for update, why in accepted.refused:
        yield f"refused  {update.said(why)}"
