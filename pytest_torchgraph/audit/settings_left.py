"""Tests that leave torch's configuration changed: what later tests compile depends on it."""

from __future__ import annotations

from typing import Any

from ..torch_private import ConfigChanges, same
from .facts import SettingLeft

_LONGEST = 60
"""How many characters of a value are shown."""


class SettingsLeft:
    """What the tests of this process leave changed in torch's config modules.

    What a fixture of wider scope changes is meant for all tests that use it, and is no test's.
    """

    def __init__(self) -> None:
        self._changes = ConfigChanges()
        self._first: dict[str, Any] = {}
        self._left: dict[str, tuple[Any, Any, str]] = {}

    def look(self, test: str) -> None:
        """Take note of what changed since the last look, in a test; "" for what is no test's."""
        for name, (before, after) in self._changes.take().items():
            first = self._first.setdefault(name, before)
            old, _, by = self._left.pop(name, (before, None, test))
            if by and not same(after, first) and not same(after, old):
                self._left[name] = (old, after, by)

    def all(self) -> list[SettingLeft]:
        """The settings that are still changed, by name."""
        return [
            SettingLeft(name, _text(old), _text(now), test)
            for name, (old, now, test) in sorted(self._left.items())
        ]


def _text(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # of a class of the user's
        text = type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
