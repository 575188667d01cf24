r"""Labels and tooltips of nodes, and escaping of any text for DOT.

Names, code lines and constants are user text. DOT interprets backslashes (`\\N`, `\\l`), quotes,
`&...;` and text in angle brackets (HTML), and renderers fail on control characters. All text in a
drawing therefore passes through `dot_text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import TorchGraphError
from ...graph.model import Arg, Atom, Device, Graph, Node, Ref
from ...graph.text import format_arg, format_key, format_node, format_result, runs_in_words

TIMES = "\N{MULTIPLICATION SIGN}"
"""Multiplication sign between a count and the counted thing."""
NO_GRAPHVIZ = (
    "pictures require the package graphviz, which is not installed: "
    "pip install 'pytest-torchgraph[render]'"
)
MAX_LINE = 40
"""Maximum characters in a line of a box."""
MAX_LINES = 8
"""Maximum lines in a box, and lines of code in a tooltip."""
MAX_TOOLTIP_LINE = 160
"""Maximum characters in a line of a tooltip."""
MAX_FOLDED_NAME = 24
"""Maximum characters of a parameter's name, to leave room for dtype and shape in its line."""
MAX_DIGITS = 8
"""Maximum characters of a float. Longer floats are rounded to four digits."""
NOT_DRAWN = frozenset({"device", "layout", "pin_memory"})
"""Keyword arguments shown only in the tooltip, because no reader looks for them in a picture."""

EFFECTS = {
    "mutates": "mutates something",
    "random": "draws random numbers",
    "communicates": "communicates",
    "syncs": "waits for the device",
    "opaque": "has unknown effects",
}
"""Line of a box for each kind of side effect."""

HOOKS = {
    "self_invoke": "runs a hook",
    "call_hook": "runs a hook",
    "register_hook": "registers a hook",
}
"""Line of a box for ops that call or register a hook, keyed by the last part of the op name."""

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def clean(text: str) -> str:
    """Return `text` with terminal escapes removed, and tabs and unprintable characters replaced."""
    text = _ANSI.sub("", text).expandtabs(1)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def cut(text: str, limit: int = MAX_LINE) -> str:
    """Return `text`, with its middle replaced by an ellipsis beyond `limit` characters.

    Both ends are kept, because both distinguish names.
    """
    if len(text) <= limit:
        return text
    tail = limit * 3 // 5
    return f"{text[: limit - tail - 1]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - tail :]}"


def need_graphviz() -> Any:
    """Return the package `graphviz`, which writes DOT.

    Raises:
        TorchGraphError: if the package is not installed.
    """
    try:
        import graphviz
    except ImportError:
        raise TorchGraphError(NO_GRAPHVIZ) from None
    return graphviz


def dot_text(lines: Iterable[str], limit: int = MAX_LINE) -> str:
    """Return a DOT string that shows the plain-text lines literally, each cut to `limit`."""
    escaped = (
        cut(clean(line), limit).replace("&", "&amp;").replace("\\", "\\\\") for line in lines
    )
    text: str = need_graphviz().nohtml("\\n".join(escaped))
    return text


def eager_label(graph: Graph, before: int | None = None) -> str:
    """Return the label of an eager graph: its name, the word "eager", and its run count.

    Args:
        graph: the graph.
        before: run count on the old side of a difference, if it differs.
    """
    kind = "" if graph.kind == "forward" else f" {graph.kind}"
    label = f"{graph.name}: eager{kind}, {runs_in_words(graph.runs)}"
    return label if before is None else f"{label}, before: {before}"


def op_label(op: str) -> str:
    """Return the op as written in a pattern, without the overload `default`."""
    return op.removesuffix(".default")


def value_label(node: Node) -> str:
    """Return dtype and shape of a node's result, "" if unknown."""
    return "" if node.result is None else format_result(node.result)


def node_lines(node: Node) -> list[str]:
    """Return the lines of a node's box: the op, its constants, hooks and effects."""
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
    """Return a parameter's line in its user's box. The name of the user's module is shortened."""
    name = node.target or node.name
    if user.module and name.startswith(user.module + "."):
        owner = user.module.rpartition(".")[2]
        name = f"{owner}.{name.removeprefix(user.module + '.')}"
    return f"{cut(name, MAX_FOLDED_NAME)} {value_label(node)}".strip()


def constants_label(node: Node) -> str:
    """Return the arguments with a dot for each operand, "" if all arguments are operands."""
    args: list[Arg] = list(node.args)
    kwargs = {key: value for key, value in node.kwargs.items() if key not in NOT_DRAWN}
    if all(isinstance(value, Ref) for value in (*args, *kwargs.values())):
        return ""
    parts = [_format_constant(value) for value in args]
    parts += [f"{format_key(key)}={_format_constant(value)}" for key, value in kwargs.items()]
    text = f"({', '.join(parts)})"
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}\N{HORIZONTAL ELLIPSIS}"


def _format_constant(value: Arg) -> str:
    """Format an argument with a dot in place of each reference."""
    if isinstance(value, Ref):
        return "\N{MIDDLE DOT}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_constant, value))}]"
    if isinstance(value, Mapping):
        items = (f"{format_arg(key)}: {_format_constant(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, slice):
        return ":".join(
            "" if bound is None else _format_constant(bound)
            for bound in (value.start, value.stop, value.step)
        )
    if isinstance(value, Device):
        return value.name
    if isinstance(value, Atom):
        return value.name.removeprefix("torch.")
    if isinstance(value, float) and len(repr(value)) > MAX_DIGITS:
        return f"{value:.4g}"
    return format_arg(value)


def tooltip_of(node: Node) -> str:
    """Return the node's line in a stored file, its module and the user's code, as a DOT string."""
    lines = [format_node(node)]
    if node.module:
        lines.append(f"in {node.module}")
    if node.source is not None:
        function = f" in {node.source.function}" if node.source.function else ""
        lines.append(f"{node.source}{function}")
        if node.source.code:
            lines += [f"    {line.strip()}" for line in node.source.code.splitlines()[:MAX_LINES]]
    return dot_text(lines, MAX_TOOLTIP_LINE)
