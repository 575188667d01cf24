"""Stored graphs: `.tgraph` files next to the tests, managed by syrupy, compared as graphs.

    assertion            the `graph_snapshot` fixture, in syrupy's report of the session
    subject              converts a captured value to a `Program`
    compare              compares this program with a stored program, for ranks class by class;
                         texts of stored differences
    file_names, files    names the files, reads them
    run, stale, summary  the files that a run compared, the files to remove, the printed section
    pending              updates that `review` can make later
    inline, literals     `assert_graph_text`, and edits of the text in a test's source

`GraphSnapshot.__eq__` converts the value (`program_of`), finds and reads the file (`_look_up`), and
lets the comparison pass or fail, or writes the file (`_assert_program`).

While a test runs, its stash holds a `Record`, the data for its report. This module imports only
pytest, because every run imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..doors import front_door

if TYPE_CHECKING:
    from .compare import Comparison, read_stored
    from .pending import PendingUpdate
    from .subject import program_of
else:
    __getattr__ = front_door(
        __name__,
        {"compare": "Comparison read_stored", "pending": "PendingUpdate", "subject": "program_of"},
    )


class Record:
    """Comparisons in the current phase of a test, for the report of the phase.

    Attributes:
        used: True once the test compared anything with its `graph_snapshot`, in any phase.
        compared: the paths of the stored files that were compared.
        stored: what the run did with a file, as tuples: the outcome ("created", "updated",
            "renamed", "removed", "unchanged", "refused" or "not compared"), the path of the file,
            and a description of the change or the reason for a refusal, or "".
        failed: the last failed comparison with each stored file, by path.
        replaced: the path and the failed comparison of each file that an update replaced.
        pending: for each `==` comparison, by the path that an update would write: the name of the
            file without suffix, and the pending update, `None` if the comparison passed.
        shown: data of the failed comparisons for the page of the run.
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
"""Attribute of a report that holds the comparisons of its phase as plain data.

The attribute is a dictionary. `compared` and `stored` are as in `Record`. `failed` is a list of
results of `report.comparisons.data_of`, and `replaced` a list of pairs of a path and this data.
"""

SUFFIX = "tgraph"
DIFFERENCE_SUFFIX = "diff.txt"
"""Suffix of the text of a stored `GraphDiff`."""


def hide_from_cleanup(config: pytest.Config) -> None:
    """Prevent syrupy from reporting or deleting the files of this package."""
    from ..files import TEMPORARY

    option = config.option
    # Older releases of syrupy lack this option.
    ignored_suffixes = getattr(option, "ignore_file_extensions", None) or []
    suffixes = dict.fromkeys((*ignored_suffixes, SUFFIX, DIFFERENCE_SUFFIX, TEMPORARY))
    option.ignore_file_extensions = [*suffixes]
