"""Read and write stored graphs, and refuse comparisons that would share a file.

A file is written completely under a temporary name and then moved into place. If anything fails
before the move, the old file is unchanged.

Unnamed comparisons are numbered in the order in which they run, and the number is part of the file
name. In straight-line code that order is the order of the source. In a loop the number would count
iterations, and under hypothesis examples. The file of a graph would then depend on how often the
comparison ran before.
"""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import stat
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from ..errors import OutsideRootError, TorchGraphError
from ..settings import config as settings
from ..settings.paths import inside
from . import TEMPORARY

MOST_BYTES = 64 * 2**20
"""Maximum size of a file to read, in bytes."""

LEFTOVER_SECONDS = 60.0
"""Age from which a temporary file counts as left over from a killed process.

Another worker may still be writing a younger file.
"""


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: if the file cannot be read, has more than `MOST_BYTES`, or is a FIFO, socket or
            device.
    """
    # Check the file type first: opening a FIFO waits for a writer, and /dev/zero never ends.
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "not a regular file")
    with path.open("rb") as file:
        # Files in /proc report 0 bytes, so checking the size is not enough.
        data = file.read(MOST_BYTES + 1) if status.st_size <= MOST_BYTES else None
    if data is None or len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 2**20} MiB")
    return data


def read_text(path: Path) -> str | None:
    """Return the text of a stored file; `None` if there is no file.

    CRLF line ends are converted to LF. Bytes that are not UTF-8 become surrogates, which
    `compare.read_stored` reports with their position.

    Raises:
        TorchGraphError: if the file exists and cannot be read.
    """
    __tracebackhide__ = True
    try:
        data = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _failed("read the stored graph", path, error) from None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    return data.decode("utf-8", "surrogateescape")


def write_text(path: Path, text: str, *, root: Path | None = None) -> None:
    """Write a complete text. If this fails, the file is unchanged.

    Missing directories are created. If the path is a symbolic link, the file it points to is
    written.

    Args:
        path: the file.
        text: the new content.
        root: the directory that must contain the file, see `settings.paths.inside`; `None` for an
            output whose path the user chose.

    Raises:
        OutsideRootError: if the file is not inside `root`.
        TorchGraphError: if the directory or the file cannot be written.
    """
    __tracebackhide__ = True
    try:
        target = _real(path, root)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_file(target, text) as temporary:
            # A link may have been created since `_real`; check before moving the file into place.
            if _real(path, root) != target:
                raise OSError(errno.EBUSY, "a symbolic link in the path changed during the write")
            os.replace(temporary, target)
    except OutsideRootError as error:
        raise OutsideRootError(error.reason, f"cannot write {path}") from None
    except OSError as error:
        raise _failed("write", path, error) from None


def remove_file(path: Path, *, root: Path) -> bool:
    """Remove a stored file; return False if there is none.

    Args:
        path: the file.
        root: the directory that must contain it, see `settings.paths.inside`.

    Raises:
        OutsideRootError: if the file is not inside `root`.
        TorchGraphError: if it cannot be removed.
    """
    __tracebackhide__ = True
    try:
        inside(path, root)
        path.unlink()
    except FileNotFoundError:
        return False
    except OutsideRootError as error:
        raise OutsideRootError(error.reason, f"cannot remove the stored graph {path}") from None
    except OSError as error:
        raise _failed("remove the stored graph", path, error) from None
    return True


def _real(path: Path, root: Path | None) -> Path:
    return Path(os.path.realpath(path)) if root is None else inside(path, root)


@contextmanager
def _temporary_file(target: Path, text: str) -> Iterator[Path]:
    """Yield a temporary file with a text; remove the file if the caller fails to move it."""
    temporary = target.parent / f".{os.urandom(8).hex()}.{TEMPORARY}"
    try:
        # Not mkstemp, which creates files that only the owner can read.
        with open(temporary, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        yield temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(directory: Path, *, root: Path) -> None:
    """Remove the temporary files of killed processes from a directory; ignore errors."""
    for path in directory.glob(f".*.{TEMPORARY}"):
        with suppress(OSError, OutsideRootError):
            inside(path, root)
            if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                path.unlink()


def _failed(action: str, path: Path, error: OSError) -> TorchGraphError:
    name = str(error.filename or path)
    name_text = "" if name == str(path) or name.endswith(TEMPORARY) else f" ({name})"
    return TorchGraphError(f"cannot {action} {path}: {error.strerror or error}{name_text}")


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
    __tracebackhide__ = True
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
    __tracebackhide__ = True
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
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _call_site(item: pytest.Item, frame: FrameType) -> CallSite:
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
