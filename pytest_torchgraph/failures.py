"""What a picture of a failed check shows, carried by the exception that the check raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .capturing.result import Capture
    from .graph.model import Graph, Node

ATTRIBUTE = "torchgraph"

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Surplus:
    """Ops that should not be there, or not as often.

    Attributes:
        graphs: the graphs that were checked.
        nodes: all nodes of these ops.
        title: what is wrong, in one line.
    """

    graphs: Sequence[Graph]
    nodes: Sequence[Node]
    title: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Graph breaks where none should be.

    Attributes:
        capture: what was watched or captured.
    """

    capture: Capture


def failed(message: str, shows: Surplus | Broken | None) -> AssertionError:
    """The exception for a failed check."""
    return showing(AssertionError(message), shows)


def showing(error: E, shows: Surplus | Broken | None) -> E:
    """The exception, with what it has to show."""
    if shows is not None:
        setattr(error, ATTRIBUTE, shows)
    return error


def shown_by(error: BaseException | None) -> Surplus | Broken | None:
    """What a failure has to show, its own or that of what it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        found: Surplus | Broken | None = getattr(error, ATTRIBUTE, None)
        if isinstance(found, Surplus | Broken):
            return found
        error = error.__cause__ or error.__context__
    return None
