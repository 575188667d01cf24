"""Observers of the code that inductor writes, and a way to stop before it is compiled."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from .private_names import get, replaced

_INDUCTOR = "torch._inductor"
_MAPPING_ONLY = 2
"""Level of provenance tracking at which no pass is observed."""


@contextlib.contextmanager
def on_kernel_call(observer: Callable[[str, list[Any]], None]) -> Iterator[None]:
    """Call `observer(name, nodes)` for each kernel or library call that inductor writes.

    Inductor reports each such call to a function of its own. This function is replaced in all
    modules that have imported it, and restored afterwards, also in modules imported inside the
    context. torch 2.9 calls it only if provenance tracking is enabled, so this is enabled. It only
    adds comments to the code.

    Args:
        observer: receives the name in the generated code, and the computed nodes of the post-grad
            graph or of a subgraph in it.
    """
    original = get("kernel_provenance")

    def observed(scheduled: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name:
            observer(name, _nodes(scheduled))
        return original(scheduled, name, *args, **kwargs)

    config = get("inductor_config")
    level = config.trace.provenance_tracking_level
    is_called = hasattr(get("scheduling"), "codegen_comment") or level
    _replace_everywhere(original, observed)
    try:
        with config.patch({} if is_called else {"trace.provenance_tracking_level": _MAPPING_ONLY}):
            yield
    finally:
        _replace_everywhere(observed, original)


def _replace_everywhere(old: Any, new: Any) -> None:
    name = old.__name__ if old.__module__.startswith(_INDUCTOR) else new.__name__
    for module in list(sys.modules):
        if module.startswith(_INDUCTOR) and vars(sys.modules[module]).get(name) is old:
            setattr(sys.modules[module], name, new)


def _nodes(scheduled: Any) -> list[Any]:
    """Return the fx nodes of a scheduled library call, or of a list of scheduler nodes."""
    if not isinstance(scheduled, list):
        exact = getattr(scheduled, "origin_node", None)
        return [exact] if exact is not None else list(getattr(scheduled, "origins", ()))
    buffers = [getattr(scheduler_node, "node", None) for scheduler_node in scheduled]
    return [node for buffer in buffers for node in getattr(buffer, "origins", ())]


@contextlib.contextmanager
def code_written_only(on_code: Callable[[str], None]) -> Iterator[None]:
    """Stop inductor after it has written the code of a graph, and compile or store nothing.

    Calling inductor's result for the graph raises an error. Triton kernels are not sent to worker
    processes. Inductor does not test which vector instructions the C++ compiler supports.

    Args:
        on_code: receives the code of each graph.
    """

    def compile_to_module(graph: Any) -> Any:
        write = graph.codegen_with_cpp_wrapper if graph.cpp_wrapper else graph.codegen
        on_code(write()[0].value)
        graph.cache_key = graph.cache_path = ""
        graph.cache_linemap = []
        return SimpleNamespace(call=_never_compiled, __file__="")

    with (
        replaced("compile_to_module", compile_to_module),
        get("inductor_config").patch(compile_threads=1),
        _vector_instructions_assumed(),
    ):
        yield


@contextlib.contextmanager
def _vector_instructions_assumed() -> Iterator[None]:
    """Assume that the compiler supports all vector instructions of the processor.

    To find out, inductor compiles and loads a small program for each instruction set, ten on a new
    Xeon. The assumption ends with the context, because code that is really compiled must not use an
    instruction that the compiler lacks. If inductor has already found out, nothing is assumed.
    """
    detected = get("vector_instructions")
    if detected.cache_info().currsize:
        yield
        return
    try:
        with replaced("check_vector_instructions", lambda _instructions, _code: True):
            yield
    finally:
        detected.cache_clear()
        for kind in _with_subclasses(get("vector_instruction_set")):
            for value in vars(kind).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


def _never_compiled(_args: Any) -> Any:
    raise AssertionError("the generated code was not compiled, so it cannot run")
