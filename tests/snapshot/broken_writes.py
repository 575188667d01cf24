"""Writes one stored file repeatedly, and stops each write at another step.

    python broken_writes.py kill PATH     the writing process is killed with SIGKILL
    python broken_writes.py full PATH     the step fails: no space left on the device
    python broken_writes.py race PATH     two processes write different texts at the same time

A step is the start or the end of a system call of `files.write`. Prints, for each step, its name,
the content of the file afterwards, and the number of temporary files left.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_torchgraph.errors import TorchGraphError
from pytest_torchgraph.files import TEMPORARY, write

OLD, NEW = "old\n" * 1000, "new\n" * 5000
WRITING = {"open", "write", "flush", "fsync", "__exit__", "chmod", "replace"}
OTHERS = {"lstat", "stat", "mkdir"}


def steps(action: Callable[[int, str], None]) -> Callable[[FrameType, str, Any], None]:
    """Return a profile function that counts the steps and calls `action` at each."""
    number = -1

    def profile(frame: FrameType, event: str, what: Any) -> None:
        nonlocal number
        if event.startswith("c_") and what.__name__ in WRITING | OTHERS:
            number += 1
            action(number, f"{'before' if event == 'c_call' else 'after'} {what.__name__}")

    return profile


def profiled(path: Path, action: Callable[[int, str], None]) -> None:
    sys.setprofile(steps(action))
    try:
        write(path, NEW)
    finally:
        sys.setprofile(None)


def names(path: Path) -> list[str]:
    step_names: list[str] = []
    profiled(path, lambda number, name: step_names.append(name))
    return step_names


def killed(path: Path, at: int) -> None:
    def action(number: int, name: str) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        profiled(path, action)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    assert os.WTERMSIG(status) == signal.SIGKILL


def failed(path: Path, at: int) -> None:
    def action(number: int, name: str) -> None:
        if number == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    message = "no error"
    try:
        profiled(path, action)
    except TorchGraphError as error:
        message = str(error)
    assert message == f"cannot write {path}: No space left on device", message


def content(path: Path) -> str:
    if not path.exists():
        return "nothing"
    return {OLD: "old", NEW: "new"}.get(path.read_text(), "torn")


def race(path: Path) -> None:
    """Read while two processes write, and print how many times each text was read."""
    children = []
    for text in (OLD, NEW):
        child = os.fork()
        if child == 0:
            for _ in range(40):
                write(path, text)
            os._exit(0)
        children.append(child)
    reads: Counter[str] = Counter()
    while children:
        reads[content(path)] += 1
        done, status = os.waitpid(-1, os.WNOHANG)
        assert status == 0
        if done:
            children.remove(done)
    for what, count in reads.items():
        print(f"{what}: {count}")


def main(how: str, path: Path) -> None:
    path.write_text(OLD)
    if how == "race":
        race(path)
        return
    for old in (OLD, None):
        for number, name in enumerate(names(path)):
            if how == "full" and name.split()[1] in OTHERS:
                continue
            path.unlink(missing_ok=True)
            if old is not None:
                path.write_text(old)
            (killed if how == "kill" else failed)(path, number)
            left = len(list(path.parent.glob(f".*.{TEMPORARY}")))
            print(f"{name}: {content(path)}, {left} left over")
            for temporary in path.parent.glob(f".*.{TEMPORARY}"):
                temporary.unlink()
        path.unlink()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
