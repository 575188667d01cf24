"""Changes of torch's config modules between two moments, by the name of the entry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from operator import attrgetter, is_not
from typing import Any

from .private_names import NAMES
from .restore import CONFIGS, copied, override, same

_MODULES = tuple(NAMES[name].path.replace(":", ".") for name in CONFIGS)
_MUTABLE = (list, dict, set)


class _Gone:
    """The value of an entry that was deleted: torch raises AttributeError where it is read."""

    def __repr__(self) -> str:
        return "gone"


GONE = _Gone()


class ConfigChanges:
    """What changes in the config modules of Dynamo, inductor, functorch, torch.fx, torch.compiler.

    Only modules that somebody else has imported are looked at. Looking takes some 50 µs: what was
    assigned is compared by identity, collections also by their items, and the rest only where that
    differs. Reading a collection assigns a copy of it, which is no change.
    """

    def __init__(self) -> None:
        self._modules: list[_Entries] = []
        self.take()

    def take(self) -> dict[str, tuple[Any, Any]]:
        """The entries that changed since the last call, each with its old and new value."""
        changes: dict[str, tuple[Any, Any]] = {}
        for entries in self._modules:
            changes.update(entries.take())
        for name in _MODULES if len(self._modules) < len(_MODULES) else ():
            module: Any = sys.modules.get(name)
            known = any(entries.module == name for entries in self._modules)
            if not known and hasattr(module, "_config"):
                self._modules.append(_Entries(name, module._config))
        return changes


class _Entries:
    """The entries of one config module, as they were when they were looked at last."""

    def __init__(self, module: str, config: dict[str, Any]) -> None:
        self.module = module
        found = {
            name: entry
            for name, entry in config.items()
            if hasattr(entry, "user_override") and entry.alias is None
        }
        self._names = list(found)
        self._entries = list(found.values())
        self._assigned = self._look()
        self._hidden = self._hide()
        self._values = list(map(_value, self._entries))
        self._mutable = self._find_mutable()

    def take(self) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """The entries that changed, each with its old and new value."""
        assigned, hidden = self._look(), self._hide()
        suspects = self._mutable
        if hidden != self._hidden or any(map(is_not, assigned, self._assigned)):
            pairs = zip(assigned, self._assigned, hidden, self._hidden, strict=True)
            differing = [n for n, (a, b, h, g) in enumerate(pairs) if a is not b or h != g]
            suspects = sorted({*suspects, *differing})
            self._assigned, self._hidden = assigned, hidden
        for number in suspects:
            value = _value(self._entries[number])
            before = self._values[number]
            if not same(before, value):
                self._values[number] = copied(value)
                yield f"{self.module}.{self._names[number]}", (before, value)
        if suspects is not self._mutable:
            self._mutable = self._find_mutable()

    def _look(self) -> list[Any]:
        if self._entries and isinstance(self._entries[0].user_override, ContextVar):
            return [entry.user_override.get() for entry in self._entries]
        return [entry.user_override for entry in self._entries]

    def _hide(self) -> list[bool]:
        return list(map(attrgetter("hide"), self._entries))

    def _find_mutable(self) -> list[int]:
        return [n for n, value in enumerate(self._assigned) if isinstance(value, _MUTABLE)]


def _value(entry: Any) -> Any:
    """The value that reading an entry gives, without reading it, which may assign."""
    if entry.hide:
        return GONE
    for value in (entry.env_value_force, override(entry), entry.env_value_default):
        if type(value) is not object:  # as what stands for "not set" is
            return copied(value)
    return copied(entry.default)
