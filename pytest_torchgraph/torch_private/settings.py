"""What can be set about compilation, and putting it back."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch

from .names import get, replaced


@contextlib.contextmanager
def counters_restored() -> Iterator[None]:
    """Put Dynamo's counters back as they were."""
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


@contextlib.contextmanager
def configs_restored() -> Iterator[None]:
    """Put the configs of Dynamo, inductor, functorch and torch.fx back as they were.

    And that of torch.compiler, where some of inductor's entries are kept since torch 2.8.

    An entry holds what was assigned to it: in a ContextVar since torch 2.13, so that it is only of
    this thread, in an attribute before. One that was deleted is hidden: the monkeypatch of pytest
    9.2 does that when it undoes an assignment.
    """
    before = [
        (module, name, entry, _copied(_override(entry)), entry.hide)
        for module in map(get, CONFIGS)
        for name, entry in module._config.items()
        if hasattr(entry, "user_override")
    ]
    try:
        yield
    finally:
        for module, name, entry, value, hidden in before:
            entry.hide = hidden
            if not _same(_override(entry), value):
                _assign_override(module, name, entry, value)


def _override(entry: Any) -> Any:
    value = entry.user_override
    return value.get() if isinstance(value, ContextVar) else value


def _copied(value: Any) -> Any:
    if not isinstance(value, list | dict | set):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # of something in it that cannot be copied
        return copy.copy(value)


def _same(a: Any, b: Any) -> bool:
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
    """Put back the stance of `torch.compiler.set_stance`."""
    with replaced("stance", get("stance")):
        yield


@contextlib.contextmanager
def logs_restored() -> Iterator[None]:
    """Put back what `torch._logging.set_logs` set, and the levels of torch's loggers."""
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
    known = logging.root.manager.loggerDict
    return [
        logger
        for name, logger in list(known.items())
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger)
    ]


@contextlib.contextmanager
def matmul_precision_restored() -> Iterator[None]:
    """Put back `torch.set_float32_matmul_precision`, and `fp32_precision` of `torch.backends`.

    And the flags of `torch.backends.cuda.matmul` and `cudnn` that let CUDA compute less precisely.
    """
    general, each, flags = _matmul_precision(), _precisions(), _flags()
    try:
        yield
    finally:
        for (owner, name), value in flags.items():
            if _flags().get((owner, name)) != value:
                setattr(owner, name, value)
        for tried in ("highest", "high", "medium") if general is None else (general,):
            if (_matmul_precision(), _precisions()) == (general, each):
                break
            torch.set_float32_matmul_precision(tried)
            _assign_precisions(each)


_PRECISIONS = (
    ("generic", "all"),
    *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")),
)


def _flags() -> dict[tuple[Any, str], Any]:
    """The flags, without those that torch refuses to tell: TF32 where `fp32_precision` differs."""
    matmul: Any = torch.backends.cuda.matmul
    names = [(matmul, name) for name in _REDUCED if hasattr(matmul, name)]
    found = {}
    for owner, name in [*names, (torch.backends.cudnn, "allow_tf32")]:
        with contextlib.suppress(RuntimeError):
            found[owner, name] = getattr(owner, name)
    return found


_REDUCED = (
    "allow_fp16_accumulation",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)


def _matmul_precision() -> str | None:
    """None where `fp32_precision` was set, of which torch cannot tell this one."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _precisions() -> dict[tuple[str, str], str]:
    precision = get("precision")
    return {key: precision(*key) for key in _PRECISIONS}


def _assign_precisions(values: dict[tuple[str, str], str]) -> None:
    assign = get("assign_precision")
    for key, value in values.items():
        for candidate in ("none", value):  # "none": the one that holds for all of the backend
            if _precisions()[key] != value:
                assign(*key, candidate)


def leave_compilation() -> None:
    """Forget a compilation that was left by an exception.

    Where compiled autograd fails to capture, torch keeps its id, and gives it to all that is
    compiled afterwards; a reset does not help.
    """
    get("compiling").compile_context = None
