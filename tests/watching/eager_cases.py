"""Ways in which a call of a compiled callable runs eagerly, each beside a compiled call."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

Step = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Way:
    """A way for a call to run eagerly.

    Attributes:
        make: returns the call, which computes a cosine.
        kind: the kind of the eager calls; "" if torch refuses the call.
        reason: a regular expression for their reason, or for torch's error.
        broke: True if Dynamo also reports a graph break, if it compiles inside the watch.
    """

    make: Callable[[], Step]
    kind: str
    reason: str
    broke: bool = False


WAYS: dict[str, Way] = {}


def way(kind: str, reason: str, **options: bool) -> Callable[[Callable[[], Step]], Any]:
    """Register a way."""

    def register(make: Callable[[], Step]) -> Callable[[], Step]:
        WAYS[make.__name__] = Way(make, kind, reason, **options)
        return make

    return register


_numbers = itertools.count()


def wavy(**options: Any) -> Any:
    """Return a compiled function with its own code, because torch marks code, not functions."""
    name = f"wavy_{next(_numbers)}"
    scope: dict[str, Any] = {"torch": torch}
    text = f"def {name}(x):\n    return x.cos() * {next(_numbers)}"
    # torch identifies some code only by file and line.
    exec(compile(text, f"<{name}>", "exec"), scope)
    return torch.compile(scope[name], **{"backend": "eager", "dynamic": False, **options})


def under(stance: str) -> Step:
    warm = wavy()
    warm(torch.ones(3))

    def call(x: Tensor) -> Any:
        with torch.compiler.set_stance(stance):
            return warm(torch.ones(5))

    return call


@way("stance", "'force_eager'")
def forced_eager() -> Step:
    return under("force_eager")


@way("stance", "'eager_on_recompile'")
def eager_on_recompile() -> Step:
    return under("eager_on_recompile")


@way("stance", "'eager_then_compile'")
def eager_then_compile() -> Step:
    def call(x: Tensor) -> Any:
        with torch.compiler.set_stance("eager_then_compile"):
            return wavy()(x)

    return call


@way("", "Detected recompile when torch.compile stance is 'fail_on_recompile'")
def fail_on_recompile() -> Step:
    return under("fail_on_recompile")


@torch.compiler.disable
def disabled(x: Tensor) -> Tensor:
    return x.cos()


@way("disabled", "torch.compiler.disable", broke=True)
def all_inside_is_disabled() -> Step:
    return torch.compile(lambda x: disabled(x), backend="eager")


@way("disabled", "torch._dynamo.config.disable")
def the_config_disables() -> Step:
    function = wavy()

    def call(x: Tensor) -> Any:
        with torch._dynamo.config.patch(disable=True):
            return function(x)

    return call


def limited(setting: str) -> Step:
    function = wavy()

    def call(x: Tensor) -> Any:
        with torch._dynamo.config.patch({setting: 2}):
            return [function(torch.ones(size)) for size in (2, 3, 4)]

    return call


@way("limit", "recompile limit")
def recompile_limit() -> Step:
    return limited("recompile_limit")


@way("limit", "recompile limit")
def accumulated_limit() -> Step:
    return limited("accumulated_recompile_limit")


@way("limit", "a part of it ran eagerly|recompile limit (was )?reached")
def limit_behind_a_break() -> Step:
    def rest(x: Tensor, number: float) -> Tensor:
        return x.cos() * number

    def broken(x: Tensor, number: float) -> Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return rest(x, number)

    function = torch.compile(broken, backend="eager", dynamic=False)

    def call(x: Tensor) -> Any:
        with torch._dynamo.config.patch(recompile_limit=2, specialize_float=True):
            return [function(x, number) for number in (1.0, 2.0, 3.0)]

    return call


def rows(x: Tensor) -> Tensor:
    for half in (0, 1):
        for row in x.reshape(2, -1)[half].nonzero():
            x = x.cos() + row
    return x


@way("skipped", "Dynamic shape operator", broke=True)
def a_frame_is_skipped() -> Step:
    return torch.compile(rows, backend="eager")


@way("backend", "backend='bad' raised", broke=True)
def a_backend_raises() -> Step:
    def bad(module: Any, inputs: Any) -> Any:
        raise ValueError("not today")

    function = wavy(backend=bad)

    def call(x: Tensor) -> Any:
        with torch._dynamo.config.patch(suppress_errors=True):
            return function(x)

    return call


@way("skipped", "FlopCounterMode is active")
def a_dispatch_mode_is_active() -> Step:
    function = wavy()

    def call(x: Tensor) -> Any:
        with FlopCounterMode(display=False):
            return function(x)

    return call


@way("", "torch.jit.trace")
def torchscript_traces() -> Step:
    function = wavy()
    return lambda x: torch.jit.trace(lambda y: function(y) + 1, x)


@way("skipped", "functorch", broke=True)
def a_function_transform_is_active() -> Step:
    function = wavy(backend="aot_eager")
    return lambda x: torch.func.vmap(function)(torch.stack([x, x]))


class Exported(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) + 1


@way("skipped", "torch.export is tracing")
def torch_is_exporting() -> Step:
    module = Exported(wavy())
    return lambda x: torch.export.export(module, (x,), strict=False)


@way("stance", "'force_eager'")
def in_a_thread() -> Step:
    call = under("force_eager")

    def in_thread(x: Tensor) -> Any:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(call(x)))
        thread.start()
        thread.join()
        return results

    return in_thread


def beside(name: str) -> Step:
    """Run one of the ways between two compiled calls."""
    scope: dict[str, Any] = {}
    exec(f"def tame_{next(_numbers)}(x): return x.sin()", scope)
    (function,) = (value for key, value in scope.items() if key.startswith("tame"))
    tame, call = torch.compile(function, backend="eager"), WAYS[name].make()
    return lambda x: [tame(x), call(x), tame(x)]
