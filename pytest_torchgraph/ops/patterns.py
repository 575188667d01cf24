"""Checks of op patterns: one that can match nothing at the level of the graphs is refused.

A check that counts zero because of a misspelling passes for ever. So a pattern that matches no node
of a graph must at least name an op that could occur at the level of that graph.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from .. import torch_private
from . import registry
from .levels import ATEN_LEVELS, Level
from .names import is_glob

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
        op: a pattern as a string, an op object (`torch.ops.aten.mm`, a `torch.library.custom_op`),
            a function, or a `torch.nn.Module`, its class or an instance. Of objects it is the
            qualified name.

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

    if isinstance(op, torch.nn.Module):
        return class_name(type(op))
    if isinstance(op, type) and issubclass(op, torch.nn.Module):
        return class_name(op)
    return torch_private.name_of_custom_op(op) or op_name(op)


def refuse_impossible(op: Any, levels: Iterable[Level], *, traced: bool = False) -> None:
    """Do nothing for a pattern that can match an op at one of `levels`.

    Args:
        op: see `pattern_name`.
        levels: the levels of the graphs.
        traced: whether the graphs were captured here, and not handed over.

    Raises:
        ValueError: with the reason at one of the levels, where it can match at none of them.
    """
    pattern = pattern_name(op)
    problems = [_problem(op, pattern, level, traced) for level in sorted(set(levels))]
    if problems and all(problems):
        raise ValueError(problems[0])


def _problem(op: Any, pattern: str, level: Level, traced: bool) -> str:
    """The reason why a pattern can match no op at a level, "" where it can match."""
    if pattern.startswith("torch.ops."):
        return f"{pattern!r} names no op: leave out 'torch.ops.', as in {pattern[10:]!r}"
    if level == "compiled_autograd" and _GLUE.match(pattern):
        return ""
    registered = registry.matching(pattern)
    if level in ATEN_LEVELS and registered:
        return _dispatched_problem(pattern, registered, level)
    if level == "export" and registered:
        return ""
    if level in _TORCH_FUNCTIONS:
        if any(not each.startswith(_BELOW_AUTOGRAD) for each in registered):
            return ""  # a custom op, which is a node as it is
        if registered or pattern.startswith(_BELOW_AUTOGRAD):
            return (
                f"{pattern!r} cannot occur in a graph at level {level!r}, which holds torch "
                "functions: capture via 'aot', or use capture.at('aot')"
            )
    if registry.unregistered(pattern):
        return ""
    return _python_problem(op, pattern, level, traced)


_TORCH_FUNCTIONS = ("dynamo", "fx")
"""The levels of torch functions."""
_BELOW_AUTOGRAD = ("aten.", "prims.", "prim.")
"""Beginnings of the ops that torch functions run, and that Dynamo and torch.fx do not look for."""


def _python_problem(op: Any, pattern: str, level: Level, traced: bool) -> str:
    """`_problem` for a pattern of Python functions and classes, or of nothing."""
    from . import python_names

    named = python_names.named_values(pattern)
    if not named and not isinstance(op, str):  # defined in a function, where no name leads to it
        named = [(pattern, op)]
    if level not in _TORCH_FUNCTIONS and is_glob(pattern) and not python_names.is_symbolic(pattern):
        # `torch.*` means torch's functions, and not the few for sizes that are at each level.
        named = [each for each in named if not python_names.is_everywhere(each[0])]
    reasons = [python_names.why_not(*each, level, traced) for each in named]
    if not reasons:
        return _unknown(pattern, level)
    cannot = f"{pattern!r} cannot occur in a graph at level {level!r}"
    if None in reasons:
        alias = python_names.alias_of(pattern, named)
        return f"{cannot}, where it has another name: did you mean {alias}?" if alias else ""
    reason = next(filter(None, reasons), "")
    if reason:
        return f"{cannot}: {reason}"
    if level == "export":
        becomes = f"aten.{pattern.rpartition('.')[2]}"
        is_op = not is_glob(pattern) and bool(registry.matching(becomes))
        hint = f": did you mean {becomes}?" if is_op else ""
        return f"{cannot}, which holds ops such as aten.mm.default{hint}"
    way = "via 'dynamo' or 'fx', or of a watch use seen.at('dynamo')"
    if all(isinstance(value, type) for _, value in named):
        way = "via 'fx'"
    return f"{cannot}, which holds dispatched ops such as aten.mm.default: capture {way}"


def _dispatched_problem(pattern: str, known: list[str], level: Level) -> str:
    """`_problem` at the levels at which only registered ops occur, of which some match."""
    if level in ("aot", "post_grad") and all(map(registry.is_triton_op, known)):
        return (
            f"{pattern!r} cannot occur in a graph at level {level!r}: torch.compile takes ops of "
            "torch.library.triton_op apart. Name what it runs: 'triton.<kernel>', or its ops"
        )
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
    # Reading the names of all ops takes milliseconds, so that comes last.
    writes = level == "aot" and all(map(registry.is_in_place, known))
    if writes and all(map(registry.is_replaced, known)):
        instead = f": did you mean {packet.rstrip('_')}?" if packet.endswith("_") else ""
        return (
            f"{pattern!r} cannot occur in a graph at level 'aot', which is functional: ops that "
            f"write their arguments are replaced{instead}"
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
