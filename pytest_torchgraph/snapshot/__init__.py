"""Stored graphs: `.tgraph` files beside the tests, kept by syrupy, compared as graphs.

    assertion            the fixture `graph_snapshot`: syrupy's assertion and its storage
    subject              what a test captured, as a `Program`
    compare              that program against a stored one, ranks by their classes
    file_names, files    names of the files; reading and writing
    run, stale, summary  what a run compared, may remove, and wrote
    pending              what an update would have written, for later
    inline, literals     `assert_graph_text`, and the text in the source of a test

A test keeps in its stash, as a `Record`, what its report needs. This module imports nothing
but pytest, so that tests without graphs pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .compare import Comparison
    from .pending import PendingUpdate


class Record:
    """The comparisons of a test's running phase, for its report.

    Attributes:
        used: True once the test compared anything with its `graph_snapshot`, in any phase.
        compared: the paths of the stored files that were compared.
        stored: the files that an update settled. Each as "created", "updated", "renamed",
            "extended", "removed", "unchanged" or "refused", the file's path, and what is new in it,
            or why it is refused; "" for nothing.
        failed: the failed comparisons, the last one for each stored file.
        replaced: the stored graphs that an update replaced by others, by file.
        pending: the comparisons by `==`, by the path of the file that an update writes: the file's
            name without suffix, and what an update would do; `None` if they passed.
        shown: the page's data of the failed comparisons.
    """

    # No dataclass: making one takes more time than all else that this module does in each run.

    def __init__(self, *, used: bool = False) -> None:
        self.used = used
        self.compared: list[str] = []
        self.stored: list[tuple[str, str, str]] = []
        self.failed: dict[str, Comparison] = {}
        self.replaced: list[tuple[str, Comparison]] = []
        self.pending: dict[str, tuple[str, PendingUpdate | None]] = {}
        self.shown: list[dict[str, Any]] = []


RECORD: pytest.StashKey[Record] = pytest.StashKey()
"""The record of a test that asked for `graph_snapshot`."""

REPORTED = "torchgraph_comparisons"
"""Attribute of a report with its comparisons as plain data: `compared` and `stored` as of `Record`,
and in `failed` and `replaced` (with the path of the file) what `report.comparisons.data_of` makes
of each."""

SUFFIX = "tgraph"
TEMPORARY = "tgraph-tmp"
"""The suffix of a file that is being written. Its name begins with a dot."""


def hide_from_cleanup(config: pytest.Config) -> None:
    """Keep syrupy from looking for our files, so that it never reports or deletes one."""
    option = config.option
    # An old syrupy has no such option.
    known = getattr(option, "ignore_file_extensions", None) or []
    ours = [suffix for suffix in (SUFFIX, TEMPORARY) if suffix not in known]
    option.ignore_file_extensions = [*known, *ours]
