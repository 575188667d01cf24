"""Refuses comparisons without a name whose file would be named by the order in which they ran.

Those in sequence are numbered, and whoever inserts one sees it. In a loop the number is that of a
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
"""The calls that led to a comparison: from the test's function down, each with its instruction."""


def refuse_hypothesis(item: pytest.Item) -> None:
    """Refuse a comparison without a name in a test that hypothesis calls for each example.

    Raises:
        TorchGraphError: with what to write instead.
    """
    __tracebackhide__ = True
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        raise TorchGraphError(
            "hypothesis calls this test for many examples, and graphs without a name would be "
            "numbered by the order of these: write graph_snapshot(name=...), with the same name "
            "where all examples have the same graph"
        )


def refuse_again(places: set[Place], item: pytest.Item, frame: FrameType) -> None:
    """Note where a comparison without a name is made, and refuse the second at one place.

    Args:
        places: where the test made some before; added to.
        item: the test.
        frame: of the code that compares.

    Raises:
        TorchGraphError: with the line, and what to write instead.
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
    found: Any = getattr(item, "obj", None)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return getattr(found, "__func__", found)
