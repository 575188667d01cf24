"""Process-independent names of symbols, devices, constants and nodes."""

from __future__ import annotations

import ast
import enum
import functools
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from .. import torch_private
from ..graph.equality import canonical_op
from ..graph.model import Arg, Atom, Device, Result, Symbol, TensorMeta
from ..ops.matching import base_name
from ..ops.qualified import op_name
from . import process_groups

_SYMBOL = re.compile(r"\b(s|u|zuf|zf|j)\d+\b")
"""torch's name of a symbol, see `graph.sizes.SYMBOL`, with its prefix."""


@dataclass(frozen=True, slots=True)
class PrintedTensor:
    """A printed tensor: torch's dtype name, sizes and strides as text."""

    dtype: str
    shape: tuple[str, ...]
    stride: tuple[str, ...] | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class PrintedSymbol:
    """Expression of a printed symbolic int, float or bool."""

    expr: str


class CanonicalNames:
    """Canonical numbers for symbols, devices, process groups and generators, by first use.

    torch's own names depend on the process (`s77`, `cuda:3`). The graphs of a capture share one
    `CanonicalNames`, so a symbol has the same name in all of them.

    Args:
        mesh_dimensions: see the attribute. `None` reads it from the existing process groups.

    Attributes:
        symbols: canonical name of each symbol.
        counts: number of symbols with each prefix (`s`, `u`, ...).
        devices: canonical device index, by device type and torch's index.
        groups: canonical name of each process group.
        generators: the random number generators in use.
        mesh_dimensions: name of the mesh dimension for which each process group was made, if any.
        members: ranks of each process group.
    """

    def __init__(self, mesh_dimensions: Mapping[str, str] | None = None) -> None:
        self.symbols: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.devices: dict[str, dict[int, int]] = {}
        self.groups: dict[str, str] = {}
        self.generators: list[torch.Generator] = []
        if mesh_dimensions is None:
            mesh_dimensions = process_groups.mesh_dimensions()
        self.mesh_dimensions = mesh_dimensions
        self.members = process_groups.ranks_by_group()

    def copy(self) -> CanonicalNames:
        """Return a copy with the same names, for a later graph that may add its own names."""
        duplicate = CanonicalNames(self.mesh_dimensions)
        duplicate.symbols.update(self.symbols)
        duplicate.counts.update(self.counts)
        duplicate.devices.update({type_: dict(numbers) for type_, numbers in self.devices.items()})
        duplicate.groups.update(self.groups)
        duplicate.generators += self.generators
        duplicate.members = self.members
        return duplicate

    def expression(self, value: Any) -> str:
        """Return an expression over canonical symbols.

        Args:
            value: a SymInt, SymFloat, SymBool or `PrintedSymbol`, or the text of an expression.
        """
        # A SymInt has the expression in `node.expr`, a `PrintedSymbol` in `expr`.
        text = str(getattr(getattr(value, "node", value), "expr", value))
        symbols = {match.group(): match.group(1) for match in _SYMBOL.finditer(text)}
        for name, prefix in sorted(symbols.items(), key=lambda item: (len(item[0]), item[0])):
            # Sort before numbering, because the order of symbols depends on the printer.
            self._number(name, prefix)
        return canonical(_SYMBOL.sub(lambda match: self.symbols[match.group()], text))

    def _number(self, name: str, prefix: str) -> None:
        """Give a symbol the next number of its prefix, unless it has one."""
        if name not in self.symbols:
            number = self.counts.get(prefix, 0)
            self.counts[prefix] = number + 1
            self.symbols[name] = f"{prefix}{number}"

    def size(self, value: Any) -> int | Symbol:
        """Return a size or stride, as an int if it is constant."""
        if type(value) is int:
            return value
        # A printed size is a text. Most are numbers, which need no parser.
        is_number = isinstance(value, str) and value.isdecimal()
        text = value if is_number else self.expression(value)
        return int(text) if text.lstrip("-").isdecimal() else Symbol(text)

    def device(self, device: torch.device) -> str:
        """Return a device name: `cuda` for the first index used, then `cuda:1`, `cuda:2`, ..."""
        index: int | None = device.index
        if index is None:
            return device.type
        numbers = self.devices.setdefault(device.type, {})
        number = numbers.setdefault(index, len(numbers))
        return f"{device.type}:{number}" if number else device.type

    def group(self, name: str) -> str:
        """Return the canonical name of a process group: its mesh dimension, or else `g0`, `g1`, ...

        Args:
            name: torch's name of the group.
        """
        # torch's own name counts all groups ever made in the process, so number by first use.
        if name not in self.groups:
            numbered = sum(group not in self.mesh_dimensions for group in self.groups)
            self.groups[name] = self.mesh_dimensions.get(name, f"g{numbered}")
            if name not in self.members:  # the target created the group
                self.members = {**process_groups.ranks_by_group(), **self.members}
        return self.groups[name]

    def ranks_of_groups(self) -> dict[str, tuple[int, ...]]:
        """Return `Graph.groups`: the ranks of groups in use and of the mesh dimensions' groups."""
        canonical_names = {**self.mesh_dimensions, **self.groups}
        return {
            canonical_names[name]: ranks
            for name, ranks in self.members.items()
            if name in canonical_names
        }

    def result(self, value: Any) -> Result:
        """Return the description of a node's value, or `None` for a value of any other type.

        Args:
            value: a tensor, its `TensorMetadata`, a symbolic or plain number, any of these as
                printed, a sequence of these, or a description.
        """
        if isinstance(value, PrintedTensor):
            shape = tuple(map(self.size, value.shape))
            stride = None if value.stride is None else tuple(map(self.size, value.stride))
            device = None if value.device is None else self.device(torch.device(value.device))
            return TensorMeta(value.dtype, shape, stride, device)
        if isinstance(value, torch.Tensor):
            shape = tuple(map(self.size, value.shape))
            dtype, device = str(value.dtype)[6:], self.device(value.device)  # without `torch.`
            if value.layout is not torch.strided:  # such a tensor has no strides
                return TensorMeta(dtype, shape, None, device, str(value.layout)[6:])
            stride = tuple(map(self.size, value.stride()))
            return TensorMeta(dtype, shape, stride, device)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | PrintedSymbol):
            return Symbol(self.expression(value))
        if type(value) in (bool, int, float, complex):
            return Atom(type(value).__name__)
        if type(value).__name__ == "TensorMetadata":  # of torch.fx.passes.shape_prop
            shape = tuple(map(self.size, value.shape))
            stride = tuple(map(self.size, value.stride))
            return TensorMeta(str(value.dtype)[6:], shape, stride)
        if isinstance(value, tuple | list):
            return tuple(self.result(item) for item in value)
        return value if isinstance(value, TensorMeta | Symbol | Atom) else None

    def constant(self, value: Any) -> Arg:
        """Return a constant argument as an `Arg` without references."""
        match value:
            case None | types.EllipsisType() | bool() | str() | bytes() | Atom():
                return value
            case enum.Enum():  # before int, because an `IntEnum` is an int
                return Atom(f"{type(value).__module__}.{type(value).__qualname__}.{value.name}")
            case int():
                return int(value)
            case float():
                return float(value)
            case complex():
                return complex(value)
            case torch.SymInt() | torch.SymFloat() | torch.SymBool() | PrintedSymbol():
                return Symbol(self.expression(value))
            case torch.device():
                return Device(self.device(value))
            case torch.dtype() | torch.layout() | torch.memory_format() | range():
                return Atom(str(value))
            case types.ModuleType():
                return Atom(value.__name__)
            case torch.Tensor():
                return Atom("torch.Tensor")  # also for a parameter or a fake tensor
        if (group := process_groups.name_of(value)) is not None:
            return self.group(group)
        if (reduction := process_groups.reduction_of(value)) is not None:
            return Atom(f"torch.distributed.ReduceOp.{reduction}")
        if callable(value) and not isinstance(value, torch.nn.Module):
            return Atom(op_name(value))
        if isinstance(value, torch_private.placement_types()):
            return Atom(f"{type(value).__module__}.{value!r}")  # `Shard(0)` is not `Shard(1)`
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, torch.Generator):
            # Draws from one generator depend on each other, so two generators need two names.
            if value not in self.generators:
                self.generators.append(value)
            number = self.generators.index(value)
            return Atom(f"{kind}.{number}" if number else kind)
        return Atom(kind)


