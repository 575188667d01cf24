"""Roles and names of the inputs of printed graphs.

- A Dynamo graph prints identifiers that Dynamo made of its sources (`L_self_modules_fc_...`).
- A graph of AOTAutograd prints for each input which of Dynamo's inputs it is.
- A backward's saved inputs have the names of the forward's nodes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..aot_descriptors import is_gradient
from ..dynamo_sources import source_to_fqn
from ..node_meta import RESULT
from ..placeholders import aot_inputs
from ..rng_states import described, names_in_backward
from .reading import Printed
from .results import PrintedSymbol

_ROOT = re.compile(r"[lLgG]_(.*?)_?\Z", re.DOTALL)
_OWNED = re.compile(r"(?:^|(?<=_))(modules|parameters|buffers)_")
_ROOTS = frozenset({"self", "kwargs", "args", "fn", "mod"})


def dynamo_names(printed: Printed, sources: Iterable[str] = ()) -> list[tuple[str, str]]:
    """(role, name) of each input of a Dynamo graph.

    Args:
        printed: the graph.
        sources: sources (`L['x']._modules['fc']`) that are known otherwise: an identifier alone
            does not tell where a dot was.
    """
    known = {mangled(source): source for source in sources}
    return [_dynamo_name(node, known) for node in printed.placeholders]


def mangled(source: str) -> str:
    """The identifier that Dynamo makes of a source."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", source)


def is_size(node: Any) -> bool:
    """Whether an input is a symbolic size and not a tensor."""
    return isinstance(node.meta.get(RESULT), PrintedSymbol)


def _dynamo_name(node: Any, known: Mapping[str, str]) -> tuple[str, str]:
    """(role, name) of one input; `known` has sources by their identifiers."""
    if is_size(node):
        return "input", "size"
    name = str(node.target)
    role = "input"
    if "_parameters_" in name:
        role = "parameter"
    elif "_buffers_" in name:
        role = "buffer"
    if name in known:
        return role, source_to_fqn(known[name])
    match = _ROOT.match(name)
    if match is None:
        return role, node.name
    parts = _OWNED.split(match[1])
    path = [part.strip("_") for part in parts[0::2]]
    if len(path) > 1:
        path = path[1:]  # the frame's variable that holds the module
    else:
        first, _, rest = path[0].partition("_")
        path = [rest if first in _ROOTS and rest else path[0]]
    return role, ".".join(part for part in path if part) or node.name


def aot_names(
    printed: Printed,
    dynamo: list[tuple[str, str]],
    forward: Mapping[str, str] | None = None,
    forward_printed: Printed | None = None,
) -> dict[str, tuple[str, str]]:
    """(role, name) of each input of a graph of AOTAutograd, by its name in the text.

    Args:
        printed: a joint, forward, backward or inference graph.
        dynamo: the inputs of the Dynamo graph that it was made from.
        forward: for a backward, the names of its forward's nodes, by those in the text.
        forward_printed: for a backward, its forward.
    """
    states = names_in_backward(forward_printed.graph, printed.graph) if forward_printed else {}
    return aot_inputs(cast(Any, printed), dynamo, dict(forward or {}), states)


def describe_by_joint(printed: Printed, joint: Printed) -> None:
    """Describe the outputs of a forward again that keeps states of the generator (`rng_states`).

    Args:
        printed: the forward; changed where it lacks the descriptions.
        joint: the graph that it was cut out of, whose outputs are those of the forward and then
            the gradients.
    """
    outputs = joint.output.meta.get("desc") or ()
    real = list(
        itertools.takewhile(lambda each: each is not None and not is_gradient(each), outputs)
    )
    found = described(printed.output, real) if real else None
    if found is not None:
        printed.output.meta["desc"] = found


def describe_like(printed: Printed, other: Printed) -> None:
    """Copy the descriptions of inputs and outputs (`desc`) from another stage of the same graph.

    Inductor prints its post-grad graphs without them. The graph of AOTAutograd that one was made
    from has the same inputs, by name, and the same outputs, in order.

    Args:
        printed: the graph without descriptions; changed.
        other: the graph that has them.
    """
    known = {node.name: node.meta.get("desc") for node in other.placeholders}
    for node in printed.placeholders:
        if "desc" not in node.meta and known.get(node.name) is not None:
            node.meta["desc"] = known[node.name]
    described = other.output.meta.get("desc")
    values = printed.output.args[0]
    if described is None or "desc" in printed.output.meta:
        return
    if isinstance(values, tuple | list) and len(values) == len(described):
        printed.output.meta["desc"] = described
