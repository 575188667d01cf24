"""What a picture of a failed check shows, carried by the exception that the check raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .model import Graph, Node

ATTRIBUTE = "torchgraph"

E = TypeVar("E", bound=BaseException)


class Failure:
    """What a failed check has to show; a class for each kind of picture."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UnexpectedOps(Failure):
    """Ops that should not be there, or not as often.

    Attributes:
        graphs: the graphs that were checked.
        nodes: all nodes of these ops.
        title: what is wrong, in one line.
    """

    graphs: Sequence[Graph]
    nodes: Sequence[Node]
    title: str


def failed(message: str, shows: Failure | None) -> AssertionError:
    """The exception for a failed check."""
    return with_picture(AssertionError(message), shows)


def with_picture(error: E, shows: Failure | None) -> E:
    """The exception, with what it has to show."""
    if shows is not None:
        setattr(error, ATTRIBUTE, shows)
    return error


def shown_by(error: BaseException | None) -> Failure | None:
    """What a failure has to show, its own or that of what it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        found = getattr(error, ATTRIBUTE, None)
        if isinstance(found, Failure):
            return found
        error = error.__cause__ or error.__context__
    return None
