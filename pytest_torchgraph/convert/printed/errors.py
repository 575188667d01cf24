"""The one way in which reading a printed graph fails."""

from __future__ import annotations

from ...errors import CaptureError


class PrintedGraphError(CaptureError):
    """A graph that torch printed cannot be read: nothing of it is used.

    Attributes:
        problem: what is wrong.
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
