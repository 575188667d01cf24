"""Kinds of recompiles, torch's log message for each, and a watch's message."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from watching import recompile_cases as cases

from pytest_torchgraph import Capture, watch

Call = Callable[[Any], Any]


@dataclass(frozen=True)
class Kind:
    """A way to make code recompile.

    Attributes:
        target: makes the object to compile.
        calls: uses of the compiled object.
        new: the new value, as the message must show it.
        options: options of torch.compile.
    """

    target: Callable[[], Any]
    calls: tuple[Call, ...]
    new: str
    options: dict[str, Any] = field(default_factory=dict)


def ones(*size: int, **options: Any) -> Tensor:
    return torch.ones(*size, **options)


def called(*args: Any, **kwargs: Any) -> Call:
    return lambda function: function(*args, **kwargs)


def changed(owner: Any, name: str, value: Any, *args: Any) -> Call:
    """A call after an assignment, which is then undone."""

    def call(function: Any) -> None:
        target = function if owner is None else owner
        before = getattr(target, name)
        setattr(target, name, value)
        try:
            function(*args)
        finally:
            setattr(target, name, before)

    return call


def under(context: Callable[[], Any], *args: Any) -> Call:
    def call(function: Any) -> None:
        with context():
            function(*args)

    return call


def through(target: Any, *args: Any, **options: Any) -> Call:
    """A call through another torch.compile object."""
    return lambda _: torch.compile(target, **{"backend": "eager", **options})(*args)


def in_evaluation(function: Any) -> None:
    function.eval()
    function(ones(4))


def marked(function: Any) -> None:
    x = ones(5, 6)
    torch._dynamo.mark_dynamic(x, 0)
    function(x)


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


X = ones(3)

KINDS: dict[str, Kind] = {
    "an integer attribute": Kind(cases.Counting, (called(X), called(X)), "self.calls: was 0, is 1"),
    "a text attribute": Kind(
        cases.Configured,
        (called(X), changed(None, "mode", "mean", X)),
        "self.mode: was 'sum', is 'mean'",
    ),
    "a float attribute": Kind(
        cases.Configured, (called(X), changed(None, "scale", 2.5, X)), "self.scale: was 1.5, is 2.5"
    ),
    "an attribute that is a function": Kind(
        cases.Configured, (called(X), changed(None, "act", torch.sin, X)), "is torch.sin"
    ),
    "the length of a list": Kind(
        cases.Configured,
        (called(X), changed(None, "parts", [1, 2, 3], X)),
        "self.parts: length was 2, is 3",
    ),
    "the training flag": Kind(
        cases.Net, (called(ones(4)), in_evaluation), "drop.training: was True, is False"
    ),
    "a global": Kind(
        lambda: cases.by_global,
        (called(X), changed(cases, "SCALE", 7, X)),
        "global SCALE: was 2, is 7",
    ),
    "an argument": Kind(
        lambda: cases.scaled, (called(X, 2), called(X, 3)), "argument scale: was 2, is 3"
    ),
    "a default of an argument": Kind(
        lambda: cases.with_default,
        (called(X), changed(cases.with_default, "__defaults__", (5,), X)),
        "is 5",
    ),
    "the names of keywords": Kind(
        lambda: cases.by_name, (called(X, a=2), called(X, b=2)), "is 'b'"
    ),
    "a variable of a closure": Kind(
        lambda: cases.over(2), (called(X), through(cases.over(3), X)), "is 3"
    ),
    "another function": Kind(
        lambda: cases.applied, (called(X, torch.sin), called(X, torch.cos)), "is torch.cos"
    ),
    "in a function that is called": Kind(
        lambda: cases.helped, (called(X, 2), called(X, 3)), "is 3"
    ),
    "a type": Kind(lambda: cases.first, (called(X, [2, 3]), called(X, (2, 3))), "is tuple"),
    "None for a tensor": Kind(
        lambda: cases.optional, (called(X, ones(3)), called(X, None)), "is NoneType"
    ),
    "the length of a dict": Kind(
        lambda: cases.all_of, (called(X, {"a": 1}), called(X, {"a": 1, "b": 2})), "is 2"
    ),
    "the keys of a dict": Kind(
        lambda: cases.all_of, (called(X, {"a": 1}), called(X, {"b": 1})), "is 'b'"
    ),
    "a size": Kind(
        lambda: cases.doubled,
        (called(ones(3, 4)), called(ones(3, 5))),
        "argument x: size of dim 1 was 4, is 5",
    ),
    "a size, dynamic=False": Kind(
        lambda: cases.doubled,
        (called(ones(3, 4)), called(ones(3, 5))),
        "is 5",
        {"dynamic": False},
    ),
    "a size that leaves its range": Kind(
        lambda: cases.by_size, tuple(called(ones(n)) for n in (3, 4, 9)), "is 9"
    ),
    "a dimension that is marked": Kind(
        lambda: cases.doubled, (called(ones(5, 6)), marked), "dynamic dims are {0}"
    ),
    "a dtype": Kind(
        lambda: cases.doubled,
        (called(X), called(X.double())),
        "argument x: dtype was Float, is Double",
    ),
    "requires_grad": Kind(
        lambda: cases.doubled,
        (called(X), called(ones(3, requires_grad=True))),
        "argument x: requires_grad was False, is True",
    ),
    "the number of dimensions": Kind(
        lambda: cases.doubled, (called(X), called(ones(3, 3))), "argument x: rank was 1, is 2"
    ),
    "strides": Kind(
        lambda: cases.doubled,
        (called(ones(3, 4)), called(ones(4, 3).t())),
        "argument x: stride of dim 0 was 4, is 1",
    ),
    "a device": Kind(
        lambda: cases.doubled,
        (called(X), called(X.to("meta"))),
        "argument x: was a CPU tensor, is a Meta tensor",
    ),
    "the same tensor twice": Kind(
        lambda: cases.optional,
        (called(X, ones(3)), called(X, X)),
        'argument x: was another tensor than "y"',
    ),
    "grad mode": Kind(
        lambda: cases.doubled, (called(X), under(torch.no_grad, X)), "grad_mode (was True, is False"
    ),
    "autocast": Kind(
        lambda: cases.doubled, (called(X), under(lambda: torch.autocast("cpu"), X)), "is True"
    ),
    "the default dtype": Kind(
        lambda: cases.doubled, (called(X), under(default_dtype, X)), "is torch.float64"
    ),
    "a device as a context": Kind(
        lambda: cases.doubled, (called(X), under(lambda: torch.device("meta"), X)), "DeviceContext"
    ),
    "another backend": Kind(
        lambda: cases.doubled,
        (called(X), through(cases.doubled, X, backend="aot_eager")),
        "torch.compile(backend='aot_eager', dynamic=None)",
    ),
    "other options of torch.compile": Kind(
        lambda: cases.doubled,
        (called(X), through(cases.doubled, X, dynamic=True)),
        "torch.compile(backend='eager', dynamic=True)",
    ),
    "the recompile limit": Kind(
        lambda: cases.doubled,
        tuple(called(ones(n)) for n in range(2, 12)),
        "is 10",
        {"dynamic": False},
    ),
}
"""The kinds, by name."""


@functools.cache
def run(name: str) -> tuple[str, Capture]:
    """Return torch's log message for the last recompile of a kind, and the watch."""
    kind = KINDS[name]
    torch._dynamo.reset()
    function = torch.compile(kind.target(), **{"backend": "eager", **kind.options})
    with logged() as messages, watch() as seen:
        for call in kind.calls:
            call(function)
    torch._dynamo.reset()
    return messages[-1], seen


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the messages of TORCH_LOGS=recompiles, and torch's warnings at the limit."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    torch._logging.set_logs(recompiles=True, dynamo=logging.CRITICAL)
    logger = logging.getLogger("torch._dynamo.guards.__recompiles")
    own, logger.handlers, logger.propagate = logger.handlers, [handler], False
    try:
        yield messages
    finally:
        logger.handlers, logger.propagate = own, True
        torch._logging.set_logs()


