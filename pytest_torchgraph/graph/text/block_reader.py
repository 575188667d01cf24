"""`Block`: lines that several instances share. `expand` reads them and fills in each instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .names import FORMAL, TOKEN, is_name


@dataclass(frozen=True)
class Block:
    """Lines that apply to any of several instances. `names` has the forms of their names.

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
        """The text between formals, split where the instance's path belongs, and the formals."""
        pieces: list[list[str]] = []
        formals: list[int] = []
        segments: list[str] = []
        text: list[str] = []

        def cut() -> None:
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
                elif token.startswith(("%..", "%./")):
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
