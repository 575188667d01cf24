"""The files of one comparison, with `torchgraph_releases` one for each release of torch.

The first release of the list owns `NAME.tgraph`, and `NAME@torch-2.15.tgraph` belongs to 2.15. A
run compares with the first file that exists, in this order: that of its own release, those of the
releases listed below it, the nearest first, and that of the first release.

An update writes and removes the file of its own release and no other. It leaves that out where the
*next* file of the order exists and has an equal graph. That of a release further down would not do:
a release between them could store another graph later, and what the run compares with would
depend on who was first. So, whatever the order of updates:

- an update leaves its own release with a file to compare with that has the graph it captured;
- once each release has updated since the graphs changed, every file that exists has the graph of
  the release it belongs to: a release that compares with a graph other than its own fails, and the
  next update there gives it a file;
- where nothing was stored before, or each has updated once more, every release compares with a
  graph equal to its own, and further updates, which may still remove a file or store a copy of one
  that was removed, change nothing about that.

Which files there are depends on the order, what a release compares with does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..settings.releases import Releases, why_no_update
from ..torch_release import running_release


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """The files in which the graph of one comparison may be stored, for the release at hand.

    Attributes:
        releases: the releases that have files of their own.
        running: the release of torch at hand; "" without `torchgraph_releases`.
        order: the files that count, each with its release, before those that count only where it
            is not there.
    """

    releases: Releases
    running: str
    order: tuple[tuple[str, Path], ...]

    @property
    def own(self) -> Path | None:
        """The file that an update writes; None on a release that is not listed."""
        release, file = self.order[0]
        return file if release == self.running else None

    @property
    def next(self) -> tuple[str, Path] | None:
        """The file and release that make `own` unnecessary; None where nothing does."""
        is_first = self.running == self.releases.first
        return None if is_first or self.own is None else self.order[1]

    @property
    def compared(self) -> tuple[str, Path]:
        """The file to compare with and its release; where there is none, that to be stored."""
        if len(self.order) == 1:
            return self.order[0]
        return next((each for each in self.order if each[1].exists()), self.order[0])

    def why_compared(self, release: str) -> str:
        """Why a run compares with the file of this release; "" where it is its own."""
        if release == self.running:
            return ""
        listed = self.running in self.releases.listed
        why = "has no file of its own" if listed else "is not in torchgraph_releases"
        running = f"torch {self.running}" if self.running else "the torch at hand"
        return f"compared with the graph of torch {release}: {running} {why}"

    def why_not_written(self) -> str:
        """Why an update writes no file; "" where it does."""
        return "" if self.own is not None else why_no_update(self.releases, self.running)


def release_files(releases: Releases, path: Callable[[str], Path]) -> ReleaseFiles:
    """The files of a comparison.

    Args:
        releases: as the ini file lists them.
        path: gives the path of a release's file, and for "" that without a release in its name.
    """
    if not releases.listed:
        return ReleaseFiles(releases, "", (("", path("")),))
    running = running_release()
    order = releases.order(running)
    return ReleaseFiles(
        releases,
        running,
        tuple((each, path("" if each == releases.first else each)) for each in order),
    )
