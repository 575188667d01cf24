"""Writer of the `.tgraph` text form, which `parse` reads back, and of tables.

Each node has one line. Columns are not aligned and nothing is numbered by position, so a small
change of a model changes few lines.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ops.dtypes import ABBREVIATIONS
from ...ops.matching import Level
from ...words import checked_digits, counted, format_ranks
from ..digits import fewest, with_digits
from ..model import (
    AnyFloat,
    Arg,
    Atom,
    Detail,
    Device,
    Graph,
    GraphKind,
    InputRef,
    Node,
    Ref,
    Result,
    SubgraphRef,
    Symbol,
    TensorMeta,
)
from ..module_paths import module_of
from .inputs import PLACED, Placed, find_placed_inputs

VERSION = 1
"""The oldest version that is read: files without repeated modules or eager graphs."""
EAGER_VERSION = 2
"""The oldest version of a file with an eager graph, or with repeated modules written once."""
RANKS_VERSION = 3
"""The oldest version of a text with the graphs of several ranks (see `ranks`)."""
FACTS_VERSION = 4
"""The version of every text that is written.

Only this version has the output of a target, the run count of a compiled graph, the value of a
constant, the options of a module, a graph handed over by the user, rounded constants, and inputs
declared where they are used. In a file of an older version these facts are unknown.
"""
LONG_RETURN = 3
"""Maximum number of returned values on one line.

A longer return, such as a backward's, has a line for each value, so that a new output is one new
line in a review. The number is a matter of taste, and part of the stored form.
"""

LAYOUTS = frozenset("sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged _mkldnn".split())
"""torch's layouts, except the default `strided`, which is not written."""

VIA_LEVELS: dict[str, Level] = {
    "dispatch": "dispatch",
    "fx": "fx",
    "dynamo": "dynamo",
    "aot": "aot",
    "compiled_autograd": "compiled_autograd",
    "export": "export",
    "inductor": "post_grad",
}
"""Capture level of each mechanism. The titles of graphs omit this level."""

TIMES = "\N{MULTIPLICATION SIGN}"
"""Sign before the run count in a graph's title."""
GIVEN = "given"
"""Keyword in the title of a graph that the user handed over."""
ALIAS_OPS = ("aten.detach.default", "aten.alias.default")
"""No-ops in captured graphs; they count as ops in a graph that the user handed over."""

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./\-#<>]*\Z")
PLAIN_OP = re.compile(r"[A-Za-z_]\w*(\.\w+)*\Z", re.ASCII)
EAGER_NAME = re.compile(r"eager_[0-9]+\Z")
"""Name of an eager graph. Any other graph with such a name has its level in its title."""
EAGER_KINDS: tuple[GraphKind, ...] = ("forward", "backward", "inference", "update")
"""Kinds of eager graphs. The first is the default, which is not written."""
PLAIN_SYMBOL = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
WORDS = frozenset({"True", "False", "None", "nan", "inf", "slice", "device", "bytes", "complex"})
"""Reserved words of the grammar: an `Atom` with one of these names is quoted."""


@dataclass(frozen=True)
class Header:
    """Second line of a document: the origin of its graphs. Comparisons ignore the origin.

    Attributes:
        via: mechanism that captured the graphs, a key of `VIA_LEVELS`; "" if unknown.
        torch: torch release; "" if unknown.
        detail: level of detail of the text.
        digits: number of significant digits of the float constants; `None` if they are exact. A
            comparison rounds both sides to this number.
    """

    via: str = ""
    torch: str = ""
    detail: Detail = "dataflow"
    digits: int | None = None


