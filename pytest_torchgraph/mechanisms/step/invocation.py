"""The call of a target that is captured, and the start of its backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .named_tensors import NamedTensors

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Invocation:
    """One call of a target, which can be made once or again.

    Attributes:
        target: a module or any callable.
        args, kwargs: what it is called with.
        loss_fn: from its output to the scalar where the backward starts; None for the output's own
            `loss`, else all differentiable outputs.
        backward: None runs the backward where that is possible, False never, True must.

    Raises:
        TypeError: for another `backward`.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss_fn: Callable[[Any], torch.Tensor] | None = None
    backward: bool | None = None

    def __post_init__(self) -> None:
        if self.backward not in (None, True, False):
            raise TypeError(f"backward must be None, True or False, not {self.backward!r}")

    @cached_property
    def named(self) -> NamedTensors:
        """The tensors and modules that are known by name before the target runs."""
        return NamedTensors(self.target, self.args, self.kwargs)

    def call(self, target: Callable[..., Any] | None = None) -> Any:
        """Call the target, or what stands for it, with the arguments."""
        return (self.target if target is None else target)(*self.args, **self.kwargs)

    def with_backward(self, backward: bool) -> Invocation:
        """The same call, whose backward must run or must not."""
        other = replace(self, backward=backward)
        vars(other)["named"] = self.named  # it takes a walk over all modules
        return other

    def raise_what_the_target_raises(self, found: Exception) -> None:
        """Call the target as it is, to see whose the error is that a tracer raised.

        Raises:
            Exception: what the target raises by itself. If it runs, nothing: then the tracer cannot
                trace it.
        """
        try:
            self.call()
        except Exception as own:
            if type(own) is type(found) and str(own) == str(found):
                raise found from None
            raise own from None
