"""Data for the picture of a failed check, attached to the exception that it raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .model import Graph, Node

ATTRIBUTE = "torchgraph"
"""Name of the exception's attribute that holds the `Failure`."""

E = TypeVar("E", bound=BaseException)


class Failure:
    """Data for the picture of a failed check, with a subclass for each kind of failure."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UnexpectedOps(Failure):
    """Ops that must not occur, or that occur more often than allowed.

    Attributes:
        graphs: the checked graphs.
        nodes: all nodes of these ops.
        title: the problem in one line.
    """

    graphs: Sequence[Graph]
    nodes: Sequence[Node]
    title: str


def failed(message: str, shows: Failure | None) -> AssertionError:
    """Return an `AssertionError` for a failed check, with the data for its picture."""
    return with_picture(AssertionError(message), shows)


def with_picture(error: E, shows: Failure | None) -> E:
    """Attach the data of a picture to an exception, and return the exception."""
    if shows is not None:
        setattr(error, ATTRIBUTE, shows)
    return error


def shown_by(error: BaseException | None) -> Failure | None:
    """Return the data attached to an exception or to the nearest exception in its chain."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        failure = getattr(error, ATTRIBUTE, None)
        if isinstance(failure, Failure):
            return failure
        error = error.__cause__ or error.__context__
    return None
