"""Finds the tensors whose values `torch.tensor` has just copied into a constant.

`torch.tensor([x.sum(), x.mean()])` reads each element in C++, without calling any dispatch mode.
The list is still alive when `lift_fresh` runs. It is found by its contents: tensors with the values
of the constant.
"""

from __future__ import annotations

import ast
import gc
import inspect
import linecache
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
import torch.utils._pytree as pytree

from ... import torch_private
from ...convert import source_lines

_MOST_ELEMENTS = 4096
"""Maximum number of elements of an examined constant. Source code contains no longer lists."""


def tensors_inside(constant: torch.Tensor, alive: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in the list that a constant was made from, in order.

    Args:
        constant: the constant. Empty result if it was made from plain numbers or an array.
        alive: the tensors that are alive.
    """
    if constant.dim() == 0 or not 0 < constant.numel() <= _MOST_ELEMENTS or constant.is_meta:
        return []
    scalars = [tensor for tensor in alive if tensor.numel() == 1 and _has_value(tensor)]
    if not scalars:
        return []
    numbers = [read(element) for element in constant.flatten().unbind()]
    # `gc.get_referrers` takes as long as a garbage collection, so compare the values first.
    level_objects: list[Any] = [
        t for t in scalars if any(_is_near(read(t), number) for number in numbers)
    ]
    own_lists = {id(alive), id(scalars), id(level_objects)}  # they refer to the tensors as well
    # The lists are nested as deeply as the constant has dims. Each pass goes one level outwards.
    for _ in constant.shape:
        owners = gc.get_referrers(*level_objects) if level_objects else []
        level_objects = [
            o for o in owners if isinstance(o, list | tuple) and id(o) not in own_lists
        ]
        own_lists |= {id(owners), id(level_objects)}
        for owner in level_objects:
            elements = pytree.tree_leaves(owner, lambda v: not isinstance(v, list | tuple))
            if len(elements) == len(numbers) and _is_made_of(elements, numbers):
                return [leaf for leaf in elements if isinstance(leaf, torch.Tensor)]
    return []


def _has_value(tensor: torch.Tensor) -> bool:
    """Return False for a tensor without data, which cannot be compared."""
    return not tensor.is_meta and not torch_private.is_fake(tensor)


def is_made_of_numbers(frame: FrameType) -> bool:
    """Return True if the code of the running call shows that its argument is a plain number.

    False if the argument may be an array or a number of another library.
    """
    try:
        first, last, start, end = source_lines.position(frame.f_code, frame.f_lasti)
        lines = [
            linecache.getline(frame.f_code.co_filename, number).encode()
            for number in range(first, last + 1)  # type: ignore[arg-type, operator]
        ]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        (argument, *_) = ast.parse(b"".join(lines), mode="eval").body.args  # type: ignore[attr-defined]
    except (SyntaxError, AttributeError, ValueError, TypeError):
        return False
    return _is_number(argument, {**frame.f_globals, **frame.f_locals})


def _is_number(node: ast.expr, scope: Mapping[str, Any]) -> bool:
    """Return True if an expression is a plain number, or made of such expressions.

    Args:
        node: the expression.
        scope: the variables of the code.
    """
    if isinstance(node, ast.Subscript):
        return _is_number(node.value, scope)
    parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called == "len" or called.endswith((".numel", ".size", ".dim")):
            return True
        if called.endswith((".item", ".tolist")) and not _HANDS_OVER.search(called):
            # A tensor that shares memory with an array is met when an op reads it.
            root = scope.get(re.split(r"\W", called)[0])
            return root is torch or isinstance(root, torch.Tensor)
        if called not in _OF_PYTHON and not called.startswith("math."):
            return False
        parts = node.args
    elif not isinstance(node, ast.List | ast.Tuple | ast.UnaryOp | ast.BinOp):
        is_plain = isinstance(node, ast.Constant) or getattr(node, "attr", "") in ("shape", "ndim")
        return is_plain or type(_value(node, scope)) in (bool, float, int)
    return all(_is_number(part, scope) for part in parts if isinstance(part, ast.expr))


_OF_PYTHON = frozenset("float int bool abs min max round sum".split())
"""Functions that return a plain number if their arguments are plain numbers."""
_HANDS_OVER = re.compile("numpy|__array__")
"""Methods that return an array of another library."""


def _value(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """Return the value of a name or an attribute without running code."""
    match node:
        case ast.Attribute(owner, name):
            return inspect.getattr_static(_value(owner, scope), name, None)
        case ast.Name(name):
            return scope.get(name)
    return None


def read(tensor: torch.Tensor) -> Any:
    """Return the value of a one-element tensor, like `.item()` without its gradient warning."""
    return torch.ops.aten._local_scalar_dense.default(tensor)  # noqa: SLF001


def _is_made_of(elements: Sequence[Any], numbers: Sequence[Any]) -> bool:
    """Return True if the elements are the numbers of a constant, some of them in tensors."""
    for element, number in zip(elements, numbers, strict=True):
        is_tensor = isinstance(element, torch.Tensor)
        if is_tensor and (element.numel() != 1 or not _has_value(element)):
            return False
        if not is_tensor and not isinstance(element, bool | int | float | complex):
            return False
        if not _is_near(read(element) if is_tensor else element, number):
            return False
    return True


def _is_near(a: Any, b: Any) -> bool:
    """Return True if `b` may be `a`, rounded to the dtype of a constant such as bfloat16."""
    if isinstance(a, complex) or isinstance(b, complex):
        return abs(complex(a) - complex(b)) <= 0.01 * abs(complex(a))
    if isinstance(b, bool):
        return bool(a) is b
    if isinstance(b, int) and math.isfinite(a):
        return int(a) == b
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=0.01, abs_tol=1e-4)
