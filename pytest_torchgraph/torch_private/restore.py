"""Detects and undoes changes that a test makes to torch's settings and counters.

Each `*_restored` context manager records the values at the start. At the end it restores the values
that changed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from operator import attrgetter, is_not
from typing import Any, TypeVar

import torch

from .private_names import NAMES, Replaced, get, replaced

_T = TypeVar("_T")


@contextlib.contextmanager
def counters_restored() -> Iterator[None]:
    """Restore `torch._dynamo.utils.counters`."""
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
"""Config modules of Dynamo, inductor, functorch, torch.fx and torch.compiler, in `NAMES`.

Since torch 2.8 torch.compiler holds some of inductor's entries."""


@contextlib.contextmanager
def configs_restored() -> Iterator[None]:
    """Restore the config modules of `CONFIGS`: assigned values and deleted entries.

    An entry stores the assigned value in `user_override`. Since torch 2.13 this is a ContextVar, so
    the value holds only for this thread. Deleting an entry sets its `hide`, as monkeypatch of
    pytest 9.2 does when it undoes an assignment.
    """
    owners, entries = _config_entries()
    hidden, values = [entry.hide for entry in entries], _overrides(entries)
    before = [copied(value) if type(value) in _MUTABLE else value for value in values]
    try:
        yield
    finally:
        now = _overrides(entries)
        for number, entry in enumerate(entries):
            entry.hide = hidden[number]
            if now[number] is not before[number] and not same(now[number], before[number]):
                _assign_override(*owners[number], entry, before[number])


@functools.lru_cache(maxsize=1)
def _config_entries() -> tuple[list[tuple[Any, str]], list[Any]]:
    """Return module and name of each entry of `CONFIGS`, and the entries."""
    found = [
        ((module, name), entry)
        for module in map(get, CONFIGS)
        for name, entry in module._config.items()
        if hasattr(entry, "user_override")
    ]
    return [owner for owner, _ in found], [entry for _, entry in found]


def _overrides(entries: list[Any]) -> list[Any]:
    """Return the values that were assigned to config entries, as `override` does, but faster."""
    if entries and isinstance(entries[0].user_override, ContextVar):
        return [entry.user_override.get() for entry in entries]
    return [entry.user_override for entry in entries]


def override(entry: Any) -> Any:
    """Return the value that was assigned to a config entry."""
    value = entry.user_override
    return value.get() if isinstance(value, ContextVar) else value


def copied(value: Any) -> Any:
    """Return a copy of a collection, which a test may change in place, else the value itself."""
    if not isinstance(value, _MUTABLE):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # an item cannot be deep-copied
        return copy.copy(value)


def same(a: Any, b: Any) -> bool:
    """Return True if two values are equal for certain. Only plain types have a reliable `==`."""
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and bool(a == b))


_PLAIN = (bool, int, float, str, list, dict, set, tuple, type(None))


def assigned_settings() -> dict[str, dict[str, Any]]:
    """Return the values assigned to entries of `CONFIGS`, by config module and entry."""
    settings: dict[str, dict[str, Any]] = {}
    for config in map(get, CONFIGS):
        assigned = settings[config.__name__] = {}
        for name, entry in config._config.items():
            if not hasattr(entry, "user_override") or entry.hide:
                continue
            value = override(entry)
            # A plain `object()` means "not set". Reading a collection assigns a copy of it.
            if type(value) is not object and not same(value, entry.default):
                assigned[name] = copied(value)
    return settings


def assign_settings(settings: dict[str, dict[str, Any]]) -> None:
    """Assign settings of another process here, as far as this torch has them."""
    for config in map(get, CONFIGS):
        for name, value in settings[config.__name__].items():
            if name in config._config:
                setattr(config, name, value)


def _assign_override(module: Any, name: str, entry: Any, value: Any) -> None:
    """Assign a value to a config entry, and tell the config module that its hash is outdated."""
    if isinstance(entry.user_override, ContextVar):
        entry.user_override.set(value)
    else:
        entry.user_override = value
    if hasattr(module, "_hash_dirty_var"):  # since torch 2.13
        module._hash_dirty_var.set(True)
        module._mark_get_dict_dirty(name)
    else:
        module._is_dirty = True


def stance_restored() -> Replaced:
    """Restore the stance of `torch.compiler.set_stance`."""
    return replaced("stance", get("stance"))


@contextlib.contextmanager
def logs_restored() -> Iterator[None]:
    """Restore the state of `torch._logging.set_logs` and the levels of torch's loggers."""
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
    """Return the logger `torch` and its descendants."""
    return [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger)
    ]


@contextlib.contextmanager
def _restored(read: Callable[[], _T], assign: Callable[[_T], object]) -> Iterator[None]:
    """Restore a setting, given the functions that read and assign it."""
    before = read()
    try:
        yield
    finally:
        assign(before)


def matmul_precision_restored() -> contextlib.AbstractContextManager[None]:
    """Restore the settings that let torch compute below float32 precision."""
    return _restored(_precision_settings, _assign_precision_settings)


