"""Examples in text files: a title, graphs before and after as one patch, and what is expected.

`WRITE_EXAMPLES=1 pytest FILE` writes what the package gives today into the examples of a test.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch  # noqa: F401 (the names of arguments are in the schemas of its ops)

from pytest_torchgraph.graph import Graph, parse_text


@dataclass(frozen=True)
class Example:
    """An example.

    Attributes:
        patch: lines of both graphs, after "-" of the first and after "+" of the second.
        expected: what is expected, by heading.
    """

    file: Path
    title: str
    patch: str
    expected: dict[str, str]

    def texts(self) -> list[str]:
        """Return the texts before and after."""
        lines = [line for line in self.patch.split("\n") if line[:1] != "#"]
        sides = ([line[1:] for line in lines if line[:1] != other] for other in "+-")
        return ["\n".join(["torchgraph 4", "", *side, ""]) for side in sides]

    def graphs(self) -> list[tuple[Graph, ...]]:
        """Return the graphs before and after."""
        return [parse_text(text).graphs for text in self.texts()]

    def check(self, found: dict[str, str]) -> None:
        """Compare with what is found."""
        if "WRITE_EXAMPLES" in os.environ:
            old, new = (self._text(expected) for expected in (self.expected, found))
            self.file.write_text(self.file.read_text("utf-8").replace(old, new), "utf-8")
        assert found == self.expected

    def _text(self, expected: dict[str, str]) -> str:
        parts = [f"== {self.title}\n{self.patch}", *(f"-- {h}\n{t}" for h, t in expected.items())]
        return "\n".join(parts) + "\n"


def examples(folder: Path) -> pytest.MarkDecorator:
    """Run a test for each example in the files of a folder, as its argument `example`."""
    found = []
    for file in sorted(folder.iterdir()):
        for text in file.read_text("utf-8").strip("\n").removeprefix("== ").split("\n\n== "):
            patch, *parts = text.split("\n-- ")
            title, patch = patch.split("\n", 1)
            expected = dict(part.split("\n", 1) for part in parts)
            found.append(pytest.param(Example(file, title, patch, expected), id=title))
    return pytest.mark.parametrize("example", found)
