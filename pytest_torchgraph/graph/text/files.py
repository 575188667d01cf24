"""Documents in files."""

from __future__ import annotations

from pathlib import Path

from ...errors import GraphFormatError
from .parse import Document
from .ranks import RanksDocument, parse_text


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        GraphFormatError: if it is not UTF-8, with the path.
        OSError: if the file cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraphFormatError(f"not UTF-8: {error.reason}", path=str(path)) from None


def parse_any_file(text: str, path: Path) -> Document | RanksDocument:
    """The document of a file's text, which may have the graphs of several ranks.

    Raises:
        GraphFormatError: for a malformed text, with the path and the position.
    """
    try:
        return parse_text(text)
    except GraphFormatError as error:
        raise GraphFormatError(error.problem, error.line, error.column, str(path)) from None
