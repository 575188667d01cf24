"""File names for stored graphs and pictures: readable, portable, one for each test.

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
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

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
