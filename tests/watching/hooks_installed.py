"""The places of torch that a watch changes, to check that it restores them."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
import torch._dynamo.compiled_autograd as engine
from torch._C._dynamo.eval_frame import set_guard_complete_hook
from torch._dynamo import convert_frame, eval_frame
from torch._dynamo.utils import CleanupManager


def patched() -> dict[str, Any]:
    """Return the objects of torch that a watch replaces or extends."""
    hook = set_guard_complete_hook(None)
    set_guard_complete_hook(hook)
    return {
        "hook": hook,
        "entry": eval_frame._is_skip_guard_eval_unsafe_stance,
        "skip": getattr(convert_frame, "add_skip_reason", None),  # since torch 2.13
        "convert": convert_frame.CatchErrorsWrapper.__call__,
        "capture": engine.AutogradCompilerInstance.end_capture,
        "reset": engine.reset,
        "handlers": [
            each
            for each in logging.getLogger("torch.__trace").handlers
            if type(each).__module__.startswith("pytest_torchgraph")
        ],
        "graphs": [name for name, value in graphs() if is_counter(value)],
        "backwards": [
            each
            for each in torch.autograd.Function.__subclasses__()
            if is_counter(getattr(vars(each).get("backward"), "__func__", None))
        ],
    }


def graphs() -> list[tuple[str, Any]]:
    """Return the compiled graphs that Dynamo's bytecode calls."""
    return [
        (hook.name, hook.scope[hook.name])
        for hooks in CleanupManager.instance.values.values()
        for hook in hooks
        if hook.name.startswith("__compiled_fn_") and hook.name in hook.scope
    ]


def is_counter(value: Any) -> bool:
    return isinstance(value, functools._lru_cache_wrapper)
