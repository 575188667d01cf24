"""Rendering of DOT by `dot`, else by pygraphviz, in a process with limits, with DOT as fallback.

`subprocess.run(timeout=...)` kills only the program itself, and then waits for pipes that child
processes keep open. The renderer therefore runs in its own process group, which can be killed as a
whole, and writes to files.

A picture is optional, so a renderer that is missing, crashes, hangs or writes an unusable file must
never fail a test run. A picture file is either complete or absent.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import files
from .colours import DARK

if TYPE_CHECKING:
    import graphviz


MEMORY = 1 << 30
"""Maximum address space of a renderer in bytes (Linux only)."""
FILE_SIZE = 256 << 20
"""Maximum size in bytes of a file that a renderer writes (Linux only)."""
GRACE = 5.0
"""Seconds to wait for a killed process to end."""
MAX_COMPLAINT = 200
"""Maximum characters of the last line on standard error in a message."""
LOG_TAIL = 4096
"""Bytes read from the end of standard error to find its last line."""


def run(command: Sequence[str], directory: Path, timeout: float) -> str:
    """Run a program without input and output, with this package on its PYTHONPATH.

    Args:
        command: the program and its arguments.
        directory: working directory. Standard error goes to the file `log` in this directory.
        timeout: seconds until the program and its child processes are killed.

    Returns:
        "" for exit status 0, else the problem, followed by the last line of standard error.
    """
    log = directory / "log"
    try:
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=directory,
                env=_environment(),
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        return f"cannot be started ({error})"
    try:
        _limit(process.pid)
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        return f"not finished after {timeout:g} s"
    finally:
        _kill(process)
    if status == 0:
        return ""
    end = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    complaint = _last_line(log)
    return f"{end}: {complaint}" if complaint else end


def _limit(pid: int) -> None:
    """Limit the memory and file size of a running process.

    A `preexec_fn` could set the limits before the program starts, but is unsafe in a process with
    threads.
    """
    if sys.platform != "linux":
        return
    import resource

    for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, FILE_SIZE)):
        with suppress(OSError, ValueError):
            resource.prlimit(pid, limit, (value, value))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a running process and its group, and wait for its end.

    Does nothing after a process that ended by itself.
    """
    if process.returncode is not None:
        return
    with suppress(OSError):
        if hasattr(os, "killpg"):  # not on Windows
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)


def _last_line(log: Path) -> str:
    """Return the last line of a file that is not blank, safe to print; "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    lines = ["".join(c if c.isprintable() else "?" for c in line).strip() for line in lines]
    return next((line[:MAX_COMPLAINT] for line in reversed(lines) if line), "")


FORMATS = ("svg", "png", "pdf")
"""Formats drawn by Graphviz. DOT is written without Graphviz."""
SUFFIXES = ".svg, .png, .pdf, .dot"
"""Known suffixes, as listed in messages."""
PATIENCE = 120.0
"""Timeout per renderer in `render`, in seconds. The caller requested this picture."""
DRAW_PATIENCE = 20.0
"""Timeout per renderer in `draw`, in seconds. The report of a failed test waits for the picture."""
MAX_ERROR = 500
"""Maximum characters of an unexpected error in the note of a `RenderResult`."""
HEAD, TAIL = 4096, 1024
"""Bytes at the start and at the end of a file that must contain the markers of its format."""
INSTALL = (
    "install Graphviz (https://graphviz.org/download) so that `dot` is on the PATH, "
    "or `pip install 'pytest-torchgraph[render]'`"
)
Renderer = Literal["dot", "pygraphviz"]


@dataclass(frozen=True, slots=True)
class RenderResult:
    """The file that `draw` wrote.

    Attributes:
        path: the picture, or the DOT text if drawing failed.
        renderer: the renderer that drew the picture, `None` for DOT text.
        note: reason why there is no picture and what to do, in one line; "" if there is a picture.
    """

    path: Path
    renderer: Renderer | None
    note: str = ""


def draw(
    digraph: graphviz.Digraph, path: Path, timeout: float = DRAW_PATIENCE, root: Path | None = None
) -> RenderResult:
    """Draw into a file, or write the DOT text. Never raise an `Exception`, and never hang.

    Args:
        digraph: DOT to draw.
        path: output file. The suffix selects the format. If drawing fails, the DOT text is written
            next to it, and an older picture at `path` is removed.
        timeout: seconds for each of the two renderers.
        root: as in `files.write`; `None` for the directory of the file.
    """
    path = Path(path)
    root = root or path.parent
    fallback = path.with_suffix(".dot") if path.name else path
    try:
        kind = format_of(path)
        if kind is None:
            problems = [f"unknown suffix {path.suffix!r}, expected one of {SUFFIXES}"]
        else:
            renderer, problems = write(digraph.source, path, kind, timeout, root)
            if renderer is not None or kind == "dot":
                return RenderResult(path, renderer)
        write(digraph.source, fallback, "dot", timeout, root)
        # A reader would take an older picture for that of this failure.
        files.write(path, None, root=root)
        return RenderResult(fallback, None, _advice(problems, path, fallback))
    except Exception as error:  # the test has failed already: its message is what matters
        note = f"no picture: {type(error).__name__}: {error}"
        return RenderResult(fallback, None, note[:MAX_ERROR])


def _advice(problems: list[str], path: Path, fallback: Path) -> str:
    """Return why there is no picture at `path`, and how to draw the DOT text at `fallback`.

    The advice depends on `problems`: install a renderer if both are missing, else draw by hand.
    """
    kind = format_of(path) or "svg"
    picture = path.with_suffix(f".{kind}")
    by_hand = f"dot -T{kind} {shlex.quote(str(fallback))} -o {shlex.quote(str(picture))}"
    text = "; ".join(problems)
    if "not found" in text and "not installed" in text:
        return f"no picture: {text}. To draw pictures, {INSTALL}. The graph is in {fallback}"
    later = " later" if "not finished" in text else ""
    return f"no picture: {text}. The graph is in {fallback}. To draw it{later}: {by_hand}"


def format_of(path: Path) -> str | None:
    """Return the format of a file's suffix, or `None` if the suffix is unknown."""
    kind = path.suffix.lower().removeprefix(".")
    return kind if kind in (*FORMATS, "dot") else None


