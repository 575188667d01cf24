"""Names of stored graphs: readable, portable, and unique per test, device and torch release.

A file has the name of its test, for example `TestNet.test_step[cpu][forward]`. If the name is not
safe or not unique on some file system, characters are replaced, and a `-` and a digest of the exact
original name are appended. No name without a digest can end like this. A digest is necessary for

- characters that a file system forbids, control characters, and brackets inside a parameter id;
- upper-case and non-ASCII letters in a parameter id or a given name: on macOS and Windows `[A]` and
  `[a]` are the same file. Class and function names are exempt, because names like `TestNet` are
  the rule;
- names of more than 255 bytes, and names that Windows reserves (`aux`).

With `torchgraph_releases`, the files of all releases except the first have the suffix
`@torch-2.15`, which counts towards the 255 bytes. If torchrun started several processes, each
process has the suffix `@rank-1-of-2`, before the release.

A name depends only on the source of the test, not on the other tests in the run or on existing
files.

The first release of the list owns `NAME.tgraph`, and `NAME@torch-2.15.tgraph` belongs to 2.15. A
run compares with the first existing file in this order: the file of its own release, the files of
listed releases below it, nearest first, and the file of the first release.

An update writes and removes only the file of its own release. It does not write the file if the
*next* file of the order exists and has an equal graph. An equal graph further down does not
suffice: a release in between could store another graph later, and the file to compare with would
depend on which release updated first. Therefore, for any order of updates:

- after an update, the running release compares with a file that holds the captured graph;
- after each release has updated since the graphs changed, every existing file holds the graph of
  its own release. A release that compares with a different graph fails, and its next update gives
  it a file;
- if nothing was stored before, or after each release has updated once more, every release compares
  with a graph equal to its own. Further updates do not change this, although they may still remove
  a file or store a copy of a removed file.

The order of updates decides which files exist, but not which graph a release compares with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

from ..settings.releases import Releases, why_no_update
from ..torch_release import running_release
from ..words import IN_SUBTEST
from . import DIFFERENCE_SUFFIX, SUFFIX

MAX_BYTES = 255
"""Maximum length of a file name on ext4 and XFS, in bytes."""

DIGEST_LENGTH = 10
"""Number of hexadecimal digits of SHA-256 in a file name.

The 40 bits collide among 10,000 names with a probability of 1 in 20,000.
"""

RELEASE = "@torch-"
"""Separator between the name of a stored file and its torch release."""

SHORTEST_CUT = 180
"""Minimum length of a truncated name, in characters."""

MAX_PICTURE_NAME = 100
"""Maximum length of a test id in a picture's name; the digest distinguishes truncated names."""

_PLAIN_PARAMETER = re.compile(r"[ !#$%&'()+,\-.0-9;=@^_`a-z{}~]*\Z")
_PLAIN_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IDENTIFIER_CHARACTER = re.compile("[A-Za-z0-9_]")
_TAG = re.compile(rf"{RELEASE}(\d+\.\d+)\Z", re.ASCII)
DIGEST_AT_END = re.compile(rf"-[0-9a-f]{{{DIGEST_LENGTH}}}(@rank-\d+-of-\d+)?\Z")
"""The end of a name that is not the readable name of its test."""
_RANK = re.compile(r"@(rank-\d+-of-\d+)\Z", re.ASCII)
_FORBIDDEN = '\\/?*:|"<>'
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)\Z", re.IGNORECASE)


def stem_of(item: pytest.Item, name_or_number: str | int, release: str = "", rank: str = "") -> str:
    """Return the name, without suffix, of the stored file for one comparison of a test.

    Args:
        item: the test.
        name_or_number: the name given to the comparison, or the number of earlier comparisons.
        release: the torch release that the file belongs to, appended to the name; "" for the
            first release, whose file names no release.
        rank: the rank of this process, as `rank-1-of-2`; "" for a single process.
    """
    classes = [node for node in item.listchain() if isinstance(node, pytest.Class)]
    callspec = getattr(item, "callspec", None)
    parameters = [] if callspec is None else [callspec.id]
    # pytest's `name` of a parametrized test contains the id, which is added below in another form.
    name = item.name if callspec is None else getattr(item, "originalname", None) or item.name
    if isinstance(name_or_number, str):
        subtest, _, name_part = name_or_number.rpartition(IN_SUBTEST)
        parameters += [part for part in (subtest, name_part) if part]
    identifiers = [*(node.name for node in classes), name]
    plain = all(_PLAIN_IDENTIFIER.match(part) for part in identifiers) and all(
        _PLAIN_PARAMETER.match(part) for part in parameters
    )
    readable = ".".join(identifiers) + "".join(f"[{part}]" for part in parameters)
    if isinstance(name_or_number, int) and name_or_number:
        readable += f".{name_or_number}"
    tag = (f"@{rank}" if rank else "") + (f"{RELEASE}{release}" if release else "")
    # Of the exact names, without the tag: the files of a comparison have one digest.
    identity = repr((identifiers, parameters, name_or_number))
    return _file_stem(readable, identity, plain, f"{tag}.{SUFFIX}") + tag


def stem_in(path: Path) -> str:
    """Return the name of a stored file without its suffix."""
    name = path.name.removesuffix(f".{DIFFERENCE_SUFFIX}")
    return name.removesuffix(f".{SUFFIX}")


