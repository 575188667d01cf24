"""Qualified names of ops: matching them with patterns, counting them, their short forms."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from functools import lru_cache


def matches(op: str, pattern: str) -> bool:
    """Whether the qualified name `op` matches `pattern`.

    Args:
        op: a qualified name, as `aten.mm.default`.
        pattern: with `*` or `?` a glob over the whole name; else the name itself, or the packet of
            an overload: `aten.mm` matches `aten.mm.default` and `aten.mm.out`, and not
            `aten.mm_scaled`.
    """
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(op, pattern)
    return op == pattern or (op.startswith(pattern) and op.rpartition(".")[0] == pattern)


class OpCounts(Counter[str]):
    """How often each op occurs, by full name; `counts["aten.mm"]` sums the packet's overloads.

    A name that does not occur is a `KeyError`, not a silent zero.
    """

    def __missing__(self, key: str) -> int:
        counts = [count for op, count in self.items() if matches(op, key)]
        if not counts:
            there = ", ".join(sorted(self)) or "no op at all"
            raise KeyError(f"{key!r} does not occur; there is {there}")
        return sum(counts)

    # Counter's own operators look up the names of both sides, where a missing one is a KeyError.

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return dict.__ne__(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __sub__(self, other: Counter[str]) -> Counter[str]:
        return Counter(dict(self)) - Counter(dict(other))

    def __rsub__(self, other: Counter[str]) -> Counter[str]:
        return Counter(dict(other)) - Counter(dict(self))

    def __reduce__(self) -> tuple[type[OpCounts], tuple[dict[str, int]]]:
        return type(self), (dict(self),)


OVERLOADED = frozenset({"aten", "prims", "inductor", "quantized", "_c10d_functional"})
"""Namespaces whose ops have overloads other than `default`."""


@lru_cache(maxsize=8192)
def base_name(op: str) -> str:
    """The op's name without namespace and overload: `mm` of `aten.mm.default`, `torch.mm`."""
    parts = op.split(".")
    if len(parts) == 3 and (parts[0] in OVERLOADED or parts[2] == "default"):
        return parts[1]
    return parts[-1]
