"""Data for the picture of a failed check, as an attribute of the exception that it raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .model import Graph, Node

ATTRIBUTE = "torchgraph"
"""The exception's attribute that holds its `Failure`."""

E = TypeVar("E", bound=BaseException)


class Failure:
    """The data that the picture of a failed check is drawn from; a subclass for each kind of it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UnexpectedOps(Failure):
    """Ops that occur although they should not, or more often than they should.

    Attributes:
        graphs: the graphs that were checked.
        nodes: all nodes of these ops.
        title: the problem in one line.
    """

    graphs: Sequence[Graph]
    nodes: Sequence[Node]
    title: str


def failed(message: str, shows: Failure | None) -> AssertionError:
    """The exception to raise for a failed check, with the data of its picture."""
    return with_picture(AssertionError(message), shows)


def with_picture(error: E, shows: Failure | None) -> E:
    """The same exception, with the data of its picture attached."""
    if shows is not None:
        setattr(error, ATTRIBUTE, shows)
    return error


def shown_by(error: BaseException | None) -> Failure | None:
    """The data attached to an exception, or to the nearest one that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        failure = getattr(error, ATTRIBUTE, None)
        if isinstance(failure, Failure):
            return failure
        error = error.__cause__ or error.__context__
    return None
