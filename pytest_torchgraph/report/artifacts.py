"""The directory of the pictures and texts of failures, and their links in JUnit and pytest-html."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from ..settings import config as settings
from ..snapshot.file_names import picture_stem

_TEMPORARY = pytest.StashKey[Path]()
"""The directory of a run without pytest's cache."""


def path(item: pytest.Item, name: str, suffix: str) -> Path:
    """The path of a picture or text of a test, in a directory that exists.

    Each of several processes that torchrun started has files of its own there.

    Args:
        item: the test.
        name: tells several files of one test apart.
        suffix: the end of the file's name, with its dot.
    """
    return directory(item.config) / file_name(item, name, suffix)


def file_name(item: pytest.Item, name: str, suffix: str) -> str:
    """The name of such a file, see `path`."""
    rank = settings.get(item.config).rank
    tag = f"@{rank}" if rank else ""
    return f"{picture_stem(item.nodeid, name)}{tag}{suffix}"


def directory(config: pytest.Config) -> Path:
    """The directory that was asked for, or one in pytest's cache, or a temporary one."""
    chosen = settings.get(config).artifacts
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        return chosen
    cache = getattr(config, "cache", None)
    if cache is not None:
        return Path(cache.mkdir("torchgraph"))
    if _TEMPORARY not in config.stash:
        config.stash[_TEMPORARY] = Path(tempfile.mkdtemp(prefix="pytest-torchgraph-"))
    return config.stash[_TEMPORARY]


def known_directory(config: pytest.Config) -> Path | None:
    """The same without making it; None for a temporary one, which nobody would look for later."""
    chosen = settings.get(config).artifacts
    if chosen is not None or not config.pluginmanager.hasplugin("cacheprovider"):
        return chosen
    cache = Path(os.path.expandvars(os.path.expanduser(config.getini("cache_dir"))))
    return config.rootpath / cache / "d" / "torchgraph"


def attach(item: pytest.Item, report: pytest.TestReport, picture: Path, name: str) -> None:
    """Add a picture to the JUnit properties of a test and, where it is in use, to pytest-html.

    Args:
        item: the test.
        report: its report, which gets the `extras` that pytest-html shows.
        picture: the path of an SVG.
        name: the name of the picture in pytest-html.
    """
    item.user_properties.append(("torchgraph_picture", str(picture)))
    if item.config.pluginmanager.hasplugin("html"):
        from pytest_html import extras

        svg = extras.svg(picture.read_text(encoding="utf-8"), name=name)
        vars(report)["extras"] = [*getattr(report, "extras", []), svg]
