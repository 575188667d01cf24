"""Parser of one line of a `.tgraph` text: names, op, arguments, results and annotations.

    value     = "%" name [":" input] | "@" name | number | string | "`" symbol "`"
              | True | False | None | ... | dotted.name | "&" string
              | "[" values "]" | "{" value ":" value, ... "}"
              | slice(a, b, c) | device(string) | complex(re, im) | bytes(hex)
              | input(number, string) | "~"
    input     = ["buffer" | "constant" ["(" values ")"]] result ["after" "%" name]
    result    = dtype "[" sizes "]" [layout] ["stride" "[" sizes "]"] ["on" string]
              | "(" results ")" | value

A name with only usual characters is bare. Any other name is a JSON string. `parse` reads whole
lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from ...errors import GraphFormatError
from ...ops.dtypes import DTYPE_NAMES
from ...words import one_line
from ..model import (
    ANY_FLOAT,
    INPUT_OPS,
    Arg,
    Atom,
    Device,
    Effect,
    InputRef,
    Node,
    NodeKind,
    Ref,
    Result,
    SubgraphRef,
    Symbol,
    TensorMeta,
    is_inactive_dropout,
)
from ..module_paths import module_of
from .format import LAYOUTS, format_arg
from .inputs import PLACED

T = TypeVar("T")
MAX_DEPTH = 60
"""Maximum nesting of values, and of graphs.

Each level takes up to four nested Python calls, so the limit stays far below Python's recursion
limit of 1,000, even on top of pytest's own stack.
"""
MAX_DIGITS = 400
"""Maximum length of an int.

64 bits have up to 20 digits. Python's own `int` raises above 4,300 digits.
"""
MAX_SIZE = 2**63 - 1
"""Largest size of a tensor: torch's sizes have 64 bits."""
MAX_DIMS = 64
"""Maximum number of dimensions, as in torch."""
MAX_LEVELS = 200
"""Maximum number of levels of a module path. Costs and pictures have each of its prefixes."""
MAX_LINES = 200_000
"""Maximum number of lines after expansion, blocks included.

`fold` never writes a text that expands to more lines.
"""
MAX_CHARACTERS = 100_000_000
"""Maximum number of characters after expansion, blocks included."""
_EFFECTS = ("mutates", "random", "communicates", "syncs", "opaque")
MAX_EQUAL_HASHES = 100
"""Maximum number of dictionary keys with equal hashes."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./\-#<>]*")
_REF = re.compile(rf"%({_NAME.pattern})")
_OP = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SYMBOL = re.compile(r"`([^`]*)`")
_NUMBER = re.compile(r"-?(?:\d+(\.\d+)?(e[+-]?\d+)?|inf|nan)(?![\w.])", re.ASCII)
_CONSTANTS = {"True": True, "False": False, "None": None}


def lines_of(text: str) -> list[str]:
    """Split a text into lines; at least one.

    Raises:
        GraphFormatError: for more than `MAX_LINES` or `MAX_CHARACTERS`.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected the text of a graph as str, not {type(text).__name__}")
    # Not splitlines(): that also splits at characters that a string may hold.
    lines = text.replace("\r\n", "\n").split("\n")
    if len(lines) > MAX_LINES + 1:
        raise GraphFormatError(f"the text has more than {MAX_LINES:,} lines", MAX_LINES + 1)
    if len(text) > MAX_CHARACTERS:
        raise GraphFormatError(f"the text has more than {MAX_CHARACTERS:,} characters")
    return lines


class Declared(NamedTuple):
    """An input that is declared where it is used.

    Attributes:
        node: the node of the input.
        after: name of the input that the declaration states after `after`; "" without `after`.
        row, pos: position of `after`, or of the end of the declaration.
    """

    node: Node
    after: str
    row: int
    pos: int


