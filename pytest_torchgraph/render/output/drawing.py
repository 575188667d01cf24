"""From DOT to a picture: the system's `dot`, else pygraphviz, else the DOT text with a hint.

A picture is a help, so a renderer that is missing, crashes, hangs or writes rubbish must never be
what a test run stumbles over. Pictures appear at their path complete or not at all.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .process import run

if TYPE_CHECKING:
    import graphviz

FORMATS = ("svg", "png", "pdf")
SUFFIXES = ".svg, .png, .pdf, .dot"
PATIENCE = 120.0
"""Seconds that `render` gives each renderer: somebody asked for this picture and waits for it."""
INSTALL = (
    "install Graphviz (https://graphviz.org/download) so that `dot` is on the PATH, "
    "or `pip install pygraphviz`"
)
Renderer = Literal["dot", "pygraphviz"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """What became of a picture.

    Attributes:
        path: the file that was written: the picture, or the DOT text where there is no picture.
        renderer: what drew it, None for DOT text.
        note: one line about what went wrong and what to do, "" where nothing did.
    """

    path: Path
    renderer: Renderer | None
    note: str = ""


def draw(digraph: graphviz.Digraph, path: Path, timeout: float = 20.0) -> Drawing:
    """Draw into a file as well as it goes. Never raises an `Exception`, never hangs.

    Args:
        digraph: what to draw.
        path: where to; the suffix names the format. Where no picture can be made, the DOT text is
            written next to it, and an older picture at `path` is removed.
        timeout: seconds that each of the two renderers gets.
    """
    path = Path(path)
    fallback = path.with_suffix(".dot") if path.name else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = format_of(path)
        if kind is None:
            problems = [f"unknown suffix {path.suffix!r}, known are {SUFFIXES}"]
        else:
            renderer, problems = write(digraph.source, path, kind, timeout)
            if renderer is not None or kind == "dot":
                return Drawing(path, renderer, "; ".join(problems))
        write(digraph.source, fallback, "dot", timeout)
        with suppress(OSError):
            path.unlink()
        return Drawing(fallback, None, _advice(problems, path, fallback))
    except Exception as error:  # the test has failed already: its message is what matters
        return Drawing(fallback, None, f"no picture: {type(error).__name__}: {error}"[:500])


def _advice(problems: list[str], path: Path, fallback: Path) -> str:
    kind = format_of(path) or "svg"
    picture = path.with_suffix(f".{kind}")
    by_hand = f"dot -T{kind} {shlex.quote(str(fallback))} -o {shlex.quote(str(picture))}"
    text = "; ".join(problems)
    if "not finished" in text:
        return (
            f"no picture: {text}; the graph is in {fallback}, draw it in your own time: {by_hand}"
        )
    if "not found" in text and "not installed" in text:
        return f"no picture: {text}; {INSTALL}; the graph is in {fallback}"
    return f"no picture: {text}; the graph is in {fallback}, try by hand: {by_hand}"


def format_of(path: Path) -> str | None:
    """The format that a file's suffix names, None for one that is not known."""
    kind = path.suffix.lower().removeprefix(".")
    return kind if kind in (*FORMATS, "dot") else None


def write(source: str, path: Path, kind: str, timeout: float) -> tuple[Renderer | None, list[str]]:
    """Write the picture or DOT text; gives what drew it, and what went wrong before."""
    problems: list[str] = []
    # In the same folder, so that moving the finished file into place is one atomic step.
    with tempfile.TemporaryDirectory(
        prefix=".torchgraph-", dir=path.parent, ignore_cleanup_errors=True
    ) as folder:
        directory = Path(folder).resolve()
        text = directory / "graph.dot"
        text.write_text(source, encoding="utf-8", errors="replace")
        if kind == "dot":
            os.replace(text, path)
            return None, problems
        for renderer, command in _renderers(problems):
            picture = directory / f"{renderer}.{kind}"
            problem = run(
                command(text, picture, kind), directory, timeout, _environment()
            ) or _flaw(picture, kind)
            if not problem:
                if kind == "svg":
                    from .style import add_dark

                    add_dark(picture)
                os.replace(picture, path)
                return renderer, problems
            problems.append(f"{renderer}: {problem}")
    return None, problems


def _renderers(
    problems: list[str],
) -> Iterator[tuple[Renderer, Callable[[Path, Path, str], list[str]]]]:
    """What can be tried, each with its command line; what cannot is added to `problems`."""
    executable = shutil.which("dot")
    if executable is None:
        problems.append("dot: not found on the PATH")
    else:
        dot = str(Path(executable).absolute())
        yield "dot", lambda text, picture, kind: [dot, f"-T{kind}", "-o", str(picture), str(text)]
    if not _has_pygraphviz():
        problems.append("pygraphviz: not installed")
    else:
        start = [sys.executable, "-m", f"{__package__}._pygraphviz"]
        yield "pygraphviz", lambda text, picture, kind: [*start, str(text), str(picture), kind]


def _has_pygraphviz() -> bool:
    try:
        return bool(sys.executable) and find_spec("pygraphviz") is not None
    except ValueError:  # something that is no real module has taken the name
        return False


def _environment() -> dict[str, str]:
    """The environment, in which the child finds this package wherever this process found it."""
    home = str(Path(__file__).resolve().parents[3])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _flaw(picture: Path, kind: str) -> str:
    """What is wrong with a finished picture, "" if nothing."""
    starts = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
    ends = {"svg": b"</svg>", "png": b"IEND", "pdf": b"%%EOF"}
    try:
        data = picture.read_bytes()
    except OSError:
        return "wrote no picture"
    if not data:
        return "wrote an empty file"
    whole = starts[kind] in data[:4096] and ends[kind] in data[-1024:]
    if not whole or (kind == "svg" and not _is_xml(data)):
        return f"wrote something that is no {kind.upper()}"
    return ""


def _is_xml(data: bytes) -> bool:
    """Whether something is well-formed XML; nothing that it declares is expanded or loaded."""
    from xml.parsers import expat

    parser = expat.ParserCreate()
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError):
        return False
    return True
