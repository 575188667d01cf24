"""Functions with a graph break, one for each kind of break, and functions without.

The line of an expected break is marked: `# break: ` and the names of the subjects. No function
here asserts anything, because pytest would rewrite it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Run = Callable[[], Any]


@dataclass(frozen=True)
class Subject:
    """A function to compile, and the arguments of its call."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def __call__(self, backend: str) -> Run:
        """Compile the function without calling it yet."""
        compiled = torch.compile(self.function, backend=backend)
        return lambda: compiled(*self.args)


BROKEN: dict[str, Callable[[str], Run]] = {}
CLEAN: dict[str, Callable[[str], Run]] = {}


def expected(name: str) -> list[int]:
    """Return the lines of this file on which the breaks of a subject are marked."""
    found = []
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1):
        mark = re.search(r"# break: (.+)$", line)
        if mark and name in mark[1].split(", "):
            found.append(number)
    return found


def line_of(mark: str) -> int:
    """Return the only line of this file with this mark."""
    (line,) = expected(mark)
    return line


def of(function: Callable[..., Any], *args: Any, grad: bool = False) -> Subject:
    """Make a subject, by default with a vector of ones."""
    return Subject(function, args or (torch.ones(3, requires_grad=grad),))


def broken(function: Callable[..., Any]) -> Callable[..., Any]:
    BROKEN[function.__name__] = of(function)
    return function


def clean(function: Callable[..., Any]) -> Callable[..., Any]:
    CLEAN[function.__name__] = of(function)
    return function


# -- functions that break --------------------------------------------------------------------------


@broken
def printed(x: Tensor) -> Tensor:
    x = x + 1
    print("seen")  # break: printed
    return x * 2


@broken
def asked_for(x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break(msg="asked for")  # break: asked_for
    return x * 2


@broken
def branching(x: Tensor) -> Tensor:
    x = x + 1
    if x.sum() > 0:  # break: branching
        return x.sin()
    return x.cos()


@broken
def item(x: Tensor) -> Tensor:
    scale = x.sum().item()  # break: item
    return x * scale


@broken
def boolean_mask(x: Tensor) -> Tensor:
    return x[x > 0] * 2  # break: boolean_mask


@broken
def in_for_loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x + 1
        torch._dynamo.graph_break()  # break: in_for_loop
    return x * 2


class Scope:
    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *error: object) -> None:
        return None


@broken
def under_user_context(x: Tensor) -> Tensor:
    with Scope():
        x = x + 1
        print("seen")  # break: under_user_context
    return x * 2


@broken
def in_try(x: Tensor) -> Tensor:
    try:
        x = x + 1
        print("seen")  # break: in_try
    except ValueError:
        x = x + 2
    return x * 2


@broken
def in_except(x: Tensor) -> Tensor:
    x = x + 1
    try:
        raise ValueError
    except ValueError:
        print("seen")  # break: in_except
        x = x + 2
    return x * 2


@broken
def in_generator(x: Tensor) -> Tensor:
    def parts() -> Iterator[Tensor]:
        for number in range(2):
            print(number)  # break: in_generator
            yield x + number

    return sum(parts(), x * 2)


def says(x: Tensor) -> Tensor:
    print("seen")  # break: nested_call, nested_deeper
    return x + 1


@broken
def nested_call(x: Tensor) -> Tensor:
    x = says(x * 2)
    return x.sin()


def between(x: Tensor) -> Tensor:
    return says(x * 3) * 4


@broken
def nested_deeper(x: Tensor) -> Tensor:
    return between(x * 2).sin()


@broken
def first_statement(x: Tensor) -> Tensor:
    print("seen")  # break: first_statement
    return x + 1


@broken
def two_in_a_row(x: Tensor) -> Tensor:
    x = x + 1
    print("one")  # break: two_in_a_row
    x = x + 2
    print("two")  # break: two_in_a_row
    return x * 2


@torch.compiler.disable
def disabled(x: Tensor) -> Tensor:
    return x + 1


@broken
def calls_disabled(x: Tensor) -> Tensor:
    x = x * 2
    x = disabled(x)  # break: calls_disabled
    return x * 3


class Unpacked(type):
    def __iter__(cls) -> Iterator[int]:
        print("seen")  # break: own_metaclass_iterated
        return iter((2, 3))


class Scales(metaclass=Unpacked):
    pass


@broken
def own_metaclass_iterated(x: Tensor) -> Tensor:
    x = x + 1
    first, second = Scales  # type: ignore[misc]
    return x * first * second


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        print("seen")  # break: in_submodule
        return x * 2


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.last = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x * 3)).sum()


BROKEN["in_submodule"] = of(Outer())


class Wrapped:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __add__(self, other: Tensor) -> Tensor:
        print("seen")  # break: in_operator
        return self.x + other

    @property
    def doubled(self) -> Tensor:
        print("seen")  # break: in_property
        return self.x * 2


@broken
def in_operator(x: Tensor) -> Tensor:
    return (Wrapped(x * 2) + x).sin()  # break: in_operator


@broken
def in_property(x: Tensor) -> Tensor:
    return Wrapped(x * 3).doubled.sin()


def reported(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @functools.wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        print("seen")  # break: decorated
        return function(x) + 1

    return wrapper


@broken
@reported
def decorated(x: Tensor) -> Tensor:
    return x * 2


@broken
def raised_and_not_caught_here(x: Tensor) -> Tensor:
    x = x + 1
    try:
        x = checked(x)
    except ValueError:
        x = x * 2
    return x


def checked(x: Tensor) -> Tensor:
    if x.sum() > 0:  # break: raised_and_not_caught_here
        raise ValueError
    return x


def halved(grad: Tensor) -> Tensor:
    print("seen")  # break: in_hook_under_compiled_autograd
    return grad / 2


def in_hook_under_compiled_autograd(backend: str) -> Run:
    x = torch.ones(3, requires_grad=True)
    x.register_hook(halved)

    def run() -> None:
        loss = (x * 2).sum()
        with torch._dynamo.config.patch(compiled_autograd=True):
            torch.compile(lambda: loss.backward(), backend=backend)()

    return run


BROKEN["in_hook_under_compiled_autograd"] = in_hook_under_compiled_autograd


def backward_inside(x: Tensor) -> Tensor:
    loss = (x * 2).sum()
    loss.backward()  # break: backward_inside
    return loss * 2


BROKEN["backward_inside"] = of(backward_inside, grad=True)


# -- functions that do not break -------------------------------------------------------------------


@clean
def arithmetic(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu().sum()


@clean
def python_control_flow(x: Tensor) -> Tensor:
    for number in range(4):
        if number % 2:
            x = x + number
        elif x.dim() > 1:
            x = x - 1
        else:
            continue
    while x.shape[0] < 0:
        x = x * 2
    return x


@clean
def closures(x: Tensor) -> Tensor:
    scale = 3

    def scaled(y: Tensor) -> Tensor:
        return y * scale

    return scaled(scaled(x))


@clean
def exceptions(x: Tensor) -> Tensor:
    try:
        raise KeyError("none")
    except KeyError:
        x = x + 1
    finally:
        x = x * 2
    return x


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.norm(x)


CLEAN["nested_modules"] = of(nn.Sequential(Block(), Block()))
CLEAN["training"] = of(arithmetic, grad=True)


class BreaksInProperty(nn.Module):
    @property
    def factor(self) -> int:
        torch._dynamo.graph_break()
        return 2

    def forward(self, x: Tensor) -> Tensor:
        return x.sin() * self.factor
