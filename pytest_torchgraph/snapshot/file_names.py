"""The names of stored graphs: readable, portable, one for each test, device and release of torch.

The name is the test's own, as in `TestNet.test_step[cpu][forward]`. Where that would not be a safe
or not a unique file name on some file system, characters are replaced and a digest of the exact
original is appended, after a `-`, which no name without digest can end in. That happens for

- characters that a file system forbids, control characters, brackets inside a parameter id;
- upper case and non-ASCII letters in a parameter id or a given name: macOS and Windows take `[A]`
  and `[a]` for the same file. Class and function names are spared, because `TestNet` is what such
  names look like; of several that differ only in case one stays plain, the lower-case one where
  there is one;
- names of more than 255 bytes, and those that Windows reserves (`aux`).

With `torchgraph_releases` the files of all releases but the first have `@torch-2.15` behind the
name, which counts among the 255 bytes.

Of several processes that torchrun started each one has `@rank-1-of-2` there, before the release.

All of it depends on the source of the test alone, not on what else runs or which files exist.

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

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..settings.limits import Releases, why_no_update
from ..torch_release import running_release
from ..words import IN_SUBTEST
from . import SUFFIX

MAX_BYTES = 255
"""The longest file name that ext4 and XFS take."""

DIGEST_LENGTH = 10
"""Hexadecimal digits of SHA-256 in a file name.

They are 40 bits: of 10,000 names two have the same digest with a probability of 1 in 20,000.
"""

RELEASE = "@torch-"
"""What stands between the name of a stored file and the release of torch that it belongs to."""

SHORTEST_CUT = 180
"""Characters at least that are left of a name that was cut."""

MAX_PICTURE_NAME = 100
"""Characters of a test's id in a picture's name; the digest tells names apart that are cut."""

_PLAIN_PARAMETER = re.compile(r"[ !#$%&'()+,\-.0-9;=@^_`a-z{}~]*\Z")
_PLAIN_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IDENTIFIER_GOES_ON = re.compile("[A-Za-z0-9_]")
_TAG = re.compile(rf"{RELEASE}(\d+\.\d+)\Z", re.ASCII)
_RANK = re.compile(r"@(rank-\d+-of-\d+)\Z", re.ASCII)
_FORBIDDEN = '\\/?*:|"<>'
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)\Z", re.IGNORECASE)


def stem_of(item: pytest.Item, index: str | int, release: str = "", rank: str = "") -> str:
    """The name of the stored file for one comparison of a test, without the suffix.

    Args:
        item: the test.
        index: the name that the test gives to the comparison, or how many came before it.
        release: the release of torch that the file belongs to, which goes behind the name; "" for
            the first one, whose file has no release in its name.
        rank: that of this process among several, as `rank-1-of-2`; "" where it is alone.
    """
    nodes = [node for node in item.listchain() if isinstance(node, pytest.Class)]
    callspec = getattr(item, "callspec", None)
    parameters = [] if callspec is None else [callspec.id]
    name = item.name if callspec is None else getattr(item, "originalname", None) or item.name
    if isinstance(index, str):
        subtest, _, own = index.rpartition(IN_SUBTEST)
        parameters += [part for part in (subtest, own) if part]
    identifiers = [*(node.name for node in nodes), name]
    owners = [node.parent for node in (*nodes, item)]
    plain = (
        all(_PLAIN_IDENTIFIER.match(part) for part in identifiers)
        and all(_PLAIN_PARAMETER.match(part) for part in parameters)
        and not any(map(_has_twin, identifiers, owners))
    )
    readable = ".".join(identifiers) + "".join(f"[{part}]" for part in parameters)
    if isinstance(index, int) and index:
        readable += f".{index}"
    tag = (f"@{rank}" if rank else "") + (f"{RELEASE}{release}" if release else "")
    exact = repr((identifiers, parameters, index))
    return _file_stem(readable, exact, plain, f"{tag}.{SUFFIX}") + tag


def release_in(stem: str) -> tuple[str, str]:
    """The name of a stored file without the release of torch behind it, and the release.

    The release is "" for none: no name of a test ends in one, since `@` stands in brackets there,
    or before a digest.
    """
    found = _TAG.search(stem)
    return (stem[: found.start()], found[1]) if found else (stem, "")


def rank_in(stem: str) -> tuple[str, str]:
    """The name of a stored file without the rank of a process behind it, and the rank; "" for none.

    Args:
        stem: the name, without a release.
    """
    found = _RANK.search(stem)
    return (stem[: found.start()], found[1]) if found else (stem, "")


def may_be_of(stem: str, nodeid: str) -> bool:
    """Whether a stored file may be of a test, whatever the test's parameters: True where in doubt.

    Args:
        stem: the name of the file, without a release of torch, a rank and the suffix.
        nodeid: the id of the test, of which its file is not looked at.
    """
    identifiers = nodeid.partition("::")[2].partition("[")[0].split("::")
    if not all(map(_PLAIN_IDENTIFIER.match, identifiers)):
        return True
    name = ".".join(identifiers)
    if stem.startswith(name):
        return not _IDENTIFIER_GOES_ON.match(stem, len(name))
    cut = stem[: -DIGEST_LENGTH - 1]
    return len(cut) >= SHORTEST_CUT and name.startswith(cut)


def picture_stem(nodeid: str, name: str) -> str:
    """The name of the picture for one comparison, without the suffix; it always has a digest.

    Args:
        nodeid: the test's id.
        name: the name of the stored file.
    """
    readable = f"{nodeid.rpartition('/')[2].replace('::', '.')}"[:MAX_PICTURE_NAME]
    return _file_stem(readable, repr((nodeid, name)), False, ".received.tgraph")


def _has_twin(name: str, owner: Any) -> bool:
    """Whether another name of the same module or class differs in case only, and comes first.

    Of several such names the lower-case one stays plain, else the first one in order.
    """
    lower = name.lower()
    if name == lower:
        return False
    beside = dir(getattr(owner, "obj", None))
    return any(
        other.lower() == lower and (other == lower or other < name)
        for other in beside
        if other != name
    )


def _file_stem(readable: str, exact: str, plain: bool, suffix: str) -> str:
    """A file name that is at most `MAX_BYTES` long with this suffix.

    Args:
        readable: the name that is wanted.
        exact: the text that the digest is of.
        plain: whether the name may stay as it is, without a digest.
        suffix: what the caller puts behind it.
    """
    room = MAX_BYTES - len(suffix)
    if plain and len(readable.encode()) <= room and not _RESERVED.match(readable):
        return readable
    digest = hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    clean = "".join(c if c.isprintable() and c not in _FORBIDDEN else "-" for c in readable)
    cut = clean.encode()[: room - DIGEST_LENGTH - 1].decode("utf-8", "ignore")
    return f"{cut}-{digest}"


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
