"""Syrupy's storage for graphs: which file a comparison reads, of which release and process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from ..settings import config as settings
from . import SUFFIX
from .file_names import stem_of
from .files import read_text
from .release_files import ReleaseFiles, release_files


class GraphExtension(SingleFileSnapshotExtension):
    """Syrupy's storage for graphs: `__snapshots__/<test file>/<test>[<name>].tgraph`."""

    _write_mode = WriteMode.TEXT
    file_extension = SUFFIX

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: Any = 0) -> str:
        """The file's name without its suffix, for the test and the number of the comparison."""
        item = test_location.item
        return stem_of(item, index, rank=settings.get(item.config).rank)

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: Any = 0) -> str:
        """The file to compare with, for the release of torch at hand."""
        return str(cls.files(test_location, index).compared[1])

    @classmethod
    def files(cls, test_location: PyTestLocation, index: str | int) -> ReleaseFiles:
        """The files in which the graph of a comparison may be stored."""
        item, home = test_location.item, Path(cls.dirname(test_location=test_location))
        chosen = settings.get(item.config)
        return release_files(
            chosen.releases,
            lambda release: home / f"{stem_of(item, index, release, chosen.rank)}.{SUFFIX}",
        )

    def read_snapshot_data_from_location(self, *, snapshot_location: str, **_: Any) -> str | None:
        """The text of the stored file; None where there is no file."""
        return read_text(Path(snapshot_location))

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        """Whether the stored text is this one; where it is not, the graphs are compared later."""
        from .compare import same_text

        return same_text(snapshot_data, serialized_data)
