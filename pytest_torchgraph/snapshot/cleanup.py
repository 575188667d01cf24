"""Files of ours among syrupy's: the suffixes by which it does not look for them.

This module imports nothing, because every pytest run with syrupy calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

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
