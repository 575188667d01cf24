"""Read a printed module as a torch.fx graph, and name its inputs.

`from_fx.convert` converts it. The result equals the conversion of the live fx graph except for
names: torch prints no module paths, so a node is named after its op and the function that contains
its source line.

- A Dynamo graph prints identifiers that Dynamo derives from sources (`L_self_modules_fc_...`).
- An AOTAutograd graph prints for each input the corresponding Dynamo input.
- A backward's saved inputs have the names of the forward's nodes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import fx

from ..canonical_names import PrintedSymbol
from ..node_meta import RESULT
from ..placeholders import InputName, aot_inputs, is_gradient
from ..rng_states import describe_outputs, names_in_backward
from .statements import ForwardReader, is_annotated
from .syntax import PrintedClass, PrintedText


class Bodies:
    """A graph that was read, with the bodies of its higher-order ops.

    A read-only substitute for a `torch.fx.GraphModule`.

    Attributes:
        graph: the fx graph.
        modules: bodies by attribute name.
    """

    def __init__(self, graph: fx.Graph, modules: Mapping[str, Bodies]):
        self.graph = graph
        self.modules = modules

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` ask for attributes before `__init__` has set `modules`.
        module = self.get_submodule(name) if "modules" in self.__dict__ else None
        if module is None:
            raise AttributeError(name)
        return module

    def get_submodule(self, target: str) -> Bodies | None:
        """Return the body at an attribute path, or `None`.

        A module with two names that differ only in their final number is printed under one name.
        """
        module: Bodies | None = self
        for part in target.split("."):
            modules: Mapping[str, Bodies] = {} if module is None else module.modules
            module = modules.get(part) or _find_numbered_sibling(part, modules)
        return module


class Printed(Bodies):
    """A parsed printed module: its graph, and the modules nested in it.

    Attributes:
        graph: the fx graph. The nodes' `meta` holds results, descriptions and sources as printed.
        name: name of the printed class.
        modules: nested modules by attribute name.
    """

    def __init__(self, text: PrintedText, tree: PrintedClass):
        self.name = tree.name
        modules = {inner.name: Printed(text, inner) for inner in tree.inner}
        super().__init__(ForwardReader(text, tree.forward).graph, modules)
        self._check_bodies(text, tree)

    def _check_bodies(self, text: PrintedText, tree: PrintedClass) -> None:
        """Raise an error if the body of a higher-order op is missing from a truncated text."""
        if not is_annotated(self.graph):
            return
        for node in self.graph.nodes:
            # A get_attr that reads a tensor has a result. Objects are recognized by their names.
            missing = (
                node.op == "get_attr"
                and node.meta[RESULT] is None
                and not str(node.target).startswith(("_torchbind", "_opaque"))
                and self.get_submodule(str(node.target)) is None
                and any(isinstance(u.target, torch._ops.HigherOrderOperator) for u in node.users)
            )
            if missing:
                line = tree.forward.end_lineno or 1
                raise text.error(f"missing body of {node.target}", line)

    @property
    def placeholders(self) -> list[fx.Node]:
        """Inputs, in order."""
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @property
    def output(self) -> fx.Node:
        """Output node."""
        return self.graph.output_node()


def read_printed(text: str) -> Printed:
    """Read a graph that torch printed. The text is never evaluated.

    Args:
        text: the payload of `dynamo_output_graph`, `aot_joint_graph`, `aot_forward_graph`,
            `aot_backward_graph`, `aot_inference_graph`, `compiled_autograd_graph` or of a
            post-grad artifact.

    Raises:
        PrintedGraphError: if the text is not a printed graph. The error names the line and the
            reason.
    """
    printed = PrintedText(text)
    try:
        return Printed(printed, printed.tree())
    except RecursionError:
        raise printed.error("values are nested too deeply", 1) from None


def _find_numbered_sibling(name: str, modules: Mapping[str, Bodies]) -> Bodies | None:
    """Return the module whose name differs from `name` only in final digits, as few as possible.

    Return `None` if there are several.
    """
    by_common: dict[int, list[Bodies]] = {}
    for module_name, module in modules.items():
        pairs = zip(name, module_name, strict=False)
        common = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])
        if common and (name[common:] + module_name[common:]).isdigit():
            by_common.setdefault(common, []).append(module)
    nearest = by_common[max(by_common)] if by_common else []
    return nearest[0] if len(nearest) == 1 else None


_SOURCE = re.compile(r"[lLgG]_(.*?)_?\Z", re.DOTALL)
_MODULE_DICTS = re.compile(r"(?:^|(?<=_))(modules|parameters|buffers)_")
_FRAME_VARIABLES = frozenset({"self", "kwargs", "args", "fn", "mod"})


def dynamo_names(printed: Printed) -> list[InputName]:
    """Return (role, name) of each input of a Dynamo graph."""
    return [_dynamo_name(node) for node in printed.placeholders]


def is_size(node: Any) -> bool:
    """Return True if an input is a symbolic size."""
    return isinstance(node.meta.get(RESULT), PrintedSymbol)


def _dynamo_name(node: Any) -> InputName:
    """Return (role, name) of one input. Its identifier does not show where the source has dots."""
    if is_size(node):
        return "input", "size"
    name = str(node.target)
    role = "input"
    if "_parameters_" in name:
        role = "parameter"
    elif "_buffers_" in name:
        role = "buffer"
    match = _SOURCE.match(name)
    if match is None:
        return role, node.name
    parts = _MODULE_DICTS.split(match[1])
    path = [part.strip("_") for part in parts[0::2]]  # the others are what the pattern matched
    if len(path) > 1:
        path = path[1:]  # the frame's variable that holds the module
    else:
        first, _, rest = path[0].partition("_")
        path = [rest if first in _FRAME_VARIABLES and rest else path[0]]
    return role, ".".join(part for part in path if part) or node.name


def aot_names(
    printed: Printed,
    dynamo: list[InputName],
    forward: dict[str, str],
    forward_printed: Printed | None,
) -> dict[str, InputName]:
    """Return (role, name) of each input of an AOTAutograd graph, by name in the text.

    Args:
        printed: a joint, forward, backward or inference graph.
        dynamo: inputs of the Dynamo graph it was compiled from.
        forward: for a backward, the node names of its forward, by name in the text.
        forward_printed: for a backward, its forward.
    """
    states = names_in_backward(forward_printed.graph, printed.graph) if forward_printed else {}
    return aot_inputs(cast(Any, printed), dynamo, forward, states)


def describe_by_joint(printed: Printed, joint: Printed) -> None:
    """Restore the output descriptions of a forward that saves random states (`rng_states`).

    Args:
        printed: the forward; modified if it lacks descriptions.
        joint: the joint graph that the forward was split from. Its outputs are the outputs of the
            forward, then the gradients.
    """
    outputs = joint.output.meta.get("desc") or ()
    real = list(
        itertools.takewhile(lambda desc: desc is not None and not is_gradient(desc), outputs)
    )
    description = describe_outputs(printed.output, real) if real else None
    if description is not None:
        printed.output.meta["desc"] = description


def describe_like(printed: Printed, earlier: Printed) -> None:
    """Copy the descriptions of inputs and outputs (`desc`) from another stage of the same graph.

    Inductor prints post-grad graphs without descriptions. The original AOTAutograd graph has the
    same inputs by name, and the same outputs in order.

    Args:
        printed: the graph without descriptions; modified.
        earlier: the graph with descriptions.
    """
    desc_by_name = {node.name: node.meta.get("desc") for node in earlier.placeholders}
    for node in printed.placeholders:
        if "desc" not in node.meta and desc_by_name.get(node.name) is not None:
            node.meta["desc"] = desc_by_name[node.name]
    described = earlier.output.meta.get("desc")
    values = printed.output.args[0]
    if described is None or "desc" in printed.output.meta:
        return
    if isinstance(values, tuple | list) and len(values) == len(described):
        printed.output.meta["desc"] = described
