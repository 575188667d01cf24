"""The torch releases with stored graphs of their own.

This module does not import torch: every run of every project reads its settings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from ..torch_release import running_release
from .options import RELEASES

_RELEASE = r"(?a)(0|[1-9]\d*)\.(0|[1-9]\d*)\Z"


class Releases(NamedTuple):
    """The torch releases for which graphs are stored, each as `major.minor`.

    Attributes:
        listed: the releases; if empty, all releases share one stored file.
    """

    listed: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """Release that owns the file without a release in its name; "" if none is listed."""
        return self.listed[0] if self.listed else ""

    def stores(self, running: str) -> bool:
        """Return True if a run on this release stores graphs; always True if none is listed."""
        return not self.listed or running in self.listed

    def order(self, running: str) -> tuple[str, ...]:
        """Return the releases whose files a run compares with, by preference.

        The run uses the first release that has a file: its own release if listed, then the listed
        releases below it, nearest first, then the first release of the list.

        Args:
            running: the running release; "" without torch.
        """
        older = [release for release in self.listed if running and _key(release) < _key(running)]
        own_release = [running] if running in self.listed else []
        return tuple(
            dict.fromkeys([*own_release, *sorted(older, key=_key, reverse=True), *self.listed[:1]])
        )


def parse_releases(words: Sequence[str]) -> Releases:
    """Parse the ini value `torchgraph_releases`.

    Raises:
        pytest.UsageError: for a word that is not `major.minor`, and for a repeated word.
    """
    for number, word in enumerate(words):
        if not re.match(_RELEASE, word):
            raise pytest.UsageError(
                f"{RELEASES}: {word!r} is not a torch release: write `{RELEASES} = 2.13 2.15`"
            )
        if word in words[:number]:
            raise pytest.UsageError(f"{RELEASES}: {word} is listed twice")
    return Releases(tuple(words))


def refuse_update(releases: Releases) -> None:
    """Refuse an update on a release that is not listed, since it would own no file.

    Raises:
        pytest.UsageError: with the listed releases.
    """
    running = running_release()
    if not releases.stores(running):
        raise pytest.UsageError(f"--torchgraph-update: {why_no_update(releases, running)}")


def why_no_update(releases: Releases, running: str) -> str:
    """Return why a run on a release that is not listed stores nothing, and the remedy."""
    listed_text = f"{RELEASES} = {' '.join(releases.listed)}"
    if not running:
        return f"torch is not installed: {listed_text} allows updates only on these torch releases"
    return f"torch {running} is not in {listed_text}: add it, or update with a listed release"


def _key(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, to sort by: as text, 2.10 would come before 2.9."""
    return tuple(map(int, release.split(".")))
