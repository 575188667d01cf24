r"""The `.tgraph` text form, read. Nothing is evaluated; a malformed text is a `GraphFormatError`.

    document  = "torchgraph" version NL [origin NL] { NL graph }
    origin    = "via" word | "torch" release | "detail" word, separated by ", "
    graph     = name [":" kind] ["@" level] "{" NL { graph | node | save } "}" NL
    node      = "%" name "=" op [ '["' target '"]' ] [ "(" args ")" ] [ ":" result ] suffix NL
              | "return" value suffix NL
              | "return [" NL { value "," NL } "]" suffix NL
    save      = "save" "%" name NL
    suffix    = { "!" effect [ "%" name ] } [ "after" "%" name { "," "%" name } ] [ "in" string ]
    value     = "%" name | "@" name | number | string | "`" symbol "`" | True | False | None | ...
              | dotted.name | "&" string | "[" values "]" | "{" value ":" value, ... "}"
              | slice(a, b, c) | device(string) | complex(re, im) | bytes(hex)
    result    = dtype "[" sizes "]" ["stride" "[" sizes "]"] ["on" string] | "(" results ")" | value

A name is bare where it consists of usual characters, else a JSON string. With `detail ops` a graph
holds lines `count op` instead of nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from ..errors import GraphFormatError
from .model import (
    GRAPH_KINDS,
    INPUT_OPS,
    LEVELS,
    Arg,
    Atom,
    Detail,
    Device,
    Effect,
    Graph,
    GraphKind,
    Level,
    Node,
    NodeKind,
    Ref,
    Result,
    SubgraphRef,
    Symbol,
    TensorMeta,
    iter_refs,
)
from .text import DTYPES, VERSION, VIA_LEVELS, Header, format_arg, module_of

MAX_DEPTH = 60
MAX_EQUAL_HASHES = 100
"""How many keys of one dictionary may share a hash: each is compared with all before it."""
DTYPE_NAMES = {short: name for name, short in DTYPES.items()}

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./\-#<>]*")
_OP = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SYMBOL = re.compile(r"`([^`]*)`")
_NUMBER = re.compile(r"-?(?:\d+(\.\d+)?(e[+-]?\d+)?|inf|nan)(?![\w.])", re.ASCII)
_RELEASE = re.compile(r"[^\s,]+")


@dataclass(frozen=True)
class Document:
    """A parsed file: its graphs, or with `detail ops` the counts of each graph by name."""

    header: Header
    graphs: tuple[Graph, ...]
    counts: tuple[tuple[str, dict[str, int]], ...] = ()


def parse_document(text: str) -> Document:
    """Parse a whole `.tgraph` text.

    Raises:
        GraphFormatError: with line and column.
    """
    return _Parser(text).document()


class _Parser:
    def __init__(self, text: str):
        # Not splitlines(): that also splits at characters that a string may hold.
        self.lines = text.replace("\r\n", "\n").split("\n")
        self.row = 0
        self.text = self.lines[0]
        self.pos = 0
        self.depth = 0

    # -- characters ------------------------------------------------------------------------------

    def fail(self, problem: str, pos: int | None = None) -> NoReturn:
        column = (self.pos if pos is None else pos) + 1
        raise GraphFormatError(problem, self.row + 1, column)

    def next_line(self, skip_blank: bool = False) -> bool:
        while self.row + 1 < len(self.lines):
            self.row += 1
            self.text = self.lines[self.row]
            self.pos = 0
            if self.text or not skip_blank:
                return True
        self.text = ""
        self.pos = 0
        return False

    def at_end(self) -> bool:
        return not self.text and self.row + 1 == len(self.lines)

    def at(self, token: str) -> bool:
        return self.text.startswith(token, self.pos)

    def skip(self, token: str) -> bool:
        if self.text.startswith(token, self.pos):
            self.pos += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.skip(token):
            self.fail(f"expected {token!r}, found {self.found()}")

    def found(self) -> str:
        rest = self.text[self.pos : self.pos + 20]
        return repr(rest) if rest else "the end of the line"

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self.text, self.pos)
        if match is None:
            self.fail(f"expected {what}, found {self.found()}")
        self.pos = match.end()
        return match.group()

    def string(self) -> str:
        start = self.pos
        token = self.match(_STRING, "a string")
        try:
            return cast(str, json.loads(token))
        except ValueError:
            self.fail("a string with an escape that JSON does not know", start)

    def name(self) -> str:
        return self.string() if self.at('"') else self.match(_NAME, "a name")

    def ref(self) -> Ref:
        self.expect("%")
        return Ref(self.name())

    def end_of_line(self) -> None:
        if self.pos != len(self.text):
            self.fail(f"expected the end of the line, found {self.found()}")

    # -- document --------------------------------------------------------------------------------

    def document(self) -> Document:
        if not self.skip("torchgraph "):
            self.fail("not a graph: the first line must be 'torchgraph 1'")
        version = self.match(re.compile(r"\d{1,9}"), "a version")
        if int(version) != VERSION:
            self.fail(
                f"version {version}, this release reads {VERSION}: upgrade pytest-torchgraph, or "
                "store the graph again with --torchgraph-update"
            )
        self.end_of_line()
        self.next_line()
        header = self.header()
        graphs: list[Graph] = []
        counts: list[tuple[str, dict[str, int]]] = []
        default = VIA_LEVELS.get(header.via)
        while self.text or self.next_line(skip_blank=True):
            if not self.text:
                break
            if header.detail == "ops":
                counts.append(self.op_counts(default))
            else:
                graphs.append(self.graph(default, 0))
            self.next_line()
        if not graphs and not counts:
            self.fail("the file holds no graph: it is empty or truncated")
        return Document(header, tuple(graphs), tuple(counts))

    def header(self) -> Header:
        if not self.text:
            return Header()
        found: dict[str, str] = {}
        while True:
            key = self.match(_WORD, "'via', 'torch' or 'detail'")
            if key not in ("via", "torch", "detail") or key in found:
                self.fail("expected 'via', 'torch' or 'detail', each once")
            self.expect(" ")
            found[key] = self.match(_RELEASE, "a word")
            if not self.skip(", "):
                break
        self.end_of_line()
        self.next_line()
        detail = found.get("detail", "dataflow")
        if detail not in ("ops", "dataflow", "full"):
            self.fail(f"unknown detail {detail!r}")
        return Header(found.get("via", ""), found.get("torch", ""), cast(Detail, detail))

    def title(self, default: Level | None) -> tuple[str, GraphKind, Level]:
        name = self.name()
        kind: str = name
        if self.skip(": "):
            kind = self.match(_WORD, "a kind of graph")
        if kind not in GRAPH_KINDS:
            self.fail(f"unknown kind of graph {kind!r}: one of {', '.join(GRAPH_KINDS)}")
        level: str = default or ""
        if self.skip(" @ "):
            level = self.match(_WORD, "a level")
        if level not in LEVELS:
            self.fail(f"unknown level {level!r}: one of {', '.join(LEVELS)}")
        self.expect(" {")
        self.end_of_line()
        return name, kind, level

    def op_counts(self, default: Level | None) -> tuple[str, dict[str, int]]:
        name, _, _ = self.title(default)
        counts: dict[str, int] = {}
        while self.next_line() and not self.at_end():
            if self.skip("}"):
                self.end_of_line()
                return name, counts
            self.expect("  ")
            number = int(self.match(re.compile(r"\d{1,9}"), "a count"))
            self.expect(" ")
            op = self.op()
            if op in counts:
                self.fail(f"{op} is counted twice")
            counts[op] = number
            self.end_of_line()
        self.fail("the graph has no closing '}': the file is truncated")

    def graph(self, default: Level | None, depth: int) -> Graph:
        if depth > MAX_DEPTH:
            self.fail("graphs are nested too deeply")
        name, kind, level = self.title(default)
        indent = "  " * (depth + 1)
        nodes: list[Node] = []
        names: set[str] = set()
        saved: list[Ref] = []
        subgraphs: list[Graph] = []
        bodies: set[str] = set()
        complete = False
        while self.next_line() and not self.at_end():
            if self.skip("  " * depth + "}"):
                self.end_of_line()
                if not complete:
                    self.fail(f"graph {name!r} has no 'return'")
                return Graph(tuple(nodes), name, kind, level, tuple(saved), tuple(subgraphs))
            self.expect(indent)
            start = self.pos
            if self.skip("save "):
                ref = self.ref()
                self.known(ref, names, start)
                saved.append(ref)
                if not complete:
                    self.fail("'save' before 'return'", start)
            elif complete:
                self.fail("expected 'save' or '}' after 'return'")
            elif self.at("%") or self.at("return "):
                node = self.node(bodies)
                complete = node.kind == "output"
                for ref in iter_refs((node.args, node.kwargs, node.after)):
                    self.known(ref, names, start)
                for effect in node.effects:
                    if effect.target is not None:
                        self.known(effect.target, names, start)
                if node.name in names:
                    self.fail(f"%{node.name} is defined twice", start)
                names.add(node.name)
                nodes.append(node)
            elif nodes:
                self.fail(f"expected a node, 'return' or '}}', found {self.found()}")
            else:
                sub = self.graph(level, depth + 1)
                if sub.name in bodies:
                    self.fail(f"two subgraphs are named {sub.name!r}", start)
                bodies.add(sub.name)
                subgraphs.append(sub)
                continue
            self.end_of_line()
        self.fail(f"graph {name!r} has no closing '}}': the file is truncated")

    def known(self, ref: Ref, names: set[str], pos: int) -> None:
        if ref.name not in names:
            self.fail(f"%{ref.name} is used before it is defined", pos)

    # -- nodes -----------------------------------------------------------------------------------

    def node(self, subgraphs: set[str]) -> Node:
        self.subgraphs = subgraphs
        if self.skip("return "):
            value = self.long_return() if self.text[self.pos :] == "[" else self.value()
            effects, after, module = self.suffixes("output")
            return Node(
                "output", "output", "output", (value,), {}, None, module, None, "", effects, after
            )
        self.expect("%")
        name = self.name()
        self.expect(" = ")
        op = self.op()
        target = None
        if self.skip("["):
            target = self.string()
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
        return Node(
            name, kind, op, args, kwargs, result, module, None, target or "", effects, after
        )

    def long_return(self) -> tuple[Arg, ...]:
        """A return with one line for each value."""
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

    def op(self) -> str:
        return self.string() if self.at('"') else self.match(_OP, "an op")

    def suffixes(self, name: str) -> tuple[tuple[Effect, ...], tuple[Ref, ...], str]:
        effects: list[Effect] = []
        after: list[Ref] = []
        module = module_of(name)
        while self.skip(" !"):
            kind = self.match(_WORD, "an effect")
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

    def arguments(self) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
        args: list[Arg] = []
        kwargs: dict[str, Arg] = {}

        def item() -> None:
            start = self.pos
            key = None
            if self.at('"'):
                key = self.string()
            elif (word := _WORD.match(self.text, self.pos)) is not None:
                key = word.group()
                self.pos = word.end()
            if key is not None and self.skip("="):
                if key in kwargs:
                    self.fail(f"argument {key!r} is given twice", start)
                kwargs[key] = self.value()
                return
            self.pos = start
            if kwargs:
                self.fail("a positional argument after a keyword argument")
            args.append(self.value())

        self.sequence("(", ")", item)
        return tuple(args), kwargs

    def sequence(self, opening: str, closing: str, item: Callable[[], None]) -> None:
        self.expect(opening)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("values are nested too deeply")
        if not self.skip(closing):
            item()
            while self.skip(", "):
                item()
            self.expect(closing)
        self.depth -= 1

    # -- values ----------------------------------------------------------------------------------

    def value(self) -> Arg:
        first = self.text[self.pos : self.pos + 1]
        if first == "%":
            return self.ref()
        if first == '"':
            return self.string()
        if first == "[":
            return self.values()
        if first == "`":
            return Symbol(self.match(_SYMBOL, "a symbol")[1:-1])
        if first == "{":
            return self.mapping()
        if first == "@":
            self.pos += 1
            start = self.pos
            name = self.name()
            if name not in self.subgraphs:
                self.fail(f"@{name} is no subgraph of this graph", start)
            return SubgraphRef(name)
        if first == "&":
            self.pos += 1
            return Atom(self.string())
        if self.skip("..."):
            return Ellipsis
        if (number := _NUMBER.match(self.text, self.pos)) is not None:
            self.pos = number.end()
            return self.number(number)
        return self.word()

    def values(self) -> tuple[Arg, ...]:
        """A list: what `sequence` does, in one call less for each value."""
        self.pos += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("values are nested too deeply")
        values: list[Arg] = []
        if not self.skip("]"):
            values.append(self.value())
            while self.skip(", "):
                values.append(self.value())
            self.expect("]")
        self.depth -= 1
        return tuple(values)

    def number(self, match: re.Match[str]) -> int | float:
        text = match.group()
        if match.group(1) or match.group(2) or text.endswith(("inf", "nan")):
            return float(text)
        if len(text) > 400:
            self.fail("a number of more than 400 digits", match.start())
        return int(text)

    def mapping(self) -> dict[Any, Arg]:
        items: dict[Any, Arg] = {}
        printed: set[str] = set()
        hashes: dict[int, int] = {}

        def item() -> None:
            start = self.pos
            key = self.value()
            if not _is_key(key):
                self.fail("this cannot be a key", start)
            number = hash(key)
            hashes[number] = hashes.get(number, 0) + 1
            if hashes[number] > MAX_EQUAL_HASHES:
                self.fail("too many keys with one hash", start)
            text = format_arg(key)
            if text in printed or key in items:  # nan is not equal to itself
                self.fail("a key is given twice", start)
            printed.add(text)
            self.expect(": ")
            items[key] = self.value()

        self.sequence("{", "}", item)
        return items

    def word(self) -> Arg:
        start = self.pos
        word = self.match(_OP, "a value")
        if word in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[word]
        if not self.at("("):
            return Atom(word)
        values: list[Arg] = []
        self.sequence("(", ")", lambda: values.append(self.value()))
        if word == "slice" and len(values) == 3:
            return slice(*values)
        if word == "device" and len(values) == 1 and isinstance(values[0], str):
            return Device(values[0])
        if word == "complex" and len(values) == 2 and all(isinstance(v, float) for v in values):
            return complex(*values)
        if word == "bytes" and len(values) == 1 and isinstance(values[0], str):
            try:
                return bytes.fromhex(values[0])
            except ValueError:
                self.fail("bytes are not hexadecimal", start)
        self.fail(f"{word!r} cannot be called here", start)

    # -- results ---------------------------------------------------------------------------------

    def result(self) -> Result:
        if self.at("("):
            results: list[Result] = []
            self.sequence("(", ")", lambda: results.append(self.result()))
            return tuple(results)
        word = _OP.match(self.text, self.pos)
        if word is not None and self.text[word.end() : word.end() + 1] == "[":
            self.pos = word.end()
            shape = self.sizes()
            stride = self.sizes() if self.skip(" stride ") else None
            device = self.string() if self.skip(" on ") else None
            return TensorMeta(DTYPE_NAMES.get(word.group(), word.group()), shape, stride, device)
        start = self.pos
        value = self.value()
        if value is None or isinstance(value, Symbol | Atom):
            return value
        self.fail("expected what the node gives", start)

    def sizes(self) -> tuple[int | Symbol, ...]:
        sizes: list[int | Symbol] = []

        def item() -> None:
            start = self.pos
            value = self.value()
            if isinstance(value, Atom):
                value = Symbol(value.name)
            if isinstance(value, bool) or not isinstance(value, int | Symbol):
                self.fail("expected a size", start)
            sizes.append(value)

        self.sequence("[", "]", item)
        return tuple(sizes)


def _is_key(value: Arg) -> bool:
    """Whether a value can be a key: a constant, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(_is_key, value))
    return not isinstance(value, Ref | SubgraphRef | dict | slice)
