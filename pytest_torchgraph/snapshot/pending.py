"""Pending updates: the changes that `--torchgraph-update` would have made to stored files.

For each failed comparison, a run writes a JSON file with the update. `review` can apply the update
later, on another machine, without running the test. An update is valid only if the stored files
have not changed since the comparison, so it contains their digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath, PureWindowsPath

from ..errors import GraphFormatError, TorchGraphError
from ..files import decode, parse_json, read_bytes
from ..graph.diff import Finding, Place
from ..graph.text import format_node
from . import SUFFIX
from .compare import read_stored
from .file_names import DIGEST_AT_END, SHORTEST_CUT, ReleaseFiles, may_be_of, release_in
from .files import read_text

PENDING_SUFFIX = ".update.json"
MAX_FILES = 8
"""Maximum number of digests of an update, which has at most three. Each is a file to read."""
VERSION = 2
"""Version of the JSON, incremented if older releases cannot read a new form.

Version 1 lacks `stored` and `sources`. It has a description of the difference instead, which this
release ignores.
"""
UNREAD = ("headline", "details", "accept", "difference")
"""Keys that only people read. A review computes its description from the texts."""

SHARED_FILE = (
    "several comparisons of this test use this file: give every comparison its own "
    "graph_snapshot(name=...)"
)
OUTSIDE = "the stored file is outside pytest's root directory"


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """The update of one comparison, as seen by the run.

    Attributes:
        target: the file to write or remove.
        text: the text to write; `None` to remove the file.
        stored: the stored text of the comparison; `None` if there is no file.
        digests: the `digest` of each file that the update depends on; `None` for a missing file.
        problem: the reason for the failure if there is no `Comparison`, else "".
        refused: the reason why the update is impossible; "" if it is possible.
    """

    target: Path
    text: str | None
    stored: str | None
    digests: Mapping[Path, str | None]
    problem: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SavedUpdate:
    """A pending update as saved; paths are relative to pytest's root directory and use `/`.

    Attributes:
        test: the id of the test.
        target, text, stored, refused: as in `PendingUpdate`. If `refused` is set and `text` is
            `None`, the new text is unknown.
        digests: as in `PendingUpdate`.
        sources: the line of user code of each place of a finding that has one, by `place_key`.
            Stored texts have no source lines, so a review quotes these lines as recorded by the
            run.
        lines: `Identity.line` of each of these places. With it, a review groups as the run did.
    """

    test: str
    target: str
    text: str | None
    digests: Mapping[str, str | None]
    refused: str
    stored: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)

    def to_json(self, headline: str, accept: str) -> str:
        """Return the content of the JSON file; non-ASCII characters are escaped.

        Args:
            headline: the problem in one line.
            accept: the command that reruns the test and stores its graphs.
        """
        fields = {name: getattr(self, name) for name in self.__slots__}
        words = {"torchgraph_update": VERSION, "headline": headline, "accept": accept}
        return json.dumps({**words, **fields}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> SavedUpdate:
        """Read a file with the content of `to_json`.

        The file is untrusted, because it may come from a stranger's branch. For any content, an
        update writes only complete texts of graphs, and only to paths that `graph_snapshot` uses.

        Args:
            path: the file.

        Raises:
            TorchGraphError: for any other content, in one line.
        """
        try:
            # Of another JSON value than an object, `pop` or its result raises one of those below.
            data = parse_json(read_bytes(path).decode("utf-8"))
            version = data.pop("torchgraph_update")
            if version not in (1, VERSION):
                raise TorchGraphError(
                    f"{path} has version {version}, and this release reads 1 to {VERSION}: use "
                    "the release of pytest-torchgraph that wrote it"
                )
            fields = {key: value for key, value in data.items() if key not in UNREAD}
            saved: SavedUpdate = decode(cls, fields, "update")
            saved._check()
        except OSError as error:
            raise TorchGraphError(f"cannot read {path}: {error.strerror or error}") from None
        except GraphFormatError as error:
            location = f"line {error.line} of its text"
            raise TorchGraphError(f"{path}: invalid {location}: {error.problem}") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise TorchGraphError(
                f"{path} is incomplete, or was not written by pytest-torchgraph: {reason}. "
                "Delete the file and run the tests again"
            ) from None
        return saved

    def _check(self) -> None:
        """Refuse texts that are not graphs, and paths that are not stored graphs.

        Raises:
            ValueError: with the invalid value. A `GraphFormatError` has the position in the text.
        """
        texts = (self.test, self.target, self.refused, *self.digests)
        for text in (*texts, *self.sources.values(), *self.lines.values()):
            if "\0" in text:
                raise ValueError("a text field has a null character")
            text.encode()  # json.loads accepts a lone surrogate, which no file name can contain
        # Surrogates that stand for non-UTF-8 bytes are allowed; `digest` fails on any other
        # surrogate.
        digest(self.stored)
        # A refused update writes nothing, so its paths need no check.
        if self.refused:
            return
        if self.target not in self.digests:
            raise ValueError(f"target {self.target!r} has no digest")
        if len(self.digests) > MAX_FILES:
            raise ValueError(f"it has digests of {len(self.digests)} files")
        for name in (self.target, *self.digests):
            if not _is_stored_graph(name):
                raise ValueError(
                    f"{name!r} is not the path of a stored graph below the root directory"
                )
            if not _store_one_graph(name, self.target):
                raise ValueError(f"{name!r} stores another graph than {self.target!r}")
        if self.text is not None:
            read_stored(self.text)
        elif self.successor is None:
            raise ValueError("it removes a stored graph, but names no replacement")

    @property
    def is_of_its_test(self) -> bool:
        """True if the target may be a stored graph of the test.

        `review` asks about tests, and an update of a stranger may name any test.
        """
        path, test_path = PurePosixPath(self.target), PurePosixPath(self.test.partition("::")[0])
        directory = test_path.parent / "__snapshots__" / test_path.stem
        return path.parent == directory and may_be_of(release_in(path.stem)[0], self.test)

    @property
    def is_named_after_its_test(self) -> bool:
        """True if the target's path says the same as the id of the test."""
        name = self.test.partition("::")[2].replace("::", ".")
        return self.is_of_its_test and PurePosixPath(self.target).stem == name

    @property
    def compared(self) -> str | None:
        """File that the run compared with: the target if it existed, else the first that did."""
        existing = [name for name, file_digest in self.digests.items() if file_digest is not None]
        return self.target if self.target in existing else next(iter(existing), None)

    @property
    def successor(self) -> str | None:
        """File of another release in `digests`, the first that exists.

        If the update removes the target, which `pending_update` decides, it has an equal graph.
        """
        names = (
            name
            for name, file_digest in self.digests.items()
            if file_digest and name != self.target
        )
        return next(names, None)


