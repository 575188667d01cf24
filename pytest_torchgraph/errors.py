"""The exceptions of pytest-torchgraph.

A failed check is a plain `AssertionError`, a wrong argument a `ValueError` or `TypeError`, and a
wrong option, ini value or marker a `pytest.UsageError`.
"""

from __future__ import annotations


class TorchGraphError(Exception):
    """The base class of our errors, for whoever wants to catch all of them.

    Raised as itself where this torch lacks a private name that a feature needs, where a watch
    cannot read what torch reports, where a stored graph cannot be read or written, where a
    comparison without a name is in a loop or under hypothesis, where no renderer can draw a graph,
    and where a command of the command line finds nothing to show or to draw.
    """


class CaptureError(TorchGraphError):
    """A capture failed, or was asked for something that it cannot know.

    Raised by `graph_capture(...)` where nothing was captured, where the target changes its
    parameters, where `backward=True` cannot be met, or inside an open `watch()`; the message says
    why. Raised by a `Capture` for what its mechanism does not record, as the graph breaks of a
    torch.fx trace, for `forward` and `backward` where there is not exactly one such graph, and for
    a level that it does not have.
    """


class UnsupportedTorchError(TorchGraphError, ImportError):
    """The torch at hand is older than 2.9, or there is none; the message says which.

    Raised by `capture`, `watch` and `from_fx`, and where a name of the package that needs torch is
    used without it. In a test the fixtures skip instead.
    """


class OutsideRootError(TorchGraphError):
    """A stored file would be written or removed outside pytest's root directory.

    Raised by an update, by `review`, and while a baseline is recorded. Links count as
    what they lead to.

    Attributes:
        reason: where the path leads.
        action: what was not done, "" for none.
    """

    def __init__(self, reason: str, action: str = ""):
        self.reason = reason
        self.action = action
        super().__init__(reason, action)

    def __str__(self) -> str:
        return f"{self.action}: {self.reason}" if self.action else self.reason


def add_note(error: BaseException, note: str) -> None:
    """As `BaseException.add_note`, which Python 3.10 lacks; pytest shows such notes there too."""
    notes = [*getattr(error, "__notes__", []), note]
    error.__notes__ = notes  # type: ignore[attr-defined, unused-ignore]


class GraphFormatError(TorchGraphError, ValueError):
    """A `.tgraph` text is malformed, truncated, or of a version that this release cannot read.

    Raised by `Graph.from_text`, `load`, comparisons with a stored graph, and the command line.

    Attributes:
        problem: the problem, in one line.
        line: the line of the offending text, from 1.
        column: the column of the offending text, from 1.
        path: the file that was read; None for a string.
    """

    def __init__(self, problem: str, line: int = 1, column: int = 1, path: str | None = None):
        self.problem = problem
        self.line = line
        self.column = column
        self.path = path
        super().__init__(problem, line, column, path)

    def __str__(self) -> str:
        return f"{self.path or '<text>'}:{self.line}:{self.column}: {self.problem}"
