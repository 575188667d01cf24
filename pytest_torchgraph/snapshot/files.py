"""Read stored graphs, and refuse comparisons that would share a file.

Unnamed comparisons are numbered in the order in which they run, and the number is part of the file
name. In straight-line code that order is the order of the source. In a loop the number would count
iterations, and under hypothesis examples. The file of a graph would then depend on how often the
comparison ran before.
"""

from __future__ import annotations

import inspect
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from ..errors import TorchGraphError
from ..files import TEMPORARY, failed, read_bytes, write
from ..settings import config as settings

LEFTOVER_SECONDS = 60.0
"""Age from which a temporary file counts as left over from a killed process.

Another worker may still be writing a younger file.
"""


def read_text(path: Path) -> str | None:
    """Return the text of a stored file; `None` if there is no file.

    CRLF line ends are converted to LF. Bytes that are not UTF-8 become surrogates, which
    `compare.read_stored` reports with their position.

    Raises:
        TorchGraphError: if the file exists and cannot be read.
    """
    try:
        data = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise failed("read the stored graph", path, error) from None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    return data.decode("utf-8", "surrogateescape")


def remove_leftovers(directory: Path, *, root: Path) -> None:
    """Remove the temporary files of killed processes from a directory; ignore errors."""
    for path in directory.glob(f".*.{TEMPORARY}"):
        with suppress(OSError, TorchGraphError):
            if time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS:
                write(path, None, root=root)


# By the package whose function compares for the user.
_REMEDIES = {
    __name__.partition(".")[0]: "Pass name=...",
    "syrupy": "Write graph_snapshot(name=...)",
}
CallSite = tuple[tuple[CodeType, int], ...]
"""Call stack of a comparison, from the comparing frame to the test function.

Each frame is a pair of its code object and the offset of its current instruction.
"""


def refuse_hypothesis(item: pytest.Item) -> None:
    """Refuse an unnamed comparison in a test that hypothesis calls once per example.

    Raises:
        TorchGraphError: with the call to write instead.
    """
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        raise TorchGraphError(
            "comparison without a name in a Hypothesis test: the graphs would be numbered in the "
            "order of the examples. Pass graph_snapshot(name=...), with the same name for all "
            "examples that produce the same graphs"
        )


def refuse_loop(call_sites: set[CallSite], item: pytest.Item, frame: FrameType) -> None:
    """Record the call site of an unnamed comparison, and refuse a second comparison there.

    Args:
        call_sites: the call sites of the test's earlier comparisons; the new one is added.
        item: the test.
        frame: the comparing frame.

    Raises:
        TorchGraphError: with the line, and the call to write instead.
    """
    call_site = _call_site(item, frame)
    if call_site in call_sites:
        caller, remedy = frame, _REMEDIES["syrupy"]
        # `GraphTestCase.assertGraph` compares in this package, and `graph_snapshot.assert_match` in
        # syrupy: name the line that calls it.
        while caller.f_back is not None and (package := _package(caller)) in _REMEDIES:
            caller, remedy = caller.f_back, _REMEDIES[package]
        file = settings.display_path(item.config, Path(caller.f_code.co_filename))
        raise TorchGraphError(
            f"{file}:{caller.f_lineno}: second comparison without a name, probably in a loop: the "
            f"graphs would be numbered by iteration. {remedy}, with a different name in every "
            "iteration"
        )
    call_sites.add(call_site)


def _package(frame: FrameType) -> str:
    """Return the top-level package of a frame's code."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _call_site(item: pytest.Item, frame: FrameType) -> CallSite:
    """Return the call stack from a frame up to the test function, or up to its end."""
    code = getattr(_function(item), "__code__", None)
    calls = []
    for caller, _ in traceback.walk_stack(frame):
        calls.append((caller.f_code, caller.f_lasti))
        if caller.f_code is code:
            break
    return tuple(calls)


def _function(item: pytest.Item) -> Any:
    """Return the plain function of a test, without decorators and bound method."""
    function: Any = getattr(item, "obj", None)
    function = inspect.unwrap(function)
    return getattr(function, "__func__", function)
