"""The autograd engine with a compiler of ours in it, and the state that this must leave alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ... import torch_private


@contextlib.contextmanager
def compiler_restored() -> Iterator[None]:
    """Put back the autograd compiler that is there, which a reset of Dynamo drops.

    Inside, the config says that there is none: with `torch._dynamo.config.compiled_autograd` each
    compiled region would put a compiler of its own in the place of ours.
    """
    set_compiler = torch_private.get("set_autograd_compiler")
    enabled = torch_private.get("compiled_autograd_enabled")
    compiler, dynamic = set_compiler(None, False)
    set_compiler(compiler, dynamic)
    try:
        with (
            torch_private.replaced("compiled_autograd_enabled", enabled),
            torch_private.get("config").patch(compiled_autograd=False),
        ):
            yield
    finally:
        set_compiler(compiler, dynamic)


@contextlib.contextmanager
def compiled_by(compiler: Callable[[Any], Any], dynamic: bool) -> Iterator[None]:
    """Let the engine give each backward inside to `compiler`, as a graph module.

    Args:
        compiler: returns what is then called with inputs, sizes, scalars, hooks and packed data.
        dynamic: whether sizes are inputs of the graph from the start, not only once they change.
    """
    with torch_private.get("enable_compiled_autograd")(compiler, dynamic=dynamic):
        yield


@contextlib.contextmanager
def around_backward(
    context: Callable[[Sequence[Any], Sequence[Any]], contextlib.AbstractContextManager[None]],
) -> Iterator[None]:
    """Run each backward inside `context(roots, inputs)`.

    Dynamo compiles nothing that the backward calls: neither hooks nor what captures it.
    """
    original = torch_private.get("engine_run_backward")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def wrapped(roots: Any, *args: Any, **kwargs: Any) -> Any:
        with context(tuple(roots), tuple(args[3] or ()) if len(args) > 3 else ()):
            return original(roots, *args, **kwargs)

    with torch_private.replaced("engine_run_backward", wrapped):
        yield


def aot_backward(context: Any) -> tuple[int, torch.fx.GraphModule] | None:
    """The id and graph of the AOT backward that an autograd node would run; None for other nodes.

    Both hang on the autograd.Function that AOTAutograd makes for each of its graphs.
    """
    function = getattr(context, "_forward_cls", None)
    number = getattr(function, "_aot_id", None)
    module = getattr(getattr(function, "_lazy_backward_info", None), "bw_module", None)
    return None if number is None or module is None else (number, module)