def format_document(
    graphs: Iterable[Graph],
    header: Header | None = None,
    detail: Detail = "dataflow",
    *,
    fold: bool = True,
    digits: int | None = None,
) -> str:
    """Return several graphs as one `.tgraph` document.

    Args:
        header: origin of the graphs. The titles omit the level that its `via` implies.
        detail: see `Graph.to_text`; overrides the header's detail.
        fold, digits: see `Graph.to_text`. Fewer digits in the header or in a graph take precedence.

    Raises:
        TypeError, ValueError: for content that a file cannot represent.
    """
    counts_only, full = detail == "ops", detail == "full"
    header = header or Header()
    graphs = tuple(graphs)
    digits = fewest((checked_digits(digits), header.digits, *(graph.digits for graph in graphs)))
    if counts_only:  # no constant is written
        digits = None
    graphs = tuple([with_digits(graph, digits) for graph in graphs])
    # A line for each parameter was more than half of a convolutional network's text.
    at_use: dict[int, Placed] = {}  # by the `id` of each graph and body
    if fold and not counts_only:
        at_use = {id(g): find_placed_inputs(g, full) for graph in graphs for g in graph.walk()}
    lines = _header_lines(replace(header, detail=detail, digits=digits))
    default = VIA_LEVELS.get(header.via)
    for graph in graphs:
        lines.append("")
        # `parse` takes such a graph for an eager graph, unless the title states a level.
        looks_eager = EAGER_NAME.match(graph.name) and not graph.eager
        implied = None if looks_eager else default
        lines += (
            _op_lines(graph, implied)
            if counts_only
            else _graph_lines(graph, implied, at_use, full=full)
        )
    lines.append("")
    text = "\n".join(lines)
    if counts_only:
        return text
    if fold:
        from . import fold as folding  # `fold` imports this module

        text = folding.fold(text)
    from .links import links_lines

    return text + "".join(f"{line}\n" for line in links_lines(graphs))


def _header_lines(header: Header) -> list[str]:
    """Return the version, and the origin if the header states anything but the defaults."""
    origin = [f"via {header.via}"] if header.via else []
    origin += [f"torch {header.torch}"] if header.torch else []
    origin += [f"detail {header.detail}"] if header.detail != "dataflow" else []
    origin += [f"digits {header.digits}"] if header.digits is not None else []
    version = f"torchgraph {FACTS_VERSION}"
    return [version, ", ".join(origin)] if origin else [version]


def format_sections(
    mesh: Mapping[str, int],
    sections: Sequence[tuple[Sequence[int], Sequence[Graph]]],
    header: Header,
    detail: Detail = "dataflow",
    *,
    fold: bool = True,
) -> str:
    """Return the graphs of several ranks as one text.

    Args:
        mesh: sizes of the mesh by dimension name, in order.
        sections: ranks with equal graphs, and their graphs.
        header, detail, fold: see `format_document`.
    """
    texts = [format_document(graphs, header, detail, fold=fold) for _, graphs in sections]
    # All sections have the same header, so the text has it once.
    origin = texts[0].split("\n\n", 1)[0].split("\n")[1:]
    out = [f"torchgraph {FACTS_VERSION}", *origin, f"mesh {format_mesh(mesh)}"]
    for (ranks, _), text in zip(sections, texts, strict=True):
        out += ["", format_ranks(ranks), "", text.split("\n\n", 1)[1].removesuffix("\n")]
    return "\n".join([*out, ""])


def format_mesh(mesh: Mapping[str, int]) -> str:
    """Format the sizes of a mesh: `dp=2, tp=4`."""
    return ", ".join(f"{format_key(name)}={size}" for name, size in mesh.items())


def shown_runs(graph: Graph) -> int:
    """Return the run count of a graph, 1 if unknown."""
    return graph.runs if graph.counted or graph.eager else 1


def _format_title(graph: Graph, default: Level | None) -> str:
    if graph.eager:
        return _format_eager_title(graph)
    kind = "" if graph.kind == graph.name else f": {graph.kind}"
    level = "" if graph.level == default else f" @ {graph.level}"
    given = f" {GIVEN}" if graph.given else ""
    title = f"{format_name(graph.name)}{kind}{level}{given}"
    return f"{with_runs(title, shown_runs(graph))} {{"


