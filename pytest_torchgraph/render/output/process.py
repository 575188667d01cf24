"""Runs a program that may hang, crash or use all memory, within limits.

`subprocess.run(timeout=...)` is not enough: it kills the program alone, not what that has started,
and then waits for pipes that those still hold open. So the program has a process group of its own,
which is killed, and writes to files.
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
"""Bytes of a file that a renderer can write, where the platform can limit it."""
GRACE = 5.0
"""Seconds to wait for a process that was killed."""
MAX_COMPLAINT = 200
"""Characters of the last line on standard error that become part of a message."""
LOG_TAIL = 4096
"""Bytes at the end of standard error in which its last line is looked for."""


def run(
    command: Sequence[str],
    directory: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program without input and output.

    Args:
        command: the program and its arguments.
        directory: where it runs; `log` in there takes its standard error.
        timeout: seconds until it is killed, with what it has started.
        environment: its environment, None for that of this process.

    Returns:
        "" where it exited with 0, else what went wrong, with the last line of its standard error.
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
    end = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    complaint = _last_line(log)
    return f"{end}: {complaint}" if complaint else end


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
    """Kill a process that still runs, with its group, and wait for its end."""
    if process.returncode is not None:
        return
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    lines = ["".join(c if c.isprintable() else "?" for c in line).strip() for line in lines]
    return next((line[:MAX_COMPLAINT] for line in reversed(lines) if line), "")
