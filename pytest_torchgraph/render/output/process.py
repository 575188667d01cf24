"""Runs a program that may hang, crash, or eat all memory, within limits.

`subprocess.run(timeout=...)` is not enough: it kills the program alone, not what that has started,
and then waits for pipes that those still hold open. So: an own process group, and files, no pipes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

MEMORY = 1 << 30
"""Address space of a renderer in bytes, where the platform can limit it."""
FILE_SIZE = 256 << 20
GRACE = 5.0


def run(
    command: Sequence[str],
    directory: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run `command` in `directory`; gives "" where it exited with 0, else what went wrong.

    The program gets no input, its output is discarded, the end of its complaints becomes part of
    the answer.
    """
    log = directory / "log"
    try:
        with log.open("wb") as complaints:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd=directory,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        return f"could not be started ({error})"
    try:
        _limit(process.pid)
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        return f"not finished after {timeout:g} s"
    finally:
        _kill(process)
    if status == 0:
        return ""
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    last = _last_line(log)
    return f"{how}: {last}" if last else how


def _limit(pid: int) -> None:
    """Limit memory from outside: code between fork and exec is unsafe where threads run."""
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        return
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)


def _last_line(log: Path, most: int = 200) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    lines = ["".join(c if c.isprintable() else "?" for c in line).strip() for line in lines]
    return next((line[:most] for line in reversed(lines) if line), "")
