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

from ..errors import GraphFormatError, TorchGraphError
from ..graph.diff.findings import Place
from ..graph.text.format import format_node
from . import SUFFIX
from .compare import read_stored
from .file_names import ReleaseFiles
from .files import read_bytes, read_text

PENDING_SUFFIX = ".update.json"
VERSION = 2
"""Counted up where the JSON changes so that an older release cannot read it.

Version 1 has no `stored` and no `sources`, and it has the run's own words about the difference,
which are not read.
"""
UNREAD = ("headline", "details", "accept", "difference")
"""The keys of a file that are for people: a review computes its words from the texts."""

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
        stored: the text that was compared with; `None` if there is no file.
        digests: the files that decide about it, each with its `digest`, None for one that is not
            there.
        problem: why the comparison failed where there is no `Comparison`, else "".
        refused: why there is no such update; "" where there is one.
    """

    target: Path
    text: str | None
    stored: str | None
    digests: Mapping[Path, str | None]
    problem: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SavedUpdate:
    """The same as it is saved; paths are relative to pytest's root directory, with `/`.

    Attributes:
        test: the id of the test.
        target, text, stored, refused: as of `PendingUpdate`; without a text and with `refused`,
            what would be written is not known.
        digests: as of `PendingUpdate`.
        sources: the line of the user's code of each place of a finding that has one, by
            `place_key`: a stored text has none. A review shows it as the run's word, and computes
            everything else.
    """

    test: str
    target: str
    text: str | None
    digests: Mapping[str, str | None]
    refused: str
    stored: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def to_json(self, headline: str, accept: str) -> str:
        """Return the content of a file; characters that are not ASCII are escaped.

        Args:
            headline: what is wrong, in one line.
            accept: the command that runs the test again and stores what it captures.
        """
        fields = {name: getattr(self, name) for name in self.__slots__}
        words = {"headline": headline, "accept": accept}
        return json.dumps({"torchgraph_update": VERSION, **words, **fields}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> SavedUpdate:
        """Read what `to_json` gave.

        The file may come from another machine, from a branch of somebody else: whatever is in it,
        an update made of it writes nothing but a whole text of graphs, into a file that
        `graph_snapshot` may have written.

        Args:
            path: the file.

        Raises:
            TorchGraphError: for anything else, in one line.
        """
        try:
            data = json.loads(read_bytes(path).decode("utf-8"))
            version = data.pop("torchgraph_update")
            if version not in (1, VERSION):
                raise TorchGraphError(
                    f"{path} is of version {version}, and this release reads 1 to {VERSION}: use "
                    "the release of pytest-torchgraph that the run had"
                )
            saved = cls(**{key: value for key, value in data.items() if key not in UNREAD})
            saved._check()
        except OSError as error:
            raise TorchGraphError(f"cannot read {path}: {error.strerror or error}") from None
        except GraphFormatError as error:
            where = f"line {error.line} of its text"
            raise TorchGraphError(
                f"{path}: {where} is not one of graphs: {error.problem}"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise TorchGraphError(f"{path} is not a whole file of a run: {reason}") from None
        return saved

    def _check(self) -> None:
        """Refuse values of wrong types, texts that are not graphs, and paths of other files.

        Raises:
            ValueError: saying which. A `GraphFormatError` has the position in the text.
        """
        texts = (self.test, self.target, self.refused)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a text is missing")
        if any("\0" in text for text in (*texts, *self.digests)):
            raise ValueError("a text has a null character")
        for text in (*texts, *self.digests):
            text.encode()  # json.loads takes half of a surrogate pair, which no file can have
        if not all(isinstance(text, str | None) for text in (self.text, self.stored)):
            raise ValueError("the graphs are missing")
        digest(self.stored)  # which may have bytes that are not UTF-8, and no other surrogates
        for source in self.sources.values():
            source.encode()
        for name, found in self.digests.items():
            if not isinstance(found, str | None):
                raise ValueError(f"{name!r} has no digest")
        if self.refused:
            return
        if self.target not in self.digests:
            raise ValueError(f"nothing is known of {self.target!r}")
        for name in (self.target, *self.digests):
            if not _is_stored_graph(name):
                raise ValueError(f"{name!r} is no path of a stored graph below the root directory")
        if self.text is not None:
            read_stored(self.text)
        elif self.successor is None:
            raise ValueError("it removes a stored graph, and no other one takes its place")

    @property
    def compared(self) -> str | None:
        """The file that was compared with: the target, else the first that was there."""
        there = [name for name, found in self.digests.items() if found is not None]
        return self.target if self.target in there else next(iter(there), None)

    @property
    def successor(self) -> str | None:
        """The file of another release that makes the target unnecessary, if it is removed."""
        names = (name for name, found in self.digests.items() if found and name != self.target)
        return next(names, None)


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
    return PendingUpdate(
        files.own or compared, text, stored, digests, problem, files.why_not_written()
    )


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


def place_key(place: Place) -> str:
    """Return a digest of the primary change of a place: its graph, and its nodes as text."""
    change = place.changes[0]
    nodes = [node and format_node(node) for node in (change.before, change.after)]
    return str(digest(json.dumps([place.graph, *nodes])))[:16]


def digest(text: str | None) -> str | None:
    """The SHA-256 of a stored text, as `files.read_text` gives it; None for no file."""
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