class ValueReader:
    """A position in a text, and methods that read one element there and move past it.

    Every method raises `GraphFormatError` if it finds anything other than its element.

    Attributes:
        lines: all lines of the text.
        row: index of the current line.
        text: the current line, "" at the end.
        pos: index of the next character in the line.
        depth: nesting of the value being read.
        subgraphs: names of the graphs that a value may refer to.
        allows_facts: True if the version of the text is `FACTS_VERSION`.
        has_no_floats: True if every float constant is written as `~`.
        declared: inputs declared in the arguments being read; `None` if these arguments cannot
            declare inputs.
    """

    def __init__(self, lines: list[str]):
        self.lines = lines
        self.row = 0
        self.text = self.lines[0]
        self.pos = 0
        self.depth = 0
        self.subgraphs: set[str] = set()
        self.allows_facts = False
        self.has_no_floats = False
        self.declared: list[Declared] | None = None

    # -- characters ------------------------------------------------------------------------------

    def fail(self, problem: str, pos: int | None = None, row: int | None = None) -> NoReturn:
        """Raise a `GraphFormatError`.

        Args:
            pos: index of the wrong character; the current position by default.
            row: index of the line; the current line by default.
        """
        column = (self.pos if pos is None else pos) + 1
        raise GraphFormatError(problem, (self.row if row is None else row) + 1, column)

    def fail_too_deep(self, noun: str) -> NoReturn:
        """Raise a `GraphFormatError` for `noun` at more than `MAX_DEPTH` levels."""
        self.fail(
            f"{noun} are nested more than {MAX_DEPTH} deep, the limit of the format: restore the "
            "text, or store the graph again"
        )

    def next_line(self, skip_blank: bool = False) -> bool:
        """Move to the start of the next line. Return False at the end of the text."""
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
        """Return True at the end of the text, which is an empty last line."""
        return not self.text and self.row + 1 == len(self.lines)

    def at(self, token: str) -> bool:
        """Return True if `token` comes next."""
        return self.text.startswith(token, self.pos)

    def skip(self, token: str) -> bool:
        """Move past `token` and return True, or return False if it does not come next."""
        if self.text.startswith(token, self.pos):
            self.pos += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        """Move past `token`; fail if it does not come next."""
        if not self.skip(token):
            self.fail(f"expected {token!r}, found {self.describe_rest()}")

    def describe_rest(self) -> str:
        """Return the next characters, quoted, for a message."""
        rest = self.text[self.pos : self.pos + 20]
        return repr(rest) if rest else "the end of the line"

    def match(self, pattern: re.Pattern[str], description: str) -> str:
        """Read the text that a pattern matches.

        Args:
            description: description of the element, for the message.
        """
        match = pattern.match(self.text, self.pos)
        if match is None:
            self.fail(f"expected {description}, found {self.describe_rest()}")
        self.pos = match.end()
        return match.group()

    def read_string(self) -> str:
        """Read a JSON string."""
        start = self.pos
        token = self.match(_STRING, "a string")
        try:
            return cast(str, json.loads(token))
        except ValueError:
            self.fail("expected a JSON string, found an invalid escape", start)

    def read_text(self) -> str:
        """Read a JSON string that is printed as it is, not quoted, as one line."""
        return one_line(self.read_string())

    def read_name(self) -> str:
        """Read a name, bare or quoted."""
        start = self.pos
        name = self.read_text() if self.at('"') else self.match(_NAME, "a name")
        self.check_levels(name, start)
        return name

    def check_levels(self, path: str, pos: int) -> None:
        """Fail at this position of the line if a module path has too many levels."""
        if path.count(".") >= MAX_LEVELS:
            self.fail(f"expected a module path of at most {MAX_LEVELS} levels", pos)

    def read_ref(self) -> Ref:
        """Read a reference to a node."""
        self.expect("%")
        return Ref(self.read_name())

    def expect_end_of_line(self) -> None:
        """Fail unless the line ends here."""
        if self.pos != len(self.text):
            self.fail(f"expected the end of the line, found {self.describe_rest()}")

    def read_op(self) -> str:
        """Read the name of an op."""
        return self.read_text() if self.at('"') else self.match(_OP, "an op")

    # -- arguments -------------------------------------------------------------------------------

    def read_arguments(self) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
        """Read positional and keyword arguments in parentheses."""
        args: list[Arg] = []
        kwargs: dict[str, Arg] = {}

        def read_item() -> None:
            start = self.pos
            # A word is a keyword only if `=` follows; otherwise it is read again, as a value.
            key = None
            if self.at('"'):
                key = self.read_text()
            elif (word := WORD.match(self.text, self.pos)) is not None:
                key = word.group()
                self.pos = word.end()
            if key is not None and self.skip("="):
                if key in kwargs:
                    self.fail(f"argument {key!r} is given twice", start)
                kwargs[key] = self.read_value()
                return
            self.pos = start
            if kwargs:
                self.fail("positional argument follows keyword argument")
            args.append(self.read_value())

        self.read_sequence("(", ")", read_item)
        return tuple(args), kwargs

    def read_sequence(self, opening: str, closing: str, read_item: Callable[[], object]) -> None:
        """Read brackets with any number of items between them."""
        self.expect(opening)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail_too_deep("values")
        if not self.skip(closing):
            self.read_items(read_item)
            self.expect(closing)
        self.depth -= 1

    def read_items(self, read_item: Callable[[], T]) -> list[T]:
        """Read one item or several, separated by commas."""
        items = [read_item()]
        while self.skip(", "):
            items.append(read_item())
        return items

    # -- values ----------------------------------------------------------------------------------

    def read_value(self) -> Arg:
        """Read an argument."""
        first = self.text[self.pos : self.pos + 1]
        if first == "%":
            unquoted = _REF.match(self.text, self.pos)
            if unquoted is None:
                ref = self.read_ref()
            else:  # Most references take this branch, which saves a call.
                self.pos = unquoted.end()
                ref = Ref(unquoted[1])
            if self.declared is not None and self.at(": "):
                self.read_declaration(ref)
            return ref
        if first == '"':
            return self.read_string()
        if first == "[":
            return self.read_values()
        # Only a text with `digits 0` has this sign; elsewhere it is an error.
        if first == "~" and self.has_no_floats:
            self.pos += 1
            return ANY_FLOAT
        if first == "`":
            return Symbol(one_line(self.match(_SYMBOL, "a symbol")[1:-1]))
        if first == "{":
            return self.read_mapping()
        if first == "@":
            self.pos += 1
            start = self.pos
            name = self.read_name()
            if name not in self.subgraphs:
                self.fail(f"this graph has no subgraph @{name}", start)
            return SubgraphRef(name)
        if first == "&":
            self.pos += 1
            return Atom(self.read_text())
        if self.skip("..."):
            return Ellipsis
        # Before words, because `inf` and `nan` are numbers.
        if (number := _NUMBER.match(self.text, self.pos)) is not None:
            self.pos = number.end()
            return self.read_number(number)
        return self.read_word()

    def read_declaration(self, ref: Ref) -> None:
        """Read the rest of an input that is declared where it is used."""
        assert self.declared is not None
        self.check_levels(ref.name, self.pos)
        self.expect(": ")
        role, args = "parameter", ()
        word = WORD.match(self.text, self.pos)
        # Most declarations are of parameters, so a parameter needs no word for its role.
        if word is not None and word.group() in PLACED:
            role = word.group()
            self.pos = word.end()
            if role == "constant" and self.at("("):
                args = self.read_arguments()[0]
            self.expect(" ")
        result = self.read_result()
        if not isinstance(result, TensorMeta):
            self.fail("expected the dtype and the shape of the input, such as f32[2, 4]")
        start = self.pos
        after = self.read_ref().name if self.skip(" after ") else ""
        module = module_of(ref.name)
        node = Node(ref.name, "placeholder", role, args, result=result, module=module)
        self.declared.append(Declared(node, after, self.row, start))

    def read_values(self) -> tuple[Arg, ...]:
        """Read a list, like `read_sequence` but with one call fewer per value."""
        self.pos += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail_too_deep("values")
        values: list[Arg] = []
        if not self.skip("]"):
            values.append(self.read_value())
            while self.skip(", "):
                values.append(self.read_value())
            self.expect("]")
        self.depth -= 1
        return tuple(values)

    def read_number(self, match: re.Match[str]) -> int | float:
        """Convert a match of `_NUMBER` to an int or float."""
        text = match.group()
        if match.group(1) or match.group(2) or text.endswith(("inf", "nan")):
            return float(text)
        if len(text) > MAX_DIGITS:
            self.fail(f"expected a number of at most {MAX_DIGITS} digits", match.start())
        return int(text)

    def read_mapping(self) -> dict[Any, Arg]:
        """Read a dictionary."""
        items: dict[Any, Arg] = {}
        printed: set[str] = set()
        hashes: dict[int, int] = {}

        def read_item() -> None:
            start = self.pos
            key = self.read_value()
            if not _is_key(key):
                self.fail("this value cannot be a key of a dict", start)
            number = hash(key)
            hashes[number] = hashes.get(number, 0) + 1
            # Python compares each pair of keys with equal hashes. A hostile file could take
            # quadratic time, because ints with equal hashes are easy to find.
            if hashes[number] > MAX_EQUAL_HASHES:
                self.fail("too many keys with the same hash", start)
            text = format_arg(key)
            if text in printed or key in items:  # nan is not equal to itself
                self.fail("a key is given twice", start)
            printed.add(text)
            self.expect(": ")
            items[key] = self.read_value()

        self.read_sequence("{", "}", read_item)
        return items

    def read_word(self) -> Arg:
        """Read a value that begins with a word: `True`, `torch.float32`, `slice(...)`."""
        start = self.pos
        word = self.match(_OP, "a value")
        # `_OP` also matches these words. An `Atom` with such a name is quoted in the text.
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if not self.at("("):
            return Atom(word)
        values: list[Arg] = []
        self.read_sequence("(", ")", lambda: values.append(self.read_value()))
        if word == "slice" and len(values) == 3:
            return slice(*values)
        if word == "device" and len(values) == 1 and isinstance(values[0], str):
            return Device(values[0])
        if word == "input" and [type(value) for value in values] == [int, str]:
            return InputRef(*values)
        if word == "complex" and len(values) == 2 and all(isinstance(v, float) for v in values):
            return complex(*values)
        if word == "bytes" and len(values) == 1 and isinstance(values[0], str):
            try:
                return bytes.fromhex(values[0])
            except ValueError:
                self.fail('expected hexadecimal digits, such as bytes("0aff")', start)
        self.fail(f"{word}(...) with these arguments is not a value", start)

    # -- results ---------------------------------------------------------------------------------

    def read_result(self) -> Result:
        """Read the description of a node's value."""
        if self.at("("):
            results: list[Result] = []
            self.read_sequence("(", ")", lambda: results.append(self.read_result()))
            return tuple(results)
        word = _OP.match(self.text, self.pos)
        if word is not None and self.text[word.end() : word.end() + 1] == "[":
            self.pos = word.end()
            shape = self.read_sizes()
            layout = self.read_layout()
            stride = self.read_sizes(-MAX_SIZE) if self.skip(" stride ") else None
            device = self.read_text() if self.skip(" on ") else None
            dtype = DTYPE_NAMES.get(word.group(), word.group())
            return TensorMeta(dtype, shape, stride, device, layout)
        start = self.pos
        value = self.read_value()
        if value is None or isinstance(value, Symbol | Atom):
            return value
        self.fail("expected the result of the node, such as f32[2, 4]", start)

    def read_layout(self) -> str:
        """Read the layout of a tensor; an omitted layout is `strided`."""
        word = WORD.match(self.text, self.pos + 1) if self.at(" ") else None
        if word is None or word.group() not in LAYOUTS:
            return "strided"
        self.pos = word.end()
        return word.group()

    def read_sizes(self, least: int = 0) -> tuple[int | Symbol, ...]:
        """Read a shape, or strides, which may be negative."""
        sizes: list[int | Symbol] = []

        def read_item() -> None:
            start = self.pos
            value = self.read_value()
            # A symbol without operators is printed without backticks, and reads as a word.
            if isinstance(value, Atom):
                value = Symbol(value.name)
            if isinstance(value, bool) or not isinstance(value, int | Symbol):
                self.fail("expected a size, such as 2 or s0", start)
            if isinstance(value, int) and not least <= value <= MAX_SIZE:
                self.fail(f"expected a size from {least} to 2**63 - 1", start)
            if len(sizes) == MAX_DIMS:
                self.fail(f"expected at most {MAX_DIMS} dimensions", start)
            sizes.append(value)

        self.read_sequence("[", "]", read_item)
        return tuple(sizes)


