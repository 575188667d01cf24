"""A review in a terminal, by curses.

curses is Python's own and on every POSIX system: it knows terminals, gives them back as they were
when the process ends, and redraws when their size changes.
"""

from __future__ import annotations

import curses
import os
import signal
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from .session import Session
from .view import Line, screen

ESCAPE_DELAY = "25"
"""Milliseconds after which an Escape is a key of its own, and not the beginning of another one."""

IDLE = 500
"""Milliseconds after which the size is looked at without a key: a change of it that comes just
before the wait for a key does not end that wait."""

NAMES = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_LEFT: "left",
    curses.KEY_RIGHT: "right",
    curses.KEY_PPAGE: "pageup",
    curses.KEY_NPAGE: "pagedown",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_F1: "f1",
    "\n": "enter",
    "\r": "enter",
    " ": "space",
    "\x1b": "escape",
}
"""The names of keys that are no characters, as curses gives them."""
REDRAW = "\x0c"
"""Control-L."""


class TerminalError(Exception):
    """A terminal that cannot show a review."""


def show(session: Session) -> None:
    """Go through a review until it is left, by q or Control-C.

    Raises:
        TerminalError: where the terminal cannot move its cursor.
    """
    term = os.environ.get("TERM", "")
    try:
        curses.setupterm()
    except curses.error:
        raise TerminalError(f"this terminal (TERM={term}) is not known") from None
    if curses.tigetstr("cup") is None:
        raise TerminalError(f"this terminal (TERM={term}) cannot move its cursor")
    os.environ.setdefault("ESCDELAY", ESCAPE_DELAY)
    with _ending_by_signals(), suppress(KeyboardInterrupt), _whole_screen() as window:
        _loop(window, session)


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Let signals that end the process give the terminal back first."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _whole_screen() -> Iterator[curses.window]:
    """The screen, given back afterwards; as `curses.wrapper`, which always sets colours."""
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        window.timeout(IDLE)
        yield window
    finally:
        window.keypad(False)
        curses.echo()
        curses.nocbreak()
        curses.endwin()


def _loop(window: curses.window, session: Session) -> None:
    with suppress(curses.error):  # not every terminal can hide its cursor
        curses.curs_set(0)
    attributes = _attributes()
    while not session.ended:
        _draw(window, session, attributes)
        try:
            key = window.get_wch()
        except curses.error:  # a signal, or no key
            continue
        if key == curses.KEY_RESIZE:
            curses.update_lines_cols()
        elif key == REDRAW:
            window.redrawwin()
        else:
            picture = session.press(NAMES.get(key, key if isinstance(key, str) else ""))
            if picture is not None:
                session.message = _open(window, picture)


def _attributes() -> Mapping[str, int]:
    """The attributes of each style: without colours where there are none or NO_COLOR is set."""
    styles = {
        "plain": curses.A_NORMAL,
        "title": curses.A_REVERSE,
        "selected": curses.A_BOLD,
        "faint": curses.A_DIM,
        "added": curses.A_NORMAL,
        "removed": curses.A_NORMAL,
    }
    if not os.environ.get("NO_COLOR") and curses.has_colors():
        with suppress(curses.error):
            curses.start_color()
            curses.use_default_colors()
            curses.init_pair(1, curses.COLOR_GREEN, -1)
            curses.init_pair(2, curses.COLOR_RED, -1)
            styles |= {"added": curses.color_pair(1), "removed": curses.color_pair(2)}
    return styles


def _draw(window: curses.window, session: Session, attributes: Mapping[str, int]) -> None:
    height, width = window.getmaxyx()
    lines: list[Line] = screen(session, width, height)
    window.erase()
    for y, line in enumerate(lines):
        with suppress(curses.error, UnicodeEncodeError):  # the last cell of all cannot be written
            window.addnstr(y, 0, line.text, width, attributes[line.style])
    window.refresh()


def _open(window: curses.window, picture: Path) -> str:
    """Open a picture in the browser; what to say about it."""
    desktop = os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
    if not desktop and sys.platform not in ("darwin", "win32"):
        return f"no desktop here, the picture is {picture}"
    curses.endwin()  # the browser may be one for terminals
    try:
        opened = webbrowser.open(picture.resolve().as_uri())
    finally:
        window.redrawwin()
        window.refresh()
    return f"opened {picture}" if opened else f"no browser found, the picture is {picture}"
