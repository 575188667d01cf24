"""The page as one HTML file, with large data compressed and a policy that forbids all requests.

A page of two thousand tests would take seconds to parse everything. So the page reads only the
data of the list of tests when it loads (`summary`). Everything else is in parts, which the data
refer to by digest. `script/data.js` reads a part when it is needed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from ...files import parse_json

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

SCRIPTS = [
    f"{name}.js"
    for name in (
        "elements data rows links tests overviews audit test cost blocks ranks paths nodes graphs "
        "outline picture sides heat panel print keys head"
    ).split()
]
"""Files in `script/`, in the order in which they are joined into the page's one script."""


NODE_KEYS = {"flops": "flops", "saved_bytes": "saved"}
"""Maps each heat figure to its key in a node's data."""


def page(data: dict[str, Any], parts: Mapping[str, str]) -> str:
    """Return the HTML of a page.

    Args:
        data: data from `run_data.Page`.
        parts: parts that the data refer to, see `Parts`.
    """
    script = _constants() + "".join(_resource(f"script/{file}") for file in SCRIPTS)
    # The policy allows only the script with this hash, so no text in the data can run as a script.
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
    """Return `data` as JSON for embedding in a script element."""
    # Lone surrogates cannot be encoded, but `dumps` escapes everything outside ASCII.
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # no text can end the script element


def _constants() -> str:
    """Return the script's copy of the drawings' heat scale and units."""
    from ...render.colours import BORDER, HEAT_PAINTS, SHARES, STEP_LABELS, UNITS

    steps = [
        {"step": step, "least": SHARES.get(step), "fill": paint.fill, "words": STEP_LABELS[step]}
        for step, paint in HEAT_PAINTS.items()
    ]
    units = {NODE_KEYS[figure]: unit for figure, unit in UNITS.items()}
    return f"const HEAT = {embedded({'steps': steps, 'units': units, 'kept': BORDER})};\n"


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


Data = dict[str, Any]
"""Plain data: numbers, texts, lists and dictionaries with texts as keys."""

PARTS = ("captures", "ranks", "differences", "pictures")
"""Keys of a test's data. Each phase may append to their lists."""

DETAILS = ("message", *PARTS)
"""Keys of a test's data that are stored in its part."""

FORMAT = 3
"""Version of a page's data, checked when pages are combined."""

MOST_BYTES = 256 << 20
"""Maximum size of the decompressed parts of all pages that are merged, in bytes."""
_LEVEL = 6


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=12).hexdigest()


class Parts:
    """Parts of a page, keyed by digest. Equal data are stored once.

    Attributes:
        texts: the parts as embedded in a page: gzip-compressed JSON in base64.
        most: number of bytes that `take` may still decompress.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.texts: dict[str, str] = {}
        self.most = most

    def add(self, data: object) -> str:
        """Store data and return their digest."""
        # ASCII, as in `embedded`.
        text = json.dumps(data, separators=(",", ":")).encode()
        digest = _digest(text)
        if digest not in self.texts:
            # gzip stores the time by default: equal runs would have pages with different bytes.
            packed = gzip.compress(text, _LEVEL, mtime=0)
            self.texts[digest] = base64.b64encode(packed).decode()
        return digest

    def take(self, digest: str, part: str) -> None:
        """Add a part of a page from others.

        Raises:
            ValueError: if the part is not base64, has more than `most` bytes, or another digest.
            zlib.error: if it is not compressed with gzip.
        """
        # Only what base64 consists of: no text that ends a script element, and no line end.
        packed = base64.b64decode(part, validate=True)
        # gzip; one byte more than allowed, so that a text that is too long is noticed.
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        text = stream.decompress(packed, self.most + 1)
        self.most -= len(text)
        if self.most < 0:
            raise ValueError("the parts of all pages have more than 256 MiB")
        if _digest(text) != digest:
            raise ValueError(f"part {digest} has another digest")
        if not stream.eof or stream.unused_data:
            raise ValueError(f"part {digest} is not one gzip stream")
        # Compressing it anew would take most of the time of merging large pages.
        self.texts[digest] = part

    def get(self, digest: str) -> Any:
        """Return the data with a digest.

        Raises:
            KeyError: if no data have this digest.
            ValueError: if they are not JSON.
        """
        return parse_json(gzip.decompress(base64.b64decode(self.texts[digest])))


def summary(test: Mapping[str, Any], part: str) -> Data:
    """Return the data that the list of tests shows.

    Args:
        test: data of a test, as collected by `run_data.Page`.
        part: digest of the test's details.
    """
    captures = captures_of(test)
    return {
        **{key: value for key, value in test.items() if key not in DETAILS},
        "facts": {
            "findings": sum(len(difference["findings"]) for difference in test["differences"]),
            "breaks": sum(len(capture["breaks"]) for capture in captures),
            "recompiles": sum(len(capture["recompiles"]) for capture in captures),
            "disagree": any(map(_ranks_disagree, test["ranks"])),
        },
        "part": part,
    }


def captures_of(test: Mapping[str, Any]) -> list[Data]:
    """Return the captures of a test, and the capture of each class of equal ranks."""
    return [
        *test["captures"],
        *(equal_ranks["capture"] for ranks in test["ranks"] for equal_ranks in ranks["classes"]),
    ]


def _ranks_disagree(ranks: Mapping[str, Any]) -> bool:
    """Return True if ranks deadlock, send without a receive, or order collectives dangerously."""
    dangers = (
        equal_ranks["order"]["danger"] for equal_ranks in ranks["classes"] if equal_ranks["order"]
    )
    return any(dangers) or bool(ranks.get("problems"))


def search_text(test: Mapping[str, Any]) -> str:
    """Return the search text of a test: unique lines, in lower case."""
    return "\n".join(dict.fromkeys("\n".join(map(str, _search_words(test))).lower().splitlines()))


def _search_words(test: Mapping[str, Any]) -> Iterable[object]:
    """Yield what a search finds a test by: its names, ops, places, reasons and findings."""
    yield test["id"]
    yield test["message"]
    for capture in captures_of(test):
        for graph in capture["graphs"]:
            yield graph["name"]
            yield "eager" if graph["runs"] else ""
            yield from (op for op, _ in graph["ops"])
        for collective in (capture.get("collectives") or {}).get("rows", ()):
            yield from (collective[key] for key in ("kind", "group", "module", "line"))
        for graph_break in capture["breaks"]:
            yield from (graph_break[key] for key in ("kind", "reason", "file", "code"))
        for recompile in capture["recompiles"]:
            yield from (recompile["function"], *recompile["reasons"], *recompile["details"])
    for difference in test["differences"]:
        yield difference["headline"]
        yield from (finding["summary"] for finding in difference["findings"])
