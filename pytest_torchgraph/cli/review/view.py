"""The lines of the screen of a review, for a width and a height."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

from ...words import counted
from ..formats import printable
from .session import Session

Style = Literal["plain", "title", "selected", "faint", "added", "removed"]

KEYS_SHOWN = "a accept  s skip  d graphs  q quit  ? keys  o picture  u undo"
GRAPH_KEYS_SHOWN = "d back  a accept  s skip  left right other graphs  q quit  ? keys"
HELP_KEYS_SHOWN = "? back  q quit"
SMALLEST = (20, 5)
"""The columns and lines that a screen needs."""
WIDE = 40
"""Columns from which on the further lines of a long one are indented by eight."""
LIST_SHARE = 3
"""The causes take at most one part in this many of the screen."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the screen.

    Attributes:
        text: at most as wide as the screen, without control characters.
        style: how it is shown, where the terminal can.
    """

    text: str
    style: Style = "plain"


def screen(session: Session, width: int, height: int) -> list[Line]:
    """What a review shows now: as many lines as the screen has.

    Sets `session.room` and `session.length`, by which it scrolls.
    """
    if width < SMALLEST[0] or height < SMALLEST[1]:
        lines = [Line(clipped("too small", width))]
        return [*lines, *[Line("")] * height][:height]
    page = session.page
    heads = [Line(padded(_title(session), width), "title")]
    if page == "causes":
        heads += _causes(session, width, height)
        heads.append(Line("-" * width, "faint"))
    shown = {"causes": KEYS_SHOWN, "graphs": GRAPH_KEYS_SHOWN, "help": HELP_KEYS_SHOWN}[page]
    texts = [
        Line(piece, _style(text, page))
        for text in session.text
        for piece in wrapped(text.expandtabs(4), width)
    ]
    session.room, session.length = height - len(heads) - 2, len(texts)
    session.scroll = max(0, min(session.scroll, len(texts) - session.room))
    body = texts[session.scroll : session.scroll + session.room]
    body += [Line("")] * (session.room - len(body))
    left = len(texts) - session.scroll - session.room
    below = [Line(f"... {left} more lines" if left > 0 else "", "faint")]
    if session.message:  # a long one, as the path of a picture, covers lines of the text
        below = [Line(piece) for piece in wrapped(session.message, width)][: session.room + 1]
    body = body[: session.room + 1 - len(below)]
    return [*heads, *body, *below, Line(padded(shown, width), "title")]


def _title(session: Session) -> str:
    cause = session.cause
    if session.page == "help":
        return "The keys of a review"
    if session.page == "graphs":
        number = f"graph {session.graph + 1} of {len(cause.updates)}"
        return f"Cause {cause.number}: {number}: {session.update.saved.test}"
    left = sum(session.status(each) != "stored" for each in session.causes)
    return (
        f"{left} of {counted(len(session.causes), 'cause')} waiting in {session.waiting.directory}"
    )


def _causes(session: Session, width: int, height: int) -> list[Line]:
    """The causes around the selected one, one line each."""
    count = min(len(session.causes), max(1, height // LIST_SHARE))
    first = max(0, min(session.selected - count // 2, len(session.causes) - count))
    lines = []
    for k in range(first, first + count):
        cause = session.causes[k]
        words = cause.words.to_json()
        status = session.status(cause) or counted(len(cause.updates), "graph")
        head = f"{'>' if k == session.selected else ' '} {cause.number:>2} {words['sign']} "
        where = f" in {words['where']}" if words["where"] else ""
        room = width - len(head) - len(status) - 2
        what = padded(f"{words['what']}{where}", max(room, 8))
        text = clipped(f"{head}{what}  {status}", width)
        lines.append(Line(padded(text, width), "selected" if k == session.selected else "plain"))
    return lines


def _style(text: str, page: str) -> Style:
    if page != "graphs":
        return "plain"
    if text.startswith(("---", "+++", "@@")):
        return "faint"
    return "added" if text.startswith("+") else "removed" if text.startswith("-") else "plain"


def wrapped(text: str, width: int) -> list[str]:
    """A line as several where it is too long, the further ones indented."""
    indent = "        " if width > WIDE else "  "
    found = []
    rest = printable(text)
    while columns(rest) > width:
        cut = len(clipped(rest, width, mark=""))
        space = rest.rfind(" ", len(indent) + 1, cut)
        at = space if space > cut // 2 else cut
        found.append(rest[:at])
        rest = indent + rest[at:].lstrip()
    return [*found, rest]


def padded(text: str, width: int) -> str:
    """A text that takes all of a width."""
    text = clipped(text, width)
    return text + " " * (width - columns(text))


def clipped(text: str, width: int, mark: str = "~") -> str:
    """A text that takes a width at most, with a mark where it was cut."""
    clean = printable(text)
    if columns(clean) <= width:
        return clean
    room = width - len(mark)
    kept = []
    for character in clean:
        room -= columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + mark


def columns(text: str) -> int:
    """How many columns a text takes: characters of East Asia take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
