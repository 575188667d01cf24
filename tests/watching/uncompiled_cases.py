"""Ways to compile nothing: each returns a call to run in a watch, and names the cause."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from packaging.version import Version
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from watching import eager_cases

Run = Callable[[], Any]


@dataclass(frozen=True)
class Way:
    """A way to compile nothing.

    Attributes:
        make: returns the call to run inside the watch.
        cause: a regular expression for the cause in every assertion's message.
        broke: True if Dynamo reports a graph break, which also names the cause.
        ran: True if compiled code ran anyway.
    """

    make: Callable[[], Run]
    cause: str
    broke: bool = False
    ran: bool = False


WAYS: dict[str, Way] = {}


INSTALLED = Version(torch.__version__.partition("+")[0])
SINCE_2_14 = Version("2.14") <= INSTALLED
"""True if Dynamo compiles torch's layers, and code that first ran under a dispatch mode."""

COMPILES: list[Callable[[], Run]] = []
"""Further ways, of which the installed torch compiles at least a part."""


def way(
    cause: str, *, until: str = "", **options: bool
) -> Callable[[Callable[[], Run]], Callable[[], Run]]:
    """Register a way. From the release `until` on, it compiles."""

    def register(make: Callable[[], Run]) -> Callable[[], Run]:
        if until and Version(until) <= INSTALLED:
            COMPILES.append(make)
        else:
            WAYS[make.__name__] = Way(make, cause, **options)
        return make

    return register


def compiled(target: Any, **options: Any) -> Any:
    return torch.compile(target, **{"backend": "aot_eager", **options})


def ones() -> Tensor:
    return torch.ones(3, 4)


def plain(x: Tensor) -> Tensor:
    return x * 2 + 1


@way("no compiled function or module was called inside the watch")
def nothing_was_called() -> Run:
    return lambda: plain(ones())


@way("compiles nothing by itself: call its result")
def only_the_decorator_ran() -> Run:
    return lambda: compiled(plain)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


@way(
    r"Tagger \(.*_cases.py:\d+\): its call ran eagerly: Attempted to wrap RNN",
    broke=True,
    until="2.15",
)
def an_lstm_skips_the_frame() -> Run:
    tagger = compiled(Tagger())
    return lambda: tagger(torch.ones(2, 3, 4))


# For the environment variables see the test.
@way("torch.compile is disabled by torch._dynamo.config.disable")
def the_config_disables() -> Run:
    function = compiled(plain)

    def run() -> None:
        with torch._dynamo.config.patch(disable=True):
            function(ones())

    return run


@way(r"plain \(.*_cases.py:\d+\): its call ran eagerly: the recompile limit was reached before")
def the_limit_was_reached_before() -> Run:
    function = compiled(plain, dynamic=False)
    for size in range(2, 12):
        function(torch.ones(size))
    return lambda: function(torch.ones(50))


def next_number(number: int) -> int:
    return number + 1


@way("Dynamo found no tensor operations in next_number")
def there_is_no_tensor() -> Run:
    function = compiled(next_number)
    return lambda: [function(1), function(1), function(2)]


@way("plain raised an exception, so no compiled code ran")
def the_stance_refused_a_compilation() -> Run:
    function = compiled(plain)

    def run() -> None:
        stance = torch.compiler.set_stance("fail_on_recompile")
        with stance, contextlib.suppress(RuntimeError):
            function(ones())

    return run


@way("plain raised an exception, so no compiled code ran")
def an_argument_was_missing() -> Run:
    function = compiled(plain)

    def run() -> None:
        with contextlib.suppress(TypeError):
            function()

    return run


@way(r"compiled code ran \(0/0 once\), but it was compiled before the watch and served", ran=True)
def it_came_from_the_cache() -> Run:
    function = compiled(plain)
    function(ones())
    return lambda: function(ones())


@way(
    r"plain \(.*\): its call ran eagerly: Dynamo skipped it, because its code was marked",
    until="2.14",
)
def the_code_was_marked_before() -> Run:
    function = compiled(plain)
    with FlopCounterMode(display=False):
        function(ones())
    return lambda: function(ones())


@way(
    r"Linear \(.*\): its call ran eagerly: .* Dynamo does not compile a module of torch by itself",
    until="2.14",
)
def a_layer_of_torch_is_compiled() -> Run:
    layer = nn.Linear(4, 3)
    layer.compile(backend="aot_eager")
    return lambda: layer(ones())


for name in (
    "a_frame_is_skipped",
    "a_dispatch_mode_is_active",
    "all_inside_is_disabled",
    "forced_eager",
    "a_backend_raises",
):
    WAYS[name] = Way(
        lambda step=eager_cases.WAYS[name].make: functools.partial(step(), torch.ones(4)),
        f"its call ran eagerly: .*{eager_cases.WAYS[name].reason}",
        broke=eager_cases.WAYS[name].broke,
    )