class NodeNamer:
    """Generator of node names for one graph: module path, op, and a number if ambiguous.

    Inserting an op in one module renames no node of another module. A backward continues the
    numbering of its forward, so that no two values of a step have the same name, and saving one
    value more or less renames no node.

    Attributes:
        taken: all names in use.
        counts: last number appended to each name.
    """

    def __init__(self) -> None:
        self.taken = {"output"}  # the name of the output node
        self.counts: dict[str, int] = {}

    def reserve(self, names: Iterable[str]) -> None:
        """Mark names as taken."""
        self.taken.update(names)

    def claim(self, name: str) -> str:
        """Return `name`, with the next number appended if it is taken."""
        if name not in self.taken:
            self.taken.add(name)
            return name
        number = self.counts.get(name, 0)
        while True:
            number += 1
            numbered = f"{name}.{number}"
            if numbered not in self.taken:
                self.counts[name] = number
                self.taken.add(numbered)
                return numbered

    def node(self, module: str, op: str) -> str:
        """Claim a name for a node that runs `op` in `module`."""
        base = base_name(canonical_op(op))
        return self.claim(f"{module}/{base}" if module else base)


_COMMUTATIVE = frozenset({"Max", "Min", "And", "Or"})
_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_OPERATIONS: dict[type[ast.operator], str] = {
    ast.FloorDiv: "({}//{})",
    ast.Div: "{}/{}",
    ast.Pow: "{}**{}",
    ast.Mod: "({} % {})",
    ast.LShift: "({} << {})",
    ast.RShift: "({} >> {})",
    ast.BitXor: "({} ^ {})",
}