def _precision_settings() -> tuple[str | None, dict[tuple[str, str], str], list[Any]]:
    """Return `torch.set_float32_matmul_precision`, every `fp32_precision`, and the CUDA flags."""
    return matmul_precision(), _precisions(), _flags()


def _assign_precision_settings(
    settings: tuple[str | None, dict[tuple[str, str], str], list[Any]],
) -> None:
    """Assign what `_precision_settings` returned. The settings change each other."""
    general, precisions, flags = settings
    for (owner, name), value, now in zip(_FLAGS, flags, _flags(), strict=True):
        if value not in (None, now):  # `None` could not be read, so it cannot be assigned
            setattr(owner, name, value)
    # `set_float32_matmul_precision` also assigns some `fp32_precision` values, so assign these
    # after it. If the general precision could not be read, try each of its values.
    for candidate in ("highest", "high", "medium") if general is None else (general,):
        if (matmul_precision(), _precisions()) == (general, precisions):
            break
        torch.set_float32_matmul_precision(candidate)
        _assign_precisions(precisions)


_PRECISIONS = (
    ("generic", "all"),
    *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")),
)
"""Backends and ops that have an `fp32_precision`."""


_CUBLAS: Any = torch.backends.cuda.matmul
_FLAGS: list[tuple[Any, str]] = [
    (_CUBLAS, name)
    for name in (
        "allow_fp16_accumulation",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
    if hasattr(_CUBLAS, name)
]
_FLAGS.append((torch.backends.cudnn, "allow_tf32"))
"""Owner and name of each flag for reduced precision on CUDA."""


def _flags() -> list[Any]:
    """Return the values of `_FLAGS`, `None` where torch raises: the `fp32_precision` differ."""
    values = []
    for owner, name in _FLAGS:
        try:
            values.append(getattr(owner, name))
        except RuntimeError:
            values.append(None)
    return values


def matmul_precision() -> str | None:
    """Return the float32 matmul precision, `None` if an `fp32_precision` makes torch raise."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _precisions() -> dict[tuple[str, str], str]:
    """Return every `fp32_precision`, keyed by backend and op."""
    precision = get("get_fp32_precision")
    return {key: precision(*key) for key in _PRECISIONS}


def _assign_precisions(values: dict[tuple[str, str], str]) -> None:
    """Assign every `fp32_precision`."""
    assign = get("set_fp32_precision")
    for key, value in values.items():
        for candidate in ("none", value):  # "none" inherits the backend's setting
            if _precisions()[key] != value:
                assign(*key, candidate)


def _autocast() -> list[Any]:
    """Return the autocast cache's switch, then for each device its switch and dtype."""
    states = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST]
    return [torch.is_autocast_cache_enabled(), *states]


