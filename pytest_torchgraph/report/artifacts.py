"""Where pictures and texts of failures go, and who is told of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from ..settings import config as settings
from ..snapshot.file_names import picture_stem

_TEMPORARY = pytest.StashKey[Path]()


def path(item: pytest.Item, name: str, suffix: str) -> Path:
    """The file for a picture or text of a test, in a directory that exists.

    Args:
        name: tells several of one test apart.
    """
    return directory(item.config) / f"{picture_stem(item.nodeid, name)}{suffix}"


def directory(config: pytest.Config) -> Path:
    """The directory that was asked for, or one in pytest's cache, or a temporary one."""
    found = settings.get(config).artifacts
    if found is not None:
        found.mkdir(parents=True, exist_ok=True)
        return found
    cache = getattr(config, "cache", None)
    if cache is not None:
        return Path(cache.mkdir("torchgraph"))
    if _TEMPORARY not in config.stash:
        config.stash[_TEMPORARY] = Path(tempfile.mkdtemp(prefix="pytest-torchgraph-"))
    return config.stash[_TEMPORARY]


def attach(item: pytest.Item, report: pytest.TestReport, picture: Path, name: str) -> None:
    """Tell JUnit's properties and pytest-html of a picture."""
    item.user_properties.append(("torchgraph_picture", str(picture)))
    if item.config.pluginmanager.hasplugin("html"):
        from pytest_html import extras

        svg = extras.svg(picture.read_text(encoding="utf-8"), name=name)
        vars(report)["extras"] = [*getattr(report, "extras", []), svg]