_Term = tuple[Fraction | float, tuple[str, ...]]
"""A product: its constant factor, and the texts of the remaining factors."""


class _UnknownForm(Exception):
    """An expression contains an unsupported form."""


@functools.lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """Return the canonical form of an expression, or an unsupported expression unchanged."""
    if text.isidentifier() or text.isdigit():
        return text
    try:
        return _format_sum(_terms(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError, _UnknownForm):
        return text


def _terms(node: ast.expr) -> list[_Term]:
    """Return the terms of an expression read as a sum."""
    match node:
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return [(number if isinstance(number, float) else Fraction(number), ())]
        case ast.UnaryOp(ast.USub(), operand):
            return [(-number, factors) for number, factors in _terms(operand)]
        case ast.BinOp(left, ast.Add(), right):
            return _terms(left) + _terms(right)
        case ast.BinOp(left, ast.Sub(), right):
            return _terms(left) + _terms(ast.UnaryOp(ast.USub(), right))
        case ast.BinOp(left, ast.Mult() | ast.Div() as op, right):
            (a, factors), (b, more) = _product(left), _product(right)
            if isinstance(op, ast.Mult):
                return [(a * b, factors + more)]
            # Only a quotient by an exact number is a product; any other is one factor.
            if not more and isinstance(b, Fraction) and b:
                return [(a / b, factors)]
    return [(Fraction(1), (_format_atom(node),))]


def _product(node: ast.expr) -> _Term:
    """Return an expression read as a product, in which a sum of several terms is one factor."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number, factors = _product(node.operand)
        return -number, factors
    terms = _terms(node)
    return terms[0] if len(terms) == 1 else (Fraction(1), (f"({_format_sum(terms)})",))


def _format_atom(node: ast.expr) -> str:
    """Return the text of an expression that is neither a sum nor a product."""
    match node:
        case ast.Name(name):
            return name
        case ast.Constant(bool() as value):
            return str(value)
        case ast.BinOp(_, ast.BitAnd() | ast.BitOr() as op, _):
            sign = " & " if isinstance(op, ast.BitAnd) else " | "
            return f"({sign.join(sorted(_chain_operands(node, type(op))))})"
        case ast.BinOp(left, op, right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)].format(_format_operand(left), _format_operand(right))
        case ast.Compare(left, [relation], [right]) if type(relation) in _RELATIONS:
            return f"{_format_operand(left)} {_RELATIONS[type(relation)]} {_format_operand(right)}"
        case ast.UnaryOp(ast.Invert(), operand):
            return f"~{_format_operand(operand)}"
        case ast.Call(ast.Name("FloorDiv" | "CleanDiv"), [left, right], []):
            return f"({_format_operand(left)}//{_format_operand(right)})"
        case ast.Call(ast.Name(name), arguments, []):
            texts = [_format_sum(_terms(argument)) for argument in arguments]
            return f"{name}({', '.join(sorted(texts) if name in _COMMUTATIVE else texts)})"
    raise _UnknownForm


def _chain_operands(node: ast.expr, op: type[ast.operator]) -> list[str]:
    """Return the operands of a chain of one operator, e.g. `a & b & c`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        return _chain_operands(node.left, op) + _chain_operands(node.right, op)
    return [_format_operand(node)]


def _format_operand(node: ast.expr) -> str:
    """Return the text of an operand, in parentheses unless it is a word or a call."""
    text = _format_sum(_terms(node))
    # `(a//b)` has parentheses already. With several pairs, the first may close before the last.
    closed = text.startswith("(") and text.endswith(")") and isinstance(node, ast.BinOp)
    simple = text.isidentifier() or text.isdigit() or isinstance(node, ast.Call)
    return text if simple or (closed and text.count("(") == 1) else f"({text})"


def _format_sum(terms: list[_Term]) -> str:
    """Return the text of a sum: first positive, then negative terms, each with constants last."""
    ordered = sorted(
        ((number, tuple(sorted(factors))) for number, factors in terms),
        key=lambda term: (term[0] < 0, not term[1], term[1], term[0]),
    )
    text = ""
    for number, factors in ordered:
        sign = "-" if number < 0 else "+"
        product = _format_product(-number if number < 0 else number, factors)
        text = f"{text} {sign} {product}" if text else f"{sign}{product}".removeprefix("+")
    return text


def _format_product(number: Fraction | float, factors: tuple[str, ...]) -> str:
    """Return the text of a product without its sign."""
    if isinstance(number, float):
        return "*".join([repr(number), *factors])
    constant = (str(number.numerator),) if number.numerator != 1 or not factors else ()
    text = "*".join(constant + factors)
    return text if number.denominator == 1 else f"{text}/{number.denominator}"
