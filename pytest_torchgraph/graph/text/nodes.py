"""Reading one node of a `.tgraph` text, or its return, with what stands behind it."""

from __future__ import annotations

from typing import Any, cast

from ..model import INPUT_OPS, Arg, Effect, Node, NodeKind, Ref
from ..module_paths import module_of
from .values import WORD, ValueReader


class NodeReader(ValueReader):
    """Reads nodes. Each method begins at its element and stops behind it."""

    @property
    def has_facts(self) -> bool:
        """True if the version can say what modules were made with."""
        raise NotImplementedError

    def output(self) -> Node:
        """Read the output node, behind the word `return`."""
        value = self.long_return() if self.text[self.pos :] == "[" else self.value()
        effects, after, module = self.suffixes("output")
        return Node(
            "output", "output", "output", (value,), {}, None, module, None, "", effects, after
        )

    def node(self) -> Node:
        """Read any node but the output."""
        self.expect("%")
        name = self.name()
        self.expect(" = ")
        op = self.op()
        target = options = None
        if self.skip("["):
            target = self.string()
            known = "" if self.has_facts else None
            options = self.string() if self.skip(", ") else known
            self.expect("]")
        called = self.at("(")
        args, kwargs = self.arguments() if called else ((), {})
        result = self.result() if self.skip(" : ") else None
        effects, after, module = self.suffixes(name)
        kind: NodeKind = "call_function"
        if op in INPUT_OPS:
            kind = "placeholder"
        elif op == "get_attr":
            kind = "get_attr"
        elif target is not None:
            kind = "call_module"
        elif op.startswith("Tensor."):
            kind = "call_method"
        if (kind in ("get_attr", "call_module")) != (target is not None):
            self.fail(f"{op!r} {'needs a' if target is None else 'takes no'} target in brackets")
        if kind.startswith("call_") and not called:
            self.fail(f"expected '(' after {op!r}")
        if kind != "call_module":
            options = None
        return Node(
            name,
            kind,
            op,
            args,
            kwargs,
            result,
            module,
            None,
            target or "",
            effects,
            after,
            options,
        )

    def long_return(self) -> tuple[Arg, ...]:
        """Read the list of a return that has one line for each value."""
        indent = self.text[: self.pos - len("return ")]
        values: list[Arg] = []
        while self.next_line() and not self.at_end():
            self.expect(indent)
            if self.skip("]"):
                return tuple(values)
            self.expect("  ")
            values.append(self.value())
            self.expect(",")
            self.end_of_line()
        self.fail("the return has no closing ']': the file is truncated")

    def suffixes(self, name: str) -> tuple[tuple[Effect, ...], tuple[Ref, ...], str]:
        """Read the end of a node's line: effects, `after`, and the module path.

        Args:
            name: the node's name, which has the module path where the line does not say it.
        """
        effects: list[Effect] = []
        after: list[Ref] = []
        module = module_of(name)
        while self.skip(" !"):
            kind = self.match(WORD, "an effect")
            if kind not in ("mutates", "random", "communicates", "syncs", "opaque"):
                self.fail(f"unknown effect {kind!r}")
            target = None
            if self.at(" %"):
                self.pos += 1
                target = self.ref()
            effects.append(Effect(cast(Any, kind), target))
        if self.skip(" after "):
            after.append(self.ref())
            while self.skip(", "):
                after.append(self.ref())
        if self.skip(" in "):
            module = self.string()
        return tuple(effects), tuple(after), module
