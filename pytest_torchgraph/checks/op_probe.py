"""Custom ops that are not what torch.compile takes them for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from .. import torch_private
from ..convert.effects import schema
from ..convert.source_lines import current, described
from ..ops.views import KNOWN_NAMESPACES
from .subject import Generators

_TORCHS = KNOWN_NAMESPACES | {"prim", "profiler", "quantized", "mkldnn", "torchgraph"}
"""Namespaces of ops that torch itself answers for."""


class OpProbe(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at each custom op that runs inside.

    An op may write to an argument that its schema does not declare, give another result when it is
    called again with the same arguments, and have a fake implementation with other results.

    Args:
        generators: gives the state of the random number generators.
        stateful: also call each op again.
        fakes: also compare with the fake implementations.

    Attributes:
        found: a sentence for each thing that is wrong, with the user's line.
    """

    def __init__(self, generators: Callable[[], Generators], *, stateful: bool, fakes: bool):
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, None] = {}
        self._generators = generators
        self._stateful = stateful
        self._fakes = fakes

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this Dynamo would never again compile a frame that ran under the mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if types and torch_private.stands_for_others(types):
            return NotImplemented
        if not _is_custom(func):
            return func(*args, **kwargs)
        before = _cloned((args, kwargs))
        drawn = self._generators() if self._stateful else None
        output = func(*args, **kwargs)
        self._look_at_writes(func, before, args, kwargs)
        if drawn is not None:
            self._call_again(func, before, output, drawn)
        if self._fakes:
            self._compare_with_fake(func, before, output)
        return output

    def _say(self, what: str) -> None:
        line = current()
        at = "" if line is None else f", at {described(line)}"
        self.found.setdefault(f"{what}{at}.")

    def _look_at_writes(
        self, func: Any, before: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        declared = {argument.name for argument in func._schema.arguments if argument.is_write}
        names = [argument.name for argument in func._schema.arguments]
        now = [*zip(names, args, strict=False), *kwargs.items()]
        then = [*before[0], *before[1].values()]
        for (name, value), old in zip(now, then, strict=True):
            if name not in declared and not _are_same(value, old):
                self._say(
                    f"Custom op {_name(func)} writes to its argument {name!r}, which it does not "
                    "declare (mutates_args)"
                )

    def _call_again(self, func: Any, before: Any, output: Any, drawn: Generators) -> None:
        after = self._generators()
        drawn.restore()
        try:
            args, kwargs = _cloned(before)
            again = func(*args, **kwargs)
        finally:
            after.restore()
        if not _are_same(again, output):
            self._say(
                f"Custom op {_name(func)} has hidden state: called again with the same arguments "
                "it gives another result"
            )

    def _compare_with_fake(self, func: Any, before: Any, output: Any) -> None:
        mode = torch_private.get("fake_tensor_mode")(allow_non_fake_inputs=True)
        try:
            args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, before)
            with mode:
                fake = func(*args, **kwargs)
        except Exception:  # there is none, or its sizes depend on data
            return
        for claimed, real in zip(_tensors(fake), _tensors(output), strict=False):
            for what, left, right in _forms(claimed, real):
                self._say(
                    f"The fake implementation of custom op {_name(func)} gives {what} {left}, and "
                    f"the op itself {right}: torch.compile believes the fake one"
                )
                return


def _is_custom(func: Any) -> bool:
    return (
        isinstance(func, torch._ops.OpOverload)
        and func.namespace not in _TORCHS
        and not schema.facts(func).communicates
    )


def _name(func: Any) -> str:
    return str(func).removesuffix(".default")


def _cloned(values: Any) -> Any:
    def clone(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    return pytree.tree_map_only(torch.Tensor, clone, values)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _are_same(a: Any, b: Any) -> bool:
    """Return True if the tensors in two values are equal, NaN to NaN."""
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and (x.is_meta or torch.equal(x, y) or _equal_but_for_nan(x, y))
        for x, y in zip(_tensors(a), _tensors(b), strict=False)
    )


def _equal_but_for_nan(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not (a.is_floating_point() or a.is_complex()) or a.layout is not torch.strided:
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _forms(fake: torch.Tensor, real: torch.Tensor) -> Iterator[tuple[str, Any, Any]]:
    """What a fake result has in another way than the real one."""
    if fake.dtype != real.dtype:
        yield "dtype", fake.dtype, real.dtype
    if fake.device.type != real.device.type:
        yield "device", fake.device, real.device
    if fake.layout is not torch.strided or real.layout is not torch.strided:
        return
    if not all(isinstance(size, int) for size in (*fake.shape, *fake.stride())):
        return  # a size that depends on data
    if fake.shape != real.shape:
        yield "shape", tuple(fake.shape), tuple(real.shape)
        return
    pairs = [  # the stride of a dimension with one element is of no consequence
        pair
        for size, *pair in zip(real.shape, fake.stride(), real.stride(), strict=True)
        if size > 1
    ]
    if real.numel() and any(left != right for left, right in pairs):
        yield "strides", fake.stride(), real.stride()