def write(
    source: str, path: Path, kind: str, timeout: float, root: Path | None = None
) -> tuple[Renderer | None, list[str]]:
    """Write a picture, or the DOT text, into a file.

    Args:
        source: the DOT text.
        path: output file.
        kind: "svg", "png", "pdf" or "dot".
        timeout: seconds for each renderer.
        root: as in `files.write`.

    Returns:
        The renderer that succeeded (`None` for DOT text, or if all failed), and a list of problems,
        one per renderer, empty unless all failed.
    """
    problems: list[str] = []
    text = source.encode("utf-8", "replace")
    if kind == "dot":
        files.write(path, text, root=root, sync=False)
        return None, problems
    with tempfile.TemporaryDirectory(prefix="torchgraph-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder).resolve()
        dot_file = directory / "graph.dot"
        dot_file.write_bytes(text)
        for renderer, command, why_missing in _renderers():
            picture = directory / f"{renderer}.{kind}"
            command_line = [*command, f"-T{kind}", "-o", str(picture), str(dot_file)]
            problem = why_missing if not command else run(command_line, directory, timeout)
            problem = problem or _flaw(picture, kind)
            if not problem:
                data = picture.read_bytes()
                if kind == "svg":
                    data = _with_dark(data)
                files.write(path, data, root=root, sync=False)
                # Problems of an earlier renderer no longer matter.
                return renderer, []
            problems.append(f"{renderer}: {problem}")
    return None, problems


# Some releases of Graphviz write the hyphen of a class as a reference.
_OUR_GRAPH = re.compile(r'class="graph tg(?:-|&#45;)picture"')
_SVG_TAG = re.compile(r"<svg\b[^>]*>")


def _with_dark(svg: bytes) -> bytes:
    """Add the filter `DARK` to an SVG, for viewers that prefer a dark background.

    An SVG that this package did not draw stays unchanged.
    """
    text = svg.decode("utf-8", "replace")
    if not _OUR_GRAPH.search(text):
        return svg
    rule = f".graph.tg-picture {{ filter: {DARK} }}"
    rules = f"\n<style>@media (prefers-color-scheme: dark) {{ {rule} }}</style>"
    return _SVG_TAG.sub(lambda match: match[0] + rules, text, count=1).encode()


def _renderers() -> tuple[tuple[Renderer, list[str], str], ...]:
    """Return each renderer with its command, or with the reason why it is missing.

    Every command takes the arguments of `dot`.
    """
    dot = Path(shutil.which("dot") or "dot").absolute()
    # Windows looks in the working directory first, where a branch may have put another program.
    is_there = dot.parent != Path.cwd()
    start = [sys.executable, "-m", f"{__package__}._pygraphviz"]
    return (
        ("dot", [str(dot)] if is_there else [], "not found on the PATH"),
        ("pygraphviz", start if _has_pygraphviz() else [], "not installed"),
    )


def _has_pygraphviz() -> bool:
    """Return True if another process of this Python can import pygraphviz. Import nothing."""
    try:
        return bool(sys.executable) and find_spec("pygraphviz") is not None
    except ValueError:  # `sys.modules` has an object of this name without a spec
        return False


def _environment() -> dict[str, str]:
    """Return this process's environment with this package on PYTHONPATH for the child."""
    home = str(Path(__file__).resolve().parents[2])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _flaw(picture: Path, kind: str) -> str:
    """Return why a renderer's output is not a complete picture, or "" if it is complete."""
    starts = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
    ends = {"svg": b"</svg>", "png": b"IEND", "pdf": b"%%EOF"}
    try:
        data = picture.read_bytes()
    except OSError:
        return "wrote no picture"
    if not data:
        return "wrote an empty file"
    is_complete = starts[kind] in data[:HEAD] and ends[kind] in data[-TAIL:]
    if not is_complete or (kind == "svg" and not _is_xml(data)):
        return f"wrote a file that is not a complete {kind.upper()}"
    return ""


def _is_xml(data: bytes) -> bool:
    """Return True for well-formed XML, without expanding or loading any declared entity."""
    from xml.parsers import expat

    parser = expat.ParserCreate()
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError):
        return False
    return True
