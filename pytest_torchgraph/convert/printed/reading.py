"""A printed module, with its inputs, as a torch.fx graph and then as a `Graph`.

- A Dynamo graph prints identifiers that Dynamo made of its sources (`L_self_modules_fc_...`).
- A graph of AOTAutograd prints for each input which of Dynamo's inputs it is.
- A backward's saved inputs have the names of the forward's nodes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
import torch.fx

from ...graph.model import Graph, GraphKind
from ...ops.names import Level
from ..canonical_names import CanonicalNames
from ..from_fx import Converted, Naming, convert
from ..node_meta import RESULT
from ..placeholders import aot_inputs, is_gradient, source_to_fqn
from ..rng_states import described, names_in_backward
from .statements import ForwardReader, is_annotated
from .syntax import PrintedClass, PrintedText
from .values import PrintedNames, PrintedSymbol


class Printed:
    """A printed module that was read: its graph, and the modules printed inside it.

    It stands in for a `torch.fx.GraphModule` where that is only read.

    Attributes:
        graph: the fx graph. Its nodes' `meta` has results, descriptions and sources as printed.
        name: name of the printed class.
        modules: the modules printed inside, by attribute name.
    """

    def __init__(self, text: PrintedText, tree: PrintedClass):
        self.name = tree.name
        self.modules = {inner.name: Printed(text, inner) for inner in tree.inner}
        self.graph = ForwardReader(text, tree.forward).graph
        self._check_bodies(text, tree)

    def _check_bodies(self, text: PrintedText, tree: PrintedClass) -> None:
        """Raise where a body of a higher-order op is missing: the text is cut off before it."""
        if not is_annotated(self.graph):
            return
        for node in self.graph.nodes:
            missing = (
                node.op == "get_attr"
                and node.meta[RESULT] is None
                and not str(node.target).startswith(("_torchbind", "_opaque"))
                and self.get_submodule(str(node.target)) is None
                and any(isinstance(u.target, torch._ops.HigherOrderOperator) for u in node.users)
            )
            if missing:
                line = tree.forward.end_lineno or 1
                raise text.error(f"the body {node.target} is not printed behind this", line)

    def __getattr__(self, name: str) -> Any:
        module = self.get_submodule(name) if "modules" in self.__dict__ else None
        if module is None:
            raise AttributeError(name)
        return module

    def get_submodule(self, target: str) -> Printed | None:
        """The printed module at an attribute path, None where none is printed.

        A module with two names, which differ in the number at their end, is printed under one.
        """
        module: Printed | None = self
        for part in target.split("."):
            modules: dict[str, Printed] = {} if module is None else module.modules
            module = modules.get(part) or _numbered_like(part, modules)
        return module

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        """The inputs, in order."""
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @property
    def output(self) -> torch.fx.Node:
        """The output node."""
        return self.graph.output_node()


def read_printed(text: str) -> Printed:
    """Read a graph that torch printed.

    Raises:
        PrintedGraphError: with the line, for any other text.
    """
    printed = PrintedText(text)
    try:
        return Printed(printed, printed.tree())
    except RecursionError:
        raise printed.error("values are nested too deeply", 1) from None


def _numbered_like(name: str, modules: dict[str, Printed]) -> Printed | None:
    """The one module whose name has the longest beginning in common with `name`, then digits."""
    by_common: dict[int, list[Printed]] = {}
    for other, module in modules.items():
        common = _common(name, other)
        if common and (name[common:] + other[common:]).isdigit():
            by_common.setdefault(common, []).append(module)
    nearest = by_common[max(by_common)] if by_common else []
    return nearest[0] if len(nearest) == 1 else None


def _common(a: str, b: str) -> int:
    """The length of the beginning that two names have in common."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def parse_printed(
    text: str,
    *,
    level: Level,
    kind: GraphKind,
    name: str = "main",
    canon: CanonicalNames | None = None,
    inputs: Mapping[str, tuple[str, str]] | None = None,
) -> Graph:
    """The `Graph` of a text that torch's structured trace printed.

    It equals the one that the live fx graph is converted to. Only names differ, since no module
    path is printed: a node's name is made of its op and the function that its line is in.

    Args:
        text: the payload of `dynamo_output_graph`, `aot_joint_graph`, `aot_forward_graph`,
            `aot_backward_graph`, `aot_inference_graph`, `compiled_autograd_graph` or of a
            post-grad artifact.
        level: see `ops.levels.Level`.
        kind: see `Graph`.
        name: name of the graph in its capture.
        canon: shared by the graphs of one capture, so that a symbol has one name in all of them.
        inputs: (role, name) of each input by its name in the text (see `aot_names`).

    Raises:
        PrintedGraphError: with the line and the reason, if the text cannot be read. Nothing in it
            is ever evaluated.
    """
    printed = read_printed(text)
    naming = Naming(dict(inputs or {}))
    return convert_printed(
        printed, level=level, kind=kind, name=name, canon=canon, naming=naming
    ).graph


def convert_printed(
    printed: Printed,
    *,
    level: Level,
    kind: GraphKind,
    name: str = "main",
    canon: CanonicalNames | None = None,
    naming: Naming | None = None,
) -> Converted:
    """Convert a printed graph that was read.

    The result's `names`, by the names in the text, are those that `aot_names` takes for the
    backward of this graph.

    Args:
        printed: the module that `read_printed` returned.
        level, kind, name, canon: see `parse_printed`.
        naming: as for a live graph; its `inputs` are by the names in the text.
    """
    return convert(
        printed,
        name=name,
        kind=kind,
        level=level,
        canon=PrintedNames(canon or CanonicalNames()),
        naming=naming,
    )


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
