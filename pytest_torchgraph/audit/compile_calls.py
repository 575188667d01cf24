"""Locations of `torch.compile` calls in tests, and torch settings that tests do not restore."""

from __future__ import annotations

from types import FrameType
from typing import Any

from ..convert.source_lines import is_torch_file, is_user_file
from ..torch_private import ConfigChanges, same
from .facts import CodePlace, LeakedSetting

_ENTRY_FILES = ("__init__.py", "_compile.py", "_dynamo", "compiler", "nn/modules/module.py")
"""Files of torch whose frames may be between the user's code and `torch.compile`."""
_RUNNERS = ("_pytest", "pluggy")
"""Packages that call the tests."""


def compile_call(frame: FrameType | None) -> CodePlace | None:
    """Return a test's call of `torch.compile`, given a frame of torch inside the call.

    Return `None` for torch's own calls, and for calls at the import of a module (decorators).
    """
    # Outwards from torch: first torch's own frames, then the user's, then pytest's. The first user
    # frame is the call, but only the frames after it say if it is in a test.
    call = None
    while frame is not None:
        file = frame.f_code.co_filename
        # All callers of this frame belong to pytest.
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _RUNNERS:
            break
        if frame.f_code.co_name == "<module>":  # at import time, not in a test
            return None
        if call is None:
            if is_torch_file(file):
                # Any other file of torch compiles for itself.
                if not any(is_torch_file(file, *entry.split("/")) for entry in _ENTRY_FILES):
                    return None
            elif is_user_file(file):
                call = CodePlace(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return call


_LONGEST = 60
"""Maximum length of a displayed value, in characters."""


class SettingsTracker:
    """Settings in torch's config modules that tests of this process change and do not restore.

    A change by a fixture of wider scope is not attributed to a test, because it is meant for all
    tests that use the fixture.
    """

    def __init__(self) -> None:
        self._changes = ConfigChanges()
        # By setting: its first value, and for a changed one the value before the test that changed
        # it, the current value, and that test.
        self._first: dict[str, Any] = {}
        self._leaked: dict[str, tuple[Any, Any, str]] = {}

    def look(self, test: str) -> None:
        """Attribute all changes since the last call to a test, or to no test if `test` is ""."""
        for name, (before, after) in self._changes.take().items():
            first = self._first.setdefault(name, before)
            # A setting that is changed again stays that of the first test.
            old, _, changed_by = self._leaked.pop(name, (before, None, test))
            # A test that restores the first or the previous value leaves nothing changed.
            if changed_by and not same(after, first) and not same(after, old):
                self._leaked[name] = (old, after, changed_by)

    def all(self) -> list[LeakedSetting]:
        """Return the settings that are still changed, sorted by name."""
        return [
            LeakedSetting(name, _text(old), _text(current), test)
            for name, (old, current, test) in sorted(self._leaked.items())
        ]


def _text(value: Any) -> str:
    """Return the `repr` of a value, cut to `_LONGEST`."""
    try:
        text = repr(value)
    except Exception:  # the `__repr__` of a user's class may raise
        text = type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
