"""Find the string literal of a call in a test's source, and replace its content.

Positions are as in `ast`: lines from 1, columns in bytes of UTF-8.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType

from ..errors import TorchGraphError

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")


@dataclass(frozen=True)
class Edit:
    """Replacement of the characters from `start` to `end` in a source text."""

    start: int
    end: int
    text: str


class SourceFile:
    """The source of a Python file, with its line ends and byte order mark unchanged.

    Attributes:
        text: the source.
        lines: its lines, each with its end.
        starts: the index in `text` of each line, and of the end.
        tree: the source as parsed by `ast`.

    Raises:
        TorchGraphError: if the source cannot be parsed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: list[str] = _LINE.findall(text)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        try:
            self.tree = ast.parse(text.removeprefix("\ufeff"))
        except (SyntaxError, ValueError) as error:
            raise TorchGraphError(f"cannot parse the source: {error}") from None

    def offset(self, line: int, column: int) -> int:
        """Return the index in `text` of a position from `ast`."""
        start = self.starts[line - 1]
        # `ast` does not count the byte order mark. As a number, True is its length.
        mark = line == 1 and self.text.startswith("\ufeff")
        line_text = self.lines[line - 1][mark:] if line <= len(self.lines) else ""
        return start + mark + len(line_text.encode()[:column].decode())

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Return the start and end index of a node in `text`."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def indentation(self, line: int) -> str:
        """Return the leading white space of a line."""
        line_text = self.lines[line - 1].removeprefix("\ufeff")
        return line_text[: len(line_text) - len(line_text.lstrip(" \t\f"))]


def call_in(source: SourceFile, frame: FrameType, name: str) -> ast.Call:
    """Return the call that a frame is executing.

    Args:
        source: the source of the frame's file.
        frame: the calling frame.
        name: the function name. Python 3.10 needs it, because frames have no columns there.

    Raises:
        TorchGraphError: if no call, or more than one, matches.
    """
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    if hasattr(frame.f_code, "co_positions"):
        # `co_positions` has one entry per instruction of two bytes.
        position = [*frame.f_code.co_positions()][frame.f_lasti // 2]
        matching = [
            call
            for call in calls
            if (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) == position
        ]
    else:
        matching = [
            call
            for call in calls
            if getattr(call.func, "id", getattr(call.func, "attr", "")) == name
            and call.lineno <= frame.f_lineno <= (call.end_lineno or 0)
        ]
    if len(matching) != 1:
        problem = "several calls on this line" if matching else "call not found in the file"
        raise TorchGraphError(f"{problem}: put the call on its own line, and run the test again")
    return matching[0]


def literal_of(call: ast.Call, position: int, keyword: str) -> ast.Constant:
    """Return the string literal passed to a call as an argument.

    Args:
        call: the call.
        position, keyword: the position of the argument, from 0, and its name.

    Raises:
        TorchGraphError: if the argument is not a string literal.
    """
    argument: ast.expr | None = next(
        (argument_node.value for argument_node in call.keywords if argument_node.arg == keyword),
        None,
    )
    before = call.args[: position + 1]
    # The positions after `*arguments` are unknown.
    if len(before) > position and not any(isinstance(arg, ast.Starred) for arg in before):
        argument = argument or before[position]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument
    description = "an f-string" if isinstance(argument, ast.JoinedStr) else "not a literal"
    raise TorchGraphError(f'the text is {description}: write """...""" in the call itself')


def edit_of(source: SourceFile, literal: ast.Constant, lines: Iterable[str]) -> Edit:
    """Return the edit that writes lines into a literal.

    Quotes, prefix and indentation are kept. A literal on one line gets triple quotes.

    Raises:
        TorchGraphError: if the literal has several parts, or cannot hold the text.
    """
    start, end = source.span(literal)
    old = source.text[start:end]
    opening = _OPENING.match(old)
    if opening is None or len(_strings(old)) != 1:
        raise TorchGraphError("the text consists of several literals: write a single one")
    prefix, quotes = opening[1], opening[2]
    triple = quotes * 3 if len(quotes) == 1 else quotes
    # As the first line ends, "\n" for a file of one line without an end.
    # Python also accepts a lone "\r" as a line end.
    newline = next((line[len(line.rstrip("\r\n")) :] for line in source.lines), "") or "\n"
    indent = closing = source.indentation(literal.lineno)
    # After a backslash the logical line continues: `"""\` does not start a new line.
    if len(quotes) == 3 and literal.end_lineno != literal.lineno:
        # Closing quotes that are alone on their line stay there. Others move below the lines.
        rows = [row.rstrip("\r\n") for row in _LINE.findall(old)]
        last = rows[-1][: -len(quotes)]
        indents = [_leading_space(row) for row in [*rows[1:-1], last] if row.strip()]
        indent = min(indents, key=len, default=last)
        closing = indent if last.strip() else last
    body = newline.join(indent + line for line in lines)
    if "r" in prefix.lower():
        if triple in body:
            raise TorchGraphError(f"a raw string cannot contain {triple}: remove the prefix 'r'")
    else:
        body = body.replace("\\", "\\\\").replace(triple, f"\\{triple[0]}" * 3)
    return Edit(start, end, f"{prefix}{triple}{newline}{body}{newline}{closing}{triple}")


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits to a text, the last first, so that the positions of the others stay valid.

    Raises:
        TorchGraphError: if two edits overlap.
    """
    next_start = len(text)
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        if edit.end > next_start:
            raise TorchGraphError("cannot update nested calls: write them as separate statements")
        text = text[: edit.start] + edit.text + text[edit.end :]
        next_start = edit.start
    return text


def _leading_space(row: str) -> str:
    return row[: len(row) - len(row.lstrip(" \t"))]


def _strings(segment: str) -> list[tokenize.TokenInfo]:
    """Return the string literals in a piece of source."""
    # In brackets, adjacent literals may be on several lines.
    tokens = tokenize.generate_tokens(io.StringIO(f"({segment})").readline)
    return [token for token in tokens if token.type == tokenize.STRING]
