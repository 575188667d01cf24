"""Directory for pictures and texts of failures, and links to pictures in JUnit and pytest-html."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ..errors import OutsideRootError
from ..files import inside, write
from ..settings import config as settings
from ..snapshot.file_names import picture_stem

if TYPE_CHECKING:
    from ..render.dot import Drawing

_TEMPORARY = pytest.StashKey[Path]()
"""Temporary directory of a run without pytest's cache."""


def path(item: pytest.Item, name: str, suffix: str) -> Path:
    """Return the path of a picture or text of a test.

    Each process started by torchrun has its own files, tagged with the rank (none for rank 0).

    Args:
        item: the test.
        name: distinguishes several files of one test.
        suffix: suffix of the file name, with its dot.
    """
    return directory(item.config) / file_name(item, name, suffix)


def save(item: pytest.Item, name: str, suffix: str, text: str | None) -> Path:
    """Write a text of a test, or with `None` remove it, and return its path; see `path`.

    To remove a text, the directory must be known; see `known_directory`.
    """
    # `directory` would create the directory, for nothing.
    folder = known_directory(item.config) if text is None else directory(item.config)
    assert folder
    file = folder / file_name(item, name, suffix)
    write(file, text, root=root_of(item.config, file), sync=False)
    return file


def root_of(config: pytest.Config, file: Path) -> Path:
    """Return the directory that a file of artifacts must not leave through a link.

    This is pytest's root directory for a path inside it, where a branch may bring links. Elsewhere,
    the user chose the directory, and links.
    """
    path, root = Path(os.path.normpath(config.rootpath / file)), config.rootpath
    # The path of the root directory may contain links, and be given in another form.
    is_inside = any(each.exists() and each.samefile(root) for each in path.parents)
    return root if is_inside else file.parent


def file_name(item: pytest.Item, name: str, suffix: str) -> str:
    """Return the file name of a picture or text of a test; see `path`."""
    rank = settings.get(item.config).rank
    tag = f"@{rank}" if rank else ""
    return f"{picture_stem(item.nodeid, name)}{tag}{suffix}"


def directory(config: pytest.Config) -> Path:
    """Return the directory from the settings, else one in pytest's cache, else a temporary one."""
    if known := known_directory(config):
        if settings.get(config).artifacts is None and config.cache is not None:
            config.cache.mkdir("torchgraph")  # with the files that tell others it is a cache
        return known
    if _TEMPORARY not in config.stash:
        config.stash[_TEMPORARY] = Path(tempfile.mkdtemp(prefix="pytest-torchgraph-"))
    return config.stash[_TEMPORARY]


def known_directory(config: pytest.Config) -> Path | None:
    """Return the directory without creating it; `None` if it is a temporary directory.

    No later command finds a temporary directory. It replaces a directory that a link leads outside
    the root directory, or into one of version control.
    """
    directory = settings.get(config).artifacts
    if directory is None:
        if not config.pluginmanager.hasplugin("cacheprovider"):
            return None
        cache: str = os.path.expandvars(os.path.expanduser(config.getini("cache_dir")))
        directory = config.rootpath / cache / "d" / "torchgraph"
        # The ini file may be a branch's: it can name a cache outside, but none behind a link.
        outside = not directory.is_relative_to(config.rootpath)
        if outside and Path(os.path.realpath(directory)) != directory:
            return None
    # A branch may bring a link, and so would choose where artifacts are written.
    file = config.rootpath / directory / "file"
    try:
        inside(file, root_of(config, file))
    except OutsideRootError:
        return None
    return directory


class Picture(NamedTuple):
    """A drawing that was saved, or could not be.

    Attributes:
        drawing: the drawing, for the `id`s of its elements; `None` if there is none.
        svg: text of the SVG; "" if drawing failed.
        note: reason why drawing failed; "" if it succeeded.
        line: the line about it in the section of the report.
    """

    drawing: Drawing | None = None
    svg: str = ""
    note: str = ""
    line: str = ""


def save_picture(
    item: pytest.Item, report: pytest.TestReport, drawing: Drawing, path: Path, name: str
) -> Picture:
    """Draw an SVG. Add it to the JUnit properties of a test, and to the report of pytest-html.

    Args:
        item: the test.
        report: report of the test. Its `extras` are extended for pytest-html.
        drawing: the drawing.
        path: the file to write.
        name: name of the picture in pytest-html.
    """
    from ..render.output import draw

    rendered = draw(drawing.digraph, path, root=root_of(item.config, path))
    if rendered.renderer is None:
        line = f"picture: none, {rendered.note.removeprefix('no picture: ')}"
        return Picture(drawing, "", rendered.note, line)
    text = rendered.path.read_text(encoding="utf-8")
    item.user_properties.append(("torchgraph_picture", str(rendered.path)))
    if item.config.pluginmanager.hasplugin("html"):
        from pytest_html import extras

        vars(report)["extras"] = [*getattr(report, "extras", []), extras.svg(text, name=name)]
    shown = settings.display_path(item.config, rendered.path)
    return Picture(drawing, text, "", f"picture: {shown}")
