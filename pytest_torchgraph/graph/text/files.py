"""Documents in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...errors import GraphFormatError
from .parse import Document, parse_document
from .ranks import RanksDocument, parse_text

Parsed = TypeVar("Parsed")


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


def parse_file(text: str, path: Path) -> Document:
    """The document of a file's text.

    Raises:
        GraphFormatError: for a malformed text, with the path and the position; and for a file with
            the graphs of several ranks.
    """
    return _parsed(parse_document, text, path)


def parse_any_file(text: str, path: Path) -> Document | RanksDocument:
    """The document of a file's text, which may have the graphs of several ranks.

    Raises:
        GraphFormatError: for a malformed text, with the path and the position.
    """
    return _parsed(parse_text, text, path)


def _parsed(parse: Callable[[str], Parsed], text: str, path: Path) -> Parsed:
    try:
        return parse(text)
    except GraphFormatError as error:
        raise GraphFormatError(error.problem, error.line, error.column, str(path)) from None
