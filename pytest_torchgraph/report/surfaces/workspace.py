"""The checkout that GitHub Actions works in, and where files of a run are in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from .document import CodePlace

_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Directories of installed packages: a virtual environment may lie in the workspace."""


class Workspace:
    """Finds the files that facts name.

    Args:
        config: of the run.
        environment: the variables that GitHub sets: `GITHUB_WORKSPACE`, and for links
            `GITHUB_SERVER_URL`, `GITHUB_REPOSITORY` and `GITHUB_SHA`.
    """

    def __init__(self, config: pytest.Config, environment: Mapping[str, str]) -> None:
        root = environment.get("GITHUB_WORKSPACE") or str(config.rootpath)
        self._root = Path(os.path.realpath(root))
        self._homes = (config.rootpath, config.invocation_params.dir)
        address = [
            environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "SHA")
        ]
        server, repository, commit = address
        self._blob = f"{server}/{repository}/blob/{commit}" if all(address) else ""
        self._found: dict[str, str] = {}

    def path(self, file: str) -> str:
        """The path of a file from the workspace on, with `/`; "" for one that is not in it.

        Args:
            file: as facts have it: relative to pytest's rootdir, the working directory, or an entry
                of the import path.
        """
        if file not in self._found:
            self._found[file] = next(self._paths(file), "") if file else ""
        return self._found[file]

    def link(self, place: CodePlace) -> str:
        """The address of a line on GitHub, "" where it has none."""
        path = self.path(place.file)
        return f"{self._blob}/{quote(path)}#L{place.line}" if path and self._blob else ""

    def _paths(self, file: str) -> Iterator[str]:
        for home in (*map(str, self._homes), *filter(None, sys.path)):
            path = Path(os.path.realpath(Path(home, file)))
            if path.is_relative_to(self._root) and path.is_file():
                inside = path.relative_to(self._root)
                if _INSTALLED.isdisjoint(inside.parts):
                    yield inside.as_posix()
