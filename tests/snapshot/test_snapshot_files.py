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


@posix
def test_new_file_has_default_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write(tmp_path / "x.tgraph", "a")
    assert (tmp_path / "x.tgraph").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "x.tgraph").chmod(0o640)
    write(tmp_path / "x.tgraph", "b")
    assert (tmp_path / "x.tgraph").stat().st_mode & 0o777 == 0o640


@posix
def test_written_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.tgraph").write_text("old")
    link = tmp_path / "x.tgraph"
    link.symlink_to(tmp_path / "real" / "x.tgraph")
    write(link, "new")
    assert not link.is_symlink()
    assert link.read_text() == "new"
    assert (tmp_path / "real" / "x.tgraph").read_text() == "old"


def test_uncreatable_directory_error_names_file_and_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TorchGraphError, match=r"cannot write .*x\.tgraph: (Not a dir|File exists)"):
        write(tmp_path / "file" / "x.tgraph", "a")


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failed_write_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    path = tmp_path / "x.tgraph"
    write(path, "old")

    def fail(*args: object, **kwargs: object) -> None:
        assert len(os.listdir(tmp_path)) == 2
        assert all(name == "x.tgraph" or name.startswith(".") for name in os.listdir(tmp_path))
        raise error

    monkeypatch.setattr(os, failing, fail)
    if isinstance(error, OSError):
        with pytest.raises(TorchGraphError, match=r"cannot write .*x\.tgraph: No space left"):
            write(path, "new")
    else:
        with pytest.raises(KeyboardInterrupt):
            write(path, "new")
    assert os.listdir(tmp_path) == ["x.tgraph"]
    assert path.read_text() == "old"