def _format_eager_title(graph: Graph) -> str:
    """Return the title of an eager graph: `eager_0 {`, `eager_1: backward × 2 {`."""
    if not EAGER_NAME.match(graph.name):
        raise ValueError(f"{graph.name!r} is not the name of an eager graph: use eager_0, eager_1")
    if graph.level != "dispatch" or graph.kind not in EAGER_KINDS or graph.runs < 1:
        raise ValueError(
            f"{graph.name} with level={graph.level!r}, kind={graph.kind!r}, runs={graph.runs} is "
            f"not a valid eager graph: use level='dispatch', kind {', '.join(EAGER_KINDS)}, and "
            "runs of at least 1"
        )
    kind = "" if graph.kind == EAGER_KINDS[0] else f": {graph.kind}"
    return f"{with_runs(f'{graph.name}{kind}', graph.runs)} {{"


def with_runs(title: str, runs: int) -> str:
    """Append the run count to the title of a graph, unless it is 1: `eager_0 × 3`."""
    return title if runs == 1 else f"{title} {TIMES} {runs}"


def runs_in_words(runs: int) -> str:
    """Format the run count of a graph in words: `ran once`, `ran 3 times`."""
    return "ran once" if runs == 1 else f"ran {runs} times"


def ops_in_words(graph: Graph) -> str:
    """Format the number of ops of a graph, by `Graph.op_counts`: `12 ops`.

    Every message, picture and page counts so: without inputs, outputs, and `getitem` of results.
    """
    return counted(graph.op_counts.total(), "op")


def _op_lines(graph: Graph, default: Level | None) -> Iterator[str]:
    """Yield the lines of a graph with detail "ops"."""
    yield _format_title(graph, default)
    for op, count in sorted(graph.op_counts.items()):
        yield f"  {count} {format_op(op)}"
    yield "}"


def _graph_lines(
    graph: Graph,
    default: Level | None,
    at_use: Mapping[int, Placed],
    *,
    full: bool,
    indent: str = "",
) -> Iterator[str]:
    """Yield the lines of a graph.

    Args:
        default: the level that the title omits.
        at_use: for each graph, by `id`, the inputs that are declared where they are used.
        full: see `format_node`.
    """
    yield f"{indent}{_format_title(graph, default)}"
    inner = indent + "  "
    # Bodies come first: a line may refer only to graphs and nodes of earlier lines.
    for sub in graph.subgraphs:
        if sub.eager:
            raise ValueError(f"subgraph {sub.name} of {graph.name} is eager: set eager=False")
        yield from _graph_lines(sub, graph.level, at_use, full=full, indent=inner)
    placed_inputs = at_use.get(id(graph), Placed())
    # `format_node` shares these two among all lines of the graph, and changes them.
    declared: dict[str, str] = {}
    plain: set[str] = set()
    for node in graph.nodes:
        if node.name in placed_inputs.lines:
            yield inner + _format_place(*placed_inputs.lines[node.name])
        if node.name in placed_inputs.after:
            after = placed_inputs.after[node.name]
            declared[node.name] = _format_declaration(node, after, full)
        elif node.kind == "output":
            yield from _return_lines(node, full, inner)
        else:
            yield inner + format_node(node, full=full, plain=plain, declared=declared)
    for path, value in graph.output or ():
        yield f"{inner}output {format_name(path)} = {format_arg(value)}"
    for ref in graph.saved:
        yield f"{inner}save %{format_name(ref.name)}"
    yield f"{indent}}}"


def _format_place(role: str, name: str) -> str:
    """Return the line that marks the place of inputs that are declared where they are used."""
    return f"{PLACED[role]} from %{format_name(name)}" if name else PLACED[role]


def _format_declaration(node: Node, after: str, full: bool) -> str:
    """Format an input where it is used: `%fc.weight: f32[4, 16]`."""
    role = "" if node.op == "parameter" else f"{node.op} "
    if node.args:
        role = f"{node.op}({format_arg(node.args[0])}) "
    text = f"%{format_name(node.name)}: {role}{format_result(node.result, full=full)}"
    return f"{text} after %{format_name(after)}" if after else text


def _return_lines(node: Node, full: bool, indent: str) -> Iterator[str]:
    """Yield the line of an output node, or the lines of a long return; see `LONG_RETURN`."""
    values = node.args[0] if node.args else None
    if not isinstance(values, tuple) or len(values) <= LONG_RETURN:
        yield indent + format_node(node, full=full)
        return
    yield f"{indent}return ["
    for value in values:
        yield f"{indent}  {format_arg(value)},"
    yield f"{indent}]" + "".join(_format_suffixes(node, full))


