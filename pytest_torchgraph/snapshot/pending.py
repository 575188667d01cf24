"""Updates of stored files that a run did not make: what `--torchgraph-update` would have written.

A comparison that fails leaves one behind, as a JSON file, so that it can be made later: without
running the test again, and on another machine. It holds only if the stored files are still those
that were compared; hence their digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from ..errors import TorchGraphError
from . import SUFFIX
from .files import read_text
from .release_files import ReleaseFiles

PENDING_SUFFIX = ".update.json"
VERSION = 1
"""Counted up where the JSON changes so that an older release cannot read it."""

SEVERAL = (
    "this test compares several graphs with this file, and an update stores one of them: give "
    "each comparison a name="
)
OUTSIDE = "the stored file is outside of pytest's root directory"


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """What an update would do for one comparison, as the run knows it.

    Attributes:
        target: the file that it writes or removes.
        text: what it writes; None where it removes the file.
        digests: the files that decide about it, each with its `digest`, None for one that is not
            there.
        problem: why the comparison failed where there is no `Mismatch`, else "".
        refused: why there is no such update; "" where there is one.
    """

    target: Path
    text: str | None
    digests: Mapping[Path, str | None]
    problem: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SavedUpdate:
    """The same as it is saved; paths are relative to pytest's root directory, with `/`.

    Attributes:
        test: the id of the test.
        target, text, refused: as of `PendingUpdate`; without a text and with `refused`, what would
            be written is not known.
        digests: as of `PendingUpdate`.
        headline: what is wrong, in one line.
        details: further lines about it.
        accept: the command that runs the test again and stores what it captures.
        difference: the findings, see `report.comparisons.difference_data`.
    """

    test: str
    target: str
    text: str | None
    digests: Mapping[str, str | None]
    refused: str
    headline: str
    details: tuple[str, ...]
    accept: str
    difference: Mapping[str, Any] = field(repr=False)

    def to_json(self) -> str:
        """The content of a file; characters that are not ASCII are escaped."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({"torchgraph_update": VERSION, **fields}, indent=1) + "\n"

    @classmethod
    def from_json(cls, content: str | bytes, path: Path) -> SavedUpdate:
        """What `to_json` gave.

        The file may come from another machine: nothing in it makes an update write anything but a
        stored graph below the root directory.

        Args:
            content: of the file.
            path: the file, for messages.

        Raises:
            TorchGraphError: for anything else.
        """
        try:
            data = json.loads(content)
            version = data.pop("torchgraph_update")
            if version != VERSION:
                raise TorchGraphError(
                    f"{path} is of version {version}, and this release reads {VERSION}: use the "
                    "release of pytest-torchgraph that the run had"
                )
            saved = cls(**{**data, "details": tuple(data["details"])})
            saved._check()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise TorchGraphError(f"{path} is not a whole file of a run: {reason}") from None
        return saved

    def _check(self) -> None:
        """Refuse values of wrong types, and paths that are not those of stored graphs.

        Raises:
            ValueError: saying which.
        """
        texts = (self.test, self.target, self.refused, self.headline, self.accept, *self.details)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a text is missing")
        if any("\0" in text for text in texts):
            raise ValueError("a text has a null character")
        if not isinstance(self.text, str | None) or not isinstance(self.difference, dict):
            raise ValueError("the graphs or the findings are missing")
        if self.text is not None and not self.text.startswith("torchgraph "):
            raise ValueError("its text is not one of graphs")
        for name, found in self.digests.items():
            if not isinstance(found, str | None):
                raise ValueError(f"{name!r} has no digest")
        if not self.refused and self.target not in self.digests:
            raise ValueError(f"nothing is known of {self.target!r}")
        for name in (self.target, *self.digests):
            if not self.refused and not _is_stored_graph(name):
                raise ValueError(f"{name!r} is no path of a stored graph below the root directory")


def pending_update(
    files: ReleaseFiles, stored: str | None, text: str | None, problem: str = ""
) -> PendingUpdate:
    """What an update would do for a comparison that failed.

    Args:
        files: those in which the graph may be stored.
        stored: the text that was compared with; None where there is no file.
        text: what the update writes; None where it removes this release's file.
        problem: as of `PendingUpdate`.
    """
    compared = files.compared[1]
    digests = {compared: digest(stored)}
    for path in (files.own, files.next and files.next[1]):
        if path is not None and path != compared:
            digests[path] = digest(read_text(path))
    return PendingUpdate(files.own or compared, text, digests, problem, files.why_not_written())


def joined(earlier: PendingUpdate | None, later: PendingUpdate | None) -> PendingUpdate | None:
    """Two comparisons of a test with one file as one; None for one that passed."""
    known = later or earlier
    same = earlier and later and (earlier.text, earlier.refused) == (later.text, later.refused)
    return known if same or known is None else replace(known, refused=SEVERAL)


def _is_stored_graph(name: str) -> bool:
    """Whether a relative path is one that `graph_snapshot` gives to a stored file."""
    path = PurePosixPath(name)
    return (
        not path.is_absolute()
        and not PureWindowsPath(name).drive
        and ".." not in path.parts
        and "__snapshots__" in path.parts[:-1]
        and path.suffix == f".{SUFFIX}"
        and "\\" not in name
    )


def digest(text: str | None) -> str | None:
    """The SHA-256 of a stored text, as `files.read_text` gives it; None for no file."""
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
