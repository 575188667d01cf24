"""Reading and writing stored graphs, so that no file is ever lost or torn.

A file is written whole under another name and then moved into place. Whatever goes wrong before,
the old file is still there.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from ..errors import TorchGraphError
from . import TEMPORARY

LEFT_OVER = 60.0
"""The age in seconds at which such a file is taken for the rest of a process that was killed.

A younger file may be one that another worker is writing at the moment.
"""


def read_text(path: Path) -> str | None:
    """The text of a stored file; None where there is no file.

    Line ends are as on Linux. Bytes that are not UTF-8 are surrogates, which `compare.read_stored`
    reports with their position.

    Raises:
        TorchGraphError: if there is a file that cannot be read.
    """
    __tracebackhide__ = True
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TorchGraphError(f"cannot read the stored graph {path}: {_reason(error)}") from None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    return data.decode("utf-8", "surrogateescape")


def write_text(path: Path, text: str) -> None:
    """Store a text as a whole; where that fails, the file stays as it was.

    Missing directories are made. A link stays a link: the file behind it is written.

    Raises:
        TorchGraphError: if the directory or the file cannot be written.
    """
    __tracebackhide__ = True
    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, text)
    except OSError as error:
        raise TorchGraphError(f"cannot store the graph in {path}: {_reason(error)}") from None


def remove_file(path: Path) -> bool:
    """Remove a stored file; false where there is none.

    Raises:
        TorchGraphError: if it cannot be removed.
    """
    __tracebackhide__ = True
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise TorchGraphError(f"cannot remove the stored graph {path}: {_reason(error)}") from None
    return True


def _replace(target: Path, text: str) -> None:
    temporary = target.parent / f".{os.urandom(8).hex()}.{TEMPORARY}"
    try:
        # "x" and not mkstemp, whose files nobody but the owner can read.
        with open(temporary, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(directory: Path) -> None:
    """Remove the temporary files in a directory that are older than `LEFT_OVER`, where possible."""
    for path in directory.glob(f".*.{TEMPORARY}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT_OVER:
                path.unlink()


def _reason(error: OSError) -> str:
    name = str(error.filename or "")
    where = f" ({name})" if name and not name.endswith(TEMPORARY) else ""
    return f"{error.strerror or error}{where}"
