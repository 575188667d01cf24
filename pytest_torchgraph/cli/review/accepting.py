"""Making updates that wait: a file is written whole, for all of its causes, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import TorchGraphError
from ...snapshot.files import read_text, remove_file, write_text
from ...snapshot.pending import digest
from .waiting import Update, Waiting


@dataclass(frozen=True, slots=True)
class Written:
    """A stored file that was written or removed.

    Attributes:
        path: the file.
        before: its text before; None where there was none.
        after: its text now; None where it was removed.
    """

    path: Path
    before: str | None
    after: str | None

    @property
    def how(self) -> str:
        """As the summary of an update calls it."""
        if self.before is None:
            return "created"
        return "removed" if self.after is None else "updated"

    def undo(self) -> None:
        """Put the file back, if it still is what was written.

        Raises:
            TorchGraphError: if it is not, or cannot be written.
        """
        if digest(read_text(self.path)) != digest(self.after):
            raise TorchGraphError(f"{self.path} has changed meanwhile, and stays as it is")
        _store(self.path, self.before)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of accepting causes.

    Attributes:
        written: the stored files that were written, or would be.
        held: the updates that wait for another cause, with the numbers of all such.
        refused: the updates that cannot be made or could not be written, with the reason.
    """

    written: tuple[tuple[Update, Written], ...]
    held: tuple[tuple[Update, tuple[int, ...]], ...]
    refused: tuple[tuple[Update, str], ...]


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
    written: list[tuple[Update, Written]] = []
    held: list[tuple[Update, tuple[int, ...]]] = []
    refused: list[tuple[Update, str]] = []
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
                done = Written(update.path, read_text(update.path), update.saved.text)
                if not dry_run:
                    _store(done.path, done.after)
                written.append((update, done))
            except TorchGraphError as error:
                refused.append((update, str(error)))
    return Accepted(tuple(written), tuple(held), tuple(refused))


def undo(written: Sequence[Written]) -> list[str]:
    """Put files back; why some of them stay as they are."""
    problems = []
    for each in written:
        try:
            each.undo()
        except TorchGraphError as error:
            problems.append(str(error))
    return problems


def _store(path: Path, text: str | None) -> None:
    if text is None:
        remove_file(path)
    else:
        write_text(path, text)
