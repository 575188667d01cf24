"""Runs of pytest in forked processes, which do not need to import torch.

A new interpreter takes 0.3 seconds to start a project's first test, and 3 seconds to start the
first compilation, and there are hundreds of such runs. A template is an interpreter that has
imported pytest and, for a project that imports it, torch. It forks for each run. The fork has
the arguments, directory, environment, path and standard streams of a new interpreter. It also ends
like a new interpreter, except that it does not clear the modules, which with torch takes half of
the time.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

HERE = Path(__file__).parent
HANGS_AFTER = 600
"""Seconds after which a run is taken to hang. The longest takes half a minute."""

READ_AT_START = ("PYTHON", "TORCH", "PYTORCH", "ATEN_", "OMP_", "MKL_", "LD_", "LC_", "LANG")
"""Prefixes of environment variables that are read when Python starts or torch is imported."""
TAKEN_OVER = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR"})
"""Those of them that a fork receives as well. torch sets the last one when inductor is used."""


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a template must have been started with."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name not in TAKEN_OVER
    }


def needed_by(project: Path) -> list[str]:
    """Return the modules to import in addition to this one for a project."""
    text = "\n".join(path.read_text("utf-8", "replace") for path in project.rglob("*.py"))
    found = ["forked_pytest"]
    if re.search(r"^\s*(import|from) torch\b|\bgraph_capture\b|\bgraph_device\b", text, re.M):
        found.append("forked_torch")
        if re.search(r"^\s*(import|from) transformers\b", text, re.M):
            found.append("forked_transformers")
    return found


class Template:
    """An interpreter that forks for each run.

    Attributes:
        started: variables of its environment that a fork cannot change.
    """

    def __init__(self, *imported: str) -> None:
        self.started = read_at_start(os.environ)
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(HERE), str(its.fileno()), *imported],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )
        self._socket = ours
        self._stream = ours.makefile("rw", encoding="utf-8")

    def popen(
        self, command: Sequence[str], *, stdout: IO[str], stderr: IO[str], **_: Any
    ) -> Forked:
        """Replace `pytester.popen` for `python -mpytest ...`."""
        path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
        asked = {
            "arguments": command[2:],
            "directory": os.getcwd(),
            "environment": {**os.environ, "PYTHONPATH": path},
            "streams": [stdout.name, stderr.name],
        }
        self._stream.write(json.dumps(asked) + "\n")
        self._stream.flush()
        return Forked(self._stream, self._process.pid)

    def close(self) -> None:
        """End the interpreter."""
        self._stream.close()
        self._socket.close()
        self._process.wait()


class Forked:
    """The part of `Popen` that pytester uses."""

    stdin = None

    def __init__(self, stream: IO[str], template: int) -> None:
        self._stream = stream
        self._template = template

    def wait(self) -> int:
        """Return the exit status, negative for a signal.

        A run that hangs is aborted: pytest's faulthandler then prints its stacks.
        """
        watchdog = threading.Timer(HANGS_AFTER, self._abort)
        watchdog.start()
        try:
            return int(self._stream.readline())
        finally:
            watchdog.cancel()

    def _abort(self) -> None:
        for fork in psutil.Process(self._template).children():
            fork.send_signal(signal.SIGABRT)


PROGRAM = """
import runpy, sys
sys.path[0] = sys.argv[1]
from forked import ending, loaded, serve
if serve(int(sys.argv[2]), loaded(sys.argv[3:])):
    with ending():
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
"""
"""A template. Not a file, because its frame is on every stack and would be shown as user code."""


def loaded(modules: Sequence[str]) -> list[str]:
    """Import modules, and return the interpreter's own part of the path."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # otherwise the collector would make each fork copy its objects
    return [each for each in sys.path[1:] if each not in given]


def serve(descriptor: int, path: Sequence[str]) -> bool:
    """Fork for each request. Return True in the fork, and False in the template at the end."""
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rw") as stream:
        while line := stream.readline():
            pid = os.fork()
            if pid == 0:
                break
            stream.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
            stream.flush()
    if line:
        become(json.loads(line), path)
    return bool(line)


def become(asked: Mapping[str, Any], path: Sequence[str]) -> None:
    """Turn this fork into the requested interpreter."""
    for number, name in enumerate(asked["streams"], 1):
        opened = os.open(name, os.O_WRONLY)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    first = asked["environment"]["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = list(dict.fromkeys([asked["directory"], *first, *path]))
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    sys.argv[1:] = asked["arguments"]


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """After the block, end this process as an interpreter does, but without clearing modules."""
    status = 1
    try:
        yield
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
