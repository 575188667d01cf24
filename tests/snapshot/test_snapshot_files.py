"""A stored file is written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_torchgraph.errors import TorchGraphError
from pytest_torchgraph.files import write
from pytest_torchgraph.snapshot import files

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such permissions and errors")


def test_file_has_the_same_bytes_on_every_system(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "x.tgraph"
    write(path, "a\nü\n")
    assert path.read_bytes() == "a\nü\n".encode()
    assert os.listdir(path.parent) == ["x.tgraph"]
    assert files.read_text(path) == "a\nü\n"


def test_windows_line_ends_are_normalized(tmp_path: Path) -> None:
    path = tmp_path / "x.tgraph"
    path.write_bytes(b"a\r\nb\r\n")
    assert files.read_text(path) == "a\nb\n"


def test_missing_file_reads_as_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert files.read_text(tmp_path / "x.tgraph") is None
    assert files.read_text(tmp_path / "file" / "x.tgraph") is None


@posix
def test_unreadable_file_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tgraph"
    path.mkdir()
    with pytest.raises(
        TorchGraphError, match=r"cannot read the stored graph .*x\.tgraph: Is a dir"
    ):
        files.read_text(path)
