r"""Labels and tooltips of nodes, and any text as a DOT string that shows it unchanged.

Names, code lines and constants come from users. DOT gives meaning to backslashes (`\\N`, `\\l`),
to quotes, to `&...;` and to a text in angle brackets (HTML); renderers choke on control characters.
Everything that reaches a drawing passes through `dot_text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import TorchGraphError
from ...graph.model import Arg, Atom, Device, Graph, Node, Ref
from ...graph.text.format import format_arg, format_key, format_node, format_result, ran

TIMES = "\N{MULTIPLICATION SIGN}"
"""The sign between a number and what there is so many of."""
NO_GRAPHVIZ = (
    "pictures need the package graphviz, which is not installed: "
    "pip install 'pytest-torchgraph[render]'"
)
MAX_LINE = 40
"""Characters in a line of a box."""
MAX_LINES = 8
"""Lines in a box, and lines of code in a tooltip."""
MAX_TOOLTIP_LINE = 160
"""Characters in a line of a tooltip."""
MAX_FOLDED_NAME = 24
"""Characters of a parameter's name: its dtype and shape follow in the same line."""
MAX_DIGITS = 8
"""A float that takes more characters than this is rounded to four digits."""
NOT_DRAWN = frozenset({"device", "layout", "pin_memory"})
"""Keyword arguments that nobody looks for in a picture. They are in the tooltip."""

EFFECTS = {
    "mutates": "mutates something",
    "random": "draws random numbers",
    "communicates": "communicates",
    "syncs": "waits for the device",
    "opaque": "has unknown effects",
}
"""The line of a box for each kind of side effect."""

HOOKS = {
    "self_invoke": "runs a hook",
    "call_hook": "runs a hook",
    "register_hook": "registers a hook",
}
"""The line of a box for ops that call or register a hook, by the last part of their names."""

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def clean(text: str) -> str:
    """`text` without terminal escapes, tabs as a space, unprintable characters replaced."""
    text = _ANSI.sub("", text).expandtabs(1)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def cut(text: str, limit: int = MAX_LINE) -> str:
    """`text`, with an ellipsis for its middle where it has more than `limit` characters.

    Both ends are kept because both tell names apart.
    """
    if len(text) <= limit:
        return text
    tail = limit * 3 // 5
    return f"{text[: limit - tail - 1]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - tail :]}"


def need_graphviz() -> Any:
    """Return the package `graphviz`, which writes DOT.

    Raises:
        TorchGraphError: if it is not installed.
    """
    try:
        import graphviz
    except ImportError:
        raise TorchGraphError(NO_GRAPHVIZ) from None
    return graphviz


def dot_text(lines: Iterable[str], limit: int = MAX_LINE) -> str:
    """Lines of plain text as a DOT string that shows exactly them, each cut to `limit`."""
    escaped = (
        cut(clean(line), limit).replace("&", "&amp;").replace("\\", "\\\\") for line in lines
    )
    text: str = need_graphviz().nohtml("\\n".join(escaped))
    return text


def eager_label(graph: Graph, before: int | None = None) -> str:
    """The name of an eager graph, that it is one, and how often it ran.

    Args:
        graph: the graph.
        before: how often it ran in the old graph of a difference, where that is another number.
    """
    kind = "" if graph.kind == "forward" else f" {graph.kind}"
    label = f"{graph.name}: eager{kind}, {ran(graph.runs)}"
    return label if before is None else f"{label}, before: {before}"


def op_label(op: str) -> str:
    """The op as a pattern names it: without the overload `default`."""
    return op.removesuffix(".default")


def value_label(node: Node) -> str:
    """dtype and shape of a node's result, "" where that is unknown."""
    return "" if node.result is None else format_result(node.result)


def node_lines(node: Node) -> list[str]:
    """The lines of a node's box: the op, its constants, hooks, effects."""
    if node.kind == "placeholder":
        return [line for line in (node.name, value_label(node)) if line]
    if node.kind == "output":
        return ["return"]
    lines = [op_label(node.op)]
    if node.kind == "call_module":
        lines.append(node.target)
    constants = constants_label(node)
    if constants:
        lines.append(constants)
    hook = HOOKS.get(node.op.removesuffix(".default").rpartition(".")[2])
    if hook and node.is_call:
        lines.append(hook)
    lines += dict.fromkeys(
        f"mutates {effect.target.name}"
        if effect.kind == "mutates" and effect.target is not None
        else EFFECTS[effect.kind]
        for effect in node.effects
    )
    return lines


def folded_label(node: Node, user: Node) -> str:
    """The line for a parameter in its user's box, shorter where the user's module owns it."""
    name = node.target or node.name
    if user.module and name.startswith(user.module + "."):
        owner = user.module.rpartition(".")[2]
        name = f"{owner}.{name.removeprefix(user.module + '.')}"
    return f"{cut(name, MAX_FOLDED_NAME)} {value_label(node)}".strip()


def constants_label(node: Node) -> str:
    """The arguments with a dot for each operand; "" where there are only operands."""
    args: list[Arg] = list(node.args)
    kwargs = {key: value for key, value in node.kwargs.items() if key not in NOT_DRAWN}
    if all(isinstance(value, Ref) for value in (*args, *kwargs.values())):
        return ""
    parts = [_open(value) for value in args]
    parts += [f"{format_key(key)}={_open(value)}" for key, value in kwargs.items()]
    text = f"({', '.join(parts)})"
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}\N{HORIZONTAL ELLIPSIS}"


def _open(value: Arg) -> str:
    """An argument printed with a dot in place of each reference."""
    if isinstance(value, Ref):
        return "\N{MIDDLE DOT}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_open, value))}]"
    if isinstance(value, Mapping):
        items = (f"{format_arg(key)}: {_open(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, slice):
        return ":".join(
            "" if bound is None else _open(bound) for bound in (value.start, value.stop, value.step)
        )
    if isinstance(value, Device):
        return value.name
    if isinstance(value, Atom):
        return value.name.removeprefix("torch.")
    if isinstance(value, float) and len(repr(value)) > MAX_DIGITS:
        return f"{value:.4g}"
    return format_arg(value)


def tooltip(node: Node) -> str:
    """The node's line in a stored file, its module and the user's code, as a DOT string."""
    lines = [format_node(node)]
    if node.module:
        lines.append(f"in {node.module}")
    if node.source is not None:
        function = f" in {node.source.function}" if node.source.function else ""
        lines.append(f"{node.source}{function}")
        if node.source.code:
            lines += [f"    {line.strip()}" for line in node.source.code.splitlines()[:MAX_LINES]]
    return dot_text(lines, MAX_TOOLTIP_LINE)