def _is_key(value: Arg) -> bool:
    """Return True if a value can be a dictionary key: a constant, or a tuple of constants."""
    if isinstance(value, tuple):
        return all(map(_is_key, value))
    return not isinstance(value, Ref | SubgraphRef | dict | slice)


class NodeReader(ValueReader):
    """Reader of nodes. Each method starts at its element and stops after it.

    `parse` subclasses it, and sets `subgraphs` and `declared` before it reads a node.
    """

    def read_output(self) -> Node:
        """Read the output node, after the word `return`."""
        value = self.read_long_return() if self.text[self.pos :] == "[" else self.read_value()
        effects, after, module = self.read_suffixes("output")
        return Node(
            "output", "output", "output", (value,), module=module, effects=effects, after=after
        )

    def read_node(self) -> Node:
        """Read any node except the output."""
        self.expect("%")
        name = self.read_name()
        self.expect(" = ")
        op = self.read_op()
        target = options = None
        if self.skip("["):
            target = self.read_text()
            # A file of an older version does not record options. `None` equals any options.
            omitted_options = "" if self.allows_facts else None
            options = self.read_text() if self.skip(", ") else omitted_options
            self.expect("]")
        called = self.at("(")
        # The argument of a constant is its value, which cannot contain an input.
        if op in INPUT_OPS or op == "get_attr":
            self.declared = None
        args, kwargs = self.read_arguments() if called else ((), {})
        self.declared = None
        result = self.read_result() if self.skip(" : ") else None
        effects, after, module = self.read_suffixes(name)
        if effects and is_inactive_dropout(op, args, kwargs):  # 0.2.0 wrote `!random`
            effects = tuple([effect for effect in effects if effect.kind != "random"])
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
        # Otherwise a truncated line would be read as a call without arguments.
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
            target=target or "",
            effects=effects,
            after=after,
            options=options,
        )

    def read_long_return(self) -> tuple[Arg, ...]:
        """Read a return with one line per value."""
        # One line for each value, so that a new output of a backward is one new line in a review.
        indent = self.text[: self.pos - len("return ")]
        values: list[Arg] = []
        while self.next_line() and not self.at_end():
            self.expect(indent)
            if self.skip("]"):
                return tuple(values)
            self.expect("  ")
            values.append(self.read_value())
            self.expect(",")
            self.expect_end_of_line()
        self.fail("the return has no closing ']': the file is truncated")

    def read_suffixes(self, name: str) -> tuple[tuple[Effect, ...], tuple[Ref, ...], str]:
        """Read the end of a node's line: effects, `after`, and the module path.

        Args:
            name: the node's name. It implies the module path if the line states none.
        """
        effects: list[Effect] = []
        after: list[Ref] = []
        module = module_of(name)
        while self.skip(" !"):
            kind = self.match(WORD, "an effect")
            if kind not in _EFFECTS:
                self.fail(f"unknown effect {kind!r}: use {', '.join(_EFFECTS)}")
            target = None
            if self.at(" %"):
                self.pos += 1
                target = self.read_ref()
            effects.append(Effect(cast(Any, kind), target))
        if self.skip(" after "):
            after = self.read_items(self.read_ref)
        if self.skip(" in "):
            module = self.read_text()
        return tuple(effects), tuple(after), module
