"""A block of a folded text: the lines that several instances of a module have alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .folded_names import FORMAL, TOKEN, is_name


@dataclass(frozen=True)
class Block:
    """Lines that stand for those of any instance; see `folded_names` for the names in them.

    Attributes:
        lines: the lines, without any `each` inside of them.
        rows: for each line the index of the line of the file that it comes from.
        depth: how many blocks it is inside of, itself included.
    """

    lines: list[str]
    rows: list[int]
    depth: int

    @cached_property
    def _pieces(self) -> tuple[list[list[str]], list[int]]:
        """The text between the formals, cut where an instance's path belongs; the formals."""
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
        """How often each formal of this block occurs."""
        return Counter(self._pieces[1])

    @cached_property
    def _length(self) -> tuple[int, int]:
        """The characters that all instances have alike, and the number of paths."""
        pieces = self._pieces[0]
        alike = sum(len(segment) for piece in pieces for segment in piece)
        return alike, sum(len(piece) - 1 for piece in pieces)

    def length(self, instance: str, given: Mapping[int, str]) -> int:
        """The characters of `text` for the same arguments, without making it."""
        alike, paths = self._length
        names = sum(count * len(given[formal]) for formal, count in self.uses.items())
        return alike + paths * len(instance) + names

    def text(self, instance: str, given: Mapping[int, str]) -> str:
        """The lines of one instance, joined.

        Args:
            instance: its path, relative to the instance around the block if there is one.
            given: for each formal that occurs its name.
        """
        pieces, formals = self._pieces
        text = [instance.join(pieces[0])]
        for formal, piece in zip(formals, pieces[1:], strict=True):
            text += (given[formal], instance.join(piece))
        return "".join(text)
