"""Printed arguments: nodes, constants, and containers of these."""

from __future__ import annotations

import ast
import enum
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
import torch.fx

from . import callables
from .results import PrintedObject, PrintedSymbol
from .syntax import REPR, PrintedText

_NUMBERS: dict[str, float | complex] = {
    "inf": math.inf,
    "nan": math.nan,
    "infj": complex(0.0, math.inf),
    "nanj": complex(0.0, math.nan),
}
"""Numbers that are printed as words, which Python takes for names."""
_SYMBOLIC = re.compile(r"(?:s|u|zuf|zf|f|i|b)\d+\Z")
"""The names of symbols."""
_FUNCTIONS_OF_SYMBOLS = frozenset(
    "Max Min Mod PythonMod FloorDiv CeilDiv CleanDiv ModularIndexing Pow PowByNatural Abs Eq Ne "
    "floor ceiling ceil Piecewise Where ToFloat TruncToInt FloorToInt CeilToInt RoundToInt "
    "RoundDecimal IntTrueDiv FloatTrueDiv FloatPow Identity LShift RShift And Or Not sqrt "
    "OpaqueUnaryFn_sqrt OpaqueUnaryFn_log2 TruncToFloat IsNonOverlappingAndDenseIndicator".split()
)
"""Functions of sympy and torch in symbolic expressions."""
_PLACEMENTS = "torch.distributed.tensor.placement_types."
"""Where `Replicate()`, `Shard(0)` and `Partial()` are, which Dynamo's graphs of `DTensor` have."""
_OBJECT = re.compile(r"<([A-Za-z_][\w.]*) object at 0x[0-9a-f]+>\Z")
_TYPE = re.compile(r"<(?:class|enum) '([\w.]+)'>\Z")
_MEMBER = re.compile(r"<(\w+)\.(\w+): .*>\Z", re.DOTALL)


