"""A measurement in a fork of a process that has imported the libraries, and that it cannot harm."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def forked(run: Callable[[], dict[str, Any]], timeout: float, log: Path) -> dict[str, Any]:
    """What `run` gives in a fork of this process, which cannot harm this one."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            text = json.dumps(run())
        except BaseException as problem:
            import traceback

            text = json.dumps({"broken": repr(problem), "traceback": traceback.format_exc()})
        with os.fdopen(writing, "w") as stream:
            stream.write(text)
        os._exit(0)
    os.close(writing)
    parts, end = [], time.monotonic() + timeout
    with os.fdopen(reading, "rb") as stream:
        while select.select([stream], [], [], max(0, end - time.monotonic()))[0]:
            part = os.read(stream.fileno(), 2**16)
            if not part:
                break
            parts.append(part)
        else:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"broken": f"took more than {timeout:.0f} seconds"}
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    found = b"".join(parts)
    return json.loads(found) if found else {"broken": f"the process ended with {status}"}
