r"""Labels and tooltips of boxes, and escaping of any text for DOT.

Names, code lines and constants are user text. DOT interprets backslashes (`\\N`, `\\l`), quotes,
`&...;` and text in angle brackets (HTML), and renderers fail on control characters. All text in a
drawing therefore passes through `dot_text`.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..errors import TorchGraphError
from ..graph.model import Arg, Atom, Graph, Node, Ref, Symbol, map_arg
from ..graph.module_paths import common_prefix
from ..graph.text import format_arg, format_key, format_node, format_result, runs_in_words
from ..words import counted

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
OPERAND = "\N{MIDDLE DOT}"
"""Stands for an operand among the arguments of an op."""
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
    # Graphviz crashes on some labels with an empty line before another one. Lines are joined after
    # their backslashes are escaped: the `\n` between them is DOT's.
    escaped = (
        cut(clean(line) or " ", limit).replace("&", "&amp;").replace("\\", "\\\\") for line in lines
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
    lines += dict.fromkeys(
        f"mutates {effect.target.name}"
        if effect.kind == "mutates" and effect.target is not None
        else EFFECTS[effect.kind]
        for effect in node.effects
    )
    return lines


def folded_label(node: Node, user: Node) -> str:
    """Return the line of a folded input in its user's box, without the path of the user's module.

    Parameters, buffers, constants and values saved by the forward are folded.
    """
    name = (node.target or node.name).removeprefix(f"{user.module}/")
    if user.module and name.startswith(user.module + "."):
        owner = user.module.rpartition(".")[2]
        name = f"{owner}.{name.removeprefix(user.module + '.')}"
    saved = "saved " if node.op == "saved" else ""
    return f"{saved}{cut(name, MAX_FOLDED_NAME)} {value_label(node)}".strip()


def constants_label(node: Node) -> str:
    """Return the arguments with a dot for each operand, "" if all arguments are operands."""
    kwargs = {key: value for key, value in node.kwargs.items() if key not in NOT_DRAWN}
    if all(isinstance(value, Ref) for value in (*node.args, *kwargs.values())):
        return ""
    # `format_arg` quotes the name of an unknown symbol, so the dot is unquoted afterwards.
    args, kwargs = map_arg((node.args, kwargs), _shortened)
    parts = [*map(format_arg, args)]
    parts += [f"{format_key(key)}={format_arg(value)}" for key, value in kwargs.items()]
    text = f"({', '.join(parts)})".replace(f"`{OPERAND}`", OPERAND)
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}\N{HORIZONTAL ELLIPSIS}"


def _shortened(value: Arg) -> Arg:
    """Return a dot for a reference, and a short form of a long float or a name of torch."""
    if isinstance(value, Ref):
        return Symbol(OPERAND)
    if isinstance(value, Atom):
        return Atom(value.name.removeprefix("torch."))
    if isinstance(value, float) and len(repr(value)) > MAX_DIGITS:
        return float(f"{value:.4g}")
    return value


def tooltip_of(node: Node) -> list[str]:
    """Return the node's line in a stored file, its module and the user's code."""
    lines = [format_node(node)]
    if node.module:
        lines.append(f"in {node.module}")
    if node.source is not None:
        function = f" in {node.source.function}" if node.source.function else ""
        lines.append(f"{node.source}{function}")
        if node.source.code:
            lines += [f"    {line.strip()}" for line in node.source.code.splitlines()[:MAX_LINES]]
    return lines


# -- changes ---------------------------------------------------------------------------------------

MarkKind = Literal["added", "removed", "changed", "rewired", "surplus"]
"""The kinds of `graph.diff.findings.Change`, and "surplus" for an unexpected op."""

SIGNS: dict[str, str] = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "rewired": "\N{CLOCKWISE TOP SEMICIRCLE ARROW}",
    "surplus": "!",
}
"""Sign before the first line of a box with a mark, which tells kinds of change apart without
colours."""
BREAK_SIGN = "\N{BLACK SCISSORS}"
"""Sign of a graph break."""
ARROW = "\N{RIGHTWARDS ARROW}"
"""Separator between the old and the new text."""


class Line(NamedTuple):
    """A line of text, as it is drawn and on each side of a difference.

    Attributes:
        text: the drawn line.
        before, after: the line if only the old, or only the new, graph is shown; "" for no line.
    """

    text: str
    before: str
    after: str


def same(text: str) -> Line:
    """Return a line that both sides share."""
    return Line(text, text, text)


def changed(before: str, after: str, head: str = "") -> Line:
    """Return a line with the old and the new text, after what both share."""
    return Line(f"{head}{before} {ARROW} {after}", f"{head}{before}", f"{head}{after}")


def only(kind: str, text: str) -> Line:
    """Return a line with its sign, which only one side has if the kind is added or removed."""
    text = f"{SIGNS[kind]} {text}"
    return Line(text, "" if kind == "added" else text, "" if kind == "removed" else text)


@dataclass(slots=True)
class Mark:
    """The change of a box's node, which determines the sign and the colours of the box.

    Attributes:
        kind: kind of change; "surplus" for an unexpected op.
        before, after: node in the old and in the new graph; `None` if a graph does not have it, and
            if only nodes folded into the box differ.
        lines: changes of the nodes folded into the box.
        follows: True if the change is a consequence of an edit elsewhere.
        times: number of places with the same change. The box shows the first place.
    """

    kind: MarkKind
    before: Node | None = None
    after: Node | None = None
    lines: list[Line] = field(default_factory=list)
    follows: bool = False
    times: int = 1


MAX_OPERANDS = 2
"""Maximum number of changed operands listed for a rewired node, with up to two lines each."""
CONTEXT_CHARACTERS = 6
"""Number of equal characters kept before a difference between two texts."""


def change_lines(mark: Mark, node: Node) -> list[Line]:
    """Return the lines of a box with a mark, whose node is `node`."""
    before, after = mark.before, mark.after
    if before is None or after is None:  # no node to compare with: added, removed or surplus
        lines = [*map(same, node_lines(node))]
    else:
        lines = list(_compared(before, after))
        if mark.kind == "rewired":
            # One of the nodes may read more values. A line shows only replaced values.
            operands = zip(before.refs, after.refs, strict=False)
            replaced = [(old, new) for old, new in operands if old != new]
            lines += [line for pair in replaced[:MAX_OPERANDS] for line in _both(*pair)]
    times = f" {TIMES} {mark.times:,}" if mark.times > 1 else ""
    first = Line(*(f"{SIGNS[mark.kind]} {text}{times}" for text in lines[0]))
    source = [] if node.source is None else [same(str(node.source))]
    return [first, *lines[1:], *mark.lines, *source]


def _compared(before: Node, after: Node) -> Iterator[Line]:
    """Yield lines for the op, and for the target, the constants and the result if they differ.

    If all four are equal, the lines show the nodes' texts from the first difference on.
    """
    old, new = (
        (node_lines(node)[0], node.target, constants_label(node), value_label(node))
        for node in (before, after)
    )
    yield same(new[0]) if old[0] == new[0] else changed(old[0], new[0])
    for number, label in enumerate(new[1:], 1):
        if old[number] != label:
            yield from _both(old[number], label)
        elif number == 2 and label:  # the constants
            yield same(label)
    texts = format_node(before), format_node(after)
    if old == new and before.refs == after.refs and texts[0] != texts[1]:
        start = max(0, len(common_prefix(texts)) - CONTEXT_CHARACTERS)
        yield from _both(texts[0][start:], texts[1][start:])


def _both(old: str, new: str) -> Iterator[Line]:
    """Yield the old and the new text in one line, or in two lines if one line is too short."""
    old, new = old or "nothing", new or "nothing"
    if len(old) + len(new) + 3 <= MAX_LINE:
        yield changed(old, new)
    else:
        yield Line(old, old, new)
        yield Line(f"{ARROW} {new}", "", "")


# -- groups ----------------------------------------------------------------------------------------

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
MAX_OPS = 4
"""Maximum number of different ops in the label of a group, the most frequent first."""
MAX_LISTED = 12
"""Maximum number of different ops in its tooltip."""


def group_lines(
    nodes: Sequence[Node], title: str, modules: int, notes: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Return the label and the tooltip of several nodes that are folded into one box.

    Args:
        nodes: the nodes, in graph order.
        title: the first line.
        modules: number of modules that are folded, without their submodules.
        notes: further facts, each with its number of nodes.
    """
    ops = Counter(op_label(node.op) for node in nodes if node.is_call)
    inputs = sum(node.kind == "placeholder" for node in nodes)
    sizes = [f"{modules:,} modules"] if modules > 1 else []
    sizes += [counted(ops.total(), "op")] if ops else []
    sizes += [counted(inputs, "input")] if inputs else []
    counts = [f"{count} {TIMES} {op}" for op, count in ops.most_common(MAX_LISTED)]
    head = [title, ", ".join(sizes) or f"{len(nodes):,} nodes"]
    more = f",\0{ELLIPSIS}" if len(ops) > MAX_OPS else ""
    # A line ends after a comma, not inside a count: `textwrap` does not break at a null character.
    text = ", ".join(count.replace(" ", "\0") for count in counts[:MAX_OPS]) + more
    wrapped = textwrap.wrap(text, MAX_LINE, break_long_words=False, break_on_hyphens=False)
    lines = [line.rstrip(",").replace("\0", " ") for line in wrapped]
    lines += [f"{count} {fact}" for fact, count in notes.items()]
    return [*head, *lines], [*head, *counts]


def name_range(first: str, last: str) -> str:
    """Return the first and last of several names on one line."""
    if len(first) + len(last) + 3 > MAX_LINE:
        first, last = (cut(name, (MAX_LINE - 3) // 2) for name in (first, last))
    return f"{first} {ELLIPSIS} {last}"
