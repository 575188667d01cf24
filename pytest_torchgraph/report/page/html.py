"""The page as one file: style, script and data, and a policy that lets it ask for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{digest}'; \
style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>torchgraph</title>
<style>
{style}</style>
</head>
<body>
<header></header>
<nav aria-label="tests"></nav>
<main></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(data: dict[str, Any]) -> str:
    """The HTML of a page that shows `data`."""
    script = _resource("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _PAGE.format(
        digest=f"sha256-{digest}", style=_resource("page.css"), script=script, data=embedded(data)
    )


def embedded(data: object) -> str:
    """JSON that can stand inside a script element: it holds no `<`, so nothing can end that.

    What is no valid text, such as half of a surrogate pair in a test id, is escaped.
    """
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
