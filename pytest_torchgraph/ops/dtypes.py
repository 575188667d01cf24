"""Names of dtypes: torch's names, and the abbreviations that fx prints."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

ABBREVIATIONS = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "float4_e2m1fn_x2": "f4e2m1fnx2",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "b8",
}
"""Abbreviations that fx prints (`torch.utils._dtype_abbrs`), by torch's dtype name."""

DTYPE_NAMES = {short: name for name, short in ABBREVIATIONS.items()}
"""torch's dtype names, by abbreviation."""

CASTS = ("aten._to_copy", "prims.convert_element_type")
"""Beginnings of the names of ops that cast."""

_BITS = re.compile(r"[a-z](\d+)")


@cache
def item_size(dtype: str) -> int:
    """Return the number of bytes per element, 1 for dtypes smaller than a byte."""
    bits = _BITS.search(dtype)
    return max(1, int(bits[1]) // 8) if bits else 1


_OTHERS = frozenset(
    "qint8 quint8 qint32 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 bcomplex32 "
    "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7".split()
)
"""torch's dtypes without an abbreviation in fx."""


class DType(str):
    """A dtype's name without `torch.`, which also equals the `torch.dtype` and the abbreviation.

    If it did not, the check `node.result.dtype != "f32"` could never fail. As a dict key, a `DType`
    matches only its name.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other) or ABBREVIATIONS.get(str(self)) == str(other)
        if type(other).__name__ == "dtype":
            return f"torch.{self!s}" == str(other)
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = str.__hash__

    @classmethod
    def of(cls, name: str) -> DType:
        """Return the shared object of a name. Comparing an object with itself is cheap."""
        shared = _SHARED.get(name)
        return _SHARED.setdefault(str(name), cls(name)) if shared is None else shared


_SHARED: dict[str, DType] = {}


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype, e.g. `float32`.

    Args:
        dtype: a `torch.dtype`, its name with or without `torch.`, or its abbreviation.

    Raises:
        ValueError: if the name is unknown.
        TypeError: if `dtype` is neither a string nor a `torch.dtype`.
    """
    if not isinstance(dtype, str) and type(dtype).__name__ != "dtype":
        raise TypeError(
            f"{dtype!r} is not a dtype: pass a torch.dtype or its name, such as 'float32'"
        )
    text = str(dtype).removeprefix("torch.")
    name = DTYPE_NAMES.get(text, text)
    if name not in ABBREVIATIONS and name not in _OTHERS and isinstance(dtype, str):
        import difflib

        suggestions = difflib.get_close_matches(text, [*ABBREVIATIONS, *DTYPE_NAMES], n=1)
        hint = f": did you mean {suggestions[0]!r}?" if suggestions else ""
        raise ValueError(f"unknown dtype {dtype!r}{hint}")
    return name
