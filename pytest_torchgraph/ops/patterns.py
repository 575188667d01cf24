"""Checks of op patterns: one that can match nothing at the level of the graphs is refused.

A check that counts zero because of a misspelling passes for ever. So a pattern that matches no node
of a graph must at least name an op that could occur at the level of that graph.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from . import registry
from .levels import ATEN_LEVELS, Level

_GLUE = re.compile(
    r"torch\._dynamo\.(compiled_autograd\.(ops\.)?|external_utils\.)\w+(\.\w+)?\Z|torch\.add\Z"
)
"""Calls of compiled autograd that are no registered ops: autograd's functions, hooks, sums."""

BECOMES = {
    "aten.item": "aten._local_scalar_dense",
    "aten.linear": "aten.addmm or aten.mm",
    "aten.matmul": "aten.mm, aten.bmm or aten.addmm",
    "aten.reshape": "aten.view or aten._unsafe_view",
    "aten.dropout": "aten.native_dropout or aten.bernoulli_",
    "aten.layer_norm": "aten.native_layer_norm",
    "aten.batch_norm": "aten._native_batch_norm_legit* or aten.native_batch_norm",
    "aten.group_norm": "aten.native_group_norm",
    "aten.conv1d": "aten.convolution",
    "aten.conv2d": "aten.convolution",
    "aten.conv3d": "aten.convolution",
    "aten.softmax": "aten._softmax",
    "aten.log_softmax": "aten._log_softmax",
    "aten.to": "aten._to_copy",
    "aten.contiguous": "aten.clone",
    "aten.flatten": "aten.view",
    "aten.chunk": "aten.split",
    "aten.scaled_dot_product_attention": "aten._scaled_dot_product_*",
    "aten.cross_entropy_loss": "aten._log_softmax and aten.nll_loss_forward",
    "aten.einsum": "aten.bmm",
    "aten.T": "aten.t or aten.permute",
}
"""The ops that the commonest composite ops are decomposed into: hints for messages."""


def pattern_name(op: Any) -> str:
    """The pattern that a user's argument stands for.

    Args:
        op: a pattern as a string, an op object (`torch.ops.aten.mm`), a function, or a subclass of
            `torch.nn.Module`. Of objects it is the qualified name.

    Raises:
        TypeError: for an empty string, and for what is neither a string nor callable.
    """
    if isinstance(op, str):
        if not op.strip():
            raise TypeError("an empty string names no op")
        return op
    if not callable(op):
        raise TypeError(f"{op!r} names no op: pass a string such as 'aten.mm', or the op itself")
    import torch

    from .qualified import class_name, op_name

    if isinstance(op, type) and issubclass(op, torch.nn.Module):
        return class_name(op)
    return op_name(op)


def refuse_impossible(pattern: str, levels: Iterable[Level]) -> None:
    """Do nothing for a pattern that can match an op at one of `levels`.

    Raises:
        ValueError: with the reason at one of the levels, where it can match at none of them.
    """
    problems = [_problem(pattern, level) for level in sorted(set(levels))]
    if problems and all(problems):
        raise ValueError(problems[0])


def _problem(pattern: str, level: Level) -> str:
    """The reason why a pattern can match no op at a level, "" where it can match."""
    namespace = pattern.partition(".")[0]
    if pattern.startswith("torch.ops."):
        return f"{pattern!r} names no op: leave out 'torch.ops.', as in {pattern[10:]!r}"
    if level in ATEN_LEVELS:
        return _dispatched_problem(pattern, namespace, level)
    if level == "export":
        return "" if registry.matching(pattern) else _unexported_problem(pattern, namespace)
    if namespace in registry.namespaces():
        return (
            f"{pattern!r} cannot occur in a graph at level {level!r}, which holds torch functions: "
            "capture via 'aot', or use capture.at('aot')"
        )
    return "" if registry.function_exists(pattern) else _unknown(pattern, level)


def _unexported_problem(pattern: str, namespace: str) -> str:
    """`_problem` in what torch.export gives, for a pattern that no registered op matches."""
    if not registry.function_exists(pattern):
        return _unknown(pattern, "export")
    op = f"aten.{pattern.rpartition('.')[2]}"
    is_op = "*" not in op and bool(registry.matching(op))
    of_modules = pattern.startswith("torch.nn.")
    if namespace not in ("torch", "Tensor") or not (is_op or of_modules):
        return ""
    hint = f": did you mean {op}?" if is_op else ""
    return (
        f"{pattern!r} cannot occur in a graph at level 'export', which holds ops such as "
        f"aten.mm.default{hint}"
    )


def _dispatched_problem(pattern: str, namespace: str, level: Level) -> str:
    """`_problem` at the levels at which only registered ops occur."""
    if level == "compiled_autograd" and _GLUE.match(pattern):
        return ""
    known = registry.matching(pattern)
    if not known:
        return _unregistered_problem(pattern, namespace, level)
    if level == "post_grad":  # inductor's passes may put composite and in-place ops in again
        return ""
    packet = ".".join(pattern.split(".")[:2])
    functional = [op for op in known if not op.rpartition(".")[2].endswith("out")]
    if all(registry.is_composite(op) for op in functional or known):
        becomes = BECOMES.get(packet)
        hint = f": did you mean {becomes}?" if becomes else ""
        return (
            f"{pattern!r} cannot occur in a graph at level {level!r}: it is a composite op, which "
            f"is decomposed before{hint}"
        )
    if level == "aot" and all(
        registry.is_in_place(op) and registry.is_replaced(op) for op in known
    ):
        instead = f": did you mean {packet.rstrip('_')}?" if packet.endswith("_") else ""
        return (
            f"{pattern!r} cannot occur in a graph at level 'aot', which is functional: ops that "
            f"write their arguments are replaced{instead}"
        )
    return ""


def _unregistered_problem(pattern: str, namespace: str, level: Level) -> str:
    """`_dispatched_problem` for a pattern that no registered op matches."""
    if not registry.function_exists(pattern):
        return _unknown(pattern, level)
    if namespace in ("torch", "Tensor"):
        return (
            f"{pattern!r} cannot occur in a graph at level {level!r}, which holds dispatched "
            "ops such as aten.mm.default: capture via 'dynamo' or 'fx', or of a watch use "
            "seen.at('dynamo')"
        )
    return ""


def _unknown(pattern: str, level: str) -> str:
    """The message for a name that exists nowhere, with the nearest names that do."""
    registered = registry.registered()
    packets = {".".join(op.split(".")[:2]) for op in registered}
    names = sorted({*packets, *registered}, key=lambda name: (not name.startswith("aten."), name))
    close = [name for name in names if name.partition(".")[2] == pattern][:3]
    close = close or difflib.get_close_matches(pattern, names, n=3)
    hint = f": did you mean {', '.join(close)}?" if close else ""
    return f"{pattern!r} names no op that is registered or could occur at level {level!r}{hint}"
