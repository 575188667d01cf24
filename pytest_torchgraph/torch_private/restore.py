"""torch's settings and counters: what a test changed, put back, and named.

Each `*_restored` is a context manager that notes the values at its begin, and assigns them at its
end where they differ.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from operator import attrgetter, is_not
from typing import Any

import torch

from .private_names import NAMES, get, replaced


@contextlib.contextmanager
def counters_restored() -> Iterator[None]:
    """Put `torch._dynamo.utils.counters` back."""
    counters = get("counters")
    before = {key: Counter(value) for key, value in counters.items()}
    try:
        yield
    finally:
        for key in list(counters):
            if key in before:
                counters[key].clear()
                counters[key].update(before[key])
            else:
                del counters[key]


CONFIGS = ("config", "inductor_config", "functorch_config", "fx_config", "compiler_config")
"""The config modules of Dynamo, inductor, functorch, torch.fx and torch.compiler, in `NAMES`.

torch.compiler keeps some of inductor's entries since torch 2.8.
"""


@contextlib.contextmanager
def configs_restored() -> Iterator[None]:
    """Put the config modules of `CONFIGS` back: values that were assigned, and deleted entries.

    An entry keeps the assigned value as `user_override`: since torch 2.13 in a ContextVar, so that
    it holds for this thread alone, before as an attribute. Deleting an entry sets its `hide`; the
    monkeypatch of pytest 9.2 does that when it undoes an assignment.
    """
    before = [
        (module, name, entry, copied(override(entry)), entry.hide)
        for module in map(get, CONFIGS)
        for name, entry in module._config.items()
        if hasattr(entry, "user_override")
    ]
    try:
        yield
    finally:
        for module, name, entry, value, hidden in before:
            entry.hide = hidden
            if not same(override(entry), value):
                _assign_override(module, name, entry, value)


def override(entry: Any) -> Any:
    """The value that was assigned to an entry of a config."""
    value = entry.user_override
    return value.get() if isinstance(value, ContextVar) else value


def copied(value: Any) -> Any:
    """A copy of a collection, which a test may change in place; else the value itself."""
    if not isinstance(value, list | dict | set):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # of something in it that cannot be copied
        return copy.copy(value)


def same(a: Any, b: Any) -> bool:
    """Whether a value need not be assigned again. Objects of other types have no `==` to trust."""
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and bool(a == b))


_PLAIN = (bool, int, float, str, list, dict, set, tuple, type(None))


def _assign_override(module: Any, name: str, entry: Any, value: Any) -> None:
    if isinstance(entry.user_override, ContextVar):
        entry.user_override.set(value)
        module._hash_dirty_var.set(True)
        module._mark_get_dict_dirty(name)
    else:
        entry.user_override = value
        module._is_dirty = True


@contextlib.contextmanager
def stance_restored() -> Iterator[None]:
    """Put the stance of `torch.compiler.set_stance` back."""
    with replaced("stance", get("stance")):
        yield


@contextlib.contextmanager
def logs_restored() -> Iterator[None]:
    """Put the state of `torch._logging.set_logs` back, and the levels of torch's loggers."""
    state = get("log_state")
    before = dict(state.log_qname_to_level), set(state.artifact_names)
    levels = {logger: logger.level for logger in _loggers()}
    try:
        yield
    finally:
        if before != (state.log_qname_to_level, state.artifact_names):
            state.clear()
            state.log_qname_to_level.update(before[0])
            state.artifact_names.update(before[1])
            get("init_logs")()
        for logger, level in levels.items():
            if logger.level != level:
                logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    """The loggers `torch` and below."""
    known = logging.root.manager.loggerDict
    return [
        logger
        for name, logger in list(known.items())
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger)
    ]


@contextlib.contextmanager
def matmul_precision_restored() -> Iterator[None]:
    """Put back the settings that let torch compute with less than float32 precision.

    Those are `torch.set_float32_matmul_precision`, every `fp32_precision` of `torch.backends`, and
    the flags of `torch.backends.cuda.matmul` and of `cudnn`. Assigning the first also assigns some
    of the second. Where the first cannot be read, each of its values is tried.
    """
    general, precisions, flags = matmul_precision(), _precisions(), _flags()
    try:
        yield
    finally:
        for (owner, name), value in flags.items():
            if _flags().get((owner, name)) != value:
                setattr(owner, name, value)
        for candidate in ("highest", "high", "medium") if general is None else (general,):
            if (matmul_precision(), _precisions()) == (general, precisions):
                break
            torch.set_float32_matmul_precision(candidate)
            _assign_precisions(precisions)


_PRECISIONS = (
    ("generic", "all"),
    *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")),
)

"""The backends and ops that have an `fp32_precision`, as torch names them."""


def _flags() -> dict[tuple[Any, str], Any]:
    """The flags for reduced precision on CUDA, each by its owner and name.

    `allow_tf32` is left out where it cannot be read: torch raises where `fp32_precision` differs.
    """
    matmul: Any = torch.backends.cuda.matmul
    names = [(matmul, name) for name in _MATMUL_FLAGS if hasattr(matmul, name)]
    flags = {}
    for owner, name in [*names, (torch.backends.cudnn, "allow_tf32")]:
        with contextlib.suppress(RuntimeError):
            flags[owner, name] = getattr(owner, name)
    return flags


_MATMUL_FLAGS = (
    "allow_fp16_accumulation",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)


def matmul_precision() -> str | None:
    """`torch.get_float32_matmul_precision()`; None where torch raises, by an `fp32_precision`."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _precisions() -> dict[tuple[str, str], str]:
    """Every `fp32_precision`, by backend and op."""
    precision = get("get_fp32_precision")
    return {key: precision(*key) for key in _PRECISIONS}


def _assign_precisions(values: dict[tuple[str, str], str]) -> None:
    assign = get("set_fp32_precision")
    for key, value in values.items():
        for candidate in ("none", value):  # "none": as is set for the whole backend
            if _precisions()[key] != value:
                assign(*key, candidate)


def forget_aborted_compilation() -> None:
    """Clear this thread's compile context, which a capture that failed leaves behind.

    Where compiled autograd fails to capture, torch keeps the capture's id, and gives it to whatever
    is compiled afterwards. A reset of Dynamo does not clear it.
    """
    get("guards_tls").compile_context = None


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
