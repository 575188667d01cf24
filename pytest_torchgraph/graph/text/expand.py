r"""Expansion of a folded `.tgraph` text: every instance of a module gets its own lines again.

    each   = "each" [path "*."] path "*" [letter] "{" NL { line | each | call } "}" NL
    call   = path number [".." number] [letter] [":" given { "," given }] NL { but }
    given  = formal "=" ( name | integer )
    but    = "but" path span { "," span } "{" NL { change NL } "}" NL
    span   = number [".." number]
    change = "-" key | "@" key | "~" line | "+" line

`fold` writes one instance in a `call`, and one in a `but`. It writes no integers in `given`, and no
`*` inside `path`: these are forms of earlier releases.

These elements appear among the lines of a graph: nodes, values of a long return, `save` lines.
`path` is the path of a container. It is empty or ends in a dot; in version 4 it may also end in
`_`. The container's block is valid until the next block with the same path and letter, or until a
graph or a return begins or ends. A nested block is valid only in its enclosing block. In version 4,
the last number in the path of a container may be `*`: `each features.*.*` is the block of
`features.3.0` and `features.5.1`. Of two blocks that apply to an instance, the later one is used.
`names` has the forms of names in a block.

The changes of a `but` follow the order of the block. `-` removes a line. `~` replaces the line that
has the same key. `@` moves on to the position after a line. `+` inserts a line after the line
mentioned last, or at the start of the block if no line was mentioned. A key is the result's name,
or the whole line if the line has no result. `lists` has the grammar of the lists of parameters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...errors import GraphFormatError
from ...words import grouped
from .format import EAGER_VERSION, FACTS_VERSION
from .lists import REPEATED, Parameter, Results
from .names import (
    CONTAINER,
    EXPRESSION,
    NUMBER,
    PATH,
    STRING,
    Block,
    evaluate,
    key_of,
    shared_path,
)
from .nodes import MAX_CHARACTERS, MAX_DEPTH, MAX_LINES, ValueReader, lines_of


@dataclass(frozen=True)
class Expanded:
    """A text with one line per node.

    Attributes:
        lines: the expanded lines.
        folded: the lines of the folded text.
        rows: for each expanded line, the index of the folded line that it was read from.
        calls: index of the first line, and path, of each instance outside blocks.
    """

    lines: list[str]
    folded: list[str]
    rows: list[int]
    calls: list[tuple[int, str]]

    def located(self, error: GraphFormatError) -> GraphFormatError:
        """Return an error in the expanded lines with its position in the folded text."""
        row = min(error.line, len(self.lines)) - 1
        source = self.rows[row]
        problem = error.problem
        call_index = bisect_right(self.calls, row, key=lambda call: call[0]) - 1
        line, folded = self.lines[row], self.folded[source]
        if line == folded:
            return GraphFormatError(problem, source + 1, error.column)
        if call_index >= 0:
            problem += f" (in {self.calls[call_index][1]})"
        # Up to its next name or number, the rest of the line is the same in both texts.
        rest = re.split("[% ]", line[error.column - 1 :], maxsplit=1)[0]
        column = max(folded.find(rest), len(folded) - len(folded.lstrip(" ~+")))
        return GraphFormatError(problem, source + 1, column + 1)


MAX_NUMBERS = 20
"""Maximum number of expressions in the instance number within one name."""

_FIRST = re.compile(rf"torchgraph [{EAGER_VERSION}{FACTS_VERSION}]\Z")
_OPS = re.compile(r"(?:.*, )?detail ops(?:, |\Z)")
"""Origin of a text that is never folded: its lines, such as `  2 aten.mm`, look like instances."""
_FOLDED = re.compile(
    r" +(?:(each) |(but) |(over|for) [A-Z](?:: | \{\Z)|"
    rf"{CONTAINER}{NUMBER}(?=[ :]|\Z)(?!.*[{{,]\Z))"
)
"""A line that only a folded text has: a block, exceptions, a list, or an instance."""
_CONTAINER = re.compile(rf"(?:{PATH}*\*\.)?{CONTAINER}(?=\*)")
_INSTANCE = re.compile(rf"({CONTAINER})({NUMBER})(?![0-9])")
_NUMBER = re.compile(rf"{NUMBER}(?![0-9])")
_LIST = re.compile(r"[A-Z]")
_PATH = re.compile(rf"{PATH}*")
_SHAPE = re.compile(r"\[[^\[\]]*\]")
_LETTER = re.compile(r"[b-z](?![A-Za-z0-9])")
_FORMAL = re.compile(r"\$+[0-9]{1,9}")
_NAME = re.compile(
    rf"[%@](?:{STRING}|(?:{PATH}|/|\[[0-9n+\-]{{1,24}}\])+)|\$+[0-9]{{1,9}}|-?[0-9]{{1,400}}"
)


@dataclass
class _Scope:
    """The file or a block: its lines, expanded so far, and the blocks that they can call.

    Attributes:
        lines: the lines.
        rows: for each line, the index of the folded line that it was read from.
        depth: number of enclosing blocks.
        blocks: blocks that the lines can call, by path and letter.
        calls: index of the first line, and path, of each instance outside blocks.
    """

    lines: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    depth: int = 0
    blocks: dict[tuple[str, str], Block] = field(default_factory=dict)
    calls: list[tuple[int, str]] = field(default_factory=list)

    def find_block(self, container: str, letter: str) -> Block | None:
        """Return the latest block that applies to instances of a container, or `None`."""
        found = [self.blocks.get((path, letter)) for path in (container, shared_path(container))]
        return max(filter(None, found), key=lambda block: block.rows[0], default=None)


def expand(text: str) -> str:
    """Return the text with one line per node, or the text itself if it is not folded.

    Raises:
        GraphFormatError: with line and column, if a block or an instance is malformed, or if the
            expanded text exceeds `MAX_LINES` or `MAX_CHARACTERS`. `parse` reports all other errors.
    """
    expanded = expand_lines(lines_of(text))
    return text if expanded is None else "\n".join(expanded.lines)


def expand_lines(lines: list[str], room: list[int] | None = None) -> Expanded | None:
    """Expand lines and record the origin of each line. Return `None` if nothing is folded.

    Args:
        room: number of lines and of characters that may still be added; updated. `None` for
            `MAX_LINES` and `MAX_CHARACTERS`.
    """
    if not _FIRST.match(lines[0]) or (len(lines) > 1 and _OPS.match(lines[1])):
        return None
    if not any(map(_FOLDED.match, lines)):
        return None
    return _Expander(lines, room or [MAX_LINES, MAX_CHARACTERS]).read_document()


class _Expander(ValueReader):
    """Reader of the lines of a folded text.

    Attributes:
        room: number of lines and of characters that may still be added.
        lists: the lists of parameters of the graph, by letter.
        results: the results of the graph so far.
    """

    def __init__(self, lines: list[str], room: list[int]):
        super().__init__(lines)
        self.room = room
        self.lists: dict[str, list[Parameter]] = {}
        self.results = Results()

    def read_document(self) -> Expanded:
        """Read all lines. A line that is not folded is copied."""
        scope = _Scope()
        while True:
            line = self.text
            if not self.read_folded_line("", scope):
                # A graph or a return begins or ends, and with it the blocks.
                if line.endswith(("{", "return [")) or line.lstrip(" ") in ("}", "]"):
                    scope.blocks.clear()
                if line == "}":
                    self.lists.clear()
                    self.results = Results()
                if self.lists:
                    line = REPEATED.sub(self.repeat, line)
                self.append_lines([line], scope)
            if not self.next_line():
                return Expanded(scope.lines, self.lines, scope.rows, scope.calls)

    def append_lines(self, lines: list[str], scope: _Scope) -> None:
        """Append expanded lines that come from the current line."""
        self.charge_work(len(lines), sum(map(len, lines)))
        if self.lists:
            self.results.add(lines)
        scope.lines += lines
        scope.rows += [self.row] * len(lines)

    # -- lists of parameters ---------------------------------------------------------------------

    def read_list(self) -> None:
        """Read a list of parameters: `over A: fc.weight[2, 4], layer.(0..3)(.weight[4])`."""
        self.expect("over ")
        letter = self.match(_LIST, "the letter of a list")
        self.expect(": ")
        groups = self.read_items(self.read_group)
        self.expect_end_of_line()
        self.lists[letter] = [parameter for group in groups for parameter in group]

    def read_group(self) -> list[Parameter]:
        """Read one parameter, or the parameters of consecutive instances."""
        path = self.match(_PATH, "the name of a parameter")
        if not self.skip("("):
            return [(path, self.read_shape())]
        first = self.read_instance_number()
        self.expect("..")
        numbers = _range(first, self.read_instance_number())
        self.expect(")(")
        rests = self.read_items(
            lambda: (self.match(_PATH, "the rest of a name"), self.read_shape())
        )
        self.expect(")")
        self.charge_work(len(numbers) * len(rests), 0)
        return [(f"{path}{n}{rest}", shape) for n in numbers for rest, shape in rests]

    def read_shape(self) -> str:
        return self.match(_SHAPE, "the shape of a parameter")

    def find_list(self, letter: str) -> list[Parameter]:
        if letter not in self.lists:
            self.fail(f"missing list 'over {letter}: ' before this line")
        return self.lists[letter]

    def repeat(self, match: re.Match[str]) -> str:
        """Return an item of a line for each parameter of its list."""
        item, separator, letter = match.groups()
        return separator.join(
            self.render([item], parameter, index)[0]
            for index, parameter in enumerate(self.find_list(letter))
        )

    def render(self, template: list[str], parameter: Parameter, index: int) -> list[str]:
        """Return the lines of a list for one parameter, and add their results to `results.local`.

        Args:
            template: the lines as they are written.
            index: position of the parameter in the list.
        """
        self.charge_work(len(template), sum(map(len, template)))
        try:
            lines, made = self.results.render(template, parameter, index)
        except KeyError as error:
            self.fail(f"{parameter[0]} has no result %/{error.args[0]} before this line")
        self.results.local[parameter[0]].update(made)
        return lines

    def read_for(self, scope: _Scope) -> None:
        """Read lines, and append them for each parameter of a list."""
        start = self.row
        letter, colon, line = self.text.removeprefix("  for ").partition(":")
        parameters = self.find_list(letter[:1])
        # `for A:` has its only line after the colon, `for A {` has them in the lines below.
        template = [line] if colon and letter[1:] == "" else []
        rows = [start]
        if not template:
            for _ in self.lines_inside("  ", "the lines of the list have no closing '}'"):
                template.append(self.text[2:])
            rows = [*range(start + 1, self.row)]
        end = self.row
        for index, parameter in enumerate(parameters):
            lines = self.render(template, parameter, index)
            # `append_lines` takes the current row as the origin of the lines.
            for self.row, line in zip(rows, lines, strict=True):
                self.append_lines([line], scope)
        self.row = end

    def lines_inside(self, indent: str, unclosed: str) -> Iterator[None]:
        """Yield at the start of each indented line, and stop at the closing brace."""
        while self.next_line() and not self.at_end():
            if self.text == f"{indent}}}":
                return
            self.expect(f"{indent}  ")
            yield
        self.fail(f"{unclosed}: the file is truncated")

    def charge_work(self, lines: int, characters: int) -> None:
        """Count lines and characters. Fail if their sums exceed the limits."""
        self.room[0] -= lines
        self.room[1] -= characters
        if self.room[0] < 0:
            self.fail(f"the text expands to more than {MAX_LINES:,} lines", 0)
        if self.room[1] < 0:
            self.fail(f"the text expands to more than {MAX_CHARACTERS:,} characters", 0)

    # -- blocks ----------------------------------------------------------------------------------

    def read_folded_line(self, indent: str, scope: _Scope) -> bool:
        """Read a block, a list, or a line of instances with the exceptions that follow.

        Stop at its last line. Return False for any other line.

        Args:
            indent: the spaces at the start of the line, at least.
        """
        match = _FOLDED.match(self.text)
        if match is None:
            return False
        indent = indent or " " * (len(self.text) - len(self.text.lstrip(" ")))
        self.pos = len(indent)
        if match[2]:
            self.fail("'but' must follow a line with an instance of a block, such as 'layers.1'")
        if match[1]:
            self.read_block(indent, scope)
        elif match[3]:
            if len(indent) != 2 or scope.depth:
                self.fail("a list of parameters must be in a graph, outside of blocks")
            if match[3] == "over":
                self.read_list()
            else:
                self.read_for(scope)
        else:
            self.read_instances(indent, scope)
        return True

    def read_block(self, indent: str, scope: _Scope) -> None:
        """Read a block and add it to the scope."""
        if scope.depth >= MAX_DEPTH:
            self.fail_too_deep("blocks")
        self.expect("each ")
        container = self.match(_CONTAINER, "a path that ends in '*', such as 'encoder.layer.*'")
        self.expect("*")
        letter = self.read_letter()
        self.expect(" {")
        self.expect_end_of_line()
        start = self.row
        body = _Scope(depth=scope.depth + 1)
        for _ in self.lines_inside(indent, "the block has no closing '}'"):
            if self.read_folded_line(f"{indent}  ", body):
                continue
            if not (self.at("%") or self.at("$") or self.at("save ") or self.text.endswith(",")):
                self.fail(f"expected a line of a block or '}}', found {self.describe_rest()}")
            self.charge_work(1, len(self.text))
            body.lines.append(self.text[2 * body.depth :])
            body.rows.append(self.row)
        if not body.lines:
            self.fail("the block has no lines: remove it", len(indent), start)
        scope.blocks[container, letter] = Block(body.lines, body.rows, body.depth)

    def read_letter(self) -> str:
        """Read the letter that distinguishes blocks of one container; return "" if none."""
        if self.at(" ") and (match := _LETTER.match(self.text, self.pos + 1)):
            self.pos = match.end()
            return match.group()
        return ""

    # -- calls -----------------------------------------------------------------------------------

    def read_instances(self, indent: str, scope: _Scope) -> None:
        """Read a line of instances and the exceptions that follow. Append the expanded lines."""
        start = self.pos
        match = _INSTANCE.match(self.text, start)
        if match is None:
            self.fail(
                f"expected an instance of a block, such as 'layers.1', found {self.describe_rest()}"
            )
        container, first = match[1], int(match[2])
        self.pos = match.end()
        last = self.read_instance_number() if self.skip(" .. ") else first
        letter = self.read_letter()
        block = scope.find_block(container, letter)
        if block is None:
            title = f"each {container}*{letter and ' '}{letter} {{"
            self.fail(f"missing block '{title}' before this line", start)
        arguments = self.read_formals(block) if self.skip(": ") else {}
        self.expect_end_of_line()
        numbers = _range(first, last)
        row, text = self.row, self.text
        if len(numbers) * len(block.lines) > self.room[0]:
            self.fail(f"the text expands to more than {MAX_LINES:,} lines", start)
        changed_blocks: dict[int, Block] = {}
        while self.lines[self.row + 1 : self.row + 2] and self.lines[self.row + 1].startswith(
            f"{indent}but "
        ):
            self.next_line()
            self.pos = len(indent)
            self.read_exceptions(indent, container, numbers, block, changed_blocks)
        # Errors in an instance are reported at the line of the instances.
        last_position = self.row, self.text
        self.row, self.text = row, text
        for n in numbers:
            self.append_instance(
                f"{container}{n}", n, changed_blocks.get(n, block), arguments, scope
            )
        self.row, self.text = last_position

    def read_instance_number(self) -> int:
        return int(self.match(_NUMBER, "a number of at most 9 digits"))

    def read_formals(self, block: Block) -> dict[int, tuple[str, int]]:
        """Read the values that a line gives to formals. Return name and column by formal."""
        arguments: dict[int, tuple[str, int]] = {}

        def read_formal() -> None:
            start = self.pos
            formal = self.match(_FORMAL, "a value of the block, such as '$1'")
            number = int(formal.lstrip("$"))
            if formal != "$" * block.depth + str(number) or number not in block.uses:
                self.fail(f"the block does not use {formal}: remove it from this line", start)
            if number in arguments:
                self.fail(f"{formal} is given twice", start)
            self.expect(" = ")
            start = self.pos
            name = self.match(_NAME, "a name or a size")
            if "[" in EXPRESSION.sub("", name) and not name.startswith('"', 1):
                column = start + EXPRESSION.sub(lambda m: "_" * len(m.group()), name).index("[")
                self.fail(
                    "expected an index computed from n, the index of the instance, such as '[n]', "
                    "'[n-1]' or '[2n+1]'",
                    column,
                )
            if name.count("[") > MAX_NUMBERS and not name.startswith('"', 1):
                self.fail(f"expected at most {MAX_NUMBERS} instance numbers in a name", start)
            arguments[number] = name, start

        self.read_items(read_formal)
        return arguments

    def append_instance(
        self, path: str, n: int, block: Block, arguments: dict[int, tuple[str, int]], scope: _Scope
    ) -> None:
        """Append the lines of one instance to the scope."""
        names: dict[int, str] = {}
        for formal in block.uses:
            if formal not in arguments:
                self.fail(f"{'$' * block.depth}{formal} has no value", len(self.text))
            names[formal] = self.evaluate_name(n, *arguments[formal])
        # An instance without lines takes time too.
        self.charge_work(max(1, len(block.lines)), block.length(path, names))
        if not scope.depth:
            scope.calls.append((len(scope.lines), path))
        if block.lines:
            scope.lines.extend(block.text(path, names).split("\n"))
            scope.rows.extend(block.rows)

    def evaluate_name(self, n: int, name: str, start: int) -> str:
        """Return a name with its expressions replaced by their values for instance number n."""
        if "[" not in name or name.startswith('"', 1):
            return name

        def evaluated(match: re.Match[str]) -> str:
            number = evaluate(match, n)
            if number < 0:
                self.fail(
                    f"{match.group()} is {number} for n = {n}: use a number of at least 0",
                    start + match.start(),
                )
            return str(number)

        return EXPRESSION.sub(evaluated, name)

    # -- exceptions ------------------------------------------------------------------------------

    def read_exceptions(
        self,
        indent: str,
        container: str,
        numbers: range,
        block: Block,
        changed_blocks: dict[int, Block],
    ) -> None:
        """Read the exceptions of some instances of the line above.

        Args:
            numbers: the instances of the line above.
            changed_blocks: blocks of instances with exceptions, by number; updated in place.
        """
        self.expect("but ")
        self.expect(container)
        excepted: list[int] = []

        def read_span() -> None:
            start = self.pos
            first = self.read_instance_number()
            last = self.read_instance_number() if self.skip(" .. ") else first
            if first not in numbers or last not in numbers:
                n = last if first in numbers else first
                instances = f"{container}{numbers[0]} .. {numbers[-1]}"
                self.fail(f"{container}{n} is not in the line above, which has {instances}", start)
            for n in _range(first, last):
                if n in changed_blocks:
                    self.fail(f"{container}{n} is in a 'but' line already", start)
                # A placeholder until the changes are read: a second mention of n must fail.
                changed_blocks[n] = block
                excepted.append(n)

        self.read_items(read_span)
        self.expect(" {")
        self.expect_end_of_line()
        changed_blocks.update(dict.fromkeys(excepted, self.read_changes(indent, block)))

    def read_changes(self, indent: str, block: Block) -> Block:
        """Read the changes of a `but`. Return the changed block."""
        lines: list[str] = []
        rows: list[int] = []
        copied = 0
        # Lines of a block are stored without the indentation of enclosing blocks.
        pad = indent[2 * (block.depth - 1) :]
        find = _make_finder(block.lines)

        def keep(until: int) -> None:
            """Copy the lines of the block up to an index."""
            nonlocal copied
            lines.extend(block.lines[copied:until])
            rows.extend(block.rows[copied:until])
            copied = until

        unclosed = "the '{' after the keyword 'but' is never closed"
        for _ in self.lines_inside(indent, unclosed):
            sign = self.text[self.pos : self.pos + 2]
            if sign not in ("- ", "@ ", "~ ", "+ "):
                self.fail(f"expected '-', '@', '~', '+' or '}}', found {self.describe_rest()}")
            self.pos += 2
            rest = self.text[self.pos :]
            if sign != "+ ":
                index = find(key_of(rest) if sign == "~ " else rest, copied)
                if index is None:
                    self.fail("no such line in the rest of the block: keep its order")
                keep(index)
                if sign == "@ ":
                    keep(index + 1)
                # Without `keep`, `-` and `~` drop the line.
                copied = index + 1
            if sign in ("~ ", "+ "):
                if not rest.startswith(("%", "$", "save ")) and not rest.endswith(","):
                    self.fail(f"expected a node, an input or 'save', found {self.describe_rest()}")
                self.charge_work(1, len(rest))
                lines.append(pad + rest)
                rows.append(self.row)
        keep(len(block.lines))
        return Block(lines, rows, block.depth)


def _range(first: int, last: int) -> range:
    """Return the numbers from first to last, both included, in either direction."""
    return range(first, last + 1) if first <= last else range(first, last - 1, -1)


def _make_finder(lines: list[str]) -> Callable[[str, int], int | None]:
    """Return a function that finds the first line with a key, at or after an index.

    The function returns the index of the line, or `None` if there is no such line.
    """
    indices_by_key = grouped((key_of(line), index) for index, line in enumerate(lines))

    def find(key: str, start: int) -> int | None:
        indices = indices_by_key.get(key, [])
        position = bisect_right(indices, start - 1)
        return indices[position] if position < len(indices) else None

    return find
