r"""Reading a folded `.tgraph` text: every instance of a module gets its own lines again.

    each   = "each" path "*" [letter] "{" NL { line | each | call } "}" NL
    call   = path number [".." number] [letter] [":" formal "=" name { "," formal "=" name }] NL
             { but }
    but    = "but" path span { "," span } "{" NL { change NL } "}" NL
    span   = number [".." number]
    change = "-" key | "@" key | "~" line | "+" line

They stand among the lines of a graph: nodes, values of a long return, `save` lines. `path` is that
of a container and ends in a dot, in version 4 also in `_`, or is empty; the container's block holds
until the next block of the same path and letter, and until a graph or a return begins or ends. One
inside of a block holds there alone. `folded_names` says which names the lines of a block have.

The changes of a `but` are in the order of the block. `-` leaves a line out, `~` has another one for
the one with the same key, `@` goes on behind a line, and `+` is one more line behind the one that
was mentioned last, at first behind none. A key is the result's name, or else the whole line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from ...errors import GraphFormatError
from .format import EAGER_VERSION, FACTS_VERSION, VERSION
from .nodes import MAX_DEPTH, ValueReader, lines_of
from .runs import CONTAINER, EXPRESSION, NUMBER, PATH, STRING, TOKEN, Block, evaluate, key_of


@dataclass(frozen=True)
class Expanded:
    """A text with one line a node.

    Attributes:
        lines: its lines.
        folded: the lines of the folded text that it was read from.
        rows: for each line the index of the folded line that it comes from.
        calls: for each instance that was written with others its first line and its path.
        eager: whether there is an eager graph, for which version 2 is needed.
    """

    lines: list[str]
    folded: list[str]
    rows: list[int]
    calls: list[tuple[int, str]]
    eager: bool

    def located(self, error: GraphFormatError) -> GraphFormatError:
        """An error in these lines, with its position in the folded text."""
        row = min(error.line, len(self.lines)) - 1
        source = self.rows[row]
        column = _column_before(self.lines[row], self.folded[source], error.column - 1)
        problem = error.problem
        number = bisect_right(self.calls, row, key=lambda call: call[0]) - 1
        if self.lines[row] != self.folded[source] and number >= 0:
            problem += f" (as a line of {self.calls[number][1]})"
        return GraphFormatError(problem, source + 1, column + 1)


def _column_before(line: str, folded: str, column: int) -> int:
    """Where a column of a line is in the folded line that it comes from, both from 0."""
    if line == folded:
        return column
    if (change := re.match(r" *[~+] ", folded)) is not None:
        start = change.end()
    else:
        start = len(folded) - len(folded.lstrip(" "))
    own = len(line) - len(line.lstrip(" "))
    if column < own:
        return min(column, start)
    here, there = own, start
    for new, old in zip(TOKEN.finditer(line, own), TOKEN.finditer(folded, start), strict=False):
        if column < new.start():
            break
        if column < new.end():
            return old.start() + (column - new.start() if new.group() == old.group() else 0)
        here, there = new.end(), old.end()
    return min(there + column - here, len(folded))


MAX_LINES = 500_000
"""The most lines that a folded text stands for, with those of its blocks. More are never folded."""
MAX_CHARACTERS = 100_000_000
"""The most characters that a folded text stands for, counted likewise."""
MAX_NUMBERS = 20
"""The most numbers in one name that follow from that of the instance."""

_FIRST = re.compile(rf"torchgraph [{EAGER_VERSION}{FACTS_VERSION}]\Z")
_OPS = re.compile(r"(?:.*, )?detail ops(?:, |\Z)")
_FOLDED = re.compile(rf" +(?:(each) |(but) |{CONTAINER}{NUMBER}(?=[ :]|\Z)(?!.*[{{,]\Z))")
_EAGER = re.compile(r"eager_[0-9]+(?![^ :])(?!.* @ )")
_CONTAINER = re.compile(rf"{CONTAINER}(?=\*)")
_INSTANCE = re.compile(rf"({CONTAINER})({NUMBER})(?![0-9])")
_NUMBER = re.compile(rf"{NUMBER}(?![0-9])")
_LETTER = re.compile(r"[b-z](?![A-Za-z0-9])")
_FORMAL = re.compile(r"\$+[0-9]{1,9}")
_NAME = re.compile(rf"[%@](?:{STRING}|(?:{PATH}|/|\[[0-9n+\-]{{1,24}}\])+)|\$+[0-9]{{1,9}}")


@dataclass
class _Lines:
    """Lines that are made, of the file or of a block.

    Attributes:
        lines: the lines.
        rows: for each the index of its line in the folded file.
        depth: how many blocks are around them.
        blocks: the blocks that they can call, by path and letter.
        calls: for each instance its first line and its path.
    """

    lines: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    depth: int = 0
    blocks: dict[tuple[str, str], Block] = field(default_factory=dict)
    calls: list[tuple[int, str]] = field(default_factory=list)


def expand(text: str) -> str:
    """The text with one line a node; the same text if nothing in it is folded.

    Raises:
        GraphFormatError: with line and column, for a malformed block or instance, and for a text
            that stands for more than `MAX_LINES` or `MAX_CHARACTERS`. What else may be wrong with
            the lines is for `parse` to find.
    """
    expanded = expand_lines(lines_of(text))
    if expanded is None:
        return text
    first = expanded.lines[0]
    if first != f"torchgraph {FACTS_VERSION}":
        first = f"torchgraph {EAGER_VERSION if expanded.eager else VERSION}"
    return "\n".join([first, *expanded.lines[1:]])


def expand_lines(lines: list[str]) -> Expanded | None:
    """As `expand`, with where each line comes from; None if nothing is folded."""
    if not _FIRST.match(lines[0]) or (len(lines) > 1 and _OPS.match(lines[1])):
        return None
    if not any(map(_FOLDED.match, lines)):
        return None
    return _Expander(lines).document()


class _Expander(ValueReader):
    """Reads the lines of a folded text.

    Attributes:
        left_lines: how many lines may still be made.
        left_characters: how many characters may still be made.
    """

    def __init__(self, lines: list[str]):
        super().__init__(lines)
        self.left_lines = MAX_LINES
        self.left_characters = MAX_CHARACTERS

    def document(self) -> Expanded:
        """Read the whole text."""
        out = _Lines()
        eager = False
        while True:
            line = self.text
            match = _FOLDED.match(line)
            if match is None:
                if line.endswith(("{", "return [")) or line.lstrip(" ") in ("}", "]"):
                    out.blocks.clear()
                    eager = eager or _EAGER.match(line) is not None
                self.charge(1, len(line))
                out.lines.append(line)
                out.rows.append(self.row)
                more = self.next_line()
            else:
                more = self.folded(match, len(line) - len(line.lstrip(" ")), out)
            if not more:
                break
        return Expanded(out.lines, self.lines, out.rows, out.calls, eager)

    def charge(self, lines: int, characters: int) -> None:
        """Fail if so many more lines or characters are too many."""
        self.left_lines -= lines
        self.left_characters -= characters
        if self.left_lines < 0:
            self.fail(f"the text stands for more than {MAX_LINES:,} lines", 0)
        if self.left_characters < 0:
            self.fail(f"the text stands for more than {MAX_CHARACTERS:,} characters", 0)

    # -- blocks ----------------------------------------------------------------------------------

    def folded(self, match: re.Match[str], indent: int, out: _Lines) -> bool:
        """Read a block, or a call with its exceptions; false at the end of the text.

        Args:
            match: what `_FOLDED` found in the line.
            indent: how many spaces it begins with.
        """
        self.pos = indent
        if match[2]:
            self.fail("'but' without an instance in the line before")
        if match[1]:
            return self.each(" " * indent, out)
        return self.call(" " * indent, out)

    def each(self, indent: str, out: _Lines) -> bool:
        """Read a block."""
        if out.depth >= MAX_DEPTH:
            self.fail("blocks are nested too deeply")
        self.expect("each ")
        container = self.match(_CONTAINER, "a path that ends in '*', as 'encoder.layer.*'")
        self.expect("*")
        letter = self.letter()
        self.expect(" {")
        self.end_of_line()
        start = self.row
        body = _Lines(depth=out.depth + 1)
        more = self.next_line()
        while more and self.text != f"{indent}}}" and not self.at_end():
            self.expect(f"{indent}  ")
            match = _FOLDED.match(self.text)
            if match is not None:
                more = self.folded(match, len(indent) + 2, body)
                continue
            if not (self.at("%") or self.at("$") or self.at("save ") or self.text.endswith(",")):
                self.fail(f"expected a line of a block or '}}', found {self.found()}")
            self.charge(1, len(self.text))
            body.lines.append(self.text[2 * body.depth :])
            body.rows.append(self.row)
            more = self.next_line()
        if not more or self.at_end():
            self.fail("the block has no closing '}': the file is truncated")
        if not body.lines:
            self.row = start
            self.text = self.lines[start]
            self.fail("a block without lines", len(indent))
        out.blocks[container, letter] = Block(body.lines, body.rows, body.depth)
        return self.next_line()

    def letter(self) -> str:
        """Read the letter that tells blocks of one container apart; "" where there is none."""
        if self.at(" ") and (match := _LETTER.match(self.text, self.pos + 1)):
            self.pos = match.end()
            return match.group()
        return ""

    # -- calls -----------------------------------------------------------------------------------

    def call(self, indent: str, out: _Lines) -> bool:
        """Read the instances of one line, and the exceptions behind it."""
        start = self.pos
        match = _INSTANCE.match(self.text, start)
        if match is None:
            self.fail(f"expected an instance, found {self.found()}")
        container, first = match[1], int(match[2])
        self.pos = match.end()
        last = self.instance_number() if self.skip(" .. ") else first
        letter = self.letter()
        block = out.blocks.get((container, letter))
        if block is None:
            title = f"each {container}*{letter and ' '}{letter} {{"
            self.fail(f"no block '{title}' before this line", start)
        given = self.formals(block) if self.skip(": ") else {}
        self.end_of_line()
        numbers = _range(first, last)
        row, text = self.row, self.text
        if len(numbers) * len(block.lines) > self.left_lines:
            self.fail(f"the text stands for more than {MAX_LINES:,} lines", start)
        more = self.next_line()
        others: dict[int, Block] = {}
        while more and self.text.startswith(f"{indent}but "):
            self.pos = len(indent)
            more = self.but(indent, container, numbers, block, others)
        behind = self.row, self.text
        self.row, self.text = row, text
        for n in numbers:
            self.instance(f"{container}{n}", n, others.get(n, block), given, out)
        self.row, self.text = behind
        return more

    def instance_number(self) -> int:
        """Read the number of an instance."""
        return int(self.match(_NUMBER, "a number of at most 9 digits"))

    def formals(self, block: Block) -> dict[int, tuple[str, int]]:
        """Read what the instances of one line give: for each formal the name and its position."""
        given: dict[int, tuple[str, int]] = {}
        while True:
            start = self.pos
            formal = self.match(_FORMAL, "a value of the block, as '$1'")
            number = int(formal.lstrip("$"))
            if formal != "$" * block.depth + str(number) or number not in block.uses:
                self.fail(f"the block has no {formal}", start)
            if number in given:
                self.fail(f"{formal} is given twice", start)
            self.expect(" = ")
            start = self.pos
            name = self.match(_NAME, "a name")
            if "[" in EXPRESSION.sub("", name) and not name.startswith('"', 1):
                column = start + EXPRESSION.sub(lambda m: "_" * len(m.group()), name).index("[")
                self.fail("expected a number of the instance: '[n]', '[n-1]', '[9-n]'", column)
            if name.count("[") > MAX_NUMBERS and not name.startswith('"', 1):
                self.fail(f"a name with more than {MAX_NUMBERS} numbers of the instance", start)
            given[number] = name, start
            if not self.skip(", "):
                return given

    def instance(
        self, path: str, n: int, block: Block, given: dict[int, tuple[str, int]], out: _Lines
    ) -> None:
        """Add the lines of one instance, whose number is n."""
        names: dict[int, str] = {}
        for formal in block.uses:
            if formal not in given:
                self.fail(f"{'$' * block.depth}{formal} has no value", len(self.text))
            names[formal] = self.name_of(n, *given[formal])
        self.charge(max(1, len(block.lines)), block.length(path, names))
        if not out.depth:
            out.calls.append((len(out.lines), path))
        if block.lines:
            out.lines.extend(block.text(path, names).split("\n"))
            out.rows.extend(block.rows)

    def name_of(self, n: int, name: str, start: int) -> str:
        """The name that instance n gives."""
        if "[" not in name or name.startswith('"', 1):
            return name

        def evaluated(match: re.Match[str]) -> str:
            number = evaluate(match, n)
            if number < 0:
                self.fail(f"{match.group()} is {number} for n = {n}", start + match.start())
            return str(number)

        return EXPRESSION.sub(evaluated, name)

    # -- exceptions ------------------------------------------------------------------------------

    def but(
        self, indent: str, container: str, numbers: range, block: Block, others: dict[int, Block]
    ) -> bool:
        """Read instances that have other lines than the block.

        Args:
            numbers: the instances of the line above.
            others: the blocks of those that differ, by number; more are added.
        """
        self.expect("but ")
        self.expect(container)
        wanted: list[int] = []
        while True:
            start = self.pos
            first = self.instance_number()
            last = self.instance_number() if self.skip(" .. ") else first
            if first not in numbers or last not in numbers:
                self.fail("not one of the instances in the line above", start)
            for n in _range(first, last):
                if n in others:
                    self.fail(f"{container}{n} has exceptions already", start)
                others[n] = block
                wanted.append(n)
            if not self.skip(", "):
                break
        self.expect(" {")
        self.end_of_line()
        changed, more = self.changes(indent, block)
        others.update(dict.fromkeys(wanted, changed))
        return more

    def changes(self, indent: str, block: Block) -> tuple[Block, bool]:
        """Read changes: the block with them, and whether there is a line behind them."""
        lines: list[str] = []
        rows: list[int] = []
        done = 0
        pad = indent[2 * (block.depth - 1) :]
        find = _finder(block.lines)

        def keep(until: int) -> None:
            nonlocal done
            lines.extend(block.lines[done:until])
            rows.extend(block.rows[done:until])
            done = until

        while self.next_line() and not self.at_end():
            if self.text == f"{indent}}}":
                keep(len(block.lines))
                return Block(lines, rows, block.depth), self.next_line()
            self.expect(f"{indent}  ")
            sign = self.text[self.pos : self.pos + 2]
            if sign not in ("- ", "@ ", "~ ", "+ "):
                self.fail(f"expected '-', '@', '~', '+' or '}}', found {self.found()}")
            self.pos += 2
            rest = self.text[self.pos :]
            if sign != "+ ":
                at = find(key_of(rest) if sign == "~ " else rest, done)
                if at is None:
                    self.fail("the block has no such line, or not behind the one before")
                keep(at)
                if sign == "@ ":
                    keep(at + 1)
                done = at + 1
            if sign in ("~ ", "+ "):
                if not rest.startswith(("%", "$", "save ")) and not rest.endswith(","):
                    self.fail(f"expected a line of a block, found {self.found()}")
                self.charge(1, len(rest))
                lines.append(pad + rest)
                rows.append(self.row)
        self.fail("the exceptions have no closing '}': the file is truncated")


def _range(first: int, last: int) -> range:
    """The numbers from one to the other, in either direction, both included."""
    return range(first, last + 1) if first <= last else range(first, last - 1, -1)


def _finder(lines: list[str]) -> Callable[[str, int], int | None]:
    """A function that finds the first line with a key, from an index on; None if there is none."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(key_of(line), []).append(number)

    def find(key: str, start: int) -> int | None:
        found = places.get(key, [])
        at = bisect_right(found, start - 1)
        return found[at] if at < len(found) else None

    return find