class Values:
    """Reads the arguments of one printed module.

    Attributes:
        text: the printed text.
        nodes: the nodes before the statement that is read, by their printed names.
    """

    def __init__(self, text: PrintedText, nodes: Mapping[str, torch.fx.Node]):
        self.text = text
        self.nodes = nodes

    def fail(self, node: ast.AST, problem: str) -> NoReturn:
        """Raise the error for the line of a syntax node."""
        raise self.text.error(problem, getattr(node, "lineno", 1))

    # -- arguments -------------------------------------------------------------------------------

    def arguments(self, call: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of a call."""
        kwargs: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                self.fail(keyword.value, "a call with **")
            kwargs[keyword.arg] = self.value(keyword.value)
        return tuple([self.value(arg) for arg in call.args]), kwargs

    def value(self, node: ast.expr) -> Any:
        """The node or constant that an expression stands for."""
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple([self.value(item) for item in node.elts])
        if isinstance(node, ast.List):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.Dict):
            return self._dict(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Set):
            self.fail(node, "a set as an argument")
        number = self._number(node)
        if number is not None:
            return number
        if self._is_symbolic(node):
            return PrintedSymbol(self.text.segment(node))
        self.fail(node, f"an argument of an unknown form: {self.text.segment(node)}")

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.nodes:
            return self.nodes[node.id]
        if node.id in _NUMBERS:
            return _NUMBERS[node.id]
        if node.id == "NoneType":
            return type(None)
        if _SYMBOLIC.match(node.id):
            return PrintedSymbol(node.id)
        try:
            return callables.identifier(node.id)
        except LookupError:
            self.fail(node, f"{node.id} is neither a node before this one nor a known function")

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        items = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                self.fail(node, "a dict with **")
            name = self.value(key)
            if isinstance(name, list | dict | slice | torch.fx.Node):
                self.fail(key, "a key of a dict that is no constant")
            items[name] = self.value(item)
        return items

    def _attribute(self, node: ast.Attribute) -> Any:
        path = dotted(node)
        if path is None:
            self.fail(node, f"an argument of an unknown form: {self.text.segment(node)}")
        try:
            return callables.qualified(path)
        except LookupError:
            pass
        owner, _, member = path.rpartition(".")
        for found in _enums(enum.Enum):
            if found.__name__ == owner.rpartition(".")[2] and member in found.__members__:
                return found[member]
        self.fail(node, f"{path} is not known in this process")

    def _call(self, node: ast.Call) -> Any:
        path = dotted(node.func) or ""
        if path == REPR and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            return self._repr(node, str(node.args[0].value))
        if path in _FUNCTIONS_OF_SYMBOLS and self._is_symbolic(node):
            return PrintedSymbol(self.text.segment(node))
        if path == "torch.Tensor" and {key.arg for key in node.keywords} == {"size", "dtype"}:
            return PrintedObject("torch.Tensor")
        args, kwargs = self.arguments(node)
        return self._constructed(node, path, args, kwargs)

    def _constructed(
        self, node: ast.Call, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The constant that a call of its type stands for; a collection is a tuple."""
        try:
            if path == "slice" and not kwargs:
                return slice(*args)
            if path == "range" and not kwargs:
                return range(*args)
            if path == "complex" and not kwargs:  # from torch 2.15 on, for what was (0.0-1.5j)
                return complex(*args)
            if path in ("device", "torch.device"):
                return torch.device(*args, **kwargs)
        except (TypeError, RuntimeError) as error:
            self.fail(node, f"{path}(...): {error}")
        if path in ("torch.Size", "frozenset", "set") and len(args) == 1:
            return tuple(args[0])
        if self._is_named_tuple(path) and not kwargs:
            return args
        if path.startswith(_PLACEMENTS):
            return PrintedObject(path)
        self.fail(node, f"an argument that is a call of {path or 'something'}")

    def _is_named_tuple(self, path: str) -> bool:
        try:
            cls = callables.qualified(path) if "." in path else callables.identifier(path)
        except LookupError:
            return False
        return hasattr(cls, "_fields") or isinstance(cls, callables.Unresolved)

    def _repr(self, node: ast.AST, text: str) -> Any:
        """The constant behind a repr that is not Python: `<class 'torch.Tensor'>`."""
        typed = _TYPE.match(text)
        if typed:
            found = callables.class_named(typed[1])
            return found if callable(found) else PrintedObject(typed[1])
        instance = _OBJECT.match(text)
        if instance:
            return PrintedObject(instance[1])
        member = _MEMBER.match(text)
        if member:
            for found in _enums(enum.Enum):
                if found.__name__ == member[1] and member[2] in found.__members__:
                    return found[member[2]]
        self.fail(node, f"an argument that torch printed as {text}")

    # -- numbers and symbols ---------------------------------------------------------------------

    def _number(self, node: ast.expr) -> int | float | complex | None:
        """A number with a sign, or a complex one: `-1.5`, `(1+2j)`, `(-0-infj)`."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, complex):
            return node.value  # type: ignore[return-value]
        if isinstance(node, ast.Name) and node.id not in self.nodes:
            return _NUMBERS.get(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            number = self._number(node.operand)
            if number is None:
                return None
            if isinstance(number, complex):  # -2j is complex(0.0, -2.0)
                return complex(0.0, -number.imag if isinstance(node.op, ast.USub) else number.imag)
            return -number if isinstance(node.op, ast.USub) else number
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            real, imaginary = _signed(node.left, self._number), self._number(node.right)
            if not isinstance(imaginary, complex) or real is None:
                return None
            return complex(
                real, imaginary.imag if isinstance(node.op, ast.Add) else -imaginary.imag
            )
        return None

    def _is_symbolic(self, node: ast.expr) -> bool:
        """Whether an expression has symbols and numbers only, and no node."""
        symbols = 0
        functions = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and id(part) in functions:
                if part.id not in _FUNCTIONS_OF_SYMBOLS:
                    return False
            elif isinstance(part, ast.Name):
                if part.id in self.nodes or not _SYMBOLIC.match(part.id):
                    return False
                symbols += 1
            elif isinstance(part, ast.Attribute | ast.Subscript | ast.List | ast.Dict):
                return False
        return symbols > 0


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` as text, None for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _signed(node: ast.expr, number: Callable[[ast.expr], Any]) -> float | None:
    """The real part of a complex number, whose sign counts: that of `(-0-2j)` is -0.0."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    value = number(node.operand if isinstance(node, ast.UnaryOp) else node)
    if value is None or isinstance(value, complex):
        return None
    return -float(value) if negative else float(value)


def _enums(base: type[enum.Enum]) -> list[type[enum.Enum]]:
    """All loaded subclasses of an enum class."""
    classes = []
    for subclass in base.__subclasses__():
        classes.append(subclass)
        classes.extend(_enums(subclass))
    return classes
