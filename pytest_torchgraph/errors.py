"""The exceptions of pytest-torchgraph. Failed checks are plain `AssertionError`."""

from __future__ import annotations


class TorchGraphError(Exception):
    """Base class of every error that pytest-torchgraph raises itself."""


class CaptureError(TorchGraphError):
    """A capture gave no usable graph, or was asked for something that it cannot know."""


class GraphFormatError(TorchGraphError, ValueError):
    """A `.tgraph` text is malformed, truncated, or of a version that this release cannot read.

    Attributes:
        line: 1-based line of the offending text.
        column: 1-based column of the offending text.
        path: the file that was read, or None for a string.
    """

    def __init__(self, problem: str, line: int = 1, column: int = 1, path: str | None = None):
        self.problem = problem
        self.line = line
        self.column = column
        self.path = path
        super().__init__(problem, line, column, path)

    def __str__(self) -> str:
        return f"{self.path or '<text>'}:{self.line}:{self.column}: {self.problem}"
