"""Refusal of comparisons without a name in loops and under hypothesis.

Comparisons without a name are numbered in the order in which they run, and the number is part of
the file's name. In straight code that order is the source's. In a loop the number is that of a
round, and under hypothesis that of an example: which graph belongs to which file would depend on
what ran before.
"""

from __future__ import annotations

from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from ..errors import TorchGraphError
from ..settings import config as settings

Place = tuple[tuple[CodeType, int], ...]
"""Where a comparison is: the frames from it out to the test's function.

Each as its code and the offset of the instruction that it was at.
"""


def refuse_hypothesis(item: pytest.Item) -> None:
    """Refuse a comparison without a name in a test that hypothesis calls for each example.

    Raises:
        TorchGraphError: with the call to write instead.
    """
    __tracebackhide__ = True
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        raise TorchGraphError(
            "hypothesis calls this test for many examples, and graphs without a name would be "
            "numbered by the order of these: write graph_snapshot(name=...), with the same name "
            "where all examples have the same graph"
        )


def refuse_again(places: set[Place], item: pytest.Item, frame: FrameType) -> None:
    """Add the place of a comparison without a name, and refuse a second one at the same place.

    Args:
        places: the places of the test's earlier comparisons; the new one is added.
        item: the test.
        frame: the frame that compares.

    Raises:
        TorchGraphError: with the line, and the call to write instead.
    """
    __tracebackhide__ = True
    place = _place(item, frame)
    if place in places:
        file = settings.shown(item.config, Path(frame.f_code.co_filename))
        raise TorchGraphError(
            f"{file}:{frame.f_lineno} compares a graph without a name for the "
            "second time in this test, in a loop as it seems: the graphs would be numbered by its "
            "rounds. Write graph_snapshot(name=...), with a name for each of them"
        )
    places.add(place)


def _place(item: pytest.Item, frame: FrameType) -> Place:
    code = getattr(_function(item), "__code__", None)
    calls = []
    caller: FrameType | None = frame
    while caller is not None:
        calls.append((caller.f_code, caller.f_lasti))
        if caller.f_code is code:
            break
        caller = caller.f_back
    return tuple(calls)


def _function(item: pytest.Item) -> Any:
    """The function of a test, inside of its decorators and its method."""
    function: Any = getattr(item, "obj", None)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__func__", function)
