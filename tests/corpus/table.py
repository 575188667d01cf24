"""The table of the corpus, from the results of its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Results = dict[tuple[str, str], dict[str, Any]]


def read(path: Path) -> Results:
    """The results that were kept, the last one of each measurement."""
    found: Results = {}
    if path.exists():
        for line in path.read_text().splitlines():
            result = json.loads(line)
            found[result["name"], result["via"]] = result
    return found


def good(result: dict[str, Any]) -> bool:
    """Whether a result is a capture of which everything holds."""
    return "counts" in result and result["differs"] == [] and not result["wrong"]


def text(known: Results) -> str:
    """The document."""
    return ""
