"""Wording helpers for messages, usable everywhere in the package."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

_COMMAND = re.compile(r"(^ *(?=::)|(?=##\w*\[)).")
"""The first character of a workflow command: `::` begins a line, `##[` may be anywhere in it."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, end a line or reorder a text."""
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Characters that count as printable, but are invisible or blank."""
_MARKUP = re.compile(
    r"[&<|`\\*~\[\]$!@#]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//|[\w+-]+:)|(?<=www)\."
    r"|\A(?:[-+=>]|\d(?=\d*[.)]))"
)
"""Characters that Markdown may parse as markup, such as emphasis, links, emoji or lists.

Character references are never parsed as markup.
"""
_NOT_CODE = re.compile(r"[`|\\@]|<!")
"""What is invalid in a code span in a table, or would be a mention or a marker to a search."""

CHECK_BACKWARD = (
    "check that an output requires grad, grad mode is on, and backward=False is not set"
)
"""Remedy for a capture without a backward."""

MAX_DIGITS = 9
"""Maximum number of digits of a number in a name. Longer ones do not count as numbers."""

IN_SUBTEST = "\x1f"
"""Separator between the subTest parameters and the name, in the name of a stored graph."""


def one_line(text: str) -> str:
    r"""Return the text of a file or of a stranger's code as one line that is safe to print.

    Control characters and line breaks could send commands to a terminal or reorder a text. Each
    becomes `?`, as does the start of a workflow command of a CI. Two texts could differ only in
    characters that are invisible, such as a zero-width space. These become escapes: `\u200b`.
    """
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_visible, text.expandtabs(4)))
    # The search would take longer than all else, and most texts have neither.
    return _COMMAND.sub(r"\1?", text) if "::" in text or "##" in text else text


def _visible(character: str) -> str:
    """Return a character as `one_line` shows it."""
    if _CONTROL.match(character):
        return "?"
    if character.isprintable() and not _BLANK.match(character):
        return character
    return character.encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Return a text of several lines, each as `one_line` returns it."""
    # Most texts are safe, which three searches find sooner than a look at each line.
    shown = text.replace("\n", "")
    safe = shown.isascii() and shown.isprintable() and "::" not in text and "##" not in text
    return text if safe else "\n".join(map(one_line, text.split("\n")))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 file`, `1,416 files`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def with_article(noun: str) -> str:
    """Return a noun after "a" or "an"."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


_K = TypeVar("_K")
_V = TypeVar("_V")


def grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Return the values of each key, in order."""
    groups: dict[_K, list[_V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def listed(items: Iterable[str], limit: int | None = 5, noun: str = "", between: str = ", ") -> str:
    """Return the first of several texts and the number of the rest: `a, b and 3 more`.

    Args:
        items: the texts.
        limit: maximum number of listed texts; `None` for all.
        noun: noun for the rest, as in `a, b and 3 more files`.
        between: separator of the texts.
    """
    texts = [*items]
    omitted = 0 if limit is None else len(texts) - limit
    omitted_text = counted(omitted, f"more {noun}") if noun else f"{omitted:,} more"
    return between.join(texts[:limit]) + (f" and {omitted_text}" if omitted > 0 else "")


def first_lines(lines: Sequence[str], limit: int, noun: str = "line") -> list[str]:
    """Return the first lines, and a last line with the same indentation that counts the rest."""
    omitted = len(lines) - limit
    indent = " " * (len(lines[0]) - len(lines[0].lstrip())) if lines else ""
    return [
        *lines[:limit],
        *[f"{indent}... and {counted(omitted, f'more {noun}')}"] * (omitted > 0),
    ]


def markdown_text(text: str) -> str:
    """Escape a text for one line of Markdown, so that nothing is parsed as markup."""
    return _MARKUP.sub(_escaped, one_line(" ".join(text.split())))


def _escaped(match: re.Match[str]) -> str:
    """Return a character reference, which Markdown does not parse, for a character of `_MARKUP`."""
    # GitHub looks for e-mail addresses and for names of users after it has read the references,
    # but only within one piece of text.
    return "<b></b>@<b></b>" if match[0] == "@" else f"&#{ord(match[0])};"


def markdown_code(text: str) -> str:
    """Format a text as Markdown code, valid in table cells; "" for an empty text."""
    text = one_line(" ".join(text.split()))
    if _NOT_CODE.search(text):
        return f"<code>{markdown_text(text)}</code>"
    return f"`{text}`" if text else ""


def amount(count: int, unit: str, *, signed: bool = False) -> str:
    """Format a number of units with an SI prefix: `999 B`, `65.5 kB`, `1.2 MFLOP`.

    Args:
        count: number of units.
        unit: symbol of the unit.
        signed: True adds a plus sign to non-negative numbers, for differences.
    """
    sign = "-" if count < 0 else "+" if signed else ""
    size, prefixes = min(abs(count), 10**24), " kMGTPE"
    sign += "> " * (abs(count) > size)  # beyond the prefixes; a float cannot hold any int
    if size < 1000:
        return f"{sign}{size} {unit}"
    power = 1
    # 999.95 is the least number that one decimal rounds to 1000.0.
    while power < len(prefixes) - 1 and size >= 999.95 * 1000**power:
        power += 1
    return f"{sign}{size / 1000**power:,.1f} {prefixes[power]}{unit}"


def is_index(part: str) -> bool:
    """Return True if a part of a name is the number of a module, an output or a tangent."""
    return len(part) <= MAX_DIGITS and part.isascii() and part.isdigit() and str(int(part)) == part


def spans(numbers: Iterable[int]) -> list[list[int]]:
    """Return the first and last number of each run of consecutive numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def format_ranks(ranks: Iterable[int | None]) -> str:
    """Format rank numbers as ranges: `ranks 0-3, 7`."""
    numbers = sorted(rank for rank in ranks if rank is not None)
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in spans(numbers)]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(texts)}"


MOST_DIGITS = 17
"""Number of significant digits that distinguishes all floats."""


def checked_digits(digits: object) -> int | None:
    """Validate a user's number of digits.

    Raises:
        ValueError: for anything but `None` and 0 to `MOST_DIGITS`.
    """
    if digits is None:
        return None
    if isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= MOST_DIGITS:
        raise ValueError(
            f"digits={digits!r} is invalid: pass None (exact floats), or an int from 0 to "
            f"{MOST_DIGITS}"
        )
    return digits