def pending_update(
    files: ReleaseFiles, stored: str | None, text: str | None, problem: str
) -> PendingUpdate:
    """Return the update for a comparison that failed.

    Args:
        files: the files that may store the graph.
        stored: the stored text of the comparison; `None` if there is no file.
        text: the text to write; `None` to remove this release's file.
        problem: as in `PendingUpdate`.
    """
    # All files that decide whether, and where, an update writes.
    compared = files.compared[1]
    digests = {compared: digest(stored)}
    for path in (files.own, files.next and files.next[1]):
        if path is not None and path != compared:
            digests[path] = digest(read_text(path))
    return PendingUpdate(
        files.own or compared, text, stored, digests, problem, files.why_not_written()
    )


def merge_updates(
    earlier: PendingUpdate | None, later: PendingUpdate | None
) -> PendingUpdate | None:
    """Merge two comparisons of a test with the same file; `None` is a comparison that passed."""
    latest = later or earlier
    # Also if one passed and one failed: the file would be right for one of them only.
    are_equal = earlier and later and (earlier.text, earlier.refused) == (later.text, later.refused)
    return latest if are_equal or latest is None else replace(latest, refused=SHARED_FILE)


def _store_one_graph(name: str, other: str) -> bool:
    """Return True if two paths may be those of a stored graph for several releases."""
    paths = PurePosixPath(name), PurePosixPath(other)
    stems = [release_in(path.stem)[0] for path in paths]
    # A long name is cut to make room for the release, and then ends with a digest of all of it.
    ends = {match[0] for stem in stems if (match := DIGEST_AT_END.search(stem))}
    if len(ends) == 1:  # the same digest, so compare what no cut removes
        stems = [stem[:SHORTEST_CUT] for stem in stems]
    return paths[0].parent == paths[1].parent and stems[0] == stems[1]


def _is_stored_graph(name: str) -> bool:
    """Return True if a relative path may be the path of a stored file."""
    # Artifacts may come from a stranger's branch. On no system may the path lead to another file.
    path = PurePosixPath(name)
    return (
        str(path) == name  # a file has one spelling
        and not path.is_absolute()
        and not PureWindowsPath(name).drive
        and ".." not in path.parts
        and "__snapshots__" in path.parts[:-1]
        and path.suffix == f".{SUFFIX}"
        and "\\" not in name
    )


def place_key(finding: Finding, place: Place) -> str:
    """Return a digest of a place's primary change: its graph, and its nodes as text.

    A graph break has no nodes. It is its module, its kind and function, and the side that has it.
    """
    change = place.changes[0] if place.changes else None
    nodes = [n and format_node(n) for n in (change.before, change.after)] if change else []
    if not nodes:
        nodes.append(place.module)
    if cut := finding.graph_break:
        nodes += [finding.kind, cut.kind, cut.function]
    return str(digest(json.dumps([place.graph, *nodes])))[:16]


def digest(text: str | None) -> str | None:
    """Return the SHA-256 of a text read by `files.read_text`; `None` for a missing file."""
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
