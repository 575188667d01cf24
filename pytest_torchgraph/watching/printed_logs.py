"""Read texts in which torch printed graphs: `print_readable()`, and `TORCH_LOGS`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .observe import CompileId, GraphPrinted

_PREFIX = re.compile(
    r"(?:\[rank\d+\]:)?[VIWEC]\d{4} [\d:.]+ \d+ [^\]]*:\d+\] "
    r"(?:\[!?(?:(?:\d+/)?(?P<frame>\d+)/(?P<compile>\d+)(?:_(?P<attempt>\d+))?|\d+)\] )?"
    r"(?:\[\w+\] ?)?"
)
_CLASS = re.compile(r"\s?(?:\S.* )?(class \S.*\((?:torch\.)?nn\.Module\):)\s*$")
_STAGES = (
    ("traced graph", "dynamo"),
    ("joint graph", "joint"),
    ("backward graph", "backward"),
    ("forward graph", "forward"),
    ("after post grad", "post_grad"),
)
"""Words in the heading of a graph, and the graph's stage as in `GraphPrinted`."""


class PrintedBlock(NamedTuple):
    """A graph in a text.

    Attributes:
        id, attempt: as in `GraphPrinted`; `None` and 0 if the text does not name them.
        stage: as in `GraphPrinted`; "" if the text does not say it.
        text: the printed module.
    """

    id: CompileId | None
    attempt: int
    stage: str
    text: str


def printed_blocks(text: str) -> Iterator[PrintedBlock]:
    """Yield the graphs in a text, without the prefixes of log lines.

    A graph is a line with a class, and the indented or blank lines after it. The stage is named in
    a line before it, and the compile id in the prefix of its first line.
    """
    id, attempt, stage = None, 0, ""
    block: list[str] = []
    for line in [*text.splitlines(), "end"]:  # a line that ends the last graph
        prefix = _PREFIX.match(line)
        bare = line[prefix.end() :] if prefix else line
        if block and (not bare.strip() or bare.startswith("    ")):
            block.append(bare)
            continue
        if block:
            yield PrintedBlock(id, attempt, stage, "\n".join(block))
            block, stage = [], ""
        if begin := _CLASS.match(bare):
            block = [begin[1]]
            if prefix and prefix["frame"]:
                id = CompileId(None, int(prefix["frame"]), int(prefix["compile"]))
                attempt = int(prefix["attempt"] or 0)
        else:
            words = bare.lower()
            stage = next((name for part, name in _STAGES if part in words), stage)


def events_of(blocks: Sequence[PrintedBlock]) -> Iterator[GraphPrinted]:
    """Yield the graphs whose stage is known, as torch's trace would report them.

    A text without compile ids has the graphs of one compilation after another.
    """
    number = 0
    seen: set[str] = set()
    for block in blocks:
        if not block.stage:
            continue
        # Dynamo's graph is the first of a compilation, and a compilation has each stage once.
        if block.id is None and (block.stage == "dynamo" or block.stage in seen) and seen:
            number, seen = number + 1, set()
        seen.add(block.stage)
        id = block.id or CompileId(None, number, 0)
        yield GraphPrinted(id, block.attempt, block.stage, block.text)
