"""Stored graphs: `.tgraph` files beside the tests, kept by syrupy, compared as graphs.

    assertion    the fixture `graph_snapshot`, on top of syrupy's; `extension`, its storage
    subject      what a test captured: one program, or several ranks
    compare      that against a stored document, ranks by their classes
    programs     the graphs of one program against the stored ones
    file_names, files, order    names of the files, reading and writing, refused loops
    changes, run, stale, summary    what a run wrote, compared, and may remove
    pending    what an update would have written, to be made later

A test keeps in its stash, under the keys here, what its report needs. This module imports nothing
but pytest, so that tests without graphs pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .compare import Mismatch
    from .pending import PendingUpdate

MISMATCHES: pytest.StashKey[dict[str, Mismatch]] = pytest.StashKey()
"""The failed comparisons of a test's running phase, the last one for each stored file."""

STORED: pytest.StashKey[list[tuple[str, str, str]]] = pytest.StashKey()
"""The files that an update settled in a test's running phase.

Each as "created", "updated", "renamed", "extended", "removed", "unchanged" or "refused", the file's
path, and what is new in it, or why it is refused; "" for nothing.
"""

REPLACED: pytest.StashKey[list[tuple[str, Mismatch]]] = pytest.StashKey()
"""The stored graphs that an update replaced by others in a test's running phase, by file."""

PENDING: pytest.StashKey[dict[str, tuple[str, PendingUpdate | None]]] = pytest.StashKey()
"""The comparisons by `==` of a test's running phase.

By the path of the file that an update writes: the file's name without suffix, and what an update
would do; None where they passed.
"""

DIFFERENCES = "torchgraph_differences"
"""Attribute of a test's report with the data of its failed comparisons."""

USED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether a test has compared anything with the `graph_snapshot` that was made for it."""

COMPARED: pytest.StashKey[list[str]] = pytest.StashKey()
"""The paths of the stored files that a test's running phase compared with."""

SUFFIX = "tgraph"
TEMPORARY = "tgraph-tmp"
"""The suffix of a file that is being written. Its name begins with a dot."""


def hide_from_cleanup(config: pytest.Config) -> None:
    """Keep syrupy from looking for our files, so that it never reports or deletes one."""
    option = config.option
    known = (
        getattr(option, "ignore_file_extensions", None) or []
    )  # an old syrupy has no such option
    ours = [suffix for suffix in (SUFFIX, TEMPORARY) if suffix not in known]
    option.ignore_file_extensions = [*known, *ours]
