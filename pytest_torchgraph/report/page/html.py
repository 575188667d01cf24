"""The page as one HTML file: style, script and data, and a policy that forbids every request."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

_TEMPLATE = """\
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
{parts}<script>{script}</script>
</body>
</html>
"""

SCRIPTS = (
    "elements.js",
    "data.js",
    "rows.js",
    "links.js",
    "tests.js",
    "overviews.js",
    "audit.js",
    "test.js",
    "cost.js",
    "blocks.js",
    "ranks.js",
    "paths.js",
    "nodes.js",
    "graphs.js",
    "outline.js",
    "picture.js",
    "sides.js",
    "heat.js",
    "panel.js",
    "print.js",
    "keys.js",
    "start.js",
)
"""The parts of the script in `script/`, in their order: one script, a file for each concern."""


NODE_KEYS = {"flops": "flops", "saved_bytes": "saved"}
"""The keys that the figures of a heat have in the data of a node."""


def page(data: dict[str, Any], parts: Mapping[str, str]) -> str:
    """The HTML of a page.

    Args:
        data: those of `session.Page`.
        parts: the parts that they name, see `parts`.
    """
    script = _constants() + "".join(_resource(f"script/{each}") for each in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _TEMPLATE.format(
        digest=f"sha256-{digest}",
        style=_resource("page.css"),
        script=script,
        data=embedded(data),
        parts="".join(
            f'<script type="text/plain" data-part="{key}">{text}</script>\n'
            for key, text in sorted(parts.items())
        ),
    )


def embedded(data: object) -> str:
    """`data` as JSON without `<`, so that nothing in it can end the script element around it.

    Characters beyond ASCII are escaped, with lone surrogates, which cannot be encoded.
    """
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _constants() -> str:
    """What the script shares with the drawings: the scale and the units of a heat."""
    from ...render.look.heat import BORDER, HEAT_PAINTS, SHARES, UNITS, WORDS
    from ...render.output.style import dark

    steps = [
        {
            "step": step,
            "least": SHARES.get(step),
            "fills": [paint.fill, dark(paint).fill],
            "words": WORDS[step],
        }
        for step, paint in HEAT_PAINTS.items()
    ]
    units = {NODE_KEYS[figure]: unit for figure, unit in UNITS.items()}
    return f"const HEAT = {embedded({'steps': steps, 'units': units, 'kept': BORDER})};\n"


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
