"""Printed descriptions of values: `"f32[s77, 4][4, 1]cpu"`, `"Sym(s77)"`, and their `Result`s."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ...graph.model import Arg, Atom, Result, Symbol, TensorMeta
from ...ops.dtypes import DTYPE_NAMES
from ..canonical_names import CanonicalNames

_TENSOR = re.compile(r"(\w+)\[([^\[\]]*)\](?:\[([^\[\]]*)\])?([a-z]\w*(?::\d+)?)?")
_SUBCLASS = re.compile(r"[A-Za-z_][\w.]*\((\w+\[.*)\)\Z", re.DOTALL)
_SIZE = re.compile(r"[\w\s+\-*/%(),.<>=&|~!^]+\Z")

_MORE_DTYPES = {
    "b1x8": "bits1x8",
    "b2x4": "bits2x4",
    "b4x2": "bits4x2",
    "b8x1": "bits8",
    "b16x1": "bits16",
}
"""Abbreviations that torch prints for dtypes which have none in the text form."""


@dataclass(frozen=True, slots=True)
class PrintedTensor:
    """A printed tensor: dtype by torch's name, sizes and strides as texts."""

    dtype: str
    shape: tuple[str, ...]
    stride: tuple[str, ...] | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class PrintedSymbol:
    """A printed symbolic int, float or bool: its expression."""

    expr: str


@dataclass(frozen=True, slots=True)
class PrintedObject:
    """A printed argument that shows only its type: the qualified name of that."""

    type: str


PrintedResult: TypeAlias = "PrintedTensor | PrintedSymbol | tuple[PrintedResult, ...] | None"


def read_result(annotation: str) -> PrintedResult:
    """The description in an annotation.

    Raises:
        ValueError: with the reason, if it has none.
    """
    if annotation.startswith("Sym(") and annotation.endswith(")"):
        return PrintedSymbol(annotation[4:-1])
    wrapped = _SUBCLASS.match(annotation)
    match = (
        _TENSOR.match(wrapped[1]) if wrapped else _TENSOR.fullmatch(annotation)
    )  # behind the tensor inside a subclass stands what is peculiar to that
    if match is None:
        raise ValueError(f"{annotation!r} describes no tensor")
    short, shape, stride, device = match.groups()
    dtype = DTYPE_NAMES.get(short) or _MORE_DTYPES.get(short)
    if dtype is None:
        raise ValueError(f"{short!r} is no dtype")
    try:
        place = None if device is None else str(torch.device(device))
    except RuntimeError:
        raise ValueError(f"{device!r} is no device") from None
    return PrintedTensor(dtype, _sizes(shape), None if stride is None else _sizes(stride), place)


def _sizes(text: str) -> tuple[str, ...]:
    """The sizes in a text, split at the commas outside of parentheses: `s77, Max(1, s27)`."""
    if not text.strip():
        return ()
    sizes = [""]
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            sizes.append("")
        else:
            sizes[-1] += letter
    stripped = tuple(size.strip() for size in sizes)
    if depth or not all(_SIZE.match(size) for size in stripped):
        raise ValueError(f"[{text}] is no shape")
    return stripped


class PrintedNames(CanonicalNames):
    """`CanonicalNames` that take printed values too.

    It shares the state of the object that it is made from: both number together.
    """

    def __init__(self, canon: CanonicalNames):
        super().__init__()
        self.__dict__.update(canon.__dict__)

    def result(self, value: Any) -> Result:
        """The description of a printed value."""
        if isinstance(value, PrintedTensor):
            shape = tuple([self.size(_number(size)) for size in value.shape])
            stride = None
            if value.stride is not None:
                stride = tuple([self.size(_number(size)) for size in value.stride])
            device = None if value.device is None else self.device(torch.device(value.device))
            return TensorMeta(value.dtype, shape, stride, device)
        if isinstance(value, PrintedSymbol):
            return Symbol(self.expression(value.expr))
        return super().result(value)

    def constant(self, value: Any) -> Arg:
        """A printed constant as data."""
        if isinstance(value, PrintedSymbol):
            return Symbol(self.expression(value.expr))
        if isinstance(value, PrintedObject):
            return Atom(value.type)
        return super().constant(value)


def _number(size: str) -> int | str:
    return int(size) if size.lstrip("-").isdecimal() else size
