"""Stored graphs: `.tgraph` files beside the tests, managed by syrupy, compared as graphs.

    assertion            the fixture `graph_snapshot`: syrupy's assertion and its storage
    subject              the captured value, as a `Program`
    compare              comparison of that program with a stored one, ranks by their classes
    file_names, files    names of the files; reading and writing
    run, stale, summary  the files that a run compared, may remove, and wrote
    pending              updates that were not written, for later
    inline, literals     `assert_graph_text`, and the text in the source of a test

A test keeps the data for its report in its stash, as a `Record`. This module imports only pytest,
so that tests without graphs pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..doors import front_door

if TYPE_CHECKING:
    from .compare import Comparison as Comparison
    from .compare import read_stored as read_stored
    from .pending import PendingUpdate
    from .subject import program_of as program_of
else:
    __getattr__ = front_door(
        __name__,
        {
            "compare": "Comparison read_stored",
            "subject": "program_of",
        },
    )


class Record:
    """The comparisons of a test's running phase, for its report.

    Attributes:
        used: True once the test compared anything with its `graph_snapshot`, in any phase.
        compared: the paths of the stored files that were compared.
        stored: the files that an update settled. Each entry has three parts: the outcome
            ("created", "updated", "renamed", "extended", "removed", "unchanged" or "refused"), the
            path of the file, and the new contents or the reason for a refusal, "" if there is
            neither.
        failed: the last failed comparison of each stored file.
        replaced: the stored graphs that an update replaced, by file.
        pending: maps the file that an update would write for an `==` comparison to the name of the
            file without suffix and the pending update. The update is `None` if the comparison
            passed.
        shown: the data of the failed comparisons on the report page.
    """

    # Not a dataclass: defining one would take longer than the rest of this module's import.

    def __init__(self, *, used: bool = False) -> None:
        self.used = used
        self.compared: list[str] = []
        self.stored: list[tuple[str, str, str]] = []
        self.failed: dict[str, Comparison] = {}
        self.replaced: list[tuple[str, Comparison]] = []
        self.pending: dict[str, tuple[str, PendingUpdate | None]] = {}
        self.shown: list[dict[str, Any]] = []


RECORD: pytest.StashKey[Record] = pytest.StashKey()
"""Stash key of the record of a test that uses `graph_snapshot`."""

REPORTED = "torchgraph_comparisons"
"""Attribute of a report with its comparisons as plain data.

`compared` and `stored` are as in `Record`. `failed` has the result of `report.comparisons.data_of`
for each comparison. `replaced` also has the path of the file.
"""

SUFFIX = "tgraph"
TEMPORARY = "tgraph-tmp"
"""Suffix of a file being written. The name of that file begins with a dot."""


def hide_from_cleanup(config: pytest.Config) -> None:
    """Hide our files from syrupy, so that syrupy never reports or deletes them."""
    option = config.option
    # Older releases of syrupy lack this option.
    ignored_suffixes = getattr(option, "ignore_file_extensions", None) or []
    our_suffixes = [suffix for suffix in (SUFFIX, TEMPORARY) if suffix not in ignored_suffixes]
    option.ignore_file_extensions = [*ignored_suffixes, *our_suffixes]
