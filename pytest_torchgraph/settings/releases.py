"""The releases of torch that have stored graphs of their own: the ini value `torchgraph_releases`.

Importing this module imports no torch: every run of every project reads its settings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from ..torch_release import running_release
from .options import RELEASES as INI

_RELEASE = r"(?a)(0|[1-9]\d*)\.(0|[1-9]\d*)\Z"


class Releases(NamedTuple):
    """The releases of torch for which graphs are stored, each as `major.minor`.

    Attributes:
        listed: the releases; without any there is one stored file, for whatever release runs.
    """

    listed: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The release that owns the file without a release in its name; "" where none is listed."""
        return self.listed[0] if self.listed else ""

    def stores(self, running: str) -> bool:
        """Whether a run on this release stores graphs: where none is listed, every one does."""
        return not self.listed or running in self.listed

    def order(self, running: str) -> tuple[str, ...]:
        """The releases whose files a run compares with: the first of these that has a file.

        Its own, where it is listed; then those that are listed below it, the nearest first; then
        the first of the list.

        Args:
            running: the release that runs; "" for none.
        """
        below = [each for each in self.listed if running and _key(each) < _key(running)]
        own = [running] if running in self.listed else []
        return tuple(
            dict.fromkeys([*own, *sorted(below, key=_key, reverse=True), *self.listed[:1]])
        )


def parse_releases(words: Sequence[str]) -> Releases:
    """The ini value `torchgraph_releases`.

    Raises:
        pytest.UsageError: for a word that is not `major.minor`, and for one that occurs twice.
    """
    for number, word in enumerate(words):
        if not re.match(_RELEASE, word):
            raise pytest.UsageError(
                f"{INI}: {word!r} is not a release of torch, as in {INI} = 2.13 2.15"
            )
        if word in words[:number]:
            raise pytest.UsageError(f"{INI}: {word} is listed twice")
    return Releases(tuple(words))


def refuse_update(releases: Releases) -> None:
    """Refuse an update on a release that is not listed: it would own no file.

    Raises:
        pytest.UsageError: saying which releases are listed.
    """
    running = running_release()
    if not releases.stores(running):
        raise pytest.UsageError(f"--torchgraph-update: {why_no_update(releases, running)}")


def why_no_update(releases: Releases, running: str) -> str:
    """Why a run on a release that is not listed stores nothing, and what to do."""
    listed = f"{INI} = {' '.join(releases.listed)}"
    if not running:
        return f"torch is not installed, and {listed} says which releases of it store graphs"
    return f"torch {running} is not in {listed}: add it there, or update with one that is"


def _key(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