def release_in(stem: str) -> tuple[str, str]:
    """Split the name of a stored file into the name without its torch release, and the release.

    The release is "" if there is none. No test name can end in a release, because `@` only occurs
    inside brackets or before a digest.
    """
    return _split(stem, _TAG)


def rank_in(stem: str) -> tuple[str, str]:
    """Split the name of a stored file into the name without its rank, and the rank or "".

    Args:
        stem: the name, without a release.
    """
    return _split(stem, _RANK)


def _split(stem: str, end: re.Pattern[str]) -> tuple[str, str]:
    """Split a name before a tag at its end. Return the rest, and the tag's group 1, or ""."""
    match = end.search(stem)
    return (stem[: match.start()], match[1]) if match else (stem, "")


def may_be_of(stem: str, nodeid: str) -> bool:
    """Return True if a stored file may belong to a test with any parameters; also if in doubt.

    Args:
        stem: the name of the file, without torch release, rank and suffix.
        nodeid: the id of the test; the test file in the id is ignored.
    """
    identifiers = nodeid.partition("::")[2].partition("[")[0].split("::")
    # Other characters may be replaced in the name.
    name = ".".join(takewhile(_PLAIN_IDENTIFIER.match, identifiers))
    if not name:
        return True
    if stem.startswith(name):  # `test_a` is not the test of `test_ab`
        return not _IDENTIFIER_CHARACTER.match(stem, len(name))
    # Otherwise the file can only have a truncated name of the test: its beginning, a `-` and the
    # digest.
    truncated = stem[: -DIGEST_LENGTH - 1]
    return len(truncated) >= SHORTEST_CUT and name.startswith(truncated)


def picture_stem(nodeid: str, name: str) -> str:
    """Return the name, without suffix, of a comparison's picture, always with a digest.

    Args:
        nodeid: the id of the test.
        name: the name of the stored file.
    """
    readable = f"{nodeid.rpartition('/')[2].replace('::', '.')}"[:MAX_PICTURE_NAME]
    return _file_stem(readable, repr((nodeid, name)), False, ".received.tgraph")


def _file_stem(readable: str, exact: str, plain: bool, suffix: str) -> str:
    """Return a file name whose length with the suffix is at most `MAX_BYTES`.

    Args:
        readable: the preferred name.
        exact: the text to digest.
        plain: True if the preferred name is safe without a digest.
        suffix: the suffix that the caller appends.
    """
    max_bytes = MAX_BYTES - len(suffix)
    if plain and len(readable.encode()) <= max_bytes and not _RESERVED.match(readable):
        return readable
    # A test id can contain lone surrogates, which plain UTF-8 refuses.
    digest = hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    clean = "".join(c if c.isprintable() and c not in _FORBIDDEN else "-" for c in readable)
    # The limit is in bytes: "ignore" drops a character that the cut divides.
    truncated = clean.encode()[: max_bytes - DIGEST_LENGTH - 1].decode("utf-8", "ignore")
    return f"{truncated}-{digest}"


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """The files that may store the graph of one comparison, for the running release.

    Attributes:
        releases: the releases with files of their own.
        running: the running torch release; "" without `torchgraph_releases`.
        candidates: the (release, file) pairs, in order: a file counts only if no earlier file
            exists.
    """

    releases: Releases
    running: str
    candidates: tuple[tuple[str, Path], ...]

    @property
    def own(self) -> Path | None:
        """File that an update writes; `None` if the running release is not listed."""
        release, file = self.candidates[0]
        # Without `torchgraph_releases`, both are "".
        return file if release == self.running else None

    @property
    def next(self) -> tuple[str, Path] | None:
        """File that can make `own` redundant, with its release; `None` if there is none."""
        # Only the next file counts: a release in between may store another graph later.
        is_first = self.running == self.releases.first
        return None if is_first or self.own is None else self.candidates[1]

    @property
    def compared(self) -> tuple[str, Path]:
        """File to compare with, and its release; the file to be stored if none exists."""
        if len(self.candidates) == 1:  # as in most projects: no file is looked for
            return self.candidates[0]
        return next(
            (candidate for candidate in self.candidates if candidate[1].exists()),
            self.candidates[0],
        )

    def why_compared(self, release: str) -> str:
        """Return why a run compares with this release's file; "" if the release is running."""
        if release == self.running:
            return ""
        is_listed = self.running in self.releases.listed
        reason = "has no file of its own" if is_listed else "is not in torchgraph_releases"
        running = f"torch {self.running}" if self.running else "the installed torch"
        return f"compared with the graph of torch {release}: {running} {reason}"

    def why_not_written(self) -> str:
        """Return why an update writes no file; "" if it writes a file."""
        return "" if self.own is not None else why_no_update(self.releases, self.running)


def release_files(releases: Releases, path: Callable[[str], Path]) -> ReleaseFiles:
    """Return the files of a comparison.

    Args:
        releases: the releases listed in the ini file.
        path: maps a release to its file, and "" to the file that names no release.
    """
    if not releases.listed:
        return ReleaseFiles(releases, "", (("", path("")),))
    running = running_release()
    order = releases.order(running)
    return ReleaseFiles(
        releases,
        running,
        tuple((release, path("" if release == releases.first else release)) for release in order),
    )
