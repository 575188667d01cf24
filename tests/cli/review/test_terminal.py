"""`review` in a pseudo-terminal, with real keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli.review.left import FIRST, HOME, Left

from pytest_torchgraph.cli.main import main

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="no `dot` on the PATH")
PATIENCE = 60.0
"""Seconds after which something does not come any more."""
OTHERS = {f"{HOME}/test_other[{k}][last].tgraph" for k in range(2)}
LEAVING = b"\x1b[?1049l"
"""What an xterm gets to show again what it showed before."""


def _as_in_a_shell() -> None:
    """Give a new process its terminal, and Ctrl-C, which a run in the background ignores."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A review in a terminal.

    Attributes:
        process: the review.
        seen: all that it has written.
    """

    def __init__(self, *words: object, columns: int = 80, lines: int = 24, **environment: str):
        self._ours, self._its = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._its)
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest_torchgraph", "review", *map(str, words)],
            stdin=self._its,
            stdout=self._its,
            stderr=self._its,
            env={**kept, "TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=_as_in_a_shell,
        )
        self.seen = b""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, done: Callable[[], bool]) -> None:
        """Read what the review writes until something is so."""
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, self.seen
            if select.select([self._ours], [], [], 0.02)[0]:
                self.seen += os.read(self._ours, 65536)

    def shows(self, text: bytes) -> None:
        self.until(lambda: text in self.seen)

    def ends(self) -> int:
        """The exit code, once it has ended and all it wrote was read; the terminal is as before."""
        self.until(lambda: self.process.poll() is not None)
        while select.select([self._ours], [], [], 0.02)[0]:
            self.seen += os.read(self._ours, 65536)
        return self.process.returncode

    def is_given_back(self) -> bool:
        """Whether the terminal is as it was before."""
        return termios.tcgetattr(self._its) == self.before and self.seen.count(LEAVING) == 1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._its)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Begin a review."""
    begun: list[Terminal] = []

    def terminal(*words: object, **given: object) -> Terminal:
        begun.append(Terminal(*words, **given))  # type: ignore[arg-type]
        return begun[-1]

    yield terminal
    for each in begun:
        each.close()


def test_accepting_one_cause_of_three_in_40_files_changes_nothing_else(
    left: Left,
    updated: dict[str, bytes],
    changed: Callable[..., set[str]],
    terminal: Callable[..., Terminal],
) -> None:
    before = left.stored()
    review = terminal(left.directory)
    review.shows(b"4 of 4 causes waiting")
    review.press("ja")
    review.until(lambda: changed(before, left.stored()) == OTHERS)
    review.press("q")
    assert review.ends() == 1
    assert left.stored() == {**before, **{name: updated[name] for name in OTHERS}}
    assert review.is_given_back()
    after = review.seen.partition(LEAVING)[2]
    assert (
        b"2 graphs stored\r\n4 causes in 39 stored graphs; 2 other graphs accepted already" in after
    )


def test_accepting_everything_leaves_nothing_to_review(
    few: Left, updated: dict[str, bytes], terminal: Callable[..., Terminal]
) -> None:
    review = terminal(few.directory, columns=30, lines=8)
    review.shows(b"causes waiting")
    review.press("yyq")
    assert review.ends() == 0
    assert few.stored().items() <= updated.items()
    assert b"nothing waits" in review.seen


@pytest.mark.slow("further ways to end, terminals and broken files", unless=["9"])
@pytest.mark.parametrize("how", ["control-c", signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_review_loses_nothing(
    left: Left,
    updated: dict[str, bytes],
    changed: Callable[..., set[str]],
    terminal: Callable[..., Terminal],
    capsys: pytest.CaptureFixture[str],
    how: str | signal.Signals,
) -> None:
    before = left.stored()
    review = terminal(left.directory)
    review.shows(b"4 of 4 causes waiting")
    review.press("ja")
    review.until(lambda: changed(before, left.stored()) == OTHERS)
    if isinstance(how, str):
        review.press("\x03")
    else:
        review.process.send_signal(how)
    code = review.ends()
    assert left.stored() == {**before, **{name: updated[name] for name in OTHERS}}
    if how is not signal.SIGKILL:
        assert code == (1 if isinstance(how, str) else 128 + how)
        assert review.is_given_back()
    assert main(["review", "--list", str(left.directory)]) == 1
    assert (
        "4 causes in 39 stored graphs; 2 other graphs accepted already" in capsys.readouterr().out
    )
    assert main(["accept", f"--from={left.directory}"]) == 0
    assert left.stored() == updated


def test_a_review_follows_the_size_of_its_terminal(
    few: Left, terminal: Callable[..., Terminal]
) -> None:
    review = terminal(few.directory)
    review.shows(b"2 of 2 causes waiting")
    review.resize(15, 3)
    review.shows(b"too small")
    before = len(review.seen)
    review.resize(100, 30)
    review.until(lambda: b"2 of 2 causes waiting" in review.seen[before:])
    review.press("q")
    assert review.ends() == 1
    assert review.is_given_back()


@pytest.mark.slow("further ways to end, terminals and broken files")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_left_out_where_nobody_wants_them(
    few: Left, terminal: Callable[..., Terminal], no_color: str
) -> None:
    review = terminal(few.directory, NO_COLOR=no_color)
    review.shows(b"2 of 2 causes waiting")
    review.press("\r")
    review.shows(b"layer.1/abs")
    review.press("q")
    assert review.ends() == 1
    colours = re.findall(rb"\x1b\[[0-9;]*[34][0-7]m", review.seen)
    assert bool(colours) == (not no_color), colours


@needs_dot
def test_where_there_is_no_desktop_the_path_of_the_picture_is_shown(
    few: Left, terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    review = terminal(few.directory, columns=200)
    review.shows(b"2 of 2 causes waiting")
    review.press("o")
    review.shows(b"no desktop here, the picture is ")
    review.press("q")
    assert review.ends() == 1


@pytest.mark.slow("further ways to end, terminals and broken files")
@needs_dot
def test_the_picture_is_opened_in_the_browser_and_the_review_goes_on(
    few: Left, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    review = terminal(few.directory, columns=200, BROWSER=f"{browser} %s")
    review.shows(b"2 of 2 causes waiting")
    review.press("p")
    review.shows(b"opened ")
    [picture] = map(Path, re.findall(rb"opened ([^\s\x1b]+)", review.seen)[0].decode().splitlines())
    assert opened.read_text() == f"{picture.resolve().as_uri()}\n"
    assert few.directory not in picture.parents
    review.press("yq")
    assert review.ends() == 1
    assert b"2 graphs stored" in review.seen


@pytest.mark.slow("further ways to end, terminals and broken files")
@pytest.mark.parametrize(
    ("term", "problem"),
    [("dumb", b"(TERM=dumb) cannot move its cursor"), ("what", b"(TERM=what) is not known")],
)
def test_a_terminal_that_cannot_show_it_is_told_what_to_do(
    few: Left, terminal: Callable[..., Terminal], term: str, problem: bytes
) -> None:
    review = terminal(few.directory, TERM=term)
    assert review.ends() == 2
    assert problem in review.seen
    assert b"review --list" in review.seen


@pytest.mark.slow("further ways to end, terminals and broken files")
def test_causes_keep_their_numbers_from_review_to_review(
    left: Left, terminal: Callable[..., Terminal]
) -> None:
    main(["accept", f"--from={left.directory}", "--cause=2", f"--cause={FIRST}"])
    review = terminal(left.directory)
    review.shows(b"2 of 2 causes waiting")
    review.shows(b">  3 ! 2 op counts differ")
    review.press("q")
    assert review.ends() == 1
