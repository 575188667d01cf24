"""The exceptions of pytest-torchgraph.

A failed check is a plain `AssertionError`, a wrong argument a `ValueError` or `TypeError`, and a
wrong option, ini value or marker a `pytest.UsageError`.
"""

from __future__ import annotations

from .words import one_line, printable


class TorchGraphError(Exception):
    """The base class of all errors of this package.

    Raised directly if this torch lacks a private name that a feature needs, if a watch cannot parse
    torch's reports, if a stored graph cannot be read or written, if a comparison without a name is
    in a loop or under hypothesis, if no renderer can draw a graph, and if a command of the command
    line has nothing to show or draw.
    """


class CaptureError(TorchGraphError):
    """A capture failed, or lacks the requested data.

    Raised by `graph_capture(...)` if nothing was captured, the target changes its parameters,
    `backward=True` is impossible, or a `watch()` is open; the message has the reason. Raised by a
    `Capture` for records that its mechanism does not make, such as graph breaks of a torch.fx
    trace; by `forward` and `backward` unless there is exactly one such graph; and for a missing
    level.
    """


class UnsupportedTorchError(TorchGraphError, ImportError):
    """The installed torch is older than 2.9, or torch is not installed; the message says which.

    Raised by `capture`, `watch` and `from_fx`, and by any other public name that needs torch. In a
    test, the fixtures skip instead.
    """


class OutsideRootError(TorchGraphError):
    """A stored file would be written or removed outside pytest's root directory.

    Raised by an update, by `review`, and while a baseline is recorded. Links of directories are
    resolved.

    Attributes:
        reason: why the path is refused, with its target.
        action: the refused action, "" if there is none.
    """

    def __init__(self, reason: str, action: str = ""):
        self.reason = reason
        self.action = action
        super().__init__(reason, action)

    def __str__(self) -> str:
        return f"{self.action}: {self.reason}" if self.action else self.reason


def make_printable(error: BaseException) -> None:
    """Make all texts of an error of this package safe to print; see `words.one_line`."""
    error.args = tuple([printable(a) if isinstance(a, str) else a for a in error.args])
    texts = {name: text for name, text in vars(error).items() if isinstance(text, str)}
    vars(error).update({name: printable(text) for name, text in texts.items()})


def add_note(error: BaseException, note: str) -> None:
    """Add a note like `BaseException.add_note`, which Python 3.10 lacks. pytest shows the note."""
    notes = [*getattr(error, "__notes__", []), printable(note)]
    error.__notes__ = notes  # type: ignore[attr-defined, unused-ignore]


class GraphFormatError(TorchGraphError, ValueError):
    """A `.tgraph` text is malformed, truncated, or of a version that this release cannot read.

    Raised by `Graph.from_text`, `load`, comparisons with a stored graph, and the command line.

    Attributes:
        problem: the problem, in one line.
        line: line number of the malformed text, from 1.
        column: column number of the malformed text, from 1.
        path: the file; `None` for a string.
    """

    def __init__(self, problem: str, line: int = 1, column: int = 1, path: str | None = None):
        self.problem = problem
        self.line = line
        self.column = column
        self.path = path
        super().__init__(problem, line, column, path)

    def __str__(self) -> str:
        return f"{one_line(self.path or '<text>')}:{self.line}:{self.column}: {self.problem}"


def only_counts_error(path: object) -> GraphFormatError:
    """Return the error for a file that stores only op counts, if nodes are needed."""
    return GraphFormatError(
        'only op counts are stored, not nodes: use graph_snapshot(detail="dataflow") in the test, '
        "and store the graph again with --torchgraph-update",
        path=str(path),
    )
