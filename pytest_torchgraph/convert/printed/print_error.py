"""The error of reading a printed graph."""

from __future__ import annotations

from ...errors import CaptureError


class PrintedGraphError(CaptureError):
    """A printed graph cannot be read. No part of it is used.

    Attributes:
        problem: the reason.
        line: 1-based line of the printed text.
        text: that line.
    """

    def __init__(self, problem: str, line: int, text: str = ""):
        self.problem = problem
        self.line = line
        self.text = text.strip()
        super().__init__(problem, line, text)

    def __str__(self) -> str:
        shown = f"\n    {self.text[:200]}" if self.text else ""
        return f"cannot read the graph that torch printed, line {self.line}: {self.problem}{shown}"
