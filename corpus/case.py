"""What a model of the corpus is, and the list of all of them."""

from __future__ import annotations

import contextlib
import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Case:
    """A target, what it is called with, and the modes around the call.

    Attributes:
        target: a module or another callable.
        args, kwargs: its arguments.
        loss_fn: from its output to the scalar where the backward starts; None for the default.
        context: makes the context around the call, such as `torch.no_grad`.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    loss_fn: Callable[[Any], Tensor] | None = None
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


@dataclass(frozen=True)
class Entry:
    """A case that can be made.

    Attributes:
        name: unique in the corpus.
        group: the library that the model is from.
        make: builds the case; the same one each time, from the same random state.
        imports: imports what `make` needs, so that each fork finds it imported.
    """

    name: str
    group: str
    make: Callable[[], Case]
    imports: Callable[[], object]


CORPUS: dict[str, Entry] = {}


def add(
    group: str,
    name: str,
    make: Callable[[], Case],
    imports: Callable[[], object] = lambda: None,
) -> None:
    """Add a case to the corpus."""
    if name in CORPUS:
        raise ValueError(f"two cases are called {name}")
    CORPUS[name] = Entry(name, group, make, imports)


def case(group: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """Add the function below as a case of its own name."""

    def decorate(make: Callable[[], Case]) -> Callable[[], Case]:
        add(group, make.__name__, make)
        return make

    return decorate


def seed(number: int = 0) -> None:
    """Set every random number generator that a model may draw from."""
    import numpy

    random.seed(number)
    numpy.random.seed(number)
    torch.manual_seed(number)


def library(name: str) -> Any:
    """A library that type checkers need not know."""
    return importlib.import_module(name)


_defined: list[Any] = []


def torchvision() -> Any:
    """torchvision, also where its C++ ops cannot be loaded.

    Its wheels for CUDA bring ops that a torch for the CPU cannot load, and importing it then fails,
    because it registers what two of them do on fake tensors. So these two are declared here first,
    without anything that runs them, where they are missing.
    """
    if not _defined:
        try:
            library("torchvision")
        except RuntimeError:
            ops: Any = library("torch.library").Library("torchvision", "DEF")
            ops.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            ops.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _defined.append(ops)
    _defined.append(library("torchvision"))
    return _defined[-1]


def ids(*shape: int, high: int = 90) -> Tensor:
    """Token ids, none of them one of the special ones below 3."""
    return torch.randint(3, high, shape)


def floats(*shape: int) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(*shape)
