"""A page that was written, read back: its data and its parts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ...errors import TorchGraphError
from .parts import FORMAT, Data, Parts

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
_PART = re.compile(r'<script type="text/plain" data-part="(\w+)">(.*?)</script>', re.DOTALL)


def read_page(path: Path) -> tuple[Data, Parts]:
    """The data of a page, and the parts that they name.

    Args:
        path: what `--torchgraph-report` has written.

    Raises:
        TorchGraphError: for a file that is no page, or one of another version of this plugin.
        OSError: if the file cannot be read.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    found = _DATA.search(text)
    if found is None:
        raise TorchGraphError(
            f"{path}: this is no page of a run, which pytest writes with --torchgraph-report=FILE"
        )
    try:
        data: Data = json.loads(found[1])
    except ValueError as error:
        raise TorchGraphError(f"{path}: the data of this page are not whole: {error}") from error
    if data.get("format") != FORMAT:
        raise TorchGraphError(
            f"{path}: this page was written by another version of pytest-torchgraph "
            f"(its format is {data.get('format')}, this version reads {FORMAT}): "
            "write all pages with one version"
        )
    parts = Parts(dict(_PART.findall(text)))
    missing = {each["part"] for each in data["tests"]} - parts.texts.keys()
    if missing:
        raise TorchGraphError(f"{path}: this page is not whole: details of its tests are missing")
    return data, parts