_LINE = re.compile(
    r"# (?:(?P<code>[^#\n]+?)  # )?(?P<file>[^\s#]+):(?P<line>\d+) in (?P<function>\S+)"
)
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>.+)'
)


def facts(message: str) -> set[str]:
    """Split torch's message into the parts that the watch's message must contain.

    This parses the message differently from the package.
    """
    message = re.sub(r"^ +- ", "", message, flags=re.MULTILINE)
    found = {""}
    for pattern in (_LINE, _FRAME):
        for match in pattern.finditer(message):
            name = match["file"].rpartition("/")[2]
            found |= {f"{name}:{match['line']} in {match['function']}", match["code"] or ""}
    for each in re.finditer(r"Recompiling function (\w+) in .*?(\w+\.py:\d+)", message):
        found |= {each[1], each[2]}
    for each in re.finditer(r"expected ([\w.]+), actual ([\w.]+)", message):
        found |= {each[1], each[2]}
    for each in re.finditer(r"compiler=('\w+'), dynamic=(\w+)", message):
        found.add(f"torch.compile(backend={each[1]}, dynamic={each[2]}")
    for pattern in _FACTS:
        found |= set(pattern.findall(message))
    classes = re.findall(r"<class '(.+?)'>", message)
    found |= {each.rpartition(".")[2] for each in classes}
    return {each.strip() for each in found - _HELPERS} - {""}


_FACTS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^(\d+/\d+): ",
        r" == ('.*?'|[\w.]+)",
        r"HINT: (?!type )(.+)\)$",
        r"HINT: type (\w+)",
        r"\((user code shown .+?\))\)",
        r"^\d+/\d+: (?:tensor ')?([A-Za-z_][\w.]*)",
        r"GLOBAL_STATE changed: (\S+)",
        r'"(\w+)"',
        r"(If this is unexpected.*)",
    )
)
"""Parts of torch's messages."""

_HELPERS = {
    "expected",  # type of 'y' to be ...
    "GLOBAL_STATE",
    "Duplicate",
    "BACKEND_MATCH",
    "len",
    "list",
    "G",
    "___check_type_id",
    "___check_obj_id",
    "___check_torch_function_mode_stack",
    "_has_dynamo_dim_marking",
}
"""Beginnings of messages that name no user code."""
