"""Match qualified op names with patterns, count ops, and name the levels of graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast, get_args


def matches(op: str, pattern: str) -> bool:
    """Return True if the qualified name `op` matches `pattern`.

    A torch function and the tensor method of the same name match each other: `x.sin()` and
    `torch.sin(x)` are the same op.

    Args:
        op: a qualified name, e.g. `aten.mm.default`.
        pattern: a full name, or the packet of an overload: `aten.mm` matches `aten.mm.default` and
            `aten.mm.out`, but not `aten.mm_scaled`. With `*` or `?`, a glob over either of them.
    """
    if _matches(op, pattern):
        return True
    # `_alias_names` needs torch, and some commands run without torch: call it only if needed.
    may_have_alias = op.startswith(("torch.", "Tensor.")) and pattern.startswith(_ALIAS_STARTS)
    return may_have_alias and any(_matches(name, pattern) for name in _alias_names(op))


def _matches(op: str, pattern: str) -> bool:
    """Return True if `op` matches under this name; `matches` also tries its aliases."""
    if is_glob(pattern):
        # `aten.*_` should not only match the overloads that end in `_`.
        packet = op.rpartition(".")[0]
        is_packet = packet.endswith(f".{base_name(op)}")
        return fnmatchcase(op, pattern) or (is_packet and fnmatchcase(packet, pattern))
    # `startswith` is fast, and rules out most ops.
    return op == pattern or (op.startswith(pattern) and op.rpartition(".")[0] == pattern)


def is_glob(pattern: str) -> bool:
    """Return True if a pattern has a wildcard."""
    return "*" in pattern or "?" in pattern


_ALIAS_ROOTS = ("torch", "Tensor", "torch.Tensor")
_ALIAS_STARTS = ("t", "T", "*", "?", "[")
"""First characters of patterns that can match a torch function or tensor method."""


@lru_cache(maxsize=4096)
def _alias_names(op: str) -> tuple[str, ...]:
    """Return the other names of a tensor method, or of a function that is also a method."""
    root, _, name = op.rpartition(".")
    if root not in _ALIAS_ROOTS:
        return ()
    import torch

    is_both = callable(getattr(torch, name, None)) and hasattr(torch.Tensor, name)
    # `Tensor` and `torch.Tensor` are two names of the same methods.
    roots = _ALIAS_ROOTS if is_both else _ALIAS_ROOTS[1:]
    return tuple(f"{other}.{name}" for other in roots if other != root and root in roots)


class OpCounts(Counter[str]):
    """Number of nodes of each op, by full name. `counts["aten.mm"]` sums the packet's overloads.

    An absent name raises `KeyError` instead of returning zero. Arithmetic and comparisons work as
    in `collections.Counter`; arithmetic returns an `OpCounts`.
    """

    def __missing__(self, key: str) -> int:
        counts = [count for op, count in self.items() if matches(op, key)]
        if not counts:
            op_list = ", ".join(sorted(self)) or "none"
            raise KeyError(f"{key!r} does not occur; ops: {op_list}")
        return sum(counts)

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return dict.__ne__(self, other)

    def __reduce__(self) -> tuple[type[OpCounts], tuple[dict[str, int]]]:
        return type(self), (dict(self),)

    __hash__ = None  # type: ignore[assignment]


def _on_plain_counters(operator: str, in_place: bool = False) -> Callable[..., Any]:
    """Return an operator of `Counter` adapted to `OpCounts`."""
    # Counter's operators look up the keys of both operands. In an OpCounts, a missing key raises
    # KeyError, and a packet's name returns the sum of its overloads.

    def operate(self: OpCounts, *others: object) -> Any:
        if not all(isinstance(operand, Counter) for operand in others):
            return NotImplemented
        plain = [Counter(dict(side)) for side in (self, *cast("tuple[OpCounts, ...]", others))]
        # `Counter` has no reflected operators of its own: exchange the operands.
        if operator.startswith("__r"):
            plain.reverse()
        counts = getattr(Counter, operator.replace("__r", "__"))(*plain)
        if not isinstance(counts, Counter):
            return counts
        if not in_place:
            return OpCounts(counts)
        self.clear()
        self.update(counts)
        return self

    return operate


for _name in ("add", "sub", "and", "or"):
    for _operator in (f"__{_name}__", f"__r{_name}__"):
        setattr(OpCounts, _operator, _on_plain_counters(_operator))
    setattr(OpCounts, f"__i{_name}__", _on_plain_counters(f"__{_name}__", in_place=True))
for _name in ("lt", "le", "gt", "ge", "pos", "neg"):
    setattr(OpCounts, f"__{_name}__", _on_plain_counters(f"__{_name}__"))


OVERLOADED = frozenset({"aten", "prims", "inductor", "quantized", "_c10d_functional"})
"""Namespaces whose ops may have overloads other than `default`."""


DIALECTS = ("edge", "backend")
"""Dialects of ExecuTorch, which wrap ops: `edge.aten.mm.default`."""


@lru_cache(maxsize=8192)
def base_name(op: str) -> str:
    """Return an op's name without namespace and overload: `mm` for `aten.mm.default`."""
    parts = op.split(".")
    if parts[0] in DIALECTS:
        parts = parts[1:]
    if len(parts) == 3 and (parts[0] in OVERLOADED or parts[2] == "default"):
        return parts[1]
    return parts[-1]


Level: TypeAlias = Literal[
    "dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export", "post_grad"
]
"""Compilation stage at which a graph was captured.

- `dispatch`: ops dispatched by an eager run, forward and backward.
- `fx`: `torch.fx.symbolic_trace`, or a `torch.fx` graph supplied by the user.
- `dynamo`: graphs that Dynamo passes to a backend: torch functions, before autograd.
- `aot`: AOTAutograd's functional graphs of ATen ops, with separate forward and backward.
- `compiled_autograd`: the backward of a whole step as one graph.
- `export`: the program of `torch.export`.
- `post_grad`: Inductor's graphs after its own passes, before code generation.
"""

LEVELS: tuple[Level, ...] = get_args(Level)
"""All levels, in the order used by messages."""

SAVING_LEVELS: frozenset[Level] = frozenset({"dispatch", "aot", "compiled_autograd", "post_grad"})
"""Levels whose forward graphs record the activations saved for backward."""

ATEN_LEVELS: frozenset[Level] = frozenset({"dispatch", "aot", "compiled_autograd", "post_grad"})
"""Levels with registered ops only. Composite ops are already decomposed."""

FLOP_LEVELS: frozenset[Level] = ATEN_LEVELS | {"export"}
"""Levels whose ops have FLOP formulas in torch."""