def _assign_autocast(values: list[Any]) -> None:
    """Assign what `_autocast` returned."""
    torch.set_autocast_cache_enabled(values[0])
    for device, (enabled, dtype) in zip(_AUTOCAST, values[1:], strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


_AUTOCAST = [
    device
    for device in ("cpu", "cuda", "xpu", "mps", "mtia", "hpu", "xla", "maia", "privateuseone")
    if torch.amp.is_autocast_available(device)
]
"""Device types that have autocast here."""


def _default_device() -> torch.device | None:
    """Return the device of `torch.set_default_device`, `None` if it was not called."""
    # `torch.get_default_device` also reads `with torch.device(...)`, which ends by itself.
    mode = getattr(get("default_device"), "device_context", None)
    return None if mode is None else mode.device


def _assign_default_device(device: torch.device | None) -> None:
    """Assign the default device, or remove it."""
    torch.set_default_device(device)
    if device is None:  # before torch 2.10, `torch.get_default_device` raises on a `None` here
        del get("default_device").device_context


_Switch = tuple[Callable[[], Any], Callable[[Any], object]]
"""Functions that read and assign a switch."""


def _attribute(owner: Any, name: str) -> _Switch:
    """Return the functions of a switch that is an attribute."""
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _assign_validate_args(value: bool) -> None:
    """Assign `Distribution._validate_args`, which torch sets to False when it first compiles."""
    torch.distributions.Distribution.set_default_validate_args(value)
    get("patch_torch").cache_clear()  # the next compilation of the user sets it to False again


_ATTENTION = torch.backends.cuda
_SPARSE: Any = torch.sparse.check_sparse_tensor_invariants
_SWITCHES: list[_Switch] = [
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (_default_device, _assign_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.set_anomaly_enabled(*value),
    ),
    (_autocast, _assign_autocast),
    (_precision_settings, _assign_precision_settings),
    (_ATTENTION.flash_sdp_enabled, _ATTENTION.enable_flash_sdp),
    (_ATTENTION.mem_efficient_sdp_enabled, _ATTENTION.enable_mem_efficient_sdp),
    (_ATTENTION.math_sdp_enabled, _ATTENTION.enable_math_sdp),
    (_ATTENTION.cudnn_sdp_enabled, _ATTENTION.enable_cudnn_sdp),
    (
        _ATTENTION.fp16_bf16_reduction_math_sdp_allowed,
        _ATTENTION.allow_fp16_bf16_reduction_math_sdp,
    ),
    *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
    _attribute(torch.backends.mkldnn, "enabled"),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    (lambda: get("multithreading")(), torch.autograd.set_multithreading_enabled),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (lambda: get("nnpack")(), torch.backends.nnpack.set_flags),
    (_SPARSE.is_enabled, lambda value: _SPARSE.enable() if value else _SPARSE.disable()),
    (lambda: get("forward_grad")(), lambda value: get("set_forward_grad")(value)),
    _attribute(torch.backends.opt_einsum, "enabled"),
    (lambda: get("validate_args"), _assign_validate_args),
]
"""Functions that read and assign each of torch's global switches."""


def switches() -> list[Any]:
    """Return the values of torch's global switches, for `assign_switches`."""
    return [read() for read, _ in _SWITCHES]


def assign_switches(values: list[Any]) -> None:
    """Assign the values of `switches`, of this process or of another."""
    for (read, assign), value in zip(_SWITCHES, values, strict=True):
        if read() != value:
            assign(value)


def switches_restored() -> contextlib.AbstractContextManager[None]:
    """Restore torch's global switches: modes, defaults, precisions, backends, threads."""
    return _restored(switches, assign_switches)


def forget_aborted_compilation() -> None:
    """Clear this thread's compile context, which a failed capture leaves set.

    If a capture of compiled autograd fails, torch keeps the capture's id and assigns it to later
    compilations. Resetting Dynamo does not clear it.
    """
    get("guards_tls").compile_context = None


_MODULES = tuple(NAMES[name].path.replace(":", ".") for name in CONFIGS)
_MUTABLE = (list, dict, set)


class _MissingEntry:
    """Value of a deleted entry. Reading such an entry from torch raises AttributeError."""

    def __repr__(self) -> str:
        return "gone"


GONE = _MissingEntry()


class ConfigChanges:
    """Changes in the config modules of Dynamo, inductor, functorch, torch.fx, torch.compiler.

    Only modules that are already imported are checked. A check takes some 50 µs, because most
    values are compared by identity only. Collections are compared by their items too, because torch
    assigns a copy of a collection when it is read.
    """

    def __init__(self) -> None:
        self._modules: list[_Entries] = []
        self.take()  # from now on

    def take(self) -> dict[str, tuple[Any, Any]]:
        """Return the entries that changed since the last call, each with its old and new value."""
        changes: dict[str, tuple[Any, Any]] = {}
        for entries in self._modules:
            changes.update(entries.take())
        # Modules that were imported since the last call are compared from now on.
        taken = {entries.module for entries in self._modules}
        for name in _MODULES:
            module: Any = sys.modules.get(name)
            if name not in taken and hasattr(module, "_config"):
                self._modules.append(_Entries(name, module._config))
        return changes


class _Entries:
    """Entries of one config module, as of the last check.

    Attributes:
        module: name of the module.
        _assigned, _hidden, _values: the assigned value, `hide` and the value of each entry.
        _mutable: the indices of entries whose assigned value may change in place.
    """

    def __init__(self, module: str, config: dict[str, Any]) -> None:
        self.module = module
        # An alias has the value of another entry.
        entries = {
            name: entry
            for name, entry in config.items()
            if hasattr(entry, "user_override") and entry.alias is None
        }
        self._names = list(entries)
        self._entries = list(entries.values())
        self._assigned = _overrides(self._entries)
        self._hidden = self._read_hidden()
        self._values = list(map(_value, self._entries))
        self._mutable = self._find_mutable()

    def take(self) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Yield the changed entries, each with its old and new value."""
        assigned, hidden = _overrides(self._entries), self._read_hidden()
        suspects = self._mutable
        if hidden != self._hidden or any(map(is_not, assigned, self._assigned)):
            pairs = zip(assigned, self._assigned, hidden, self._hidden, strict=True)
            changed = [
                index
                for index, (now, before, hides, hid) in enumerate(pairs)
                if now is not before or hides != hid
            ]
            suspects = sorted({*suspects, *changed})
            self._assigned, self._hidden = assigned, hidden
        for index in suspects:
            value = _value(self._entries[index])
            before = self._values[index]
            if not same(before, value):
                self._values[index] = copied(value)
                yield f"{self.module}.{self._names[index]}", (before, value)
        if suspects is not self._mutable:
            self._mutable = self._find_mutable()

    def _read_hidden(self) -> list[bool]:
        """Return for each entry whether it is deleted."""
        return list(map(attrgetter("hide"), self._entries))

    def _find_mutable(self) -> list[int]:
        """Return `_mutable`."""
        return [n for n, value in enumerate(self._assigned) if isinstance(value, _MUTABLE)]


def _value(entry: Any) -> Any:
    """Return the value of an entry. Reading it from the config module might assign it."""
    if entry.hide:
        return GONE
    for value in (entry.env_value_force, override(entry), entry.env_value_default):
        if type(value) is not object:  # a plain `object()` means "not set"
            return copied(value)
    return copied(entry.default)
