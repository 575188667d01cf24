"""Captures without recording eager ops, to measure the recording's cost and effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from pytest_torchgraph.mechanisms.islands.island_recorder import IslandRecorder
from pytest_torchgraph.mechanisms.recording.mode import Value


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Let captures via aot run without the mode. Runs of compiled graphs are still counted."""
    with contextlib.ExitStack() as stack:
        for name, instead in (
            ("recording", _counting),
            ("run", lambda _self, _made, call, args, _written, **_: call(args)),
            ("number_of", lambda _self, _tensor: Value(0)),
        ):
            stack.enter_context(mock.patch.object(IslandRecorder, name, instead))
        yield


@contextlib.contextmanager
def _counting(recorder: IslandRecorder, **_kwargs: Any) -> Iterator[None]:
    recorder.is_recording = True
    try:
        yield
    finally:
        recorder.is_recording = False
