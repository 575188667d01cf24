"""torch's text of a guard that failed, taken apart.

It has this form, where all but the check may be missing:

    0/0: self.calls == 0   # self.calls += 1  # net.py:50 in forward (HINT: make it a tensor)
    User stack trace:
      File "/home/me/net.py", line 50, in forward
        self.calls += 1
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...convert.source_lines import frames_in

_WITH_ID = re.compile(r"\s*(!?\d+(?:/\d+)*):[ ]?(.*)", re.DOTALL)
_STACK = "\nUser stack trace:"
_PLACE = re.compile(r"(?:(.*?)  # )?(\S(?:(?!  # ).)*?):(\d+) in ([^\s;]+)", re.DOTALL)
_BARE_PLACE = re.compile(r"(\S+):(\d+) in (\S+)\Z")
_TORCHS_LINE = re.compile(r"\([^\s():]+:\d+ in \w+\)(?!  # )")
"""A line of torch's, in brackets."""
_HINT = "HINT: "
IN_TORCH = "in torch: "
"""What a line of torch's, which is no advice, begins with among the hints."""
_LOCAL = re.compile(r"L\[\s*['\"](.*?)['\"]\s*\]")


class GuardLine(NamedTuple):
    """A line that torch names at a guard.

    Attributes:
        file: as torch writes it: a full path, or the end of one.
        line, function: its number, and the function that it is in.
        code: the line itself, "" where torch does not say it.
    """

    file: str
    line: int
    function: str
    code: str


class GuardText(NamedTuple):
    """A guard as torch writes it.

    Attributes:
        compile_id: of the compilation whose guard it is, "" where the text has none.
        check: what has to hold, or what did not.
        lines: the lines of the user's, or torch's, that made the guard.
        hints: what torch advises, and what it says of the lines.
        stack: the user's stack at the line that made it, outermost first.
    """

    compile_id: str
    check: str
    lines: tuple[GuardLine, ...] = ()
    hints: tuple[str, ...] = ()
    stack: tuple[GuardLine, ...] = ()


def parse(text: str) -> GuardText:
    """Take a guard apart.

    Args:
        text: torch's, with or without a compile id before it.
    """
    with_id = _WITH_ID.match(text)
    compile_id, rest = (with_id[1], with_id[2]) if with_id else ("", text)
    rest, _, stack = rest.partition(_STACK)
    check, comment = _split(rest)
    check, *trailing = _without_hint(check)
    lines, hints = _of_comment(comment)
    frames = tuple(
        GuardLine(file, line, function, code) for file, line, function, code in frames_in(stack)
    )
    return GuardText(compile_id, check.strip(), tuple(lines), (*trailing, *hints), frames)


def without_scope(text: str) -> str:
    """Text in which a local variable is its name alone, as in torch's reasons: `x` for `L['x']`."""
    return _LOCAL.sub(r"\1", text)


def _split(text: str) -> tuple[str, str]:
    """The check, and the comment behind it: a `#` behind a blank that is not in a string."""
    quote = ""
    for number, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[number - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif text.startswith(" # ", number):
            return text[:number], text[number + 3 :]
    return text, ""


def _without_hint(check: str) -> list[str]:
    """The check, and the hint behind one that has no comment."""
    before, found, hint = check.partition(f"({_HINT}")
    return [before, hint.rstrip().removesuffix(")")] if found else [check]


def _of_comment(comment: str) -> tuple[list[GuardLine], list[str]]:
    lines: list[GuardLine] = []
    hints: list[str] = []
    while comment:
        if _TORCHS_LINE.match(comment):  # with no line of the user's before it
            group, comment = _group(comment)
            hints.append(_note(group))
            comment = comment.lstrip()
            continue
        place = _PLACE.match(comment)
        if place is None or comment.startswith(";"):  # of several guards in one text
            hints += [comment.strip("; ")] if comment.strip("; ") else []
            break
        line = GuardLine(place[2], int(place[3]), place[4], (place[1] or "").strip())
        lines += [line] if line not in lines else []
        comment = comment[place.end() :]
        while comment.startswith(" ("):
            group, comment = _group(comment[1:])
            hints.append(_note(group))
        comment = comment.removeprefix(" and ")
    return lines, hints


def _note(group: str) -> str:
    """What is in a pair of brackets behind a line: a hint, a remark, or a line of torch's."""
    if _BARE_PLACE.match(group):
        return f"{IN_TORCH}{group}"
    return group.removeprefix(_HINT)


def _group(text: str) -> tuple[str, str]:
    """What is between a bracket and the one that closes it, and what is behind that."""
    depth = 0
    for number, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[1:number], text[number + 1 :]
    return text[1:], ""
