"""Making updates that wait: a file is written whole, for all of its causes, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import OutsideRootError, TorchGraphError
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
        root: the directory in which it must be.
    """

    path: Path
    before: str | None
    after: str | None
    root: Path

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
        self._write(self.before)

    def make(self) -> None:
        """Write or remove the file.

        Raises:
            TorchGraphError: if that is not possible.
        """
        self._write(self.after)

    def _write(self, text: str | None) -> None:
        if text is None:
            remove_file(self.path, root=self.root)
        else:
            write_text(self.path, text, root=self.root)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of accepting causes.

    Attributes:
        written: the stored files that were written, or would be.
        held: the updates that wait for another cause, with the numbers of all such.
        refused: the updates that cannot be made or could not be written, with the reason.
        outside: those whose file leads outside the root directory, with the reason.
    """

    written: tuple[tuple[Update, Written], ...]
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
    written: list[tuple[Update, Written]] = []
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
                before = read_text(update.path)
                done = Written(update.path, before, update.saved.text, update.root)
                if not dry_run:
                    done.make()
                written.append((update, done))
            except OutsideRootError as error:  # a link was made since the updates were read
                outside.append((update, str(error)))
            except TorchGraphError as error:
                refused.append((update, str(error)))
    return Accepted(tuple(written), tuple(held), tuple(refused), tuple(outside))


def undo(written: Sequence[Written]) -> list[str]:
    """Put files back; why some of them stay as they are."""
    problems = []
    for each in written:
        try:
            each.undo()
        except TorchGraphError as error:
            problems.append(str(error))
    return problems
