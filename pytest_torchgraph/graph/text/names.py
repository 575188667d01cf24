"""Names in the lines of a block, tokens of a line, and `Block`: lines that several instances share.

The lines of a block apply to any of its instances, so a name in a block has one of these forms:

    %.x  %/x    a name of the instance: `%encoder.layer.7.x`, `%encoder.layer.7/x`
    %..x %./x   a name of the enclosing instance, in a nested block; each further dot is one
                more level outward
    $1          a name or a size given by each instance; `$$1` in a nested block
    %x          any other name, equal in all instances

Earlier releases wrote several instances on one line. A name given by such a line may have numbers
that depend on the instance number n: `%encoder.layer.[n-1].x`, `%add.[2n+1]`, `%add.[31-2n]`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

STRING = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
"""A JSON string in a line.

An unclosed string extends to the end of the line, so that no search restarts inside it.
"""
PATH = r"[A-Za-z0-9_.\-#<>]"
"""A character of a module path in an unquoted name."""
NAME = r"[A-Za-z0-9_.\-#<>/]+"
"""An unquoted name, without its sign."""
NUMBER = r"(?:0|[1-9][0-9]{0,8})"
"""The number of an instance, as Python prints it."""
CONTAINER = rf"(?:{PATH}*[A-Za-z._])?"
"""The path of an instance up to its number: `encoder.layer.`, `encoder.encoder_layer_`, `block`."""

GIVEN = r"(?<![\w.$\-])\$+[0-9]+(?![\w.])"
"""A value that each instance gives: no part of a number or of a name, which it would complete."""

_STAGE = re.compile(rf"((?:.*[._])?){NUMBER}(?=\.)")
"""A path up to and including its last number."""

TOKEN = re.compile(
    rf"{STRING}|`[^`]*(?:`|\Z)|[%@](?:{STRING}|{NAME})|{GIVEN}",
)
"""Names. Strings and symbols match as well, because their text can look like a name."""
FORMAL = re.compile(r"(\$+)([0-9]+)\Z")
"""A value that each instance gives: its signs, one for each enclosing block, and its number."""
EXPRESSION = re.compile(r"\[(?:([0-9]{0,9})n(?:([+-])([0-9]{1,9}))?|([0-9]{1,9})-([0-9]{0,9})n)\]")
"""A number in a name as a function of n: `[n]`, `[n-1]`, `[2n+1]`, `[31-2n]`."""
_DEFINED = re.compile(rf"(%(?:{STRING}|{NAME})|\$+[0-9]+) = ")


def is_name(token: str) -> bool:
    """Return True if a match of `TOKEN` is a name, not a string or symbol."""
    return token[0] in "%@$"


def outward(name: str) -> str:
    """Return a name of an enclosing instance, as written by the lines of a block."""
    return f"%.{name[1:]}" if name.startswith(("%.", "%/")) else name


def shared_path(container: str) -> str:
    """Return the path of a block that a container can share with containers of other stages.

    `features.3.` and `features.5.` share `features.*.`. Return the container itself if no instance
    contains it.
    """
    match = _STAGE.match(container)
    return f"{match[1]}*{container[match.end() :]}" if match else container


def key_of(line: str) -> str:
    """Return the key by which an exception refers to a line.

    The key is the name of the line's result, or the whole line if the line has no result.
    """
    line = line.lstrip(" ")
    defined = _DEFINED.match(line)
    return defined[1] if defined else line


def evaluate(match: re.Match[str], n: int) -> int:
    """Return the value of an `EXPRESSION` for instance number n; it may be negative."""
    factor, sign, summand, start, falling = match.groups()
    if start is not None:
        return int(start) - int(falling or 1) * n
    number = int(factor or 1) * n
    return number + int(summand) * (1 if sign == "+" else -1) if sign else number


@dataclass(frozen=True)
class Block:
    """Lines that apply to any of several instances. `expand` reads them.

    The names are found once. `text` then joins the pieces between them for each instance, because a
    block can have thousands of instances.

    Attributes:
        lines: the lines; nested `each` blocks are expanded.
        rows: for each line, the index of the file's line that it was read from.
        depth: number of enclosing blocks plus one.
    """

    lines: list[str]
    rows: list[int]
    depth: int

    @cached_property
    def _pieces(self) -> tuple[list[list[str]], list[int]]:
        """The text between formals, split where the instance's path belongs, and the formals.

        Formals of enclosing blocks, and names of enclosing instances, stay in the text: the
        enclosing block replaces them.
        """
        pieces: list[list[str]] = []
        formals: list[int] = []
        segments: list[str] = []
        text: list[str] = []

        def cut() -> None:
            """End a segment, at the place of a formal or of the instance's path."""
            segments.append("".join(text))
            text.clear()

        for number, line in enumerate(self.lines):
            if number:
                text.append("\n")
            end = 0
            for match in TOKEN.finditer(line):
                token = match.group()
                if not is_name(token):
                    continue
                text.append(line[end : match.start()])
                end = match.end()
                formal = FORMAL.match(token)
                if formal and len(formal[1]) == self.depth:
                    cut()
                    pieces.append(segments.copy())
                    segments.clear()
                    formals.append(int(formal[2]))
                elif token.startswith(("%..", "%./")):  # one level less outward after expansion
                    text.append(f"%{token[2:]}")
                elif token.startswith(("%.", "%/")):
                    text.append("%")
                    cut()
                    text.append(token[1:])
                else:
                    text.append(token)
            text.append(line[end:])
        cut()
        pieces.append(segments)
        return pieces, formals

    @cached_property
    def uses(self) -> Counter[int]:
        """Number of uses of each formal in the block."""
        return Counter(self._pieces[1])

    @cached_property
    def _length(self) -> tuple[int, int]:
        """Number of characters that all instances share, and number of inserted paths."""
        pieces = self._pieces[0]
        shared_length = sum(len(segment) for piece in pieces for segment in piece)
        return shared_length, sum(len(piece) - 1 for piece in pieces)

    def length(self, instance: str, arguments: Mapping[int, str]) -> int:
        """Return the length of `text` for the same arguments, without building it."""
        shared_length, paths = self._length
        names = sum(count * len(arguments[formal]) for formal, count in self.uses.items())
        return shared_length + paths * len(instance) + names

    def text(self, instance: str, arguments: Mapping[int, str]) -> str:
        """Return the lines of one instance, joined.

        Args:
            instance: path of the instance; in a nested block, relative to the enclosing instance.
            arguments: name of each formal in the block.
        """
        pieces, formals = self._pieces
        text = [instance.join(pieces[0])]
        for formal, piece in zip(formals, pieces[1:], strict=True):
            text += (arguments[formal], instance.join(piece))
        return "".join(text)
