"""A printed module, read into a torch.fx graph that the conversion of live graphs takes."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ..node_meta import RESULT
from .statements import ForwardReader, is_annotated
from .syntax import PrintedClass, PrintedText


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
