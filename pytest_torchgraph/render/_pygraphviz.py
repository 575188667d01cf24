"""Draw one DOT file with pygraphviz, with the arguments of `dot`: `-TFORMAT -o OUT IN`.

Graphviz is a C library with global state, which has been seen to crash and to run for hours. A
separate process can be killed, and its crash does not end the test run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Draw file `IN` into file `OUT`.

    Args:
        arguments: four words, always in this order: `-TFORMAT`, `-o`, `OUT`, `IN`.
    """
    kind, _, picture, source = arguments
    import pygraphviz

    graph = pygraphviz.AGraph(string=Path(source).read_text("utf-8"), encoding="UTF-8")
    # `draw(picture)` opens the file in a way that fails on Python before 3.11.3.
    Path(picture).write_bytes(graph.draw(format=kind.removeprefix("-T"), prog="dot"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
