"""Runs of pytest in processes of their own that are forked, so that they need not import torch.

A new interpreter takes 0.3 seconds until the first test of a project begins, and 3 until something
is compiled in it, and there are hundreds of such runs. A template is an interpreter that has
imported pytest and, for a project that imports it, torch; it forks for each run. The fork has
the arguments, directory, environment, path and standard streams that a new interpreter would have.
It ends as that would, but for the modules, which it does not take apart: with torch that takes half
of the time.
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
"""Beginnings of the environment variables that count when Python starts or torch is imported."""
TAKEN_OVER = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR"})
"""Those of them that a fork gets as well. The last one is set by torch where inductor is used."""


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a template must have been started."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name not in TAKEN_OVER
    }


def needed_by(project: Path) -> list[str]:
    """The modules, beside this one, that import what a project will need."""
    text = "\n".join(path.read_text("utf-8", "replace") for path in project.rglob("*.py"))
    found = ["forked_pytest"]
    if re.search(r"^\s*(import|from) torch\b|\bgraph_capture\b|\bgraph_device\b", text, re.M):
        found.append("forked_torch")
        if re.search(r"^\s*(import|from) transformers\b", text, re.M):
            found.append("forked_transformers")
    return found


class Template:
    """An interpreter that forks.

    Attributes:
        started: what of its environment a fork cannot change.
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
        """What `pytester.popen` does for `python -mpytest ...`."""
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
        """End it."""
        self._stream.close()
        self._socket.close()
        self._process.wait()


class Forked:
    """As much of a `Popen` as pytester needs."""

    stdin = None

    def __init__(self, stream: IO[str], template: int) -> None:
        self._stream = stream
        self._template = template

    def wait(self) -> int:
        """The exit status, negative for a signal.

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
"""A template. No file: its frame is on every stack, and that of a user's file would be shown."""


def loaded(modules: Sequence[str]) -> list[str]:
    """Import modules; the part of the path that an interpreter has by itself."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or else each fork would copy what its collector looks at
    return [each for each in sys.path[1:] if each not in given]


def serve(descriptor: int, path: Sequence[str]) -> bool:
    """Fork for each request: true in the fork, false in the template when all is done."""
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
    """Be the interpreter that was asked for."""
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
    """End this process behind the block as an interpreter ends, but for taking modules apart."""
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