def format_node(
    node: Node,
    *,
    full: bool = False,
    plain: set[str] | None = None,
    declared: dict[str, str] | None = None,
) -> str:
    """Return one node as one line, without indentation.

    Args:
        full: write strides, devices and unusual module paths.
        plain: names known to need no quotes; the node's name is added if it needs none.
        declared: declarations that are written at the first use of their input, by name of the
            input. A declaration is removed when it is written.
    """
    if node.kind == "output":
        value = format_arg(node.args[0] if node.args else None)
        return f"return {value}" + "".join(_format_suffixes(node, full))
    plain_names = set() if plain is None else plain
    name = format_name(node.name)
    # `format_name` returned the same object, so the name needs no quotes. References to it skip the
    # check.
    if name is node.name:
        plain_names.add(name)
    text = f"%{name} = {format_op(node.op)}"
    if node.kind in ("get_attr", "call_module"):
        options = f", {quote(node.options)}" if node.options else ""
        text += f"[{quote(node.target)}{options}]"
    if node.args or node.kwargs or node.is_call:
        arguments = [
            f"%{arg.name}"
            if type(arg) is Ref and arg.name in plain_names
            else format_arg(arg, declared)
            for arg in node.args
        ]
        if node.kwargs:
            named = node.kwargs.items()
            arguments += [f"{format_key(key)}={format_arg(arg, declared)}" for key, arg in named]
        text += f"({', '.join(arguments)})"
    if node.result is not None:
        text += f" : {format_result(node.result, full=full)}"
    if full or node.effects or node.after:
        text += "".join(_format_suffixes(node, full))
    return text


def _format_suffixes(node: Node, full: bool) -> Iterator[str]:
    """Yield the texts after a node's result: effects, `after`, and an unusual module path."""
    for effect in node.effects:
        target = "" if effect.target is None else f" {format_arg(effect.target)}"
        yield f" !{effect.kind}{target}"
    if node.after:
        yield " after " + ", ".join(f"%{format_name(ref.name)}" for ref in node.after)
    if full and node.module != module_of(node.name):
        yield f" in {quote(node.module)}"


def format_name(name: str) -> str:
    """Format the name of a node or graph, quoted if it has unusual characters."""
    return name if PLAIN_NAME.match(name) else quote(name)


@functools.lru_cache(maxsize=1024)
def format_op(op: str) -> str:
    """Format the name of an op, quoted unless it consists of dotted identifiers."""
    return op if PLAIN_OP.match(op) else quote(op)


def format_key(key: str) -> str:
    """Format the name of a keyword argument."""
    return key if PLAIN_SYMBOL.match(key) else quote(key)


def quote(text: str) -> str:
    """Return a JSON string on one line, without escapes for characters that are safe to print."""
    # Characters that do not print, such as a line separator or a change of direction, are escaped.
    # So a review shows what the file contains.
    return json.dumps(text, ensure_ascii=not text.isprintable())


def format_arg(value: Arg, declared: dict[str, str] | None = None) -> str:
    """Format an argument. All sequences print in brackets, whatever their Python type.

    Args:
        declared: see `format_node`.
    """
    if isinstance(value, Ref):
        if declared and value.name in declared:
            return declared.pop(value.name)
        return f"%{format_name(value.name)}"
    if value is None or value is True or value is False:
        return str(value)
    # A subclass of int or float, such as an `IntEnum`, would print its own text.
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, tuple):
        items = [str(item) if type(item) is int else format_arg(item, declared) for item in value]
        return f"[{', '.join(items)}]"
    if isinstance(value, Symbol):
        return f"`{value.expr}`"
    if isinstance(value, Atom):
        if PLAIN_OP.match(value.name) and value.name not in WORDS:
            return value.name
        return f"&{quote(value.name)}"
    if isinstance(value, Device):
        return f"device({quote(value.name)})"
    if isinstance(value, InputRef):
        return f"input({value.position}, {quote(value.name)})"
    if isinstance(value, Mapping):
        pairs = (f"{format_arg(key)}: {format_arg(item, declared)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        return f"slice({', '.join([format_arg(bound, declared) for bound in bounds])})"
    if value is Ellipsis:
        return "..."
    if isinstance(value, SubgraphRef):
        return f"@{format_name(value.name)}"
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    if isinstance(value, bytes):
        return f"bytes({quote(value.hex())})"
    if isinstance(value, AnyFloat):
        return "~"
    raise TypeError(f"a Graph cannot contain {value!r} ({type(value).__name__}): use an Atom")


def format_result(result: Result, *, full: bool = False) -> str:
    """Format the description of a node's value: `f32[2, 4]`, `f32[2] sparse_coo`, `int`."""
    if isinstance(result, TensorMeta):
        dtype = ABBREVIATIONS.get(result.dtype, result.dtype)
        text = f"{dtype}[{format_shape(result.shape)}]"
        if result.layout != "strided":
            if result.layout not in LAYOUTS:
                names = ", ".join(["strided", *sorted(LAYOUTS)])
                raise TypeError(f"a Graph cannot contain the layout {result.layout!r}: use {names}")
            text += f" {result.layout}"
        if full and result.stride is not None:
            text += f" stride [{format_shape(result.stride)}]"
        if full and result.device is not None:
            text += f" on {quote(result.device)}"
        return text
    if isinstance(result, tuple):
        return f"({', '.join(format_result(item, full=full) for item in result)})"
    return format_arg(result)


def format_shape(shape: Iterable[int | Symbol]) -> str:
    """Format sizes or strides. A symbol without operators is written without backticks."""
    return ", ".join([str(size) if type(size) is int else _format_size(size) for size in shape])


def _format_size(size: int | Symbol) -> str:
    if isinstance(size, Symbol) and PLAIN_SYMBOL.match(size.expr):
        return size.expr
    return format_arg(size)


WIDEST = 200
"""Maximum padded width of a column of `format_table`, in characters.

A longer cell overflows the column. Otherwise one long argument list would pad every row.
"""


def format_table(graph: Graph, cost: bool) -> str:
    """Return the columns of `torch.fx.Graph.print_tabular`, and optionally the cost of each node.

    Args:
        graph: the graph.
        cost: add columns of costs; see `Graph.to_table`.

    Raises:
        CaptureError: if costs of a graph of torch functions are requested.
    """
    rows = [["opcode", "name", "target", "args", "kwargs"]]
    for node in graph.nodes:
        target = node.target or (node.op if node.is_call else node.name)
        kwargs = ", ".join(f"{key}: {format_arg(arg)}" for key, arg in node.kwargs.items())
        args = ", ".join(format_arg(arg).replace("%", "") for arg in node.args)
        rows.append([node.kind, node.name, target, f"({args})", f"{{{kwargs.replace('%', '')}}}"])
    if cost:
        for row, cells in zip(rows, zip(*_cost_columns(graph), strict=True), strict=True):
            row[3:3] = cells
    return aligned(rows)


def aligned(rows: list[list[str]]) -> str:
    """Align rows of cells in columns, with a rule below the first row."""
    widths = [min(max(map(len, column)), WIDEST) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (rows[0], rule, *rows[1:])
    )


def right_aligned(cells: list[str]) -> list[str]:
    """Right-align the cells of a column of numbers."""
    width = max(map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _cost_columns(graph: Graph) -> list[list[str]]:
    """Return the columns of the costs that are known at the graph's level, with their titles."""
    from ..cost import flops_by_node, saved_by_node

    figures = {"FLOPs": flops_by_node(graph), "saved bytes": saved_by_node(graph)}
    return [
        right_aligned([title, *(_format_figure(columns.get(node.name, 0)) for node in graph.nodes)])
        for title, columns in figures.items()
        if columns is not None
    ]


def _format_figure(value: int | None) -> str:
    """Format a cost: "?" for `None`, and "" for 0, so that other costs stand out."""
    return "?" if value is None else f"{value:,}" if value else ""
